//! What a call costs the process when the store is a hundred times larger: CPU time, which a noisy disk does not blur.
//!
//! Stores are filled through the binary, with as many sessions in flight as help, and with syncs made no-ops: filling is not
//! measured. Sessions have as many checkpoints as a user's settings keep.

use std::collections::VecDeque;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;
use waystone_testkit::process::McpProcess;
use waystone_testkit::shim;

use super::client::{Changing, Ground, call_line, list_line, load_latest_line, save_line, send_all, timed};
use super::report::{Report, Sample, ratio, shown};
use super::{Options, Programs};
use crate::say;

const SESSION_CHECKPOINTS: usize = 100;
const SMALL: usize = 1_000;
const LARGE: usize = 100_000;
const IN_FLIGHT: usize = 20;
/// Calls between two looks at the clock of the process.
const BLOCK: u32 = 50;

pub(super) fn measure(programs: &Programs, options: &Options, report: &mut Report) -> anyhow::Result<()> {
    let ground = Ground::new();
    let large = options.scaled(LARGE, 2 * SMALL);
    let mut small = Store::fill(&ground, &programs.waystone, "small", SMALL)?;
    let mut big = Store::fill(&ground, &programs.waystone, "large", large)?;
    for _ in 0..options.scaled(40, 5) {
        small.measure_block()?;
        big.measure_block()?;
    }
    let names = ["load the latest", "list 20 of a session", "list 20 of all"];
    for (name, (before, after)) in names.iter().zip(small.samples.iter().zip(&big.samples)) {
        let (before_time, after_time) = (shown(before.median()), shown(after.median()));
        let growth = ratio(after, before);
        report.figure(
            &format!("{name}, CPU time"),
            format_args!("{before_time} with {SMALL} checkpoints, {after_time} with {}; {growth}", big.checkpoints),
            "1.3 x",
        );
    }
    report.note("filling the larger store", format_args!("{:.0} s, syncs made no-ops", big.filled_in.as_secs_f64()));
    Ok(())
}

struct Store {
    process: McpProcess,
    checkpoints: usize,
    filled_in: Duration,
    /// Ten sessions from all over the store, of which calls ask in turn.
    asked: Vec<String>,
    samples: [Sample; 3],
}

impl Store {
    fn fill(ground: &Ground, binary: &Path, name: &str, checkpoints: usize) -> anyhow::Result<Self> {
        let sessions = checkpoints / SESSION_CHECKPOINTS;
        say(format_args!("  filling a store with {sessions} sessions of {SESSION_CHECKPOINTS} checkpoints"));
        let started = Instant::now();
        let mut process = ground.start(binary, name, shim::no_syncs()?)?;
        for first in (0..sessions).step_by(IN_FLIGHT) {
            let lanes = first..sessions.min(first + IN_FLIGHT);
            let count = lanes.len();
            send_all(&mut process, lanes.map(|session| lane(session, session - first, count)).collect())?;
        }
        process.finish()?;
        let filled_in = started.elapsed();
        let process = ground.start(binary, name, Vec::new())?;
        settle(process.pid())?;
        let asked = (0..10).map(|n| name_of(n * sessions / 10)).collect();
        Ok(Self { process, checkpoints: sessions * SESSION_CHECKPOINTS, filled_in, asked, samples: Default::default() })
    }

    fn measure_block(&mut self) -> anyhow::Result<()> {
        let list_all = call_line(1, "workflow_checkpoint_list", &json!({ "limit": 20 }));
        let calls: [&dyn Fn(&str) -> String; 3] = [&load_latest_line, &list_line, &|_| list_all.clone()];
        for (sample, call) in self.samples.iter_mut().zip(calls) {
            let lines: Vec<String> = self.asked.iter().map(|session| call(session)).collect();
            let before = cpu_time(self.process.pid())?;
            for line in lines.iter().cycle().take(BLOCK as usize) {
                timed(&mut self.process, line)?;
            }
            sample.push(cpu_time(self.process.pid())?.saturating_sub(before) / BLOCK);
        }
        Ok(())
    }
}

fn name_of(session: usize) -> String {
    format!("session-{session}")
}

/// The saves of one session, each a few lines that change little.
fn lane(session: usize, at: usize, lanes: usize) -> VecDeque<String> {
    let mut context = Changing::new(session as u64, 4);
    (0..SESSION_CHECKPOINTS).map(|n| save_line(n * lanes + at, &name_of(session), context.next())).collect()
}

/// Waits until the process has done what filling has left, such as mirror files.
pub(super) fn settle(pid: u32) -> anyhow::Result<()> {
    let (mut quiet, mut before) = (0, cpu_time(pid)?);
    for _ in 0..120 {
        std::thread::sleep(Duration::from_millis(1100));
        let now = cpu_time(pid)?;
        quiet = if now.saturating_sub(before) < Duration::from_millis(10) { quiet + 1 } else { 0 };
        if quiet == 2 {
            return Ok(());
        }
        before = now;
    }
    say("  the process does not come to rest; its housekeeping is in the figures");
    Ok(())
}

/// What all threads of a process have run so far.
pub(super) fn cpu_time(pid: u32) -> anyhow::Result<Duration> {
    let mut nanos = 0;
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        // A thread may end meanwhile.
        let schedule = fs::read_to_string(task?.path().join("schedstat")).unwrap_or_default();
        nanos += schedule.split(' ').next().and_then(|ran| ran.parse::<u64>().ok()).unwrap_or(0);
    }
    Ok(Duration::from_nanos(nanos))
}
