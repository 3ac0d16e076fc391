//! What was deleted, removed for good: when its grace is over, at once when someone says so, or early when there is no room.
//!
//! Everything that is removed was archived before. First its ids are noted in a tombstone, then its rows go in one transaction, then its mirror
//! files are written anew or unlinked, then the copies of it in backups go. A crash on the way leaves a group whose file is dirty; whoever
//! keeps house next goes on. What is left of it in indexes and in the log is in [`trace`].

mod again;
mod clean;
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
pub(crate) use again::{forget_live, list_live, remove_again};
pub(crate) use remove::{forget_words, overwriting, recount_session, remove_rows};
pub(crate) use trace::Traces;

/// So much is removed at once, the newest first: what is overwritten goes through the log, others wait meanwhile, and on a full disk there
/// is no more room for it than was set aside.
const SLICE_BYTES: u64 = 2 * 1024 * 1024;
/// As many removed checkpoints are named in an operation.
const IDS_TOLD_MAX: usize = 100;

/// Archived checkpoints of one session that are to be removed.
#[derive(Debug, Default)]
pub(crate) struct Doomed {
    space: i64,
    session: i64,
    session_id: String,
    /// The session goes with them.
    is_session: bool,
    /// It is a conversation, which is known by its own id.
    is_conversation: bool,
    ids: Vec<String>,
}

impl Doomed {
    pub(crate) fn count(&self) -> u64 {
        self.ids.len() as u64
    }

    /// By which ids copies of it are known.
    fn known_by(&self) -> impl Iterator<Item = &str> {
        let own = (self.is_conversation && self.is_session).then_some(self.session_id.as_str());
        self.ids.iter().map(String::as_str).chain(own)
    }
}

/// Which of what is archived is wanted.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Archived<'a> {
    Session(&'a Scope, &'a str),
    Checkpoint(&'a Scope, &'a str),
    /// Whatever was archived first, before that time.
    Oldest(Timestamp),
}

/// What is to be removed next, all of one session.
pub(crate) fn find_doomed(db: &Connection, archived: Archived<'_>) -> DbResult<Option<Doomed>> {
    match archived {
        Archived::Session(scope, id) => find_session(db, "space = ?1 AND id = ?2", params![scope.space, id]),
        Archived::Checkpoint(scope, id) => {
            let condition = "c.space = ?1 AND c.id = ?2 AND c.archived_at_ms IS NOT NULL";
            find_checkpoints(db, condition, params![scope.space, id])
        }
        Archived::Oldest(before) => find_oldest(db, before),
    }
}

/// One without checkpoints goes with its files, which are dirty, as soon as those are looked at.
const IS_REMOVABLE: &str = "archived_at_ms IS NOT NULL
    AND (EXISTS (SELECT 1 FROM checkpoint WHERE session = s.key)
         OR NOT EXISTS (SELECT 1 FROM checkpoint_group WHERE session = s.key))";

fn find_session(db: &Connection, condition: &str, parameters: &[&dyn rusqlite::ToSql]) -> DbResult<Option<Doomed>> {
    let sql = format!("SELECT key, id, space FROM session AS s WHERE {condition} AND {IS_REMOVABLE}");
    let found: Option<(i64, String, i64)> =
        db.prepare_cached(&sql)?.query_row(parameters, |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).optional()?;
    let Some((session, session_id, space)) = found else { return Ok(None) };
    let mut statement =
        db.prepare_cached("SELECT id, size_bytes FROM checkpoint WHERE session = ?1 ORDER BY seq DESC")?;
    let mut rows = statement.query(params![session])?;
    let is_conversation = conversation::is_one(db, session)?;
    let mut doomed = Doomed { space, session, session_id, is_session: true, is_conversation, ids: Vec::new() };
    let mut bytes = 0;
    while let Some(row) = rows.next()? {
        if bytes > SLICE_BYTES {
            doomed.is_session = false;
            break;
        }
        bytes += row.get::<_, u64>(1)?;
        doomed.ids.push(row.get(0)?);
    }
    Ok(Some(doomed))
}

/// Those of the first session found that has some.
fn find_checkpoints(db: &Connection, condition: &str, parameters: &[&dyn rusqlite::ToSql]) -> DbResult<Option<Doomed>> {
    let sql = format!(
        "SELECT s.key, s.id, c.id, s.space, c.size_bytes FROM checkpoint AS c JOIN session AS s ON s.key = c.session
         WHERE {condition} ORDER BY c.session, c.seq DESC"
    );
    let mut statement = db.prepare_cached(&sql)?;
    let mut rows = statement.query(parameters)?;
    let (mut doomed, mut bytes): (Option<Doomed>, u64) = (None, 0);
    while let Some(row) = rows.next()?.filter(|_| bytes <= SLICE_BYTES) {
        let (session, id): (i64, String) = (row.get(0)?, row.get(2)?);
        bytes += row.get::<_, u64>(4)?;
        let found = doomed.get_or_insert_with(Doomed::default);
        if found.ids.is_empty() {
            (found.session, found.session_id, found.space) = (session, row.get(1)?, row.get(3)?);
        }
        if found.session == session {
            found.ids.push(id);
        }
    }
    Ok(doomed)
}

/// The first of each kind that can go, by when it was archived: a whole session, a checkpoint that someone deleted, and a group of which all
/// were archived, which is as old as the last of them. What was only pruned goes with its group.
fn list_first(db: &Connection, before: Timestamp) -> DbResult<Vec<(i64, Kind, i64)>> {
    let session = format!(
        "SELECT archived_at_ms, key FROM session AS s WHERE archived_at_ms < ?1 AND {IS_REMOVABLE}
         ORDER BY archived_at_ms LIMIT 1"
    );
    let deleted =
        "SELECT archived_at_ms, session FROM checkpoint WHERE archived_why = 'deleted' AND archived_at_ms < ?1
         ORDER BY archived_at_ms LIMIT 1";
    let pruned = "SELECT (SELECT max(archived_at_ms) FROM checkpoint WHERE group_key = p.group_key) AS last, p.group_key FROM checkpoint AS p
         WHERE p.archived_why = 'pruned' AND p.archived_at_ms < ?1 AND p.group_key IS NOT NULL AND NOT EXISTS
             (SELECT 1 FROM checkpoint AS live
              WHERE live.group_key = p.group_key AND (live.archived_at_ms IS NULL OR live.archived_at_ms >= ?1))
         ORDER BY last LIMIT 1";
    let mut first = Vec::new();
    for (kind, sql) in [(Kind::Session, session.as_str()), (Kind::Deleted, deleted), (Kind::Pruned, pruned)] {
        let found = db
            .prepare_cached(sql)?
            .query_row(params![before.ms()], |row| Ok((row.get(0)?, kind, row.get(1)?)))
            .optional()?;
        first.extend(found);
    }
    Ok(first)
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Session,
    /// By their session.
    Deleted,
    /// By their group.
    Pruned,
}

/// When that was archived which can go first, of what segments are not.
fn find_oldest_at(db: &Connection) -> DbResult<Option<Timestamp>> {
    let first = list_first(db, Timestamp::from_ms(i64::MAX))?;
    Ok(first.iter().map(|(at, ..)| Timestamp::from_ms(*at)).min())
}

fn find_oldest(db: &Connection, before: Timestamp) -> DbResult<Option<Doomed>> {
    match list_first(db, before)?.into_iter().min_by_key(|(at, ..)| *at) {
        Some((_, Kind::Session, key)) => find_session(db, "key = ?1", params![key]),
        Some((_, Kind::Deleted, session)) => {
            let condition = "c.session = ?1 AND c.archived_why = 'deleted' AND c.archived_at_ms < ?2";
            find_checkpoints(db, condition, params![session, before.ms()])
        }
        Some((_, Kind::Pruned, group)) => find_checkpoints(db, "c.group_key = ?1", params![group]),
        None => Ok(None),
    }
}

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
        backup::remove_from_all(&directory, &doomed.known_by().map(str::to_owned).collect(), at)?;
        Ok(Some(doomed.count()))
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

    /// Removes all that was archived before that time, until it `is_over`; and what a removal that broke off left in backups.
    pub(crate) fn remove_expired(&mut self, before: Timestamp, is_over: &dyn Fn() -> bool) -> DbResult<()> {
        let (scope, now) = (Scope::local("maintenance"), self.clock.now());
        while !is_over() && self.remove(&scope, Archived::Oldest(before), false, now)?.is_some() {}
        let _turn = mirror::take_turn(&self.directory)?;
        let directory = self.directory.clone();
        let mut removed =
            tombstone::read_all(&directory).map_err(|error| file_error(&directory.tombstones(), &error))?;
        forget_live(&directory, self.db()?, &mut removed)?;
        backup::remove_from_all(&directory, &removed, now)
    }
}

#[cfg(test)]
mod tests;
