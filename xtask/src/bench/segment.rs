//! Segments: what a call costs in a project with a thousand and with a hundred thousand of them, and how the cost of moving many grows.
//!
//! Projects are filled through the binary, with syncs made no-ops. The processes that are measured write down their syncs of the
//! write-ahead log.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use waystone_testkit::contexts::Random;
use waystone_testkit::process::McpProcess;
use waystone_testkit::shim;

use super::client::{Ground, answered, call_line, content, timed};
use super::growth::{cpu_time, settle};
use super::report::{Report, Sample, ratio, shown};
use super::{Options, Programs};
use crate::say;

const PROJECT: &str = "bench";
const SMALL: usize = 1_000;
const LARGE: usize = 100_000;
const BATCH: usize = 2_000;
/// How many are moved at once.
const FEW: usize = 1_000;
const MANY: usize = 5_000;
const TASKS: usize = 20;
const TYPES: [&str; 5] = ["log", "note", "code", "message", "summary"];
/// Tokens of about a thousand segments.
const TARGET: usize = 60_000;
/// Calls between two looks at the clock of the process.
const BLOCK: u32 = 10;

pub(super) fn measure(programs: &Programs, options: &Options, report: &mut Report) -> anyhow::Result<()> {
    let ground = Ground::new();
    let binary = programs.waystone.as_path();
    let mut small = Store::fill(&ground, binary, "small", SMALL)?;
    let mut large = Store::fill(&ground, binary, "large", options.scaled(LARGE, 2 * SMALL))?;
    for _ in 0..options.scaled(20, 2) {
        small.put_block()?;
        large.put_block()?;
    }
    report_puts(report, &small, &large);
    let [few, many] = [FEW, MANY].map(|count| large.capture(count));
    let (few, many) = (few?, many?);
    let mut moved: [Moved; 4] = Default::default();
    for _ in 0..options.scaled(5, 1) {
        large.stash(&few, &mut moved[0])?;
        large.stash(&many, &mut moved[1])?;
        large.prune(&few, &mut moved[2])?;
        large.prune(&many, &mut moved[3])?;
    }
    report_moves(report, "stash", &moved[0], &moved[1]);
    report_moves(report, "prune", &moved[2], &moved[3]);
    let looks = [
        ("usage", "context_analyze_usage", json!({ "project_id": PROJECT }), "5 ms"),
        ("a plan", "context_gc_analyze", json!({ "project_id": PROJECT, "target_tokens": TARGET }), "50 ms"),
    ];
    for (name, tool, arguments, goal) in looks {
        let (line, mut sample) = (call_line(1, tool, &arguments), Sample::default());
        timed(&mut large.process, &line)?;
        for _ in 0..options.scaled(40, 5) {
            sample.push(timed(&mut large.process, &line)?);
        }
        report.figure(&format!("{name}, of {} segments", large.segments), &sample, goal);
    }
    for store in [small, large] {
        let segments = store.segments;
        let sample = store.starts(&ground, binary, options.scaled(20, 3))?;
        report.figure(&format!("start to tools/list, {segments} segments"), sample, "15 ms");
    }
    Ok(())
}

fn report_puts(report: &mut Report, small: &Store, large: &Store) {
    let both = |before: &Sample, after: &Sample| {
        let (before_time, after_time) = (shown(before.median()), shown(after.median()));
        let growth = ratio(after, before);
        format!("{before_time} with {} segments, {after_time} with {}; {growth}", small.segments, large.segments)
    };
    report.figure("put one", both(&small.put, &large.put), "1.3 x");
    report.figure("  CPU time", both(&small.put_cpu, &large.put_cpu), "1.3 x");
    let syncs = |store: &Store| store.put_syncs.0 as f64 / store.put_syncs.1 as f64;
    report.figure("  syncs of the write-ahead log", format_args!("{:.2} and {:.2}", syncs(small), syncs(large)), "1");
    let seconds = large.filled_in.as_secs_f64();
    report.note("filling the larger project", format_args!("{seconds:.0} s, in batches of {BATCH}, syncs made no-ops"));
}

fn report_moves(report: &mut Report, name: &str, few: &Moved, many: &Moved) {
    let each = |moved: &Moved, count: usize| moved.time.median() / count as u32;
    let growth = each(many, MANY).as_secs_f64() / each(few, FEW).as_secs_f64();
    let (whole, few_each, many_each) = (shown(few.time.median()), shown(each(few, FEW)), shown(each(many, MANY)));
    report.figure(
        &format!("{name} {FEW} and {MANY}"),
        format_args!("{whole}; {few_each} each of {FEW}, {many_each} each of {MANY}; {growth:.2} x"),
        "1.2 x",
    );
    report.figure(&format!("  syncs of one {name}"), format_args!("{} and {}", few.syncs, many.syncs), "1");
}

/// Calls that moved so many segments, and the most syncs that one of them made.
#[derive(Default)]
struct Moved {
    time: Sample,
    syncs: usize,
}

/// Segments of a task of their own.
struct Captured {
    task: String,
    ids: Vec<Value>,
}

struct Store {
    process: McpProcess,
    sync_log: PathBuf,
    name: &'static str,
    segments: usize,
    filled_in: Duration,
    random: Random,
    put: Sample,
    put_cpu: Sample,
    /// Syncs, and puts that they were counted in.
    put_syncs: (usize, u32),
}

impl Store {
    fn fill(ground: &Ground, binary: &Path, name: &'static str, segments: usize) -> anyhow::Result<Self> {
        say(format_args!("  filling a project with {segments} segments"));
        let (started, mut random) = (Instant::now(), Random::new(segments as u64));
        let mut process = ground.start(binary, name, shim::no_syncs()?)?;
        for (n, first) in (0..segments).step_by(BATCH).enumerate() {
            // Decisions of the last hour stay: there are few.
            let kind = if n % 50 == 7 { "decision" } else { TYPES[n % TYPES.len()] };
            let texts = texts(&mut random, BATCH.min(segments - first));
            let arguments = json!({
                "project_id": PROJECT, "task_id": format!("task-{}", n % TASKS), "type": kind, "texts": texts,
                "file_path": format!("src/file_{n}.rs"), "tags": ["bench", format!("batch-{n}")],
            });
            timed(&mut process, &call_line(1, "context_put", &arguments))?;
        }
        process.finish()?;
        let (filled_in, sync_log) = (started.elapsed(), ground.file(&format!("{name}-syncs")));
        let mut process = ground.start(binary, name, shim::log_syncs(&sync_log)?)?;
        // The first put loads the tokenizer.
        timed(&mut process, &put_line(&mut random))?;
        settle(process.pid())?;
        let (put, put_cpu) = Default::default();
        Ok(Self { process, sync_log, name, segments, filled_in, random, put, put_cpu, put_syncs: (0, 0) })
    }

    fn put_block(&mut self) -> anyhow::Result<()> {
        let lines: Vec<String> = (0..BLOCK).map(|_| put_line(&mut self.random)).collect();
        let (syncs, before) = (shim::synced(&self.sync_log)?.0, cpu_time(self.process.pid())?);
        for line in &lines {
            self.put.push(timed(&mut self.process, line)?);
        }
        self.put_cpu.push(cpu_time(self.process.pid())?.saturating_sub(before) / BLOCK);
        let made = shim::synced(&self.sync_log)?.0 - syncs;
        self.put_syncs = (self.put_syncs.0 + made, self.put_syncs.1 + BLOCK);
        Ok(())
    }

    /// Puts `count` segments into a task of their own.
    fn capture(&mut self, count: usize) -> anyhow::Result<Captured> {
        let task = format!("moved-{count}");
        let arguments = json!({ "project_id": PROJECT, "task_id": task, "texts": texts(&mut self.random, count) });
        let (_, answer) = answered(&mut self.process, &call_line(1, "context_put", &arguments))?;
        let ids = content(&answer)?["segment_ids"].as_array().cloned().unwrap_or_default();
        Ok(Captured { task, ids })
    }

    fn stash(&mut self, what: &Captured, moved: &mut Moved) -> anyhow::Result<()> {
        let arguments = json!({ "project_id": PROJECT, "filters": { "task_id": what.task } });
        self.move_and_undo(&call_line(1, "context_stash", &arguments), "stashed_segments", what, moved)
    }

    fn prune(&mut self, what: &Captured, moved: &mut Moved) -> anyhow::Result<()> {
        let arguments = json!({ "project_id": PROJECT, "segment_ids": what.ids, "action": "stash" });
        self.move_and_undo(&call_line(1, "context_gc_prune", &arguments), "pruned_segments", what, moved)
    }

    /// Only the move is measured.
    fn move_and_undo(&mut self, line: &str, field: &str, what: &Captured, moved: &mut Moved) -> anyhow::Result<()> {
        let before = shim::synced(&self.sync_log)?.0;
        let (time, answer) = answered(&mut self.process, line)?;
        moved.syncs = moved.syncs.max(shim::synced(&self.sync_log)?.0 - before);
        let reply = content(&answer)?;
        let count = reply[field].as_array().map_or(0, Vec::len);
        anyhow::ensure!(count == what.ids.len(), "{count} of {} were moved", what.ids.len());
        moved.time.push(time);
        let arguments = json!({ "project_id": PROJECT, "operation_id": reply["operation_id"] });
        timed(&mut self.process, &call_line(1, "context_undo", &arguments)).map(drop)
    }

    fn starts(self, ground: &Ground, binary: &Path, count: usize) -> anyhow::Result<Sample> {
        self.process.finish()?;
        let mut sample = Sample::default();
        for _ in 0..count {
            let started = Instant::now();
            let mut process = ground.start(binary, self.name, Vec::new())?;
            let id = process.send("tools/list", json!({}))?;
            process.wait_for(id)?;
            sample.push(started.elapsed());
            process.finish()?;
        }
        Ok(sample)
    }
}

fn texts(random: &mut Random, count: usize) -> Vec<String> {
    (0..count).map(|n| format!("{n}: {}", random.text(120))).collect()
}

fn put_line(random: &mut Random) -> String {
    call_line(1, "context_put", &json!({ "project_id": PROJECT, "task_id": "task-1", "text": random.text(200) }))
}
