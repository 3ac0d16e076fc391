//! Many sessions saved at once through one process: how many saves share a sync, and what the syncs cost of the rate.

use std::collections::VecDeque;

use waystone_testkit::shim;

use super::client::{Changing, Ground, save_line, send_all};
use super::report::{Report, Sample};
use super::{Options, Programs};

const SESSIONS: usize = 16;
/// Saves of a session in one block. Blocks of the two processes alternate.
const BLOCK: usize = 10;
/// Ten lines of ninety make 1 KB.
const LINES: usize = 10;

pub(super) fn measure(programs: &Programs, options: &Options, report: &mut Report) -> anyhow::Result<()> {
    let ground = Ground::new();
    let sync_log = ground.file("syncs");
    let mut synced = ground.start(&programs.waystone, "synced", shim::log_syncs(&sync_log)?)?;
    let mut unsynced = ground.start(&programs.waystone, "unsynced", shim::no_syncs()?)?;
    let mut contexts: Vec<Changing> = (0..SESSIONS).map(|session| Changing::new(session as u64, LINES)).collect();
    let (mut with, mut without) = (Sample::default(), Sample::default());
    send_all(&mut synced, block(&mut contexts))?;
    send_all(&mut unsynced, block(&mut contexts))?;
    let (syncs_before, _) = shim::synced(&sync_log)?;
    let blocks = options.scaled(60, 5);
    for _ in 0..blocks {
        let lanes = block(&mut contexts);
        with.push(send_all(&mut synced, lanes.clone())?);
        without.push(send_all(&mut unsynced, lanes)?);
    }
    let saves = blocks * SESSIONS * BLOCK;
    let syncs = (shim::synced(&sync_log)?.0 - syncs_before) as f64 / saves as f64;
    let rate = |sample: &Sample| (SESSIONS * BLOCK) as f64 / sample.median().as_secs_f64();
    report.figure(
        "syncs of a save, 16 in flight",
        format_args!("{syncs:.3} of 1 KB each, {saves} saves"),
        "0.167 (1/6)",
    );
    report.note("saves a second, syncs made no-ops", format_args!("{:.0}", rate(&without)));
    let relative = rate(&with) / rate(&without);
    report.figure("saves a second", format_args!("{:.0}; {relative:.2} x that", rate(&with)), "0.4 x");
    Ok(())
}

/// A lane of saves for each session.
fn block(contexts: &mut [Changing]) -> Vec<VecDeque<String>> {
    let lane = |(session, context): (usize, &mut Changing)| {
        (0..BLOCK).map(|n| save_line(n * SESSIONS + session, &format!("s{session}"), context.next())).collect()
    };
    contexts.iter_mut().enumerate().map(lane).collect()
}
