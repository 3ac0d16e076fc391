//! What is left of what was removed, and how that goes: words in the indexes, which are only marked there, and pages in the write-ahead log, which has
//! what was overwritten until it is cut off.
//!
//! Who says that something is removed does so after that, or says that readers held the log. Housekeeping cuts it off after its own removals, and
//! after those of others, which it finds in the log of operations: they may have been held up, or dead before they came to it.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rusqlite::params;
use waystone_core::store::Purged;

use super::forget_words;
use crate::sqlite::error::{DbResult, busy};
use crate::sqlite::maintenance::{Upkeep, WAIT_MAX};

/// How long housekeeping waits for readers, every second if need be: writers wait meanwhile.
const READERS_MAX: Duration = Duration::from_millis(50);
/// Who removed something writes to the log after its operation: files and backups come in between.
const SETTLED: Duration = Duration::from_secs(60);

/// What a process knows of what is left.
#[derive(Debug)]
pub(crate) struct Traces {
    /// Words of what it removed stand in the indexes.
    are_words_due: bool,
    /// The log is cut off until that was done at this time or later.
    log_due: Option<Instant>,
    /// Up to which operation was looked for removals.
    seen_seq: Option<i64>,
    /// Whether it was said that readers hold the log.
    is_held: bool,
    /// Backups from which something could not be removed.
    pub(super) in_backups: BTreeSet<PathBuf>,
}

impl Default for Traces {
    /// Whoever was here before may have died on the way.
    fn default() -> Self {
        Self {
            are_words_due: false,
            log_due: Some(Instant::now()),
            seen_seq: None,
            is_held: false,
            in_backups: BTreeSet::new(),
        }
    }
}

impl Traces {
    /// Something is removed.
    pub(super) fn note(&mut self) {
        self.are_words_due = true;
        self.log_due = self.log_due.max(Some(Instant::now()));
    }
}

impl Upkeep {
    /// What is said of something that was just removed, once what is left of it is overwritten.
    pub(super) fn tell_purged(&mut self, checkpoints: u64) -> DbResult<Purged> {
        let is_in_log = !self.wipe_now()?;
        let in_backups = self.traces.in_backups.iter().map(|backup| backup.display().to_string()).collect();
        Ok(Purged { checkpoints, is_in_log, in_backups })
    }

    /// Overwrites what is left of what was just removed, before that is said. False when readers hold the log: then housekeeping cuts it
    /// off as soon as they let go of it.
    fn wipe_now(&mut self) -> DbResult<bool> {
        let forgotten = self.with_reserve(|upkeep| upkeep.in_turn(forget_words)?.ok_or_else(busy));
        // It is removed, whatever becomes of the log, and of words where there is no room to overwrite them.
        let are_forgotten = match forgotten {
            Err(error) if error.is_full() => false,
            done => done.map(|()| true)?,
        };
        let is_cut = self.cut_log(WAIT_MAX).unwrap_or_else(|error| {
            tracing::warn!(%error, "the write-ahead log could not be cut off; it is tried again");
            false
        });
        Ok(is_cut && are_forgotten)
    }

    /// Overwrites what is left of what was removed, whoever removed it. What cannot be done now is done in a later round.
    pub(crate) fn wipe_traces(&mut self) -> DbResult<()> {
        if self.traces.are_words_due {
            self.traces.are_words_due = self.in_turn(forget_words)?.is_none();
        }
        self.look_for_removals()?;
        let Some(due) = self.traces.log_due else { return Ok(()) };
        let begun = Instant::now();
        let is_empty = self.directory.write_ahead_log().metadata().is_ok_and(|log| log.len() == 0);
        let is_cut = is_empty || self.cut_log(READERS_MAX)?;
        if is_cut && begun >= due && !self.traces.are_words_due {
            self.traces.log_due = None;
        }
        if !is_cut && !self.traces.is_held {
            tracing::warn!(
                "what was removed stands in the write-ahead log as long as readers hold it; it is tried again"
            );
        }
        self.traces.is_held = !is_cut;
        Ok(())
    }

    fn look_for_removals(&mut self) -> DbResult<()> {
        let newest: i64 = self.db()?.query_row("SELECT max(operation_seq) FROM space", [], |row| row.get(0))?;
        let seen = self.traces.seen_seq.replace(newest).unwrap_or(newest);
        let sql = "SELECT 1 FROM space AS s CROSS JOIN operation AS o ON o.space = s.space AND o.seq > ?1
                   WHERE o.kind IN ('session.purged', 'checkpoint.purged', 'segment.purged', 'snapshot.purged')";
        if seen < newest && self.db()?.prepare_cached(sql)?.exists(params![seen])? {
            self.traces.are_words_due = true;
            self.traces.log_due = Some(Instant::now() + SETTLED);
        }
        Ok(())
    }
}
