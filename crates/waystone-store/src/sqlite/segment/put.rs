//! Texts put into a project: what is new is added, what is known is touched.

use std::collections::HashMap;

use rusqlite::{Connection, OptionalExtension, params};
use serde_json::json;
use waystone_core::Error;
use waystone_core::api::{ContentPart, Origin, SegmentType, Tier};
use waystone_core::canon::Hash;
use waystone_core::error::Quota;
use waystone_core::id::{ProjectId, SegmentId};
use waystone_core::meaning::Piece;
use waystone_core::search;
use waystone_core::store::{NewSegment, NewSegments, Put, Scope};

use super::edit::{Edit, IMAGE, Image, read_image};
use super::{ProjectRow, ensure_project, ensure_task, find_project, task_id, touch_place};
use crate::sqlite::error::DbResult;
use crate::sqlite::log::{Operation, append_and_publish, handle, next_row_seq};
use crate::sqlite::origin::number_of;
use crate::sqlite::seal::{is_sealed, text_owner};

/// So many ids stand in an operation; what it changed is all in `segment_change`.
pub(crate) const IDS_TOLD_MAX: usize = 100;

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

fn find_known(
    db: &Connection,
    project: &ProjectRow,
    kind: SegmentType,
    hash: Hash,
) -> DbResult<Option<(Image, SegmentId)>> {
    let sql = format!(
        "SELECT {IMAGE} FROM segment AS s WHERE s.project = ?1 AND s.type = ?2
             AND s.conversation IS NULL AND s.text_hash = (SELECT keyed(?3, 'project:' || id, wrapped_key) FROM project WHERE key = ?1)"
    );
    let mut statement = db.prepare_cached(&sql)?;
    let mut rows = statement.query(params![project.key, kind.as_str(), hash.0])?;
    rows.next()?.map(read_image).transpose()
}

/// What is to be done with a text.
enum Step<'a> {
    Add {
        segment: &'a NewSegment,
        tokens: u64,
        /// How often it stands in the same request once more.
        repeats: u64,
    },
    Touch {
        image: Image,
        id: SegmentId,
        repeats: u64,
        /// Where it comes from this time.
        origin: Origin,
    },
    /// It is the same as the text at that place.
    Same(usize),
}

pub(crate) fn put(db: &Connection, scope: &Scope, new: &NewSegments) -> DbResult<Put> {
    let Some(steps) = plan(db, scope, new)? else { return Ok(Put::TokensWanted) };
    let (mut added, mut tokens_added, mut more, mut told) = (0, 0, 0, Vec::new());
    for step in &steps {
        let (id, tokens) = match step {
            Step::Add { segment, tokens, .. } => (&segment.id, *tokens),
            Step::Touch { image, id, .. } if image.tier == Tier::Archive => (id, image.tokens),
            Step::Touch { image, id, .. } => {
                told.extend((goal(image, new) != (image.tier, image.pinned)).then_some(id));
                continue;
            }
            Step::Same(_) => continue,
        };
        if let Step::Add { segment, .. } = step {
            more += segment.text.len() as u64;
        }
        (added, tokens_added) = (added + 1, tokens_added + tokens);
        told.push(id);
    }
    let used = check_room(db, scope, more, new.total_bytes_max)?;
    let project = ensure_project(db, scope, &new.project, new.at)?;
    let task = match &new.task {
        Some(id) => Some(ensure_task(db, scope, &project, id, new.at)?),
        None => project.current_task,
    };
    let operation = match told.is_empty() {
        true => None,
        false => Some(append(db, scope, new, task, (added, tokens_added), &told)?),
    };
    if let Some(seq) = operation {
        let mut edit = Edit::begin(db, scope, project.key, seq, new.at)?;
        let place = Place { project: &project, task, conversation: None, calls: &[] };
        for step in &steps {
            match step {
                Step::Add { segment, tokens, repeats } => {
                    let image = add(db, scope, &place, new, (segment, *tokens, *repeats), seq)?;
                    edit.added(&image)?;
                }
                Step::Touch { image, repeats, .. } => {
                    let (tier, pinned) = goal(image, new);
                    if (tier, pinned) != (image.tier, image.pinned) {
                        // How often it was met stands in the same row; it is touched below.
                        let met = Image { mentions: image.mentions + 1 + repeats, ..image.clone() };
                        edit.move_to(&met, tier, pinned)?;
                    }
                }
                Step::Same(_) => {}
            }
        }
        edit.finish()?;
        db.prepare_cached("UPDATE space SET size_bytes = size_bytes + ?2 WHERE space = ?1")?
            .execute(params![scope.space, more])?;
    }
    for step in &steps {
        if let Step::Touch { image, repeats, origin, .. } = step {
            touch(db, image, (1 + repeats, *origin), new)?;
        }
    }
    touch_place(db, project.key, task, new.at)?;
    let is_elsewhere = |step: &&Step<'_>| match step {
        Step::Touch { image, .. } => image.task != task || !new.stash && goal(image, new).0 != Tier::Working,
        Step::Add { .. } | Step::Same(_) => false,
    };
    let elsewhere = steps.iter().filter(is_elsewhere).count() as u64;
    Ok(Put::Done { ids: ids_of(&steps), added, tokens_added, elsewhere, operation, total_bytes: used + more })
}

/// Where a known segment is to be: out of the archive again, and where the request asks for it pinned or stashed.
fn goal(image: &Image, new: &NewSegments) -> (Tier, bool) {
    let pinned = image.pinned || new.pinned;
    let tier = match image.tier {
        Tier::Archive if new.stash => Tier::Stashed,
        Tier::Archive => Tier::Working,
        Tier::Working if new.stash && !pinned => Tier::Stashed,
        there => there,
    };
    (tier, pinned)
}

fn append(
    db: &Connection,
    scope: &Scope,
    new: &NewSegments,
    task: Option<i64>,
    (added, tokens): (u64, u64),
    told: &[&SegmentId],
) -> DbResult<i64> {
    let shown = &told[..told.len().min(IDS_TOLD_MAX)];
    let payload = json!({
        "project_id": new.project, "task_id": task_id(db, task)?, "added": added, "segments": told.len(), "tokens": tokens,
        "segment_ids": shown,
    });
    let subject = shown.iter().map(|id| handle("segment", id.as_str())).collect();
    let operation = Operation { at: new.at, kind: "segment.put", project: new.project.as_str(), subject, payload };
    append_and_publish(db, scope, &operation)
}

/// What is to be done with each text; `None` if the tokens of one that is new are not known.
fn plan<'a>(db: &Connection, scope: &Scope, new: &'a NewSegments) -> DbResult<Option<Vec<Step<'a>>>> {
    let project = find_project(db, scope, &new.project)?;
    let (mut steps, mut seen) = (Vec::with_capacity(new.segments.len()), HashMap::new());
    for (at, segment) in new.segments.iter().enumerate() {
        let first = *seen.entry((segment.kind, segment.text_hash.0)).or_insert(at);
        if first != at {
            if let Step::Add { repeats, .. } | Step::Touch { repeats, .. } = &mut steps[first] {
                *repeats += 1;
            }
            steps.push(Step::Same(first));
            continue;
        }
        let known = match &project {
            Some(project) => find_known(db, project, segment.kind, segment.text_hash)?,
            None => None,
        };
        steps.push(match (known, segment.tokens) {
            (Some((image, id)), _) => Step::Touch { image, id, repeats: 0, origin: segment.origin },
            (None, Some(tokens)) => Step::Add { segment, tokens, repeats: 0 },
            (None, None) => return Ok(None),
        });
    }
    Ok(Some(steps))
}

fn ids_of(steps: &[Step<'_>]) -> Vec<SegmentId> {
    let mut ids: Vec<SegmentId> = Vec::with_capacity(steps.len());
    for step in steps {
        ids.push(match step {
            Step::Add { segment, .. } => segment.id.clone(),
            Step::Touch { id, .. } => id.clone(),
            Step::Same(first) => ids[*first].clone(),
        });
    }
    ids
}

pub(crate) fn check_room(db: &Connection, scope: &Scope, more: u64, max: u64) -> DbResult<u64> {
    let used: u64 = db
        .prepare_cached("SELECT size_bytes FROM space WHERE space = ?1")?
        .query_row(params![scope.space], |row| row.get(0))?;
    if more > 0 && used + more > max {
        return Err(Error::QuotaExceeded(Quota::TotalBytes { used, more, max }).into());
    }
    Ok(used)
}

/// Where a segment belongs.
pub(crate) struct Place<'a> {
    pub(crate) project: &'a ProjectRow,
    pub(crate) task: Option<i64>,
    /// The session whose message it is.
    pub(crate) conversation: Option<i64>,
    /// The parts of that message: what it calls tools with is searched too.
    pub(crate) calls: &'a [ContentPart],
}

/// Adds the row of a segment.
pub(crate) fn add(
    db: &Connection,
    scope: &Scope,
    place: &Place<'_>,
    new: &NewSegments,
    (segment, tokens, mentions): (&NewSegment, u64, u64),
    operation: i64,
) -> DbResult<Image> {
    let Place { project, task, conversation, calls } = *place;
    let tier = if new.stash { Tier::Stashed } else { Tier::Working };
    let entered_seq = (tier == Tier::Working).then_some(operation);
    let mut tags = new.tags.clone();
    tags.extend(segment.role.as_ref().map(|role| format!("role:{role}")));
    let [first_line, last_line] = new.line_range.map_or([None, None], |[first, last]| [Some(first), Some(last)]);
    db.prepare_cached(
        "INSERT INTO segment (space, project, task, id, seq, type, tier, pinned, tokens, counted_at_ms, size_bytes, text_hash,
                              created_at_ms, touched_at_ms, mentions, entered_seq, survived, topic, file_path, first_line,
                              last_line, tags, origin, conversation)
         SELECT ?1, p.key, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11,
                keyed(?12, coalesce((SELECT 'session:' || id FROM session WHERE key = ?23), 'project:' || p.id),
                      coalesce((SELECT wrapped_key FROM session WHERE key = ?23), p.wrapped_key)), ?13, ?21, ?20, ?14,
                0, ?15, sealed_alike(?16, 'file_path', 'project:' || p.id, p.wrapped_key), ?17, ?18,
                sealed(?19, 'tags', ?4, 'project:' || p.id, p.wrapped_key), ?22, ?23
         FROM project AS p WHERE p.key = ?2",
    )?
    .execute(params![
        scope.space,
        project.key,
        task,
        segment.id.as_str(),
        next_row_seq(db, scope)?,
        segment.kind.as_str(),
        tier.as_str(),
        new.pinned,
        tokens,
        (!segment.is_estimate).then_some(new.at.ms()),
        segment.text.len(),
        segment.text_hash.0,
        segment.created.ms(),
        entered_seq,
        new.topic.as_ref().map(|id| id.as_str()),
        new.file_path,
        first_line,
        last_line,
        json!(tags).to_string(),
        mentions,
        new.at.ms(),
        number_of(segment.origin),
        conversation,
    ])?;
    let key = db.last_insert_rowid();
    db.prepare_cached(concat!(
        "INSERT INTO segment_text (segment, text) SELECT s.key, sealed(?2, 'text', s.id, ",
        text_owner!(),
        ") FROM segment AS s WHERE s.key = ?1"
    ))?
    .execute(params![key, segment.text])?;
    // What is sealed is searched in memory alone.
    if !is_sealed(db)? {
        index(db, key, &search::searched_message(&segment.text, calls), &segment.pieces)?;
    }
    for target in tags.iter().filter_map(|tag| tag.strip_prefix("ref:")) {
        refer(db, scope, project, key, target)?;
    }
    let (pinned, kind) = (new.pinned, segment.kind);
    Ok(Image { key, tier, pinned, entered_seq, survived: 0, mentions, tokens, task, kind })
}

/// Adds what a segment is searched by.
pub(super) fn index(db: &Connection, key: i64, text: &str, pieces: &[Piece]) -> DbResult<()> {
    db.prepare_cached("INSERT INTO segment_word (rowid, text) VALUES (?1, ?2)")?
        .execute(params![key, search::indexed(text)])?;
    let pieces: Vec<u8> = pieces.iter().flat_map(|piece| piece.to_le_bytes()).collect();
    db.prepare_cached("INSERT INTO segment_index (segment, pieces) VALUES (?1, ?2)")?.execute(params![key, pieces])?;
    Ok(())
}

/// Records that a segment refers to another of its project, if there is one of that id.
fn refer(db: &Connection, scope: &Scope, project: &ProjectRow, source: i64, target: &str) -> DbResult<()> {
    let found: Option<i64> = db
        .prepare_cached("SELECT key FROM segment WHERE space = ?1 AND id = ?2 AND project = ?3")?
        .query_row(params![scope.space, target, project.key], |row| row.get(0))
        .optional()?;
    if let Some(target) = found {
        db.prepare_cached("INSERT OR IGNORE INTO segment_ref (source, target) VALUES (?1, ?2)")?
            .execute(params![source, target])?;
    }
    Ok(())
}

/// A text that is met again counts once more, in the same request too, and is trusted no more than before. That is no operation: it has no
/// inverse that anyone would want.
fn touch(db: &Connection, image: &Image, (times, origin): (u64, Origin), new: &NewSegments) -> DbResult<()> {
    db.prepare_cached(
        "UPDATE segment SET mentions = ?2, touched_at_ms = max(touched_at_ms, ?3), origin = max(origin, ?4) WHERE key = ?1",
    )?
    .execute(params![image.key, image.mentions + times, new.at.ms(), number_of(origin)])?;
    Ok(())
}
