//! Lists of checkpoints, newest first. A page costs the same whatever is behind it: rows are found by an index in their
//! order, and totals without a filter are counters. What is found by words or tags costs what is found: see [`super::find`].

use std::collections::{BTreeSet, HashMap};

use rusqlite::{CachedStatement, Connection, Rows, ToSql, params};
use waystone_core::Error;
use waystone_core::api::{CheckpointPage, ListCheckpoints};
use waystone_core::clock::Timestamp;
use waystone_core::find::expression;
use waystone_core::store::Scope;

use super::{COLUMNS, FROM, find_by_key, read};
use crate::sqlite::cursor;
use crate::sqlite::error::DbResult;
use crate::sqlite::seal::session_column;
use crate::sqlite::session::{self, SessionRow};

/// The filters, as text that is always the same: a filter that was not given is NULL and lets everything pass.
const FILTERS: &str = concat!(
    "
    s.archived_at_ms IS NULL
    AND (:project IS NULL OR s.project = :project)
    AND (:workflow IS NULL OR c.workflow = :workflow)
    AND (:agent IS NULL OR c.agent = :agent)
    AND (:since IS NULL OR c.created_at_ms >= :since)
    AND (:until IS NULL OR c.created_at_ms < :until)
    AND (:query IS NULL OR has_words(",
    session_column!("c", "metadata", "s"),
    ", :query))
    AND NOT EXISTS (SELECT 1 FROM json_each(:tags) AS wanted
                    WHERE wanted.value NOT IN (SELECT value FROM json_each(",
    session_column!("c", "tags", "s"),
    ")))"
);

/// So many checkpoints with the tags that are asked for are looked at for words one by one.
const FEW_MAX: u32 = 256;

/// What a list is narrowed down to, as values for the names in [`FILTERS`].
struct Bounds {
    session: Option<SessionRow>,
    within: String,
    tags: String,
    before: i64,
    /// What the index of words and tags is asked for. In a session, and of what is archived, every checkpoint is looked at instead.
    terms: Option<String>,
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
        let state = if filter.archived { "c.archived_at_ms IS NOT NULL" } else { "c.archived_at_ms IS NULL" };
        let within = format!("{within} AND {state}");
        let tags = serde_json::json!(filter.tags).to_string();
        let terms = match session.is_none() && !filter.archived {
            true => terms_of(db, filter)?,
            false => None,
        };
        Ok(Self { session, within, tags, before: cursor::read(filter.cursor.as_deref())?, terms })
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
        let (query, limit) = (words_of(filter), filter.limit + 1);
        let values: [(&str, &dyn ToSql); 13] = [
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
            (":terms", &self.terms),
        ];
        for (name, value) in values {
            if let Some(index) = statement.parameter_index(name)? {
                statement.raw_bind_parameter(index, value)?;
            }
        }
        Ok(statement.raw_query())
    }
}

/// What the index is asked for. Words are asked for as beginnings, whose every row the index puts together before it gives the first: where
/// few checkpoints have the tags, those are looked at instead.
fn terms_of(db: &Connection, filter: &ListCheckpoints) -> DbResult<Option<String>> {
    let (all, tagged) = (expression(words_of(filter).unwrap_or_default(), &filter.tags), expression("", &filter.tags));
    if tagged.is_none() || tagged == all {
        return Ok(all);
    }
    let is_narrow = db
        .prepare_cached(
            "SELECT count(*) < ?2 FROM (SELECT 1 FROM checkpoint_term WHERE checkpoint_term MATCH ?1 LIMIT ?2)",
        )?
        .query_row(params![tagged, FEW_MAX], |row| row.get(0))?;
    Ok(if is_narrow { tagged } else { all })
}

/// What is asked of metadata, rather than of contents.
fn words_of(filter: &ListCheckpoints) -> Option<&str> {
    filter.query.as_deref().filter(|_| !filter.is_search())
}

pub(crate) fn list(db: &Connection, scope: &Scope, filter: &ListCheckpoints) -> DbResult<CheckpointPage> {
    let bounds = Bounds::of(db, scope, filter)?;
    if bounds.terms.is_some() {
        return list_found(db, scope, filter, &bounds);
    }
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

/// A page of what the index names and the filters let pass.
fn list_found(db: &Connection, scope: &Scope, filter: &ListCheckpoints, bounds: &Bounds) -> DbResult<CheckpointPage> {
    let found = find(db, scope, filter, bounds)?;
    let total = found.len() as u64;
    let after = found.into_iter().filter(|(seq, _)| *seq < bounds.before).skip(filter.offset as usize);
    let mut page: Vec<(i64, i64)> = after.take(filter.limit as usize + 1).collect();
    let has_more = page.len() > filter.limit as usize;
    page.truncate(filter.limit as usize);
    let checkpoints = page.iter().map(|(_, key)| find_by_key(db, *key)).collect::<DbResult<_>>()?;
    let next_cursor = page.last().filter(|_| has_more).map(|(seq, _)| cursor::write(*seq));
    Ok(CheckpointPage { checkpoints, total, has_more, next_cursor, warnings: Vec::new() })
}

/// The numbers and keys of all that have the terms and pass the filters, newest first: by the index as far as it goes, and by a look at
/// each that came after.
fn find(db: &Connection, scope: &Scope, filter: &ListCheckpoints, bounds: &Bounds) -> DbResult<Vec<(i64, i64)>> {
    const INDEXED: &str = "(SELECT min(found_key) FROM search_index)";
    let within = &bounds.within;
    let sql = format!(
        "SELECT c.seq, c.key FROM checkpoint_term CROSS JOIN checkpoint AS c ON c.key = checkpoint_term.rowid
             CROSS JOIN session AS s ON s.key = c.session
         WHERE checkpoint_term MATCH :terms AND c.key <= {INDEXED} AND {within} AND {FILTERS}
         UNION ALL SELECT c.seq, c.key FROM checkpoint AS c NOT INDEXED CROSS JOIN session AS s ON s.key = c.session
         WHERE c.key > {INDEXED} AND {within} AND {FILTERS}
         ORDER BY 1 DESC"
    );
    let mut statement = db.prepare_cached(&sql)?;
    let mut rows = bounds.query(&mut statement, scope, filter)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push((row.get(0)?, row.get(1)?));
    }
    Ok(found)
}

/// The sessions of the newest checkpoints that have the words and tags.
pub(crate) fn list_sessions(db: &Connection, scope: &Scope, filter: &ListCheckpoints) -> DbResult<BTreeSet<String>> {
    let bounds = Bounds::of(db, scope, filter)?;
    let mut statement =
        db.prepare_cached("SELECT s.id FROM session AS s JOIN checkpoint AS c ON c.session = s.key WHERE c.key = ?1")?;
    let found = if bounds.terms.is_some() { find(db, scope, filter, &bounds)? } else { Vec::new() };
    let newest = found.iter().take(filter.limit as usize);
    Ok(newest.map(|(_, key)| statement.query_row([key], |row| row.get(0))).collect::<Result<_, _>>()?)
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
    !filter.archived
        && filter.project_id.is_none()
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
