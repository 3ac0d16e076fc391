//! Segments moved between tiers, pinned and unpinned. What they were before is kept with the operation, so that it can be undone.

use rusqlite::{Connection, Row, params};
use serde_json::json;
use waystone_core::Error;
use waystone_core::api::{PruneAction, SegmentFilters, Tier};
use waystone_core::clock::Timestamp;
use waystone_core::id::{ProjectId, SegmentId};
use waystone_core::store::{Change, ChangeSegments, Changed, Scope, WhichSegments, WhichTask};
use waystone_core::words::Words;

use super::list::{FILTERS, bind};
use super::put::IDS_TOLD_MAX;
use super::{ProjectRow, find_project, resolve, tier_of, touch_place};
use crate::sqlite::error::{DbResult, unreadable};
use crate::sqlite::log::{Operation, append_and_publish, handle};

/// All of a segment that operations change, and what is needed to do so.
#[derive(Clone, PartialEq)]
pub(crate) struct Image {
    pub(crate) key: i64,
    pub(crate) tier: Tier,
    pub(crate) pinned: bool,
    pub(crate) entered_seq: Option<i64>,
    pub(crate) survived: u64,
    pub(crate) tokens: u64,
    pub(crate) task: Option<i64>,
}

const IMAGE: &str = "s.key, s.tier, s.pinned, s.entered_seq, s.survived, s.tokens, s.task, s.id";

fn read(row: &Row<'_>) -> DbResult<(Image, SegmentId)> {
    let image = Image {
        key: row.get(0)?,
        tier: tier_of(row.get_ref(1)?.as_str().unwrap_or_default())?,
        pinned: row.get(2)?,
        entered_seq: row.get(3)?,
        survived: row.get(4)?,
        tokens: row.get(5)?,
        task: row.get(6)?,
    };
    let id = row.get::<_, String>(7)?.parse().map_err(|error| unreadable("a segment's id", error))?;
    Ok((image, id))
}

/// A segment as it is now.
pub(crate) fn image_of(db: &Connection, key: i64) -> DbResult<Option<Image>> {
    let mut statement = db.prepare_cached(&format!("SELECT {IMAGE} FROM segment AS s WHERE s.key = ?1"))?;
    let mut rows = statement.query(params![key])?;
    Ok(rows.next()?.map(read).transpose()?.map(|(image, _)| image))
}

/// Moves or pins a segment, as part of an operation.
#[expect(clippy::too_many_arguments, reason = "what it was, what it is to be, and on whose behalf")]
pub(crate) fn apply(
    db: &Connection,
    scope: &Scope,
    project: i64,
    operation: i64,
    before: &Image,
    tier: Tier,
    pinned: bool,
    at: Timestamp,
) -> DbResult<()> {
    let mut after = Image { tier, pinned, ..before.clone() };
    if before.tier == Tier::Working && tier != Tier::Working {
        let collections: u64 = db
            .prepare_cached("SELECT count(*) FROM collection WHERE project = ?1 AND seq > ?2 AND seq < ?3")?
            .query_row(params![project, before.entered_seq, operation], |row| row.get(0))?;
        (after.survived, after.entered_seq) = (before.survived + collections, None);
    } else if before.tier != Tier::Working && tier == Tier::Working {
        after.entered_seq = Some(operation);
    }
    restore(db, scope, operation, before, &after, at)
}

/// Makes a segment what `after` says, as part of an operation.
pub(crate) fn restore(
    db: &Connection,
    scope: &Scope,
    operation: i64,
    before: &Image,
    after: &Image,
    at: Timestamp,
) -> DbResult<()> {
    record(db, scope, operation, before.key, Some(before))?;
    db.prepare_cached(
        "UPDATE segment SET tier = ?2, pinned = ?3, entered_seq = ?4, survived = ?5, archived_at_ms = ?6 WHERE key = ?1",
    )?
    .execute(params![
        before.key,
        after.tier.as_str(),
        after.pinned,
        after.entered_seq,
        after.survived,
        (after.tier == Tier::Archive).then_some(at.ms()),
    ])?;
    Ok(())
}

/// Records that an operation added a segment.
pub(super) fn record_added(db: &Connection, scope: &Scope, operation: i64, segment: i64) -> DbResult<()> {
    record(db, scope, operation, segment, None)
}

fn record(db: &Connection, scope: &Scope, operation: i64, segment: i64, before: Option<&Image>) -> DbResult<()> {
    db.prepare_cached(
        "INSERT INTO segment_change (space, operation, segment, tier, pinned, entered_seq, survived)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )?
    .execute(params![
        scope.space,
        operation,
        segment,
        before.map(|before| before.tier.as_str()),
        before.is_some_and(|before| before.pinned),
        before.and_then(|before| before.entered_seq),
        before.map_or(0, |before| before.survived),
    ])?;
    Ok(())
}

/// What a change makes of a segment.
enum Verdict {
    To(Tier, bool),
    Pinned,
    Unknown,
}

fn judge(change: Change, image: &Image) -> Verdict {
    let (tier, pinned) = (image.tier, image.pinned);
    match change {
        _ if tier == Tier::Archive => Verdict::Unknown,
        Change::Pin => Verdict::To(tier, true),
        Change::Unpin => Verdict::To(tier, false),
        Change::Retrieve => Verdict::To(Tier::Working, pinned),
        Change::Stash | Change::Prune(_) if pinned => Verdict::Pinned,
        Change::Stash | Change::Prune(PruneAction::Stash) => Verdict::To(Tier::Stashed, pinned),
        Change::Prune(PruneAction::Delete) => Verdict::To(Tier::Archive, pinned),
    }
}

fn kind(change: Change) -> &'static str {
    match change {
        Change::Pin => "segment.pinned",
        Change::Unpin => "segment.unpinned",
        Change::Stash => "segment.stashed",
        Change::Retrieve => "segment.retrieved",
        Change::Prune(_) => "segment.pruned",
    }
}

pub(crate) fn change(db: &Connection, scope: &Scope, request: &ChangeSegments) -> DbResult<Changed> {
    let project = find_project(db, scope, &request.project)?;
    let (found, unknown) = match (&project, &request.which) {
        (None, WhichSegments::Ids(ids)) => (Vec::new(), ids.clone()),
        (None, WhichSegments::Working { .. }) => (Vec::new(), Vec::new()),
        (Some(project), WhichSegments::Ids(ids)) => find_all(db, project, ids)?,
        (Some(project), WhichSegments::Working { filters, words }) => {
            (select_working(db, scope, project, filters, words)?, Vec::new())
        }
    };
    let mut changed = Changed { unknown, ..Changed::default() };
    let mut moves = Vec::new();
    for (image, id) in found {
        match judge(request.change, &image) {
            Verdict::Unknown => changed.unknown.push(id),
            Verdict::Pinned => changed.pinned.push(id),
            Verdict::To(tier, pinned) => {
                if (tier, pinned) != (image.tier, image.pinned) {
                    changed.tokens += image.tokens;
                    moves.push((image, tier, pinned, id.clone()));
                }
                changed.done.push(id);
            }
        }
    }
    if let (Change::Prune(_), false) = (request.change, changed.pinned.is_empty()) {
        return Err(Error::SegmentsPinned(changed.pinned).into());
    }
    if changed.done.is_empty() && changed.pinned.is_empty() && !changed.unknown.is_empty() {
        return Err(Error::SegmentNotFound(changed.unknown).into());
    }
    let Some(project) = project.filter(|_| !moves.is_empty()) else { return Ok(changed) };
    let told: Vec<&SegmentId> = moves.iter().map(|(.., id)| id).take(IDS_TOLD_MAX).collect();
    let seq = append(db, scope, request, &told, moves.len(), changed.tokens)?;
    for (image, tier, pinned, _) in &moves {
        apply(db, scope, project.key, seq, image, *tier, *pinned, request.at)?;
        touch_place(db, project.key, image.task, request.at)?;
    }
    if let Change::Prune(_) = request.change {
        db.prepare_cached("INSERT INTO collection (project, seq) VALUES (?1, ?2)")?
            .execute(params![project.key, seq])?;
    }
    changed.operation = Some(seq);
    Ok(changed)
}

fn append(
    db: &Connection,
    scope: &Scope,
    request: &ChangeSegments,
    told: &[&SegmentId],
    count: usize,
    tokens: u64,
) -> DbResult<i64> {
    let mut payload =
        json!({ "project_id": request.project, "segments": count, "tokens": tokens, "segment_ids": told });
    if let Change::Prune(action) = request.change {
        payload["action"] = json!(action);
    }
    let subject = told.iter().map(|id| handle("segment", id.as_str())).collect();
    let project: &ProjectId = &request.project;
    let operation =
        Operation { at: request.at, kind: kind(request.change), project: project.as_str(), subject, payload };
    append_and_publish(db, scope, &operation)
}

/// The segments with these ids, each once, and the ids that the project does not have.
fn find_all(
    db: &Connection,
    project: &ProjectRow,
    ids: &[SegmentId],
) -> DbResult<(Vec<(Image, SegmentId)>, Vec<SegmentId>)> {
    let sql = format!("SELECT {IMAGE} FROM segment AS s WHERE s.project = ?1 AND s.id = ?2");
    let mut statement = db.prepare_cached(&sql)?;
    let (mut found, mut unknown) = (Vec::new(), Vec::new());
    let mut seen = std::collections::HashSet::new();
    for id in ids.iter().filter(|id| seen.insert(id.as_str())) {
        let mut rows = statement.query(params![project.key, id.as_str()])?;
        match rows.next()? {
            Some(row) => found.push(read(row)?),
            None => unknown.push(id.clone()),
        }
    }
    Ok((found, unknown))
}

/// The segments in the working set that pass the filters and have the words.
fn select_working(
    db: &Connection,
    scope: &Scope,
    project: &ProjectRow,
    filters: &SegmentFilters,
    words: &Words,
) -> DbResult<Vec<(Image, SegmentId)>> {
    let which = filters.task_id.clone().map_or(WhichTask::Current, WhichTask::Named);
    let within = resolve(db, project, &which)?;
    // The condition that the index is chosen by.
    let place = if within.task().is_some() { "s.task = :task AND" } else { "" };
    let sql = format!(
        "SELECT {IMAGE}, x.text FROM segment AS s JOIN segment_text AS x ON x.segment = s.key
         WHERE {place} s.project = :project AND s.tier = 'working' AND {FILTERS} ORDER BY s.seq"
    );
    let mut statement = db.prepare_cached(&sql)?;
    let mut rows = bind(&mut statement, scope, Some(project.key), within.task(), filters)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        if words.is_empty() || words.are_in(row.get_ref(8)?.as_str().unwrap_or_default()) {
            found.push(read(row)?);
        }
    }
    Ok(found)
}
