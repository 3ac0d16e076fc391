//! Lists of checkpoints, newest first. A page costs the same whatever is behind it: rows are found by an index in their
//! order, and totals without a filter are counters.

use rusqlite::{Connection, Params, named_params, params};
use waystone_core::Error;
use waystone_core::api::{CheckpointPage, ListCheckpoints};
use waystone_core::store::Scope;

use super::{COLUMNS, FROM, read};
use crate::sqlite::cursor;
use crate::sqlite::error::DbResult;
use crate::sqlite::session;

/// The filters, as text that is always the same: a filter that was not given is NULL and lets everything pass.
const FILTERS: &str = "
    c.archived_at_ms IS NULL AND s.archived_at_ms IS NULL
    AND (:project IS NULL OR s.project = :project)
    AND (:workflow IS NULL OR c.workflow = :workflow)
    AND (:agent IS NULL OR c.agent = :agent)
    AND (:since IS NULL OR c.created_at_ms >= :since)
    AND (:until IS NULL OR c.created_at_ms < :until)
    AND (:query IS NULL OR has_words(c.metadata, :query))
    AND NOT EXISTS (SELECT 1 FROM json_each(:tags) AS wanted
                    WHERE wanted.value NOT IN (SELECT value FROM json_each(c.tags)))";

pub(crate) fn list(db: &Connection, scope: &Scope, filter: &ListCheckpoints) -> DbResult<CheckpointPage> {
    let session = match &filter.session_id {
        Some(id) => {
            let row = session::find_row(db, scope, id)?.filter(|row| !row.is_archived);
            Some(row.ok_or_else(|| Error::SessionNotFound(id.clone()))?)
        }
        None => None,
    };
    let within = match session {
        Some(_) => "c.session = :session AND c.space = :space",
        None => "c.space = :space AND :session IS NULL",
    };
    let tags = serde_json::json!(filter.tags).to_string();
    let before = cursor::read(filter.cursor.as_deref())?;
    let bound = named_params! {
        ":space": scope.space,
        ":session": session.as_ref().map(|row| row.key),
        ":project": filter.project_id.as_ref().map(|id| id.as_str()),
        ":workflow": filter.workflow_id.as_ref().map(|id| id.as_str()),
        ":agent": filter.agent_id.as_ref().map(|id| id.as_str()),
        ":since": filter.since.map(|at| at.ms()),
        ":until": filter.until.map(|at| at.ms()),
        ":query": filter.query,
        ":tags": tags,
        ":before": before,
        ":limit": filter.limit + 1,
        ":offset": filter.offset,
    };
    let sql = format!(
        "SELECT {COLUMNS} {FROM} WHERE {within} AND c.seq < :before AND {FILTERS}
         ORDER BY c.seq DESC LIMIT :limit OFFSET :offset"
    );
    let (mut checkpoints, mut last_seq, mut has_more) = (Vec::new(), None, false);
    let mut statement = db.prepare_cached(&sql)?;
    let mut rows = statement.query(bound)?;
    while let Some(row) = rows.next()? {
        has_more = checkpoints.len() == filter.limit as usize;
        if !has_more {
            last_seq = Some(row.get(11)?);
            checkpoints.push(read(row)?);
        }
    }
    let total = match (is_unfiltered(filter), session) {
        (true, Some(session)) => session.checkpoint_count,
        (true, None) => count_all(db, scope)?,
        (false, _) => count(db, within, bound)?,
    };
    let next_cursor = last_seq.filter(|_| has_more).map(cursor::write);
    Ok(CheckpointPage { checkpoints, total, has_more, next_cursor, warnings: Vec::new() })
}

fn is_unfiltered(filter: &ListCheckpoints) -> bool {
    filter.project_id.is_none()
        && filter.workflow_id.is_none()
        && filter.agent_id.is_none()
        && filter.since.is_none()
        && filter.until.is_none()
        && filter.query.is_none()
        && filter.tags.is_empty()
}

fn count_all(db: &Connection, scope: &Scope) -> DbResult<u64> {
    Ok(db
        .prepare_cached("SELECT checkpoint_count FROM space WHERE space = ?1")?
        .query_row(params![scope.space], |row| row.get(0))?)
}

/// Binds what the page binds: the last three have no effect here and stand in a condition that always holds.
fn count(db: &Connection, within: &str, bound: impl Params) -> DbResult<u64> {
    let sql = format!(
        "SELECT count(*) {FROM} WHERE {within} AND {FILTERS} AND :before IS NOT NULL AND :limit > 0 AND :offset >= 0"
    );
    Ok(db.prepare_cached(&sql)?.query_row(bound, |row| row.get(0))?)
}
