//! Lists of checkpoints, newest first. A page costs the same whatever is behind it: rows are found by an index in their
//! order, and totals without a filter are counters.

use std::collections::{BTreeSet, HashMap};

use rusqlite::{CachedStatement, Connection, Rows, ToSql, params};
use waystone_core::Error;
use waystone_core::api::{CheckpointPage, ListCheckpoints};
use waystone_core::clock::Timestamp;
use waystone_core::store::Scope;

use super::{COLUMNS, FROM, read};
use crate::sqlite::cursor;
use crate::sqlite::error::DbResult;
use crate::sqlite::session::{self, SessionRow};

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

/// What a list is narrowed down to, as values for the names in [`FILTERS`].
struct Bounds {
    session: Option<SessionRow>,
    within: &'static str,
    tags: String,
    before: i64,
}

impl Bounds {
    fn of(db: &Connection, scope: &Scope, filter: &ListCheckpoints) -> DbResult<Self> {
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
        Ok(Self { session, within, tags, before: cursor::read(filter.cursor.as_deref())? })
    }

    /// Runs a statement that may have any of the names.
    fn query<'a>(
        &self,
        statement: &'a mut CachedStatement<'_>,
        scope: &Scope,
        filter: &ListCheckpoints,
    ) -> DbResult<Rows<'a>> {
        let session = self.session.as_ref().map(|row| row.key);
        let (project, workflow) = (filter.project_id.as_ref().map(|id| id.as_str()), &filter.workflow_id);
        let (workflow, agent) =
            (workflow.as_ref().map(|id| id.as_str()), filter.agent_id.as_ref().map(|id| id.as_str()));
        // Before it comes here it is a time.
        let since = filter.since.as_ref().map(|since| since.before(Timestamp::from_ms(0)).ms());
        let until = filter.until.map(|at| at.ms());
        let (query, limit) = (filter.query.as_ref().filter(|_| !filter.content), filter.limit + 1);
        let values: [(&str, &dyn ToSql); 12] = [
            (":space", &scope.space),
            (":session", &session),
            (":project", &project),
            (":workflow", &workflow),
            (":agent", &agent),
            (":since", &since),
            (":until", &until),
            (":query", &query),
            (":tags", &self.tags),
            (":before", &self.before),
            (":limit", &limit),
            (":offset", &filter.offset),
        ];
        for (name, value) in values {
            if let Some(index) = statement.parameter_index(name)? {
                statement.raw_bind_parameter(index, value)?;
            }
        }
        Ok(statement.raw_query())
    }
}

pub(crate) fn list(db: &Connection, scope: &Scope, filter: &ListCheckpoints) -> DbResult<CheckpointPage> {
    let bounds = Bounds::of(db, scope, filter)?;
    let sql = format!(
        "SELECT {COLUMNS} {FROM} WHERE {} AND c.seq < :before AND {FILTERS}
         ORDER BY c.seq DESC LIMIT :limit OFFSET :offset",
        bounds.within
    );
    let (mut checkpoints, mut last_seq, mut has_more) = (Vec::new(), None, false);
    let mut statement = db.prepare_cached(&sql)?;
    let mut rows = bounds.query(&mut statement, scope, filter)?;
    while let Some(row) = rows.next()? {
        has_more = checkpoints.len() == filter.limit as usize;
        if !has_more {
            last_seq = Some(row.get(11)?);
            checkpoints.push(read(row)?);
        }
    }
    let total = match (is_unfiltered(filter), &bounds.session) {
        (true, Some(session)) => session.checkpoint_count,
        (true, None) => count_all(db, scope)?,
        (false, _) => count(db, scope, filter, &bounds)?,
    };
    let next_cursor = last_seq.filter(|_| has_more).map(cursor::write);
    Ok(CheckpointPage { checkpoints, total, has_more, next_cursor, warnings: Vec::new() })
}

/// The sessions of the newest checkpoints that pass the filters.
pub(crate) fn list_sessions(db: &Connection, scope: &Scope, filter: &ListCheckpoints) -> DbResult<BTreeSet<String>> {
    let bounds = Bounds::of(db, scope, filter)?;
    let sql = format!("SELECT s.id {FROM} WHERE {} AND {FILTERS} ORDER BY c.seq DESC LIMIT :limit", bounds.within);
    let mut statement = db.prepare_cached(&sql)?;
    let mut rows = bounds.query(&mut statement, scope, filter)?;
    let mut found = BTreeSet::new();
    while let Some(row) = rows.next()? {
        found.insert(row.get(0)?);
    }
    Ok(found)
}

/// What sessions are searched by, of those whose checkpoint passes the filters: its key there, and the checkpoint's.
pub(crate) fn list_indexed(db: &Connection, scope: &Scope, filter: &ListCheckpoints) -> DbResult<HashMap<i64, i64>> {
    let bounds = Bounds::of(db, scope, filter)?;
    let sql = format!(
        "SELECT i.key, c.key {FROM} JOIN checkpoint_index AS i ON i.checkpoint = c.key WHERE {} AND {FILTERS}",
        bounds.within
    );
    let mut statement = db.prepare_cached(&sql)?;
    let mut rows = bounds.query(&mut statement, scope, filter)?;
    let mut found = HashMap::new();
    while let Some(row) = rows.next()? {
        found.insert(row.get(0)?, row.get(1)?);
    }
    Ok(found)
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

fn count(db: &Connection, scope: &Scope, filter: &ListCheckpoints, bounds: &Bounds) -> DbResult<u64> {
    let sql = format!("SELECT count(*) {FROM} WHERE {} AND {FILTERS}", bounds.within);
    let mut statement = db.prepare_cached(&sql)?;
    let mut rows = bounds.query(&mut statement, scope, filter)?;
    Ok(rows.next()?.map_or(Ok(0), |row| row.get(0))?)
}
