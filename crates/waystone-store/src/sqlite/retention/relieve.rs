//! Room made: sessions that no one uses are deleted, and when the quota or the disk is nearly used up, what was deleted goes before its time.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use rusqlite::{OptionalExtension, params};
use waystone_core::Limits;
use waystone_core::clock::Timestamp;
use waystone_core::id::SessionId;
use waystone_core::retention::Selection;
use waystone_core::store::Scope;

use super::{Archived, clean, forget_words, list_first};
use crate::platform::{create_private_file, disk_bytes, free_bytes};
use crate::sqlite::error::{DbResult, unreadable};
use crate::sqlite::maintenance::{Upkeep, WAIT_MAX};
use crate::sqlite::session;

const HOUR_MS: i64 = 60 * 60 * 1000;
/// So many segments go at once.
const SEGMENTS: usize = 100;
const RESERVE_BYTES: u64 = 4 * 1024 * 1024;
/// The reserve takes no more than this part of the disk, and leaves as much free again.
const RESERVE_PART: u64 = 100;

impl Upkeep {
    /// Deletes sessions that no one has used for so long. Their files follow. False if it `is_over` before all are.
    pub(crate) fn retire(&mut self, now: Timestamp, is_over: &dyn Fn() -> bool) -> DbResult<bool> {
        let idle_since = self.limits.idle_since(now);
        let selection = Selection { older_than: None, keep_last: None, idle_since, session: None };
        let scope = Scope::local("maintenance");
        for found in clean::list_removable(self.db()?, &scope, &selection)? {
            if is_over() {
                return Ok(false);
            }
            let id = found.session_id;
            match self.in_turn(|db| clean::clean_session(db, &scope, &id, &selection, now)) {
                Err(error) if !error.is_of_moment() => {
                    tracing::warn!(%error, session = %id, "a session that was not used for long cannot be deleted");
                }
                Ok(deleted) => {
                    if deleted.flatten().is_some() {
                        tracing::info!(session = %id, "a session that was not used for long is deleted; it can be restored");
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Removes what was deleted, oldest first, and then sessions that were not used for longest, when the store is nearly full, until it is
    /// less so or nothing is left that may go: segments and contexts of views count too, and stay.
    pub(crate) fn relieve(&mut self, is_over: &dyn Fn() -> bool) -> DbResult<()> {
        let percent =
            |percent: u64, max: u64| u64::try_from(u128::from(max) * u128::from(percent) / 100).unwrap_or(max);
        let (used, max) = (self.used()?, self.limits.total_bytes_max);
        self.warn_of_use(used >= percent(Limits::WARNED_PERCENT, max), used);
        if used <= percent(Limits::RELIEVED_PERCENT, max) {
            return Ok(());
        }
        let (target, now) = (percent(Limits::RELIEVED_TO_PERCENT, max), self.clock.now());
        while !is_over() && self.used()? > target && self.remove_archived(now)? {}
        while !is_over() && self.used()? > target && self.remove_idle(now)? {}
        Ok(())
    }

    /// Once when it begins, and once when it is over.
    fn warn_of_use(&mut self, is_nearly_full: bool, used: u64) {
        if is_nearly_full && !self.is_nearly_full {
            let max = self.limits.total_bytes_max;
            tracing::warn!(used, max, "what is kept comes near to WAYSTONE_MAX_TOTAL_BYTES");
        }
        self.is_nearly_full = is_nearly_full;
    }

    fn used(&mut self) -> DbResult<u64> {
        Ok(self.db()?.query_row("SELECT sum(size_bytes) FROM space", [], |row| row.get(0))?)
    }

    /// Removes what was deleted first, before its grace is over. False when there is nothing.
    fn remove_archived(&mut self, now: Timestamp) -> DbResult<bool> {
        let passed = self.passed.as_json();
        let first = list_first(self.db()?, Timestamp::from_ms(i64::MAX), &passed, 1)?.pop();
        let before = first.map_or(Timestamp::from_ms(i64::MAX), |first| first.at);
        let segments = self.remove_segments(before, SEGMENTS, true, now)?;
        if segments > 0 {
            tracing::warn!(segments, "deleted segments are removed before their grace is over, to make room");
            return Ok(true);
        }
        let Some(first) = first else { return Ok(false) };
        let removed = self.remove_first(&first, Timestamp::from_ms(first.at.ms() + 1), true)?;
        if removed.is_none() {
            self.passed.add(first.session);
        }
        if let Some(checkpoints) = removed {
            tracing::warn!(checkpoints, "deleted checkpoints are removed before their grace is over, to make room");
        }
        Ok(true)
    }

    /// Deletes and removes the session that was not used for longest, with its messages if it is a conversation, unless something was saved in it in
    /// the last hour. False when there is none, or the clock may be wrong.
    fn remove_idle(&mut self, now: Timestamp) -> DbResult<bool> {
        let passed = self.passed.as_json();
        let found: Option<(i64, i64)> = self
            .db()?
            .prepare_cached(
                "SELECT key, space FROM session AS s WHERE archived_at_ms IS NULL AND last_accessed_at_ms < ?1
                     AND key NOT IN (SELECT value FROM json_each(?2))
                     AND NOT EXISTS (SELECT 1 FROM checkpoint WHERE session = s.key AND created_at_ms >= ?1)
                     AND NOT EXISTS (SELECT 1 FROM segment WHERE conversation = s.key AND created_at_ms >= ?1)
                 ORDER BY last_accessed_at_ms LIMIT 1",
            )?
            .query_row(params![now.ms() - HOUR_MS, passed], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        let Some((key, space)) = found else { return Ok(false) };
        if !self.is_time_believed()? {
            return Ok(false);
        }
        let scope = Scope { space, ..Scope::local("maintenance") };
        match self.remove_unused(&scope, key, now) {
            Err(error) if !error.is_of_moment() && self.passed.has_room() => {
                tracing::warn!(%error, session = key, "a session that was not used for longest cannot be removed and is passed over");
                self.passed.add(key);
                Ok(true)
            }
            removed => removed,
        }
    }

    fn remove_unused(&mut self, scope: &Scope, key: i64, now: Timestamp) -> DbResult<bool> {
        let id: String =
            self.db()?.query_row("SELECT id FROM session WHERE key = ?1", params![key], |row| row.get(0))?;
        let session: SessionId = id.parse().map_err(|error| unreadable("a session's id", error))?;
        let is_archived = self.in_turn(|db| {
            // It may have been used since.
            let is_idle = session::find(db, scope, &session)?.last_accessed_at.ms() < now.ms() - HOUR_MS;
            if is_idle { session::archive(db, scope, &session, now).map(|_| true) } else { Ok(false) }
        })?;
        if is_archived != Some(true) {
            return Ok(is_archived.is_some());
        }
        while self.remove(scope, Archived::Session(scope, &id), true, now)?.is_some() {}
        tracing::warn!(session = id, "a session that was not used for longest is removed, to make room");
        Ok(true)
    }

    /// Gives room on the disk back: the log, what has expired, and what was deleted, until there is as much as is needed. Live data never
    /// goes.
    pub(crate) fn free_disk(&mut self, needed: u64) -> DbResult<()> {
        // Freeing takes room itself.
        let had_reserve = self.give_reserve_up();
        let freed = self.free(needed.max(2 * RESERVE_BYTES));
        if had_reserve {
            self.take_reserve_back();
        }
        freed
    }

    /// Does something after which there is more room: on a full disk once more with what was set aside for that, and with the room of the log.
    pub(crate) fn with_reserve<T>(&mut self, mut work: impl FnMut(&mut Self) -> DbResult<T>) -> DbResult<T> {
        match work(self) {
            Err(error) if error.is_full() => {
                let is_lent = self.lend_reserve()?;
                let done = work(self);
                if is_lent {
                    self.take_reserve_back();
                }
                done
            }
            done => done,
        }
    }

    /// Gives up what is set aside, if there is something, and the room of the log.
    pub(crate) fn lend_reserve(&mut self) -> DbResult<bool> {
        let is_lent = self.give_reserve_up();
        self.fold_log()?;
        Ok(is_lent)
    }

    fn give_reserve_up(&self) -> bool {
        fs::remove_file(self.directory.reserve()).is_ok()
    }

    /// Sets room aside again. Where there is none, housekeeping does so once there is.
    pub(crate) fn take_reserve_back(&self) {
        if let Err(error) = write_zeros(&self.directory.reserve(), self.reserve_bytes()) {
            tracing::warn!(%error, "what was set aside for a full disk could not be set aside again");
            let _ = fs::remove_file(self.directory.reserve());
        }
    }

    fn free(&mut self, needed: u64) -> DbResult<()> {
        self.fold_log()?;
        self.expire()?;
        let (now, mut is_any_removed) = (self.clock.now(), false);
        while self.free_bytes()? < needed && self.remove_archived(now)? {
            is_any_removed = true;
            self.fold_log()?;
        }
        match is_any_removed {
            true => self.forget_with_room(needed),
            false => Ok(()),
        }
    }

    /// Gives the room of the log back. Readers that hold it are not waited for as long as a writer may wait.
    fn fold_log(&mut self) -> DbResult<()> {
        Ok(self.cut_log(WAIT_MAX).map(drop)?)
    }

    /// Overwrites words and pages of what was removed, if there is more room than is needed: that takes some itself.
    fn forget_with_room(&mut self, needed: u64) -> DbResult<()> {
        let inside = self.inside_bytes()?;
        if free_bytes(self.directory.root()).unwrap_or(0) < needed.saturating_add(2 * inside) {
            tracing::warn!("what was removed from a full disk is overwritten with the next that is removed");
            return Ok(());
        }
        self.in_turn(forget_words)?;
        self.fold_log()
    }

    /// What can be written: on the disk, and inside of the database, where it is written first.
    fn free_bytes(&mut self) -> DbResult<u64> {
        let inside = self.inside_bytes()?;
        Ok(free_bytes(self.directory.root()).unwrap_or(u64::MAX).saturating_add(inside))
    }

    fn inside_bytes(&mut self) -> DbResult<u64> {
        let sql = "SELECT freelist_count * page_size FROM pragma_freelist_count, pragma_page_size";
        Ok(self.db()?.query_row(sql, [], |row| row.get(0))?)
    }

    fn reserve_bytes(&self) -> u64 {
        RESERVE_BYTES.min(disk_bytes(self.directory.root()).unwrap_or(0) / RESERVE_PART)
    }

    /// Sets room aside that can be given up when the disk is full, so that freeing can commit.
    pub(crate) fn keep_reserve(&self) -> io::Result<()> {
        let (path, size) = (self.directory.reserve(), self.reserve_bytes());
        if path.exists() || free_bytes(self.directory.root())? < RESERVE_PART * size {
            return Ok(());
        }
        let kept = write_zeros(&path, size);
        if kept.is_err() {
            let _ = fs::remove_file(&path);
        }
        kept
    }
}

fn write_zeros(path: &Path, size: u64) -> io::Result<()> {
    let mut file = create_private_file(path)?;
    file.write_all(&vec![0; usize::try_from(size).unwrap_or_default()])?;
    file.sync_all()
}
