//! Texts put into a project: what is new is added, what is known is touched.

use std::collections::HashMap;

use rusqlite::{Connection, OptionalExtension, params};
use serde_json::json;
use waystone_core::Error;
use waystone_core::api::{SegmentType, Tier};
use waystone_core::canon::Hash;
use waystone_core::error::Quota;
use waystone_core::id::{ProjectId, SegmentId};
use waystone_core::store::{NewSegment, NewSegments, Put, Scope};

use super::change::{Image, apply, record_added};
use super::{ProjectRow, ensure_project, ensure_task, find_project, task_id, tier_of, touch_place};
use crate::sqlite::error::{DbResult, unreadable};
use crate::sqlite::log::{Operation, append_and_publish, handle, next_row_seq};

/// So many ids stand in an operation; what it changed is all in `segment_change`.
pub(super) const IDS_TOLD_MAX: usize = 100;

/// Which of these texts a project has.
pub(crate) fn known(
    db: &Connection,
    scope: &Scope,
    project: &ProjectId,
    texts: &[(SegmentType, Hash)],
) -> DbResult<Vec<bool>> {
    let Some(project) = find_project(db, scope, project)? else { return Ok(vec![false; texts.len()]) };
    texts.iter().map(|(kind, hash)| Ok(find_known(db, &project, *kind, *hash)?.is_some())).collect()
}

/// A segment that is there.
struct Known {
    id: SegmentId,
    image: Image,
}

fn find_known(db: &Connection, project: &ProjectRow, kind: SegmentType, hash: Hash) -> DbResult<Option<Known>> {
    let mut statement = db.prepare_cached(
        "SELECT key, id, tier, pinned, entered_seq, survived, tokens, task FROM segment
         WHERE project = ?1 AND type = ?2 AND text_hash = ?3",
    )?;
    let mut rows = statement.query(params![project.key, kind.as_str(), hash.0])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let id = row.get::<_, String>(1)?.parse().map_err(|error| unreadable("a segment's id", error))?;
    let image = Image {
        key: row.get(0)?,
        tier: tier_of(row.get_ref(2)?.as_str().unwrap_or_default())?,
        pinned: row.get(3)?,
        entered_seq: row.get(4)?,
        survived: row.get(5)?,
        tokens: row.get(6)?,
        task: row.get(7)?,
    };
    Ok(Some(Known { id, image }))
}

/// What is to be done with a text.
enum Step<'a> {
    Add(&'a NewSegment, u64),
    Touch(Known),
    /// It is the same as the text at that place.
    Same(usize),
}

pub(crate) fn put(db: &Connection, scope: &Scope, new: &NewSegments) -> DbResult<Put> {
    let Some(steps) = plan(db, scope, new)? else { return Ok(Put::TokensWanted) };
    let added: Vec<&NewSegment> =
        steps.iter().filter_map(|step| if let Step::Add(segment, _) = step { Some(*segment) } else { None }).collect();
    let more: u64 = added.iter().map(|segment| segment.text.len() as u64).sum();
    check_room(db, scope, more, new.total_bytes_max)?;
    let project = ensure_project(db, scope, &new.project, new.at)?;
    let task = match &new.task {
        Some(id) => Some(ensure_task(db, scope, &project, id, new.at)?),
        None => project.current_task,
    };
    let tier = if new.stash { Tier::Stashed } else { Tier::Working };
    let changes: Vec<(&Known, Tier, bool)> = steps
        .iter()
        .filter_map(|step| if let Step::Touch(known) = step { Some(known) } else { None })
        .filter_map(|known| {
            let pinned = known.image.pinned || new.pinned;
            let to = match known.image.tier {
                Tier::Archive => tier,
                Tier::Working if new.stash && !pinned => Tier::Stashed,
                there => there,
            };
            ((to, pinned) != (known.image.tier, known.image.pinned)).then_some((known, to, pinned))
        })
        .collect();
    let counted = |step: &Step<'_>| if let Step::Add(_, tokens) = step { *tokens } else { 0 };
    let revived = changes.iter().filter(|(known, _, _)| known.image.tier == Tier::Archive);
    let added_count = added.len() as u64 + revived.clone().count() as u64;
    let tokens_added =
        steps.iter().map(counted).sum::<u64>() + revived.map(|(known, _, _)| known.image.tokens).sum::<u64>();
    let ids = ids_of(&steps);
    let mut operation = None;
    if !added.is_empty() || !changes.is_empty() {
        let told: Vec<&SegmentId> =
            added.iter().map(|segment| &segment.id).chain(changes.iter().map(|(known, ..)| &known.id)).collect();
        let told = &told[..told.len().min(IDS_TOLD_MAX)];
        let payload = json!({
            "project_id": new.project, "task_id": task_id(db, task)?, "added": added_count, "tokens": tokens_added,
            "segment_ids": told,
        });
        let subject = told.iter().map(|id| handle("segment", id.as_str())).collect();
        let entry = Operation { at: new.at, kind: "segment.put", project: new.project.as_str(), subject, payload };
        let seq = append_and_publish(db, scope, &entry)?;
        for step in &steps {
            if let Step::Add(segment, tokens) = step {
                add(db, scope, &project, task, new, segment, *tokens, seq)?;
            }
        }
        for (known, to, pinned) in changes {
            apply(db, scope, project.key, seq, &known.image, to, pinned, new.at)?;
        }
        db.prepare_cached("UPDATE space SET size_bytes = size_bytes + ?2 WHERE space = ?1")?
            .execute(params![scope.space, more])?;
        operation = Some(seq);
    }
    for (step, id) in steps.iter().zip(&ids) {
        if !matches!(step, Step::Add(..)) {
            touch(db, scope, id, new)?;
        }
    }
    touch_place(db, project.key, task, new.at)?;
    Ok(Put::Done { ids, added: added_count, tokens_added, operation })
}

/// What is to be done with each text; `None` if the tokens of one that is new are not known.
fn plan<'a>(db: &Connection, scope: &Scope, new: &'a NewSegments) -> DbResult<Option<Vec<Step<'a>>>> {
    let project = find_project(db, scope, &new.project)?;
    let (mut steps, mut seen) = (Vec::with_capacity(new.segments.len()), HashMap::new());
    for (at, segment) in new.segments.iter().enumerate() {
        let first = *seen.entry((segment.kind, segment.text_hash.0)).or_insert(at);
        if first != at {
            steps.push(Step::Same(first));
            continue;
        }
        let known = match &project {
            Some(project) => find_known(db, project, segment.kind, segment.text_hash)?,
            None => None,
        };
        match (known, segment.tokens) {
            (Some(known), _) => steps.push(Step::Touch(known)),
            (None, Some(tokens)) => steps.push(Step::Add(segment, tokens)),
            (None, None) => return Ok(None),
        }
    }
    Ok(Some(steps))
}

fn ids_of(steps: &[Step<'_>]) -> Vec<SegmentId> {
    let mut ids: Vec<SegmentId> = Vec::with_capacity(steps.len());
    for step in steps {
        ids.push(match step {
            Step::Add(segment, _) => segment.id.clone(),
            Step::Touch(known) => known.id.clone(),
            Step::Same(first) => ids[*first].clone(),
        });
    }
    ids
}

fn check_room(db: &Connection, scope: &Scope, more: u64, max: u64) -> DbResult<()> {
    let used: u64 = db
        .prepare_cached("SELECT size_bytes FROM space WHERE space = ?1")?
        .query_row(params![scope.space], |row| row.get(0))?;
    if more > 0 && used + more > max {
        return Err(Error::QuotaExceeded(Quota::TotalBytes { used, more, max }).into());
    }
    Ok(())
}

#[expect(clippy::too_many_arguments, reason = "a row is made of all of them")]
fn add(
    db: &Connection,
    scope: &Scope,
    project: &ProjectRow,
    task: Option<i64>,
    new: &NewSegments,
    segment: &NewSegment,
    tokens: u64,
    operation: i64,
) -> DbResult<()> {
    let mut tags = new.tags.clone();
    tags.extend(segment.role.as_ref().map(|role| format!("role:{role}")));
    let [first_line, last_line] = new.line_range.map_or([None, None], |[first, last]| [Some(first), Some(last)]);
    db.prepare_cached(
        "INSERT INTO segment (space, project, task, id, seq, type, tier, pinned, tokens, counted_at_ms, size_bytes, text_hash,
                              created_at_ms, touched_at_ms, mentions, entered_seq, survived, topic, file_path, first_line,
                              last_line, tags)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?10, 0, ?14, 0, ?15, ?16, ?17, ?18, ?19)",
    )?
    .execute(params![
        scope.space,
        project.key,
        task,
        segment.id.as_str(),
        next_row_seq(db, scope)?,
        segment.kind.as_str(),
        if new.stash { Tier::Stashed.as_str() } else { Tier::Working.as_str() },
        new.pinned,
        tokens,
        new.at.ms(),
        segment.text.len(),
        segment.text_hash.0,
        segment.created.ms(),
        (!new.stash).then_some(operation),
        new.topic.as_ref().map(|id| id.as_str()),
        new.file_path,
        first_line,
        last_line,
        json!(tags).to_string(),
    ])?;
    let key = db.last_insert_rowid();
    db.prepare_cached("INSERT INTO segment_text (segment, text) VALUES (?1, ?2)")?
        .execute(params![key, segment.text])?;
    for target in tags.iter().filter_map(|tag| tag.strip_prefix("ref:")) {
        refer(db, project, key, target)?;
    }
    record_added(db, scope, operation, key)
}

/// Records that a segment refers to another of its project, if there is one of that id.
fn refer(db: &Connection, project: &ProjectRow, source: i64, target: &str) -> DbResult<()> {
    let found: Option<i64> = db
        .prepare_cached("SELECT key FROM segment WHERE project = ?1 AND id = ?2")?
        .query_row(params![project.key, target], |row| row.get(0))
        .optional()?;
    if let Some(target) = found {
        db.prepare_cached("INSERT OR IGNORE INTO segment_ref (source, target) VALUES (?1, ?2)")?
            .execute(params![source, target])?;
    }
    Ok(())
}

/// A text that is met again counts once more, in the same request too. That is no operation: it has no inverse that anyone would want.
fn touch(db: &Connection, scope: &Scope, id: &SegmentId, new: &NewSegments) -> DbResult<()> {
    db.prepare_cached(
        "UPDATE segment SET mentions = mentions + 1, touched_at_ms = max(touched_at_ms, ?3) WHERE space = ?1 AND id = ?2",
    )?
    .execute(params![scope.space, id.as_str(), new.at.ms()])?;
    Ok(())
}
