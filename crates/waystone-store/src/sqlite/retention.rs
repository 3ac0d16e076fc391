//! What was deleted, removed for good: when its grace is over, at once when someone says so, or early when there is no room.
//!
//! Everything that is removed was archived before. First its ids are noted in a tombstone, then its rows go in one transaction, then its mirror
//! files are written anew or unlinked, then the copies of it in backups go. A crash on the way leaves a group whose file is dirty; whoever
//! keeps house next goes on. What is left of it in indexes and in the log is in [`trace`].

mod again;
mod clean;
mod doomed;
mod leftover;
mod relieve;
mod remove;
mod store;
mod trace;

use std::collections::BTreeSet;

use rusqlite::{Connection, OptionalExtension, params};
use serde_json::json;
use waystone_core::clock::Timestamp;
use waystone_core::store::Scope;

use super::backup;
use super::conversation;
use super::error::{DbResult, file_error};
use super::log::{Operation, append_and_publish, handle};
use super::maintenance::{Upkeep, in_transaction};
use super::mirror;
use super::segment;
use crate::mirror::tombstone;
pub(crate) use again::{forget_live, list_live, list_present, remove_again};
pub(crate) use doomed::{Archived, Doomed, First, PassedOver, find_doomed, list_first};
pub(crate) use leftover::Cleared;
pub(crate) use remove::{forget_words, overwriting, recount_session, remove_rows};
pub(crate) use trace::Traces;

/// To find what goes first takes a look at all that was pruned, so that some are found at once.
const LISTED_AT_ONCE: usize = 64;
/// As many removed checkpoints are named in an operation.
const IDS_TOLD_MAX: usize = 100;

/// Removes the rows of what is doomed and still archived. Returns the groups whose files are to follow.
fn remove_doomed(
    db: &Connection,
    scope: &Scope,
    doomed: &Doomed,
    is_grace_cut: bool,
    at: Timestamp,
) -> DbResult<Vec<i64>> {
    let still: Option<(String, bool)> = db
        .prepare_cached("SELECT project, archived_at_ms IS NOT NULL FROM session WHERE key = ?1")?
        .query_row(params![doomed.session], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let Some((project, is_archived)) = still.filter(|(_, is_archived)| *is_archived || !doomed.is_session) else {
        return Ok(Vec::new());
    };
    let mut statement = db.prepare_cached(
        "SELECT key, id, group_key FROM checkpoint WHERE session = ?1 AND (archived_at_ms IS NOT NULL OR ?2)
             AND id IN (SELECT value FROM json_each(?3))",
    )?;
    let mut rows = statement.query(params![doomed.session, is_archived, json!(doomed.ids).to_string()])?;
    let (mut keys, mut ids, mut groups) = (BTreeSet::new(), Vec::new(), BTreeSet::new());
    while let Some(row) = rows.next()? {
        keys.insert(row.get(0)?);
        ids.push(row.get::<_, String>(1)?);
        groups.extend(row.get::<_, Option<i64>>(2)?);
    }
    if keys.is_empty() && !doomed.is_session {
        return Ok(Vec::new());
    }
    groups.extend(groups_of_children(db, &keys)?);
    remove_rows(db, doomed.session, &keys)?;
    groups.extend(heir_of_newest(db, doomed.session)?);
    let kind = if doomed.is_session { "session.purged" } else { "checkpoint.purged" };
    let told = &ids[..ids.len().min(IDS_TOLD_MAX)];
    let mut payload = json!({
        "sessionId": doomed.session_id, "projectId": project, "checkpoints": ids.len(), "checkpointIds": told,
    });
    if is_grace_cut {
        payload["graceCut"] = true.into();
    }
    let subject = vec![handle("session", &doomed.session_id)];
    let seq = append_and_publish(db, scope, &Operation { at, kind, project: &project, subject, payload })?;
    if doomed.is_session {
        groups.extend(erase_session(db, scope, doomed, &project)?);
    }
    for group in &groups {
        db.prepare_cached("UPDATE checkpoint_group SET changed_seq = ?2 WHERE key = ?1")?
            .execute(params![group, seq])?;
    }
    Ok(groups.into_iter().collect())
}

/// The group that is the newest of a session once the newest has nothing left: its file is then the one that says what the session is.
fn heir_of_newest(db: &Connection, session: i64) -> DbResult<Option<i64>> {
    Ok(db
        .prepare_cached(
            "SELECT max(g.key) FILTER (WHERE EXISTS (SELECT 1 FROM checkpoint WHERE group_key = g.key)) AS heir, max(g.key) AS newest
             FROM checkpoint_group AS g WHERE g.session = ?1 HAVING heir <> newest",
        )?
        .query_row(params![session], |row| row.get(0))
        .optional()?)
}

/// The groups of what continues these: their files say what it continued, and it is gone.
fn groups_of_children(db: &Connection, keys: &BTreeSet<i64>) -> DbResult<BTreeSet<i64>> {
    let mut statement =
        db.prepare_cached("SELECT group_key FROM checkpoint WHERE parent = ?1 AND group_key IS NOT NULL")?;
    let mut groups = BTreeSet::new();
    for key in keys {
        for group in statement.query_map(params![key], |row| row.get::<_, i64>(0))? {
            groups.insert(group?);
        }
    }
    Ok(groups)
}

/// What was said of a session goes with it: in its row, which stays until its files are gone, and in the log, whose hashes hold without it.
/// Returns its groups.
fn erase_session(db: &Connection, scope: &Scope, doomed: &Doomed, project: &str) -> DbResult<Vec<i64>> {
    let mut statement = db.prepare_cached("SELECT key FROM checkpoint_group WHERE session = ?1")?;
    let groups: Vec<i64> = statement.query_map(params![doomed.session], |row| row.get(0))?.collect::<Result<_, _>>()?;
    conversation::remove(db, doomed.session)?;
    let sql = match groups.is_empty() {
        true => "DELETE FROM session WHERE key = ?1",
        false => {
            // With its key all that it sealed is gone; what is left of the row has another.
            "UPDATE session SET wrapped_key = new_key('session:' || id) WHERE key = ?1"
        }
    };
    db.prepare_cached(sql)?.execute(params![doomed.session])?;
    db.prepare_cached(
        "UPDATE session SET name = NULL, tags = sealed('[]', 'tags', id, 'session:' || id, wrapped_key), workflow = NULL,
             critical_keys = sealed('[]', 'critical_keys', id, 'session:' || id, wrapped_key),
             context_rules = sealed('[]', 'context_rules', id, 'session:' || id, wrapped_key),
             correlation = sealed(zeroblob(32), 'correlation', id, 'session:' || id, wrapped_key)
         WHERE key = ?1",
    )?
    .execute(params![doomed.session])?;
    erase_words(db, scope.space, project, &doomed.session_id)?;
    Ok(groups)
}

/// What people wrote of a session, in the logs.
fn erase_words(db: &Connection, space: i64, project: &str, session: &str) -> DbResult<()> {
    let erased = db
        .prepare_cached(
            "UPDATE operation SET payload = NULL
             WHERE space = ?1 AND project = ?2 AND kind IN ('session.updated', 'session.marked', 'session.unmarked', 'session.ruled')
                 AND payload IS NOT NULL AND EXISTS (SELECT 1 FROM json_each(subject) WHERE value = ?3)",
        )?
        .execute(params![space, project, handle("session", session)])?;
    if erased > 0 {
        db.prepare_cached(
            "UPDATE event SET payload = sealed(json_object('sessionId', ?2, 'projectId', ?3), 'event', seq)
             WHERE space = ?1 AND kind IN ('session.updated', 'session.marked', 'session.unmarked', 'session.ruled')
                 AND unsealed(payload, 'event', seq) ->> '$.sessionId' = ?2",
        )?
        .execute(params![space, session, project])?;
    }
    Ok(())
}

impl Upkeep {
    /// Removes what is doomed, or the next part of it, from the database, its files and the backups. Returns how many checkpoints went;
    /// nothing if there was none. Who brings something back waits for the same turn.
    pub(crate) fn remove(
        &mut self,
        scope: &Scope,
        archived: Archived<'_>,
        is_grace_cut: bool,
        at: Timestamp,
    ) -> DbResult<Option<u64>> {
        let directory = self.directory.clone();
        let turn = mirror::take_turn(&directory)?;
        let Some(doomed) = find_doomed(self.db()?, archived)? else { return Ok(None) };
        let scope = Scope { space: doomed.space, ..scope.clone() };
        self.with_reserve(|_| {
            tombstone::add(&directory, &doomed.session_id, doomed.known_by())
                .map_err(|error| file_error(&directory.tombstones(), &error))
        })?;
        self.traces.note();
        let groups = self.with_reserve(|upkeep| {
            let removed = upkeep.in_turn(|db| overwriting(db, || remove_doomed(db, &scope, &doomed, is_grace_cut, at)));
            removed?.ok_or_else(super::error::busy)
        })?;
        let mut mirrored = Vec::new();
        for group in groups {
            mirrored.extend(self.with_reserve(|upkeep| {
                let snapshot = upkeep.db()?.unchecked_transaction()?;
                mirror::write(&directory, &snapshot, group, at, &turn)
            })?);
        }
        self.with_reserve(|upkeep| {
            let marked = upkeep.locked(|db| in_transaction(db, |db| mirror::mark_mirrored(db, &mirrored)))?;
            marked.ok_or_else(super::error::busy)
        })?;
        let ids = doomed.known_by().map(str::to_owned).collect();
        self.traces.in_backups.extend(backup::remove_from_all(&directory, &ids, at)?);
        Ok(Some(doomed.count()))
    }

    /// The same for housekeeping, which passes over what cannot be removed: nothing else waits for what is damaged.
    pub(crate) fn remove_first(
        &mut self,
        first: &First,
        before: Timestamp,
        is_grace_cut: bool,
    ) -> DbResult<Option<u64>> {
        let (scope, now) = (Scope::local("maintenance"), self.clock.now());
        match self.remove(&scope, Archived::First(first, before), is_grace_cut, now) {
            Err(error) if !error.is_of_moment() && self.passed.has_room() => {
                tracing::warn!(%error, session = first.session, "something that was deleted cannot be removed and is passed over");
                self.passed.add(first.session);
                Ok(None)
            }
            removed => removed,
        }
    }

    /// What could not be removed is tried again.
    pub(crate) fn forget_passed(&mut self) {
        self.passed = PassedOver::default();
    }

    /// Writes the file of a group.
    pub(crate) fn mirror_one(&mut self, group: i64, at: Timestamp) -> DbResult<()> {
        let directory = self.directory.clone();
        let turn = mirror::take_turn(&directory)?;
        let snapshot = self.db()?.unchecked_transaction()?;
        mirror::write(&directory, &snapshot, group, at, &turn).map(drop)
    }

    /// Removes up to `limit` segments that were deleted before that time. Returns how many went.
    pub(crate) fn remove_segments(
        &mut self,
        before: Timestamp,
        limit: usize,
        is_grace_cut: bool,
        at: Timestamp,
    ) -> DbResult<usize> {
        // Whose turn does not come must not take it for nothing to remove: what is in use would go instead.
        let removed = self.with_reserve(|upkeep| {
            let removed = upkeep.in_turn(|db| segment::purge(db, before, limit, is_grace_cut, at))?;
            removed.ok_or_else(super::error::busy)
        })?;
        if removed > 0 {
            self.traces.note();
        }
        Ok(removed)
    }

    /// Removes all that was archived before that time, and what a removal that broke off left in backups. False if it `is_over` before that.
    pub(crate) fn remove_expired(&mut self, before: Timestamp, is_over: &dyn Fn() -> bool) -> DbResult<bool> {
        loop {
            let passed = self.passed.as_json();
            let first = list_first(self.db()?, before, &passed, LISTED_AT_ONCE)?;
            if first.is_empty() {
                return self.clear_leftovers(is_over);
            }
            for first in first {
                let mut is_any_removed = false;
                while !is_over() {
                    if self.remove_first(&first, before, false)?.is_none() {
                        break;
                    }
                    is_any_removed = true;
                }
                if is_over() {
                    return Ok(false);
                }
                // What is not there any more is not looked for again.
                if !is_any_removed {
                    self.passed.add(first.session);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
