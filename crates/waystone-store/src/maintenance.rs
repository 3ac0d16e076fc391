//! Housekeeping, by one process at a time: changed groups are mirrored into files, the write-ahead log is folded back into the
//! database, and what was kept for a while only is forgotten. Whoever holds `maintenance.lock` does it; the others ask again every
//! second.

use std::fs::{File, TryLockError};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::platform::open_private_file;
use crate::sqlite::Upkeep;

const ROUND: Duration = Duration::from_secs(1);
/// How long the end of a process may be put off by what is not mirrored yet.
const LAST_ROUND_MAX: Duration = Duration::from_secs(2);
const EXPIRY_ROUND: Duration = Duration::from_secs(3600);

/// Runs until it is dropped.
pub(crate) struct Maintenance {
    stop: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Maintenance {
    pub(crate) fn start(upkeep: Upkeep) -> std::io::Result<Self> {
        let lock = open_private_file(&upkeep.directory.maintenance_lock())?;
        let (stop, stopped) = sync_channel(1);
        let thread =
            std::thread::Builder::new().name("maintenance".to_owned()).spawn(move || run(upkeep, &lock, &stopped))?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Maintenance {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(mut upkeep: Upkeep, lock: &File, stopped: &Receiver<()>) {
    let mut is_holder = false;
    let mut expired_at: Option<Instant> = None;
    while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(ROUND) {
        is_holder = is_holder || is_taken(lock);
        if !is_holder {
            continue;
        }
        let is_stopped = || matches!(stopped.try_recv(), Err(TryRecvError::Disconnected));
        warn("mirror files could not be written", upkeep.mirror(is_stopped));
        warn("the write-ahead log could not be checkpointed", upkeep.checkpoint_log());
        if expired_at.is_none_or(|at| at.elapsed() >= EXPIRY_ROUND)
            && warn("expired rows could not be removed", upkeep.expire())
        {
            expired_at = Some(Instant::now());
        }
    }
    if is_holder || is_taken(lock) {
        let begun = Instant::now();
        warn("mirror files could not be written", upkeep.mirror(|| begun.elapsed() > LAST_ROUND_MAX));
    }
}

fn is_taken(lock: &File) -> bool {
    match lock.try_lock() {
        Ok(()) => true,
        Err(TryLockError::WouldBlock) => false,
        Err(TryLockError::Error(error)) => {
            tracing::warn!(%error, "cannot take maintenance.lock");
            false
        }
    }
}

/// Whether it was done. What was not is tried again in the next round.
fn warn<E: std::fmt::Display>(what: &str, done: Result<(), E>) -> bool {
    if let Err(error) = &done {
        tracing::warn!(%error, "{what}");
    }
    done.is_ok()
}
