//! The process itself: its size, how fast it is there, and what it takes when no one calls.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use serde_json::json;
use waystone_testkit::harness::private_dir;
use waystone_testkit::process::McpProcess;

use super::report::{Report, Sample};
use super::{Options, Programs};

pub(super) fn measure(programs: &Programs, options: &Options, report: &mut Report) -> anyhow::Result<()> {
    let binary = &programs.waystone;
    let size = binary.metadata()?.len() as f64 / 1024.0 / 1024.0;
    report.note("binary", format_args!("{size:.1} MiB"));
    report.figure("start to first tools/list", starts(binary, options.scaled(40, 5))?, "15 ms");
    let memory = idle_memory_mb(binary)?;
    report.figure("memory when idle", format_args!("{memory:.1} MB resident"), "20 MB");
    Ok(())
}

fn starts(binary: &Path, count: usize) -> anyhow::Result<Sample> {
    let directory = private_dir();
    McpProcess::start(binary, directory.path())?.finish()?;
    let mut sample = Sample::default();
    for _ in 0..count {
        let started = Instant::now();
        let mut process = McpProcess::start(binary, directory.path())?;
        let id = process.send("tools/list", json!({}))?;
        process.wait_for(id)?;
        sample.push(started.elapsed());
        process.finish()?;
    }
    Ok(sample)
}

fn idle_memory_mb(binary: &Path) -> anyhow::Result<f64> {
    let directory = private_dir();
    let mut process = McpProcess::start(binary, directory.path())?;
    process.call("workflow_checkpoint_save", json!({ "sessionId": "s", "context": { "n": 1 } }))?.ok();
    process.call("workflow_checkpoint_load", json!({ "sessionId": "s" }))?.ok();
    std::thread::sleep(Duration::from_secs(2));
    resident_mb(process.pid())
}

/// What a process has in memory.
pub(super) fn resident_mb(pid: u32) -> anyhow::Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = resident.and_then(|line| line.split_whitespace().next()).context("no VmRSS in /proc")?;
    Ok(kib.parse::<f64>()? * 1024.0 / 1e6)
}
