//! Sessions that someone may want to go on with. Which of them is meant is decided in `waystone_core::resume`.

use std::collections::HashMap;

use rusqlite::types::Null;
use rusqlite::{Connection, ToSql};
use waystone_core::api::{Git, Hit, ListCheckpoints};
use waystone_core::canon::Hash;
use waystone_core::clock::Timestamp;
use waystone_core::id::SessionId;
use waystone_core::search::{Snippet, snippet};
use waystone_core::store::{FindResumable, Resumable, Scope};
use waystone_core::words::Words;

use super::checkpoint;
use super::error::{DbResult, unreadable};
use super::origin::read_origin;
use super::seal::session_column;
use super::search::{self, Corpora};
use super::session;

/// How many are looked at of each kind.
const RECENT_MAX: u32 = 500;
const WORKFLOW_MAX: u32 = 100;
const NAMED_MAX: u32 = 100;
const HITS_MAX: u32 = 20;

/// The newest checkpoint of a session, under names that a session has not.
const NEWEST: &str =
    "JOIN (SELECT key AS newest_key, id AS newest_id, name AS newest_name, git_branch, git_head, raw_bytes, origin,
                            imported AS newest_imported FROM checkpoint) ON newest_key = head";

/// What is read of both, besides the session itself.
const BESIDES: &str = concat!(
    session_column!("session", "correlation", "session"),
    ", newest_id, unsealed(newest_name, 'name', newest_id, 'session:' || session.id, wrapped_key),
    unsealed(git_branch, 'git_branch', newest_id, 'session:' || session.id, wrapped_key), git_head, raw_bytes, origin, newest_imported"
);

/// Sessions that were given a name or tags with the words.
const IS_NAMED: &str = concat!(
    "(name IS NOT NULL OR tags <> '[]') AND has_words(json_object('0', ",
    session_column!("session", "name", "session"),
    ", '1', ",
    session_column!("session", "tags", "session"),
    "), ?2)"
);

pub(crate) fn list(
    db: &Connection,
    scope: &Scope,
    corpora: &Corpora,
    wanted: &FindResumable,
    now: Timestamp,
) -> DbResult<Vec<Resumable>> {
    let mut all = Found { db, space: scope.space, sessions: HashMap::new() };
    match &wanted.project {
        Some(project) => all.add("project = ?2", &project.as_str(), RECENT_MAX, |_| {})?,
        None => all.add("?2 IS NULL", &Null, RECENT_MAX, |_| {})?,
    }
    if let Some(workflow) = &wanted.workflow {
        all.add("workflow = ?2", &workflow.as_str(), WORKFLOW_MAX, |_| {})?;
    }
    if let Some(query) = &wanted.query {
        all.add(IS_NAMED, query, NAMED_MAX, |one| one.is_named = true)?;
        let named = ListCheckpoints { query: Some(query.clone()), limit: NAMED_MAX, ..ListCheckpoints::default() };
        for project_id in [None, wanted.project.clone()] {
            for id in checkpoint::list_sessions(db, scope, &ListCheckpoints { project_id, ..named.clone() })? {
                all.add("id = ?2", &id, 1, |one| one.is_named = true)?;
            }
        }
        // Those of one's own project are looked for by themselves too: others may fit the words better, and be many.
        for project_id in [None, wanted.project.clone()] {
            let meant = ListCheckpoints { content: true, limit: HITS_MAX, project_id, ..named.clone() };
            for mut found in search::search_checkpoints(db, scope, corpora, &meant, now)?.checkpoints {
                all.add("id = ?2", &found.session_id.as_str(), 1, |one| one.hit = one.hit.take().or(found.hit.take()))?;
            }
        }
        all.add_unindexed(query, now)?;
    }
    Ok(all.sessions.into_values().collect())
}

/// How well a session fits that has every word, beside those that the index weighs.
const ALL_WORDS: f64 = 1.0;

struct Found<'a> {
    db: &'a Connection,
    space: i64,
    sessions: HashMap<SessionId, Resumable>,
}

impl Found<'_> {
    /// Adds those with every word that were saved a moment ago, which the index does not have yet.
    fn add_unindexed(&mut self, query: &str, now: Timestamp) -> DbResult<()> {
        let words = Words::parse(query);
        if words.is_empty() {
            return Ok(());
        }
        let best = self.sessions.values().filter_map(|one| Some(one.hit.as_ref()?.score)).fold(ALL_WORDS, f64::max);
        for (id, text) in search::read_unindexed(self.db, self.space)? {
            if words.are_in(&text) {
                let Snippet { text: snippet, .. } = snippet(&text, query);
                let hit = |age| Hit { score: best, why: "words", snippet: snippet.clone(), line: None, age };
                self.add("id = ?2", &id, 1, |one| one.hit = Some(hit(now.age_of(one.session.last_accessed_at))))?;
            }
        }
        Ok(())
    }

    /// Adds those that meet a condition, used last first, and does something to each, whether it is new or not.
    fn add(
        &mut self,
        condition: &str,
        value: &dyn ToSql,
        limit: u32,
        mut change: impl FnMut(&mut Resumable),
    ) -> DbResult<()> {
        let columns = session::COLUMNS;
        let sql = format!(
            "SELECT {columns}, {BESIDES} FROM session {NEWEST}
             WHERE space = ?1 AND archived_at_ms IS NULL AND {condition}
                 AND NOT EXISTS (SELECT 1 FROM conversation AS c WHERE c.session = session.key) ORDER BY accessed_seq DESC LIMIT ?3"
        );
        let mut statement = self.db.prepare_cached(&sql)?;
        let mut rows = statement.query((self.space, value, limit))?;
        while let Some(row) = rows.next()? {
            let session = session::read(row)?;
            let newest: String = row.get(15)?;
            let (_, newest_origin) = read_origin(row, 20)?;
            let one = Resumable {
                accessed_seq: row.get(9)?,
                correlation: Hash(row.get(14)?),
                newest: newest.parse().map_err(|error| unreadable("a checkpoint's id", error))?,
                newest_name: row.get(16).unwrap_or_default(),
                newest_origin,
                newest_bytes: row.get(19)?,
                git: Git::new(row.get(17).unwrap_or_default(), row.get(18).unwrap_or_default()),
                is_named: false,
                hit: None,
                session,
            };
            change(self.sessions.entry(one.session.id.clone()).or_insert(one));
        }
        Ok(())
    }
}
