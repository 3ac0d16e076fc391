//! Transcripts of other programs: how far each was captured, and what was.

use std::sync::Arc;

use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension, params};
use serde_json::json;
use waystone_core::Result;
use waystone_core::canon::Hash;
use waystone_core::store::{NewSegment, NewTurns, Scope, TranscriptEnd, TranscriptStore};

use super::Sqlite;
use super::error::DbResult;
use super::log::{Operation, append_and_publish, handle};
use super::segment::{Edit, IDS_TOLD_MAX, Place, add, check_room, ensure_project, ensure_task};

#[async_trait]
impl TranscriptStore for Sqlite {
    async fn find_transcript(&self, scope: &Scope, path: &str) -> Result<Option<TranscriptEnd>> {
        let (scope, path) = (scope.clone(), path.to_owned());
        self.readers.read(move |db| find(db, &scope, &path)).await
    }

    async fn capture_turns(&self, scope: &Scope, new: Arc<NewTurns>) -> Result<Vec<bool>> {
        let scope = scope.clone();
        let size = new.segments.segments.iter().map(|segment| segment.text.len() as u64).sum();
        self.write_with_room(size, move |db| capture(db, &scope, &new)).await
    }
}

fn find(db: &Connection, scope: &Scope, path: &str) -> DbResult<Option<TranscriptEnd>> {
    let end = db
        .prepare_cached(
            "SELECT end_at, unsealed(end_hash, 'end_hash', path) FROM transcript WHERE space = ?1 AND path = keyed(?2)",
        )?
        .query_row(params![scope.space, path], |row| Ok(TranscriptEnd { at: row.get(0)?, hash: Hash(row.get(1)?) }))
        .optional()?;
    Ok(end)
}

fn capture(db: &Connection, scope: &Scope, new: &NewTurns) -> DbResult<Vec<bool>> {
    let mut is_new = Vec::with_capacity(new.hashes.len());
    for hash in &new.hashes {
        let added = db
            .prepare_cached("INSERT OR IGNORE INTO transcript_turn (space, hash) VALUES (?1, keyed(?2))")?
            .execute(params![scope.space, hash])?;
        is_new.push(added > 0);
    }
    let wanted = |(segment, is_new): (&'_ NewSegment, &bool)| is_new.then(|| segment.clone());
    let segments: Vec<NewSegment> = new.segments.segments.iter().zip(&is_new).filter_map(wanted).collect();
    if !segments.is_empty() {
        add_segments(db, scope, new, &segments)?;
    }
    db.prepare_cached(
        "INSERT INTO transcript (space, path, end_at, end_hash) VALUES (?1, keyed(?2), ?3, sealed(?4, 'end_hash', keyed(?2)))
         ON CONFLICT (space, path) DO UPDATE SET end_at = excluded.end_at, end_hash = excluded.end_hash",
    )?
    .execute(params![scope.space, new.path, new.end.at, new.end.hash.0])?;
    Ok(is_new)
}

fn add_segments(db: &Connection, scope: &Scope, new: &NewTurns, segments: &[NewSegment]) -> DbResult<()> {
    let with = &new.segments;
    let bytes: u64 = segments.iter().map(|segment| segment.text.len() as u64).sum();
    check_room(db, scope, bytes, with.total_bytes_max)?;
    let project = ensure_project(db, scope, &with.project, with.at)?;
    let task = match &with.task {
        Some(id) => Some(ensure_task(db, scope, &project, id, with.at)?),
        None => None,
    };
    let told: Vec<&str> = segments.iter().take(IDS_TOLD_MAX).map(|segment| segment.id.as_str()).collect();
    let payload = json!({
        "project_id": with.project, "task_id": with.task, "added": segments.len(), "segment_ids": told,
    });
    let subject = told.iter().map(|id| handle("segment", id)).collect();
    let operation =
        Operation { at: with.at, kind: "segment.captured", project: with.project.as_str(), subject, payload };
    let seq = append_and_publish(db, scope, &operation)?;
    let mut edit = Edit::begin(db, scope, project.key, seq, with.at)?;
    let place = Place { project: &project, task, conversation: None, calls: &[] };
    for segment in segments {
        let image = add(db, scope, &place, with, (segment, segment.tokens.unwrap_or_default(), 0), seq)?;
        edit.added(&image)?;
    }
    edit.finish()?;
    db.prepare_cached("UPDATE space SET size_bytes = size_bytes + ?2 WHERE space = ?1")?
        .execute(params![scope.space, bytes])?;
    Ok(())
}
