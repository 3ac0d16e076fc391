//! One operation at a time, in a session that is full, beside what the disk and SQLite take for less.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use waystone_testkit::contexts::Random;
use waystone_testkit::process::McpProcess;
use waystone_testkit::shim;

use super::client::{Changing, Ground, list_line, load_latest_line, save_line, timed};
use super::reference::{Appender, RowWriter};
use super::report::{Report, Sample, ratio, shown};
use super::{Options, Programs};

const WARM_UP: usize = 20;

#[derive(Default)]
struct Samples {
    save: Sample,
    outside_sync: Sample,
    small_save: Sample,
    /// The same text again.
    same: Sample,
    /// An equal context whose keys come in another order.
    reordered: Sample,
    load: Sample,
    list: Sample,
    append: Sample,
    row: Sample,
    /// Syncs of the write-ahead log, and saves they were counted in.
    syncs: (usize, usize),
}

pub(super) fn measure(programs: &Programs, options: &Options, report: &mut Report) -> anyhow::Result<()> {
    let samples = sample(programs, options.rounds)?;
    samples.report(report);
    report.section("contract 003's table, with ours beside it");
    report.note("", "       P50 (goal)             P95 (goal)             P99 (goal)             max (goal)");
    report.note("checkpoint save, 33 KB", beside_table(&samples.save, ["50 ms", "100 ms", "200 ms", "1 s"]));
    report.note("checkpoint load, 33 KB", beside_table(&samples.load, ["100 ms", "500 ms", "1 s", "5 s"]));
    report.note("metadata query, list of 20", beside_table(&samples.list, ["5 ms", "10 ms", "20 ms", "100 ms"]));
    Ok(())
}

fn sample(programs: &Programs, rounds: usize) -> anyhow::Result<Samples> {
    let ground = Ground::new();
    let mut bench = Bench::start(&ground, &programs.waystone)?;
    let (load, list) = (load_latest_line("bench"), list_line("bench"));
    let (mut changing, mut order) = (Changing::of_33_kb(), Random::new(2));
    for n in 0..rounds + WARM_UP {
        if n == WARM_UP {
            bench.samples = Samples::default();
        }
        let context = changing.next();
        let (line, reordered) = (save_line(n, "bench", context), save_line(n, "bench", &reversed(context)));
        let small = save_line(n, "small", &json!({ "n": n }));
        // In another order every time: what came before shows in what comes after.
        let mut writes = [Write::Save(&line), Write::Logged(&line), Write::Small(&small), Write::Append, Write::Row];
        order.shuffle(&mut writes);
        writes.iter().try_for_each(|write| bench.write(write))?;
        let Bench { process, samples, .. } = &mut bench;
        let mut reads = [
            (&line, &mut samples.same),
            (&reordered, &mut samples.reordered),
            (&load, &mut samples.load),
            (&list, &mut samples.list),
        ];
        order.shuffle(&mut reads);
        for (line, sample) in reads {
            sample.push(timed(process, line)?);
        }
    }
    Ok(bench.samples)
}

enum Write<'a> {
    Save(&'a str),
    Logged(&'a str),
    Small(&'a str),
    Append,
    Row,
}

struct Bench {
    process: McpProcess,
    /// On a directory of its own, and writes down the syncs that saves wait for; only what is outside of them is taken from it.
    logged: McpProcess,
    sync_log: PathBuf,
    appender: Appender,
    rows: RowWriter,
    samples: Samples,
}

impl Bench {
    fn start(ground: &Ground, binary: &Path) -> anyhow::Result<Self> {
        let sync_log = ground.file("syncs");
        Ok(Self {
            process: ground.start(binary, "data", Vec::new())?,
            logged: ground.start(binary, "logged", shim::log_syncs(&sync_log)?)?,
            sync_log,
            appender: Appender::new(&ground.file("appended"))?,
            rows: RowWriter::new(&ground.file("rows.db"))?,
            samples: Samples::default(),
        })
    }

    fn write(&mut self, write: &Write<'_>) -> anyhow::Result<()> {
        let samples = &mut self.samples;
        match write {
            Write::Save(line) => samples.save.push(timed(&mut self.process, line)?),
            Write::Small(line) => samples.small_save.push(timed(&mut self.process, line)?),
            Write::Append => samples.append.push(self.appender.append()?),
            Write::Row => samples.row.push(self.rows.insert()?),
            Write::Logged(line) => {
                let (syncs_before, synced_before) = shim::synced(&self.sync_log)?;
                let whole = timed(&mut self.logged, line)?;
                let (syncs, synced) = shim::synced(&self.sync_log)?;
                samples.outside_sync.push(whole.saturating_sub(synced - synced_before));
                samples.syncs = (samples.syncs.0 + syncs - syncs_before, samples.syncs.1 + 1);
            }
        }
        Ok(())
    }
}

/// The same object with its keys the other way round.
fn reversed(context: &Value) -> Value {
    let members = context.as_object().into_iter().flatten();
    members.rev().map(|(key, value)| (key.clone(), value.clone())).collect::<serde_json::Map<_, _>>().into()
}

impl Samples {
    fn report(&self, report: &mut Report) {
        let beside = |sample: &Sample| {
            format!("{sample}; {} append, {} row", ratio(sample, &self.append), ratio(sample, &self.row))
        };
        let skipped = |sample: &Sample| format!("{sample}; {} a save", ratio(sample, &self.save));
        let syncs = self.syncs.0 as f64 / self.syncs.1 as f64;
        report.note("append 4 KiB + fdatasync", &self.append);
        report.note("200-byte row in SQLite", &self.row);
        report.figure("save 33 KB, one line changed", beside(&self.save), "2 x append");
        report.figure("  of it outside the sync", &self.outside_sync, "200 µs");
        report.figure("  syncs of the write-ahead log", format_args!("{syncs:.2}"), "1");
        report.note("save 10 bytes", beside(&self.small_save));
        report.figure("save 33 KB again, keys reordered", skipped(&self.reordered), "0.4 x");
        report.figure("save 33 KB again, the same text", skipped(&self.same), "0.15 x");
        report.note("load the latest 33 KB", &self.load);
        report.note("list 20", &self.list);
    }
}

pub(super) fn beside_table(sample: &Sample, goals: [&str; 4]) -> String {
    let figures = [50, 95, 99, 100].map(|percent| shown(sample.percentile(percent)));
    let cells = figures.iter().zip(goals).map(|(figure, goal)| format!("{:>10} {:<11}", figure, format!("({goal})")));
    cells.collect::<Vec<_>>().join(" ")
}
