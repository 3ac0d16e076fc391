//! Housekeeping, by one process at a time: changed groups are mirrored into files, what was saved is indexed, the write-ahead log is folded back into the
//! database, and what was kept for a while only is forgotten. Whoever holds `maintenance.lock` does it; the others ask again every
//! second.

use std::fs::File;
use std::io;
use std::time::{Duration, Instant};

use crate::background::{Background, Stop};
use crate::lock::is_taken;
use crate::platform::open_private_file;
use crate::sqlite::{Copying, Upkeep};

const ROUND: Duration = Duration::from_secs(1);
/// How long the end of a process may be put off by what is not mirrored yet.
const LAST_ROUND_MAX: Duration = Duration::from_secs(2);
/// How much of a round may go to what is removed.
const REMOVED_MAX: Duration = Duration::from_millis(300);
/// How much of a round may go to what follows from the rest.
const DERIVED_MAX: Duration = Duration::from_millis(300);
/// Counting tokens takes half a second to begin with and much memory, which is nothing for a command that ends at once.
const LONG_LIVED: Duration = Duration::from_secs(30);
const EXPIRY_ROUND: Duration = Duration::from_secs(3600);
const UNWIPED: &str = "what is left of what was removed could not be overwritten";

pub(crate) fn start(upkeep: Upkeep) -> io::Result<Background> {
    let lock = open_private_file(&upkeep.directory.maintenance_lock())?;
    Background::start("maintenance", move |stop| run(upkeep, &lock, stop))
}

fn run(mut upkeep: Upkeep, lock: &File, stop: &Stop) {
    let (mut is_holder, begun) = (false, Instant::now());
    let mut expired_at: Option<Instant> = None;
    let mut is_purge_due = false;
    // Broken off at the end, whatever it has done; the next holder begins anew.
    let mut backup = None;
    while stop.wait(ROUND) {
        is_holder = is_holder || take(lock);
        if !is_holder {
            continue;
        }
        warn("mirror files could not be written", upkeep.mirror(|| stop.is_told()));
        // What takes long goes on in the next round: files and log must not wait for it.
        let round = Instant::now();
        let is_over = || stop.is_told() || round.elapsed() > DERIVED_MAX;
        warn("what is searched could not be brought up to date", upkeep.index(false, is_over));
        if begun.elapsed() >= LONG_LIVED {
            warn("tokens could not be counted", upkeep.count_tokens(is_over));
        }
        warn("the write-ahead log could not be checkpointed", upkeep.checkpoint_log());
        let removing = Instant::now();
        let is_over = || stop.is_told() || removing.elapsed() > REMOVED_MAX;
        warn("no room could be made in a store that is nearly full", upkeep.relieve(&is_over));
        warn(UNWIPED, upkeep.wipe_traces());
        if expired_at.is_none_or(|at| at.elapsed() >= EXPIRY_ROUND)
            && warn("expired rows could not be removed", upkeep.expire())
        {
            (expired_at, is_purge_due) = (Some(Instant::now()), true);
            upkeep.forget_passed();
            warn("no room could be set aside", upkeep.keep_reserve());
            if backup.as_ref().is_none_or(Copying::is_finished) {
                backup = begin_backup(&mut upkeep);
            }
        }
        if is_purge_due {
            let purged = upkeep.purge(&is_over);
            // What failed is tried again with the next that expires.
            is_purge_due = purged.as_ref().is_ok_and(|is_done| !is_done);
            warn("what was deleted could not be removed", purged.map(drop));
            // Who is told to stop has files to write first.
            if !stop.is_told() {
                warn(UNWIPED, upkeep.wipe_traces());
            }
        }
    }
    drop(backup);
    if is_holder || take(lock) {
        let begun = Instant::now();
        let is_over = || begun.elapsed() > LAST_ROUND_MAX;
        warn("mirror files could not be written", upkeep.mirror(is_over));
        warn("what is searched could not be brought up to date", upkeep.index(true, is_over));
        warn(UNWIPED, upkeep.wipe_traces());
    }
}

fn begin_backup(upkeep: &mut Upkeep) -> Option<Copying> {
    upkeep.begin_backup().unwrap_or_else(|error| {
        tracing::warn!(%error, "no backup could be begun; it is tried again");
        None
    })
}

fn take(lock: &File) -> bool {
    is_taken(lock.try_lock()).unwrap_or_else(|error| {
        tracing::warn!(%error, "cannot take maintenance.lock");
        false
    })
}

/// Whether it was done. What was not is tried again in the next round.
fn warn<E: std::fmt::Display>(what: &str, done: Result<(), E>) -> bool {
    if let Err(error) = &done {
        tracing::warn!(%error, "{what}");
    }
    done.is_ok()
}
