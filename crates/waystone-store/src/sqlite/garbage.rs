//! What garbage collection starts from and may take, and plans of it.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap, HashSet};

use rusqlite::{CachedStatement, Connection, OptionalExtension, Rows, named_params, params};
use waystone_core::api::PruneAction;
use waystone_core::clock::Timestamp;
use waystone_core::id::{PlanId, SegmentId};
use waystone_core::store::{Candidates, Facts, FindCandidates, PLAN_LIFE_MS, Plan, Ranked, Roots, Scope};

use super::error::{DbResult, unreadable};
use super::segment::{ProjectRow, TOPIC_COUNTED_MAX, find_project, kind_of, resolve};

/// What must stay, and all that it refers to: nodes are segments (kind 0) and topics (kind 1), so that a topic is gone through once. What is
/// found is looked up from each node: the other way round every segment would be looked at for each of them.
pub(super) const ROOTS: &str = "
    WITH RECURSIVE root (kind, key, topic) AS (
        SELECT 0, key, NULL FROM segment WHERE project = :project AND pinned = 1 AND tier <> 'archive'
        UNION SELECT 0, key, NULL FROM
            (SELECT key FROM segment WHERE task = :current AND type = 'message' AND tier = 'working' ORDER BY touched_at_ms DESC, seq DESC LIMIT :messages)
        UNION SELECT 0, key, NULL FROM
            (SELECT key FROM segment WHERE :current IS NULL AND project = :project AND conversation IS NULL AND type = 'message' AND tier = 'working'
             ORDER BY touched_at_ms DESC, seq DESC LIMIT :messages)
        UNION SELECT 0, key, NULL FROM segment WHERE project = :project AND file_path = (SELECT sealed_alike(:file, 'file_path', 'project:' || id, wrapped_key) FROM project WHERE key = :project) AND tier <> 'archive'
        UNION SELECT 0, key, NULL FROM segment
            WHERE project = :project AND type = 'decision' AND created_at_ms >= :since AND tier <> 'archive'
        UNION SELECT 0, r.target, NULL FROM root CROSS JOIN segment_ref AS r ON root.kind = 0 AND r.source = root.key
            CROSS JOIN segment AS t ON t.key = r.target AND t.tier <> 'archive'
        UNION SELECT 1, 0, s.topic FROM root CROSS JOIN segment AS s ON root.kind = 0 AND s.key = root.key WHERE s.topic IS NOT NULL
        UNION SELECT 0, s.key, NULL FROM root CROSS JOIN segment AS s
            ON root.kind = 1 AND s.project = :project AND s.topic = root.topic AND s.tier <> 'archive'
    )";

/// Runs a statement that begins with [`ROOTS`] and has `:within`, the task that is asked for.
pub(super) fn bind_roots<'a>(
    statement: &'a mut CachedStatement<'_>,
    project: &ProjectRow,
    within: Option<i64>,
    roots: &Roots,
) -> DbResult<Rows<'a>> {
    Ok(statement.query(named_params! {
        ":project": project.key,
        ":current": project.current_task,
        ":messages": roots.messages,
        ":file": roots.file_path,
        ":since": roots.decisions_since.ms(),
        ":within": within,
    })?)
}

/// A segment that may go, on a heap: the highest score first, and of equal ones the oldest.
struct Entry {
    score: f64,
    key: i64,
    facts: Facts,
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        self.score.total_cmp(&other.score).then(other.key.cmp(&self.key))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Entry {}

pub(crate) fn find(db: &Connection, scope: &Scope, find: &FindCandidates) -> DbResult<Candidates> {
    let Some(project) = find_project(db, scope, &find.project)? else { return Ok(Candidates::default()) };
    let within = resolve(db, &project, &find.task)?;
    let roots = root_keys(db, &project, &find.roots)?;
    let (mut found, mut entries) = (Candidates::default(), Vec::new());
    for_each(db, &project, within.task(), |key, facts| {
        if !roots.contains(&key) {
            found.total += 1;
            found.tokens += facts.tokens;
            entries.push(Entry { score: (find.rank)(&facts), key, facts });
        }
    })?;
    let (mut heap, mut freed) = (BinaryHeap::from(entries), 0);
    while found.first.len() < find.limit || freed < find.target_tokens {
        let Some(entry) = heap.pop() else { break };
        freed += entry.facts.tokens;
        found.first.push(Ranked { id: public_id(db, entry.key)?, score: entry.score, facts: entry.facts });
    }
    Ok(found)
}

fn root_keys(db: &Connection, project: &ProjectRow, roots: &Roots) -> DbResult<HashSet<i64>> {
    let mut statement =
        db.prepare_cached(&format!("{ROOTS} SELECT key FROM root WHERE kind = 0 AND :within IS NULL"))?;
    let mut rows = bind_roots(&mut statement, project, None, roots)?;
    let mut keys = HashSet::new();
    while let Some(row) = rows.next()? {
        keys.insert(row.get(0)?);
    }
    Ok(keys)
}

fn public_id(db: &Connection, key: i64) -> DbResult<SegmentId> {
    let id: String =
        db.prepare_cached("SELECT id FROM segment WHERE key = ?1")?.query_row(params![key], |row| row.get(0))?;
    id.parse().map_err(|error| unreadable("a segment's id", error))
}

/// Shows every segment in the window that is not pinned, with what its place in the order depends on.
fn for_each(db: &Connection, project: &ProjectRow, task: Option<i64>, mut see: impl FnMut(i64, Facts)) -> DbResult<()> {
    let (collections, refs, topics) = (collections(db, project)?, refs(db, project)?, topics(db, project)?);
    let place = match task {
        Some(_) => "task = ?2 AND project = ?1",
        None => "project = ?1 AND ?2 IS NULL AND conversation IS NULL",
    };
    let sql = format!(
        "SELECT key, type, touched_at_ms, mentions, survived, entered_seq, tokens, topic FROM segment
         WHERE {place} AND tier = 'working' AND pinned = 0"
    );
    let mut statement = db.prepare_cached(&sql)?;
    let mut rows = statement.query(params![project.key, task])?;
    while let Some(row) = rows.next()? {
        let key: i64 = row.get(0)?;
        let entered: i64 = row.get(5)?;
        let later = collections.len() - collections.partition_point(|seq| *seq <= entered);
        let mentions: u64 = row.get(3)?;
        let topic = row.get_ref(7)?.as_str_or_null().ok().flatten();
        let in_topic = topic.and_then(|topic| topics.get(topic)).map_or(0, |count| count - 1);
        let facts = Facts {
            kind: kind_of(row.get_ref(1)?.as_str().unwrap_or_default())?,
            touched: Timestamp::from_ms(row.get(2)?),
            refcount: mentions + refs.get(&key).copied().unwrap_or(0) + in_topic.min(TOPIC_COUNTED_MAX),
            survived: row.get::<_, u64>(4)? + later as u64,
            tokens: row.get(6)?,
        };
        see(key, facts);
    }
    Ok(())
}

/// The numbers of a project's collections, in order.
fn collections(db: &Connection, project: &ProjectRow) -> DbResult<Vec<i64>> {
    let mut statement = db.prepare_cached("SELECT seq FROM collection WHERE project = ?1 ORDER BY seq")?;
    let seqs = statement.query_map(params![project.key], |row| row.get(0))?;
    Ok(seqs.collect::<Result<_, _>>()?)
}

/// How many segments refer to each.
fn refs(db: &Connection, project: &ProjectRow) -> DbResult<HashMap<i64, u64>> {
    let mut statement = db.prepare_cached(
        "SELECT r.target, count(*) FROM segment_ref AS r CROSS JOIN segment AS f ON f.key = r.source
         WHERE f.project = ?1 AND f.tier <> 'archive' GROUP BY r.target",
    )?;
    let counts = statement.query_map(params![project.key], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(counts.collect::<Result<_, _>>()?)
}

/// How many segments each topic has.
fn topics(db: &Connection, project: &ProjectRow) -> DbResult<HashMap<String, u64>> {
    let mut statement = db.prepare_cached(
        "SELECT topic, count(*) FROM segment WHERE project = ?1 AND topic IS NOT NULL AND tier <> 'archive' GROUP BY topic",
    )?;
    let counts = statement.query_map(params![project.key], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(counts.collect::<Result<_, _>>()?)
}

pub(crate) fn keep_plan(db: &Connection, scope: &Scope, plan: &Plan) -> DbResult<()> {
    let project = super::segment::ensure_project(db, scope, &plan.project, plan.at)?;
    db.prepare_cached(
        "INSERT INTO plan (space, project, id, action, segments, at_ms) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?
    .execute(params![
        scope.space,
        project.key,
        plan.id.as_str(),
        plan.action.as_str(),
        serde_json::json!(plan.segments).to_string(),
        plan.at.ms(),
    ])?;
    Ok(())
}

pub(crate) fn find_plan(db: &Connection, scope: &Scope, id: &PlanId, now: Timestamp) -> DbResult<Option<Plan>> {
    let found: Option<(String, String, String, i64)> = db
        .prepare_cached(
            "SELECT p.id, l.action, l.segments, l.at_ms FROM plan AS l JOIN project AS p ON p.key = l.project
             WHERE l.space = ?1 AND l.id = ?2 AND l.at_ms >= ?3",
        )?
        .query_row(params![scope.space, id.as_str(), now.ms() - PLAN_LIFE_MS], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
        })
        .optional()?;
    let Some((project, action, segments, at)) = found else { return Ok(None) };
    let wrong = |error: String| unreadable("a plan", error);
    Ok(Some(Plan {
        id: id.clone(),
        project: project.parse().map_err(wrong)?,
        action: if action == PruneAction::Delete.as_str() { PruneAction::Delete } else { PruneAction::Stash },
        segments: serde_json::from_str(&segments).map_err(|error| wrong(error.to_string()))?,
        at: Timestamp::from_ms(at),
    }))
}

/// Forgets plans that no one carried out.
pub(crate) fn expire_plans(db: &Connection, now_ms: i64) -> rusqlite::Result<usize> {
    db.execute("DELETE FROM plan WHERE at_ms < ?1", params![now_ms - PLAN_LIFE_MS])
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use waystone_testkit::harness::private_dir;

    use super::*;
    use crate::sqlite::connection::open_new;
    use crate::sqlite::migration::make;

    #[test]
    fn what_a_segment_that_stays_refers_to_is_looked_up_and_not_searched_for() {
        let directory = private_dir();
        let path = directory.path().join("a.db");
        make(&path, &Arc::default(), Timestamp::from_ms(0)).unwrap();
        let db = open_new(&path, &Arc::default()).unwrap();
        let sql = format!("EXPLAIN QUERY PLAN {ROOTS} SELECT count(*) FROM root");
        let mut statement = db.prepare(&sql).unwrap();
        let mut rows = statement.raw_query();
        let mut steps: Vec<String> = Vec::new();
        while let Some(row) = rows.next().unwrap() {
            steps.push(row.get("detail").unwrap());
        }
        let recursive = steps.iter().position(|step| step == "RECURSIVE STEP").unwrap();
        let searches: Vec<&str> =
            steps[recursive..].iter().map(String::as_str).filter(|step| step.starts_with("SEARCH")).collect();
        assert_eq!(
            searches,
            [
                "SEARCH r USING PRIMARY KEY (source=?)",
                "SEARCH t USING INTEGER PRIMARY KEY (rowid=?)",
                "SEARCH s USING INTEGER PRIMARY KEY (rowid=?)",
                "SEARCH s USING INDEX segment_by_topic (project=? AND topic=?)",
            ],
            "{steps:#?}"
        );
    }
}
