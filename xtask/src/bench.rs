//! Figures of the release binary with a user's settings, each beside a reference that alternates with it op by op: the
//! machine is noisy, so only ratios within one run mean something.

mod reference;
mod report;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use waystone_testkit::contexts::Random;
use waystone_testkit::harness::private_dir;
use waystone_testkit::process::{McpProcess, command, outcome};
use waystone_testkit::shim;

use crate::{root, say, sh};
use reference::{Appender, RowWriter};
use report::{Sample, ratio};

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// How often each operation is measured
    #[arg(long, default_value_t = 300)]
    rounds: usize,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    sh("cargo", &["build", "--release", "--package", "waystone"])?;
    let binary = root().join("target/release/waystone");
    let size = binary.metadata()?.len() as f64 / 1024.0 / 1024.0;
    let syncs = syncs_per_save(&binary)?;
    let operations = operations(&binary, options.rounds)?;
    let (start, memory) = (starts(&binary)?, idle_memory_kib(&binary)?);
    say("");
    say(format_args!("binary                       {size:.1} MiB"));
    say(format_args!("start to first tools/list    {start} (goal 15 ms)"));
    say(format_args!("memory when idle             {:.1} MB resident (goal 20 MB)", memory as f64 / 1000.0));
    match syncs {
        Some(syncs) => say(format_args!("syncs of a save              {syncs:.2} (strace; goal 1)")),
        None => say("syncs of a save              not counted: strace is not installed"),
    }
    operations.print();
    Ok(())
}

/// A context of 33 KB in which one line changes from save to save.
fn changing_context(random: &mut Random, n: usize) -> Value {
    let steps: Vec<String> = (0..330).map(|_| random.text(90)).collect();
    json!({ "goal": "a context of 33 KB", "step": n, "steps": steps })
}

fn save_line(id: usize, session: &str, context: &Value) -> String {
    let params =
        json!({ "name": "workflow_checkpoint_save", "arguments": { "sessionId": session, "context": context } });
    json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params }).to_string()
}

/// Sends `line` and waits for its answer.
fn timed(process: &mut McpProcess, line: &str) -> anyhow::Result<Duration> {
    let started = Instant::now();
    process.send_line(line)?;
    let answer = process.receive_line()?;
    let elapsed = started.elapsed();
    let answer: Value = serde_json::from_str(&answer)?;
    outcome(answer).map_err(|error| anyhow::anyhow!("a call failed: {error}"))?;
    Ok(elapsed)
}

struct Operations {
    save: Sample,
    outside_sync: Sample,
    small_save: Sample,
    unchanged: Sample,
    load: Sample,
    list: Sample,
    append: Sample,
    row: Sample,
}

fn operations(binary: &Path, rounds: usize) -> anyhow::Result<Operations> {
    let directory = private_dir();
    let data_dir = directory.path().join("data");
    waystone_testkit::kill::make_private(&data_dir)?;
    let mut process = McpProcess::start(binary, &data_dir)?;
    // A second process, on a directory of its own, writes down its syncs; only the time outside of them is taken from it.
    let (sync_log, logged_dir) = (directory.path().join("syncs"), directory.path().join("logged"));
    waystone_testkit::kill::make_private(&logged_dir)?;
    let mut logged = command(binary, &logged_dir);
    let mut logged = McpProcess::start_with(logged.arg("mcp").envs(shim::log_syncs(&sync_log)?))?;
    let mut appender = Appender::new(&directory.path().join("appended"))?;
    let mut rows = RowWriter::new(&directory.path().join("rows.db"))?;
    let mut random = Random::new(1);
    let mut context = changing_context(&mut random, 0);
    let call = |tool: &str, arguments: Value| {
        json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": tool, "arguments": arguments } })
            .to_string()
    };
    let load = call("workflow_checkpoint_load", json!({ "sessionId": "bench" }));
    let list = call("workflow_checkpoint_list", json!({ "sessionId": "bench", "limit": 20 }));
    let mut samples: [Sample; 8] = std::array::from_fn(|_| Sample::default());
    for n in 0..rounds + 20 {
        context["step"] = json!(n);
        context["steps"][n % 330] = json!(random.text(90));
        let line = save_line(n, "bench", &context);
        let save = timed(&mut process, &line)?;
        let synced_before = shim::synced(&sync_log)?;
        let outside = timed(&mut logged, &line)?.saturating_sub(shim::synced(&sync_log)? - synced_before);
        let unchanged = timed(&mut process, &line)?;
        let small_save = timed(&mut process, &save_line(n, "small", &json!({ "n": n })))?;
        let (load, list) = (timed(&mut process, &load)?, timed(&mut process, &list)?);
        let (append, row) = (appender.append()?, rows.insert()?);
        if n >= 20 {
            let times = [save, outside, small_save, unchanged, load, list, append, row];
            samples.iter_mut().zip(times).for_each(|(sample, time)| sample.push(time));
        }
    }
    let [save, outside_sync, small_save, unchanged, load, list, append, row] = samples;
    Ok(Operations { save, outside_sync, small_save, unchanged, load, list, append, row })
}

impl Operations {
    fn print(&self) {
        say(format_args!("append 4 KiB + fdatasync     {}", self.append));
        say(format_args!("200-byte row in SQLite       {}", self.row));
        let beside = |sample: &Sample| {
            format!("{sample}; {} append, {} row", ratio(sample, &self.append), ratio(sample, &self.row))
        };
        say(format_args!("save 33 KB, one line changed {}", beside(&self.save)));
        say(format_args!("  of it outside the sync     {}", self.outside_sync));
        say(format_args!("save 10 bytes                {}", beside(&self.small_save)));
        say(format_args!(
            "save 33 KB, unchanged        {}; {} a save",
            self.unchanged,
            ratio(&self.unchanged, &self.save)
        ));
        say(format_args!("load the latest 33 KB        {}", self.load));
        say(format_args!("list 20                      {}", self.list));
    }
}

fn starts(binary: &Path) -> anyhow::Result<Sample> {
    let directory = private_dir();
    McpProcess::start(binary, directory.path())?.finish()?;
    let mut sample = Sample::default();
    for _ in 0..40 {
        let started = Instant::now();
        let mut process = McpProcess::start(binary, directory.path())?;
        let id = process.send("tools/list", json!({}))?;
        process.wait_for(id)?;
        sample.push(started.elapsed());
        process.finish()?;
    }
    Ok(sample)
}

fn idle_memory_kib(binary: &Path) -> anyhow::Result<u64> {
    let directory = private_dir();
    let mut process = McpProcess::start(binary, directory.path())?;
    process.call("workflow_checkpoint_save", json!({ "sessionId": "s", "context": { "n": 1 } }))?.ok();
    process.call("workflow_checkpoint_load", json!({ "sessionId": "s" }))?.ok();
    std::thread::sleep(Duration::from_secs(2));
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.pid()))?;
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let resident = resident.and_then(|line| line.split_whitespace().next()).context("no VmRSS in /proc")?;
    Ok(resident.parse()?)
}

/// Counts with strace, from outside: what the kernel saw.
fn syncs_per_save(binary: &Path) -> anyhow::Result<Option<f64>> {
    const SAVES: usize = 50;
    if Command::new("strace").arg("-V").output().is_err() {
        return Ok(None);
    }
    let directory = private_dir();
    let trace = directory.path().join("trace");
    let data_dir = directory.path().join("data");
    waystone_testkit::kill::make_private(&data_dir)?;
    let mut traced = command(Path::new("strace"), &data_dir);
    traced.args(["-f", "-e", "trace=fsync,fdatasync,sync_file_range", "-o"]).arg(&trace).arg(binary).arg("mcp");
    let mut process = McpProcess::start_with(&mut traced)?;
    let count = || -> anyhow::Result<usize> { Ok(std::fs::read_to_string(&trace)?.matches("sync(").count()) };
    timed(&mut process, &save_line(0, "s", &json!({ "n": 0 })))?;
    let before = count()?;
    for n in 1..=SAVES {
        timed(&mut process, &save_line(n, "s", &json!({ "n": n })))?;
    }
    let syncs = count()? - before;
    ensure!(process.finish()?.success(), "the traced process failed");
    Ok(Some(syncs as f64 / SAVES as f64))
}
