//! Segments moved between tiers, pinned and unpinned.

use rusqlite::{Connection, params};
use serde_json::json;
use waystone_core::Error;
use waystone_core::api::{PruneAction, SegmentFilters, Tier};
use waystone_core::id::{ProjectId, SegmentId};
use waystone_core::search::words_of_message;
use waystone_core::store::{Change, ChangeSegments, Changed, Scope, WhichSegments, WhichTask};
use waystone_core::words::Words;

use super::edit::{Edit, IMAGE, Image, read_image};
use super::list::{FILTERS, bind, place_of};
use super::put::IDS_TOLD_MAX;
use super::{ProjectRow, find_project, resolve};
use crate::sqlite::error::DbResult;
use crate::sqlite::log::{Operation, append_and_publish, handle};
use crate::sqlite::message::read_parts;
use crate::sqlite::seal::{SEGMENT_CALLS, SEGMENT_TEXT};

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
        (Some(project), WhichSegments::Ids(ids)) => find_all(db, scope, project, ids)?,
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
                    let (was_in, is_in) = (image.tier == Tier::Working, tier == Tier::Working);
                    changed.tokens += if was_in == is_in { 0 } else { image.tokens };
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
    if let Some(plan) = &request.plan {
        db.prepare_cached("DELETE FROM plan WHERE space = ?1 AND id = ?2")?
            .execute(params![scope.space, plan.as_str()])?;
    }
    let Some(project) = project.filter(|_| !moves.is_empty()) else { return Ok(changed) };
    let told: Vec<&SegmentId> = moves.iter().map(|(.., id)| id).take(IDS_TOLD_MAX).collect();
    let seq = append(db, scope, request, &told, moves.len(), changed.tokens)?;
    let mut edit = Edit::begin(db, scope, project.key, seq, request.at)?;
    for (image, tier, pinned, _) in &moves {
        edit.move_to(image, *tier, *pinned)?;
    }
    edit.finish()?;
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

type Known = (Image, SegmentId);

/// The segments with these ids, each once, and the ids that the project does not have.
fn find_all(
    db: &Connection,
    scope: &Scope,
    project: &ProjectRow,
    ids: &[SegmentId],
) -> DbResult<(Vec<Known>, Vec<SegmentId>)> {
    let sql = format!("SELECT {IMAGE} FROM segment AS s WHERE s.space = ?1 AND s.id = ?2 AND s.project = ?3");
    let mut statement = db.prepare_cached(&sql)?;
    let (mut found, mut unknown) = (Vec::new(), Vec::new());
    let mut seen = std::collections::HashSet::new();
    for id in ids.iter().filter(|id| seen.insert(id.as_str())) {
        let mut rows = statement.query(params![scope.space, id.as_str(), project.key])?;
        match rows.next()? {
            Some(row) => found.push(read_image(row)?),
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
    let sql = format!(
        "SELECT {IMAGE}, {SEGMENT_TEXT}, {SEGMENT_CALLS} FROM segment AS s JOIN segment_text AS x ON x.segment = s.key
         WHERE {} AND {FILTERS} ORDER BY s.seq",
        place_of(true, within.task().is_some(), &[Tier::Working])
    );
    let mut statement = db.prepare_cached(&sql)?;
    let mut rows = bind(&mut statement, scope, Some(project.key), within.task(), filters)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let has_words = || -> DbResult<bool> {
            let text = row.get_ref(10)?.as_str().unwrap_or_default();
            Ok(words.are_in(&words_of_message(text, &read_parts(row.get(11)?)?)))
        };
        if words.is_empty() || has_words()? {
            found.push(read_image(row)?);
        }
    }
    Ok(found)
}
