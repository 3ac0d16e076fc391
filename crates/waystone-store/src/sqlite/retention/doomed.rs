//! What is to be removed next: what someone wants to be gone, or what was archived first.

use std::collections::BTreeSet;

use rusqlite::{Connection, OptionalExtension, params};
use serde_json::json;
use waystone_core::clock::Timestamp;
use waystone_core::store::Scope;

use crate::sqlite::conversation;
use crate::sqlite::error::DbResult;

/// So much is removed at once, the newest first: what is overwritten goes through the log, others wait meanwhile, and on a full disk there
/// is no more room for it than was set aside.
const SLICE_BYTES: u64 = 2 * 1024 * 1024;
/// Archived checkpoints of one session that are to be removed.
#[derive(Debug, Default)]
pub(crate) struct Doomed {
    pub(super) space: i64,
    pub(super) session: i64,
    pub(super) session_id: String,
    /// The session goes with them.
    pub(super) is_session: bool,
    /// It is a conversation, which is known by its own id.
    is_conversation: bool,
    pub(super) ids: Vec<String>,
}

impl Doomed {
    pub(crate) fn count(&self) -> u64 {
        self.ids.len() as u64
    }

    /// By which ids copies of it are known.
    pub(super) fn known_by(&self) -> impl Iterator<Item = &str> {
        let own = (self.is_conversation && self.is_session).then_some(self.session_id.as_str());
        self.ids.iter().map(String::as_str).chain(own)
    }
}

/// Which of what is archived is wanted.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Archived<'a> {
    Session(&'a Scope, &'a str),
    Checkpoint(&'a Scope, &'a str),
    /// What was archived first, as far as it was before that time.
    First(&'a First, Timestamp),
}

/// What is to be removed next, all of one session.
pub(crate) fn find_doomed(db: &Connection, archived: Archived<'_>) -> DbResult<Option<Doomed>> {
    match archived {
        Archived::Session(scope, id) => find_session(db, "space = ?1 AND id = ?2", params![scope.space, id]),
        Archived::Checkpoint(scope, id) => {
            let condition = "c.space = ?1 AND c.id = ?2 AND c.archived_at_ms IS NOT NULL";
            find_checkpoints(db, condition, params![scope.space, id])
        }
        Archived::First(first, before) => match first.kind {
            Kind::Session => find_session(db, "key = ?1", params![first.key]),
            Kind::Deleted => {
                let condition = "c.session = ?1 AND c.archived_why = 'deleted' AND c.archived_at_ms < ?2";
                find_checkpoints(db, condition, params![first.key, before.ms()])
            }
            Kind::Pruned => find_checkpoints(db, "c.group_key = ?1", params![first.key]),
        },
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

/// What can go first.
#[derive(Debug, Clone, Copy)]
pub(crate) struct First {
    /// When it was archived.
    pub(crate) at: Timestamp,
    kind: Kind,
    key: i64,
    pub(crate) session: i64,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Session,
    /// By their session.
    Deleted,
    /// By their group.
    Pruned,
}

/// So many sessions are passed over. Where more fail, it is not they that are damaged.
const PASSED_MAX: usize = 100;

/// Sessions of which nothing can be removed, by their keys.
#[derive(Debug, Default)]
pub(crate) struct PassedOver(BTreeSet<i64>);

impl PassedOver {
    pub(crate) fn add(&mut self, session: i64) {
        self.0.insert(session);
    }

    pub(crate) fn has_room(&self) -> bool {
        self.0.len() < PASSED_MAX
    }

    /// For `json_each`.
    pub(crate) fn as_json(&self) -> String {
        json!(self.0).to_string()
    }
}

/// Up to `limit` of what can go, by when it was archived: a whole session, a checkpoint that someone deleted, or a group of which all were
/// archived, which is as old as the last of them. What was only pruned goes with its group. Sessions that were passed over are left out.
pub(crate) fn list_first(db: &Connection, before: Timestamp, passed: &str, limit: usize) -> DbResult<Vec<First>> {
    let session = format!(
        "SELECT CAST(archived_at_ms AS INTEGER), key, key FROM session AS s WHERE archived_at_ms < ?1 AND {IS_REMOVABLE}
             AND key NOT IN (SELECT value FROM json_each(?2))
         ORDER BY archived_at_ms LIMIT ?3"
    );
    let deleted = "SELECT CAST(archived_at_ms AS INTEGER), session, session FROM checkpoint
         WHERE archived_why = 'deleted' AND archived_at_ms < ?1 AND session NOT IN (SELECT value FROM json_each(?2))
         ORDER BY archived_at_ms LIMIT ?3";
    let pruned =
        "SELECT (SELECT CAST(max(archived_at_ms) AS INTEGER) FROM checkpoint WHERE group_key = p.group_key) AS last,
             p.group_key, p.session
         FROM (SELECT group_key, min(session) AS session FROM checkpoint
               WHERE archived_why = 'pruned' AND archived_at_ms < ?1 AND group_key IS NOT NULL GROUP BY group_key) AS p
         WHERE NOT EXISTS (SELECT 1 FROM checkpoint AS live
              WHERE live.group_key = p.group_key AND (live.archived_at_ms IS NULL OR live.archived_at_ms >= ?1))
             AND p.session NOT IN (SELECT value FROM json_each(?2))
         ORDER BY last LIMIT ?3";
    let mut first = Vec::new();
    for (kind, sql) in [(Kind::Session, session.as_str()), (Kind::Deleted, deleted), (Kind::Pruned, pruned)] {
        let mut statement = db.prepare_cached(sql)?;
        let found = statement.query_map(params![before.ms(), passed, limit], |row| {
            Ok(First { at: Timestamp::from_ms(row.get(0)?), kind, key: row.get(1)?, session: row.get(2)? })
        })?;
        first.extend(found.collect::<Result<Vec<_>, _>>()?);
    }
    // Deleted checkpoints of one session go together.
    first.sort_by_key(|first| first.at);
    first.truncate(limit);
    Ok(first)
}
