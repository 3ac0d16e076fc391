//! Running sums over segments, and what of the working tier must stay.

use std::collections::HashMap;

use rusqlite::{Connection, params};
use waystone_core::api::{SegmentType, Tier};
use waystone_core::clock::Timestamp;
use waystone_core::id::ProjectId;
use waystone_core::store::{Roots, Scope, Usage, UsageRow, WhichTask};
use waystone_core::tokens;

use super::error::{DbResult, unreadable};
use super::garbage::{ROOTS, bind_roots};
use super::seal::SEGMENT_TEXT;
use super::segment::{ProjectRow, Within, find_project, image_of, kind_of, resolve, task_id};

/// What changes in the sums, gathered while an operation goes through its segments and written once.
#[derive(Default)]
pub(crate) struct Sums(HashMap<(i64, i64, &'static str, &'static str), [i64; 4]>);

/// A segment as it is counted.
pub(crate) struct Counted {
    pub(crate) task: Option<i64>,
    pub(crate) tier: Tier,
    pub(crate) kind: SegmentType,
    pub(crate) tokens: u64,
    pub(crate) pinned: bool,
}

impl Sums {
    pub(crate) fn add(&mut self, project: i64, segment: &Counted) {
        self.count(project, segment, 1);
    }

    pub(crate) fn remove(&mut self, project: i64, segment: &Counted) {
        self.count(project, segment, -1);
    }

    fn count(&mut self, project: i64, segment: &Counted, sign: i64) {
        let place = (project, segment.task.unwrap_or(0), segment.tier.as_str(), segment.kind.as_str());
        let tokens = sign * i64::try_from(segment.tokens).unwrap_or(i64::MAX);
        let pinned = i64::from(segment.pinned);
        let sums = self.0.entry(place).or_default();
        for (sum, more) in sums.iter_mut().zip([sign, tokens, sign * pinned, tokens * pinned]) {
            *sum += more;
        }
    }

    pub(crate) fn write(self, db: &Connection) -> DbResult<()> {
        for ((project, task, tier, kind), [segments, tokens, pinned, pinned_tokens]) in self.0 {
            db.prepare_cached(
                "INSERT INTO usage VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
                 ON CONFLICT DO UPDATE SET segment_count = segment_count + ?5, tokens = tokens + ?6,
                     pinned_count = pinned_count + ?7, pinned_tokens = pinned_tokens + ?8",
            )?
            .execute(params![project, task, tier, kind, segments, tokens, pinned, pinned_tokens])?;
        }
        Ok(())
    }
}

/// Counts the tokens of some segments for which they are an estimate: key, and how many.
pub(crate) fn count_estimated(db: &Connection, limit: usize) -> DbResult<Vec<(i64, u64)>> {
    let mut statement = db.prepare_cached(&format!(
        "SELECT s.key, {SEGMENT_TEXT} FROM segment AS s JOIN segment_text AS x ON x.segment = s.key
         WHERE s.counted_at_ms IS NULL LIMIT ?1"
    ))?;
    let mut rows = statement.query(params![limit])?;
    let mut counted = Vec::new();
    while let Some(row) = rows.next()? {
        counted.push((row.get(0)?, tokens::count(row.get_ref(1)?.as_str().unwrap_or_default()) as u64));
    }
    Ok(counted)
}

/// Writes what was counted. How many tokens a text has is not a change of it, so this is no operation.
pub(crate) fn write_counted(db: &Connection, counted: &[(i64, u64)], at: Timestamp) -> DbResult<()> {
    let mut sums = Sums::default();
    for (key, tokens) in counted {
        let Some(image) = image_of(db, *key)? else { continue };
        let project = db
            .prepare_cached("UPDATE segment SET tokens = ?2, counted_at_ms = ?3 WHERE key = ?1 RETURNING project")?
            .query_row(params![key, tokens, at.ms()], |row| row.get(0))?;
        sums.remove(project, &image.counted());
        sums.add(project, &Counted { tokens: *tokens, ..image.counted() });
    }
    sums.write(db)
}

pub(crate) fn sum(
    db: &Connection,
    scope: &Scope,
    project: &ProjectId,
    which: &WhichTask,
    roots: Option<&Roots>,
) -> DbResult<Usage> {
    let Some(project) = find_project(db, scope, project)? else { return Ok(Usage::default()) };
    let within = resolve(db, &project, which)?;
    let (oldest, newest) = (age(db, &project, &within, "min")?, age(db, &project, &within, "max")?);
    let mut usage = Usage { task: task_id(db, within.task())?, oldest, newest, ..Usage::default() };
    let mut statement = db.prepare_cached(
        "SELECT t.id, u.type, u.segment_count, u.tokens, u.pinned_count, u.pinned_tokens
         FROM usage AS u LEFT JOIN task AS t ON t.key = u.task
         WHERE u.project = ?1 AND (u.task = ?2 OR ?2 IS NULL AND u.task NOT IN (SELECT task FROM conversation)) AND u.tier = 'working'",
    )?;
    let mut rows = statement.query(params![project.key, within.task()])?;
    while let Some(row) = rows.next()? {
        let task: Option<String> = row.get(0)?;
        usage.by_task.push(UsageRow {
            task: task.map(|id| id.parse()).transpose().map_err(|error: String| unreadable("a task's id", error))?,
            kind: kind_of(row.get_ref(1)?.as_str().unwrap_or_default())?,
            segments: row.get(2)?,
            tokens: row.get(3)?,
            pinned: row.get(4)?,
            pinned_tokens: row.get(5)?,
        });
    }
    if let Some(roots) = roots {
        (usage.root_count, usage.root_tokens) = count_roots(db, &project, &within, roots)?;
    }
    Ok(usage)
}

/// When the first or last segment that is in the window was made.
fn age(db: &Connection, project: &ProjectRow, within: &Within, end: &str) -> DbResult<Option<Timestamp>> {
    let place = match within.task() {
        Some(_) => "task = ?2 AND ?1 > 0",
        None => "project = ?1 AND ?2 IS NULL AND conversation IS NULL",
    };
    let sql = format!("SELECT {end}(created_at_ms) FROM segment WHERE {place} AND tier = 'working'");
    let at: Option<i64> = db.prepare_cached(&sql)?.query_row(params![project.key, within.task()], |row| row.get(0))?;
    Ok(at.map(Timestamp::from_ms))
}

fn count_roots(db: &Connection, project: &ProjectRow, within: &Within, roots: &Roots) -> DbResult<(u64, u64)> {
    let sql = format!(
        "{ROOTS} SELECT count(*), coalesce(sum(s.tokens), 0) FROM root CROSS JOIN segment AS s ON s.key = root.key
         WHERE root.kind = 0 AND s.tier = 'working' AND s.project = :project AND (s.task = :within OR :within IS NULL AND s.conversation IS NULL)"
    );
    let mut statement = db.prepare_cached(&sql)?;
    let mut rows = bind_roots(&mut statement, project, within.task(), roots)?;
    match rows.next()? {
        Some(row) => Ok((row.get(0)?, row.get(1)?)),
        None => Ok((0, 0)),
    }
}
