//! Groups of checkpoints between the database and their mirror files: read from rows, written to files, and rows healed from files.
//!
//! What is dirty is read from the database, never from memory: whoever keeps house next goes on. Files are written by one process at
//! a time, which holds `mirror.lock` from the moment it reads the rows, so no older state replaces a newer one. Healing is in [`heal`].

mod heal;

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Row, params};
use serde_json::Value;
use waystone_core::clock::Timestamp;
use waystone_core::pack::decompress;

use super::columns;
use super::damage::is_damage;
use super::error::{DbResult, file_error, missing_id, unreadable};
use crate::directory::DataDirectory;
use crate::lock::lock_within;
use crate::mirror::{self, Columns, Group, MirroredCheckpoint, keep_aside, read_file, tombstone};
use crate::platform::open_private_file;
pub(crate) use heal::{Trust, heal, heal_from_backups, is_same};

/// A group whose file is written, and the number of the newest change that is in it.
pub(crate) type Mirrored = (i64, i64);

/// How long the file of another group may take to be written.
const TURN_MAX: Duration = Duration::from_secs(5);

/// Groups whose files do not hold all that the database does, those that changed longest ago first: up to `limit` after `after`, each
/// with the number of its change.
pub(crate) fn list_dirty(db: &Connection, after: Mirrored, limit: usize) -> DbResult<Vec<Mirrored>> {
    let mut statement = db.prepare_cached(
        "SELECT key, changed_seq FROM checkpoint_group
         WHERE mirrored_seq < changed_seq AND (changed_seq, key) > (?2, ?1) ORDER BY changed_seq, key LIMIT ?3",
    )?;
    let rows = statement.query_map(params![after.0, after.1, limit], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Records that files are written. A group whose file is gone for good goes with it, and with its last group a session that was removed.
pub(crate) fn mark_mirrored(db: &Connection, mirrored: &[Mirrored]) -> rusqlite::Result<()> {
    for (key, seq) in mirrored {
        db.prepare_cached("UPDATE checkpoint_group SET mirrored_seq = ?2 WHERE key = ?1")?
            .execute(params![key, seq])?;
        let sql = format!(
            "DELETE FROM checkpoint_group AS g WHERE key = ?1 AND mirrored_seq >= changed_seq AND {IS_GONE} RETURNING session"
        );
        let session: Option<i64> = db.prepare_cached(&sql)?.query_row(params![key], |row| row.get(0)).optional()?;
        if let Some(session) = session {
            db.prepare_cached(
                "DELETE FROM session WHERE key = ?1 AND archived_at_ms IS NOT NULL
                     AND NOT EXISTS (SELECT 1 FROM checkpoint_group WHERE session = ?1)",
            )?
            .execute(params![session])?;
        }
    }
    Ok(())
}

/// Nothing of group `g` is left, and no one will add to it: its file goes. The newest of a session that goes on holds the session's own
/// fields, and stays.
const IS_GONE: &str = "NOT EXISTS (SELECT 1 FROM checkpoint WHERE group_key = g.key)
    AND (EXISTS (SELECT 1 FROM checkpoint_group AS newer WHERE newer.session = g.session AND newer.key > g.key)
         OR EXISTS (SELECT 1 FROM session AS s WHERE s.key = g.session AND s.archived_at_ms IS NOT NULL
                        AND NOT EXISTS (SELECT 1 FROM checkpoint WHERE session = s.key)))";

fn is_gone(db: &Connection, key: i64) -> rusqlite::Result<bool> {
    db.prepare_cached(&format!("SELECT 1 FROM checkpoint_group AS g WHERE key = ?1 AND {IS_GONE}"))?
        .exists(params![key])
}

/// Waits for its turn to write files, which lasts until it is dropped.
pub(crate) fn take_turn(directory: &DataDirectory) -> DbResult<File> {
    let path = directory.mirror_lock();
    let failed = |error: io::Error| file_error(&path, &error);
    let file = open_private_file(&path).map_err(failed)?;
    match lock_within(|| file.try_lock(), TURN_MAX).map_err(failed)? {
        true => Ok(file),
        false => Err(failed(io::Error::other("another process has been writing for too long"))),
    }
}

/// Writes the file of a group whole, or removes it when nothing of the group is left. What only the file before has is not lost with it: a
/// context or a column that is damaged in the database, and a checkpoint that is not in it and was not removed, are taken over; a file that is
/// damaged, or another group's, is kept aside.
pub(crate) fn write(
    directory: &DataDirectory,
    db: &Connection,
    key: i64,
    at: Timestamp,
    _turn: &File,
) -> DbResult<Option<Mirrored>> {
    let Some(mut group) = read_group(db, key)? else { return Ok(None) };
    let (relative, changed) = (group.path().ok_or_else(missing_id)?, group.changed_seq());
    let path = directory.root().join(&relative);
    let failed = |error: &io::Error| file_error(&path, error);
    let removed = tombstone::read(directory, group.session.id()).map_err(|error| failed(&error))?;
    let is_ours = match read_file(&path, directory.keys()) {
        Ok(Ok(before)) if before.row.id() == group.row.id() => {
            take_over(&mut group, before.without(&removed));
            true
        }
        // A plain one that was left where everything is sealed now is not kept beside it.
        _ => !path.is_file() || directory.keys().is_sealed() && mirror::sealed_by(&path) == Some(None),
    };
    if !is_ours {
        let aside = directory.damaged(at).join(&relative);
        tracing::warn!(path = %aside.display(), "a mirror file that is not what the database knows of is kept aside");
        keep_aside(&path, &aside).map_err(|error| failed(&error))?;
    }
    if group.checkpoints.is_empty() && is_gone(db, key)? {
        mirror::remove(&path).map_err(|error| failed(&error))?;
        return Ok(Some((key, changed)));
    }
    let bytes = mirror::encode(&group, directory.keys()).map_err(|error| failed(&error))?;
    if mirror::decode(&bytes, directory.keys()).as_ref() != Ok(&group) {
        return Err(unreadable("a mirror file", "it does not decode to what it was made from"));
    }
    mirror::replace(&path, &bytes).map_err(|error| failed(&error))?;
    Ok(Some((key, changed)))
}

/// Whether `copy` has checkpoints that `group` does not have.
pub(crate) fn holds_more(copy: &Group, group: &Group) -> bool {
    let known: HashSet<&str> = group.checkpoints.iter().map(|saved| saved.columns.id()).collect();
    copy.checkpoints.iter().any(|saved| !known.contains(saved.columns.id()))
}

/// Takes from the file before what never changes, where the database has it damaged.
fn take_over(group: &mut Group, before: Group) {
    let mut known: HashMap<String, MirroredCheckpoint> =
        before.checkpoints.into_iter().map(|saved| (saved.columns.id().to_owned(), saved)).collect();
    for saved in &mut group.checkpoints {
        let Some(before) = known.remove(saved.columns.id()) else { continue };
        let is_damaged = saved.text.is_none() && before.text.is_some();
        let proven: &[&str] = if is_damaged { &["raw_hash", "raw_bytes"] } else { &[] };
        for name in IMMUTABLE.iter().chain(proven) {
            if let Some(value) = before.columns.get(name) {
                saved.columns.set(name, value.clone());
            }
        }
        if is_damaged {
            saved.text = before.text;
        }
    }
    if group.session.get("tags") == Some(&Value::Null) {
        // Its key is damaged: what only the file has stays there.
        group.session = before.session;
    }
    // A repair brings them back.
    group.checkpoints.extend(known.into_values());
    group.checkpoints.sort_by_key(|saved| saved.columns.seq());
}

/// Columns that are written once and never again. The hash and length of a text are proven by the text.
const IMMUTABLE: [&str; 12] = [
    "context_hash",
    "created_at_ms",
    "agent",
    "workflow",
    "spared",
    "name",
    "tags",
    "metadata",
    "git_branch",
    "git_head",
    "origin",
    "imported",
];

/// A group as the database has it.
pub(crate) fn read_group(db: &Connection, key: i64) -> DbResult<Option<Group>> {
    let one = |sql: &str| -> DbResult<Option<Columns>> {
        Ok(db.prepare_cached(sql)?.query_row(params![key], columns::read).optional()?)
    };
    let row = one("SELECT * FROM checkpoint_group WHERE key = ?1")?;
    let session = one(&format!(
        "SELECT s.*{} FROM session AS s JOIN checkpoint_group AS g ON g.session = s.key WHERE g.key = ?1",
        columns::opened(db, "session", "s", "s")?
    ))?;
    let (Some(mut row), Some(session)) = (row, session) else { return Ok(None) };
    // It says what the file holds, so it is not part of what is held.
    row.remove("mirrored_seq");
    let opened = columns::opened(db, "checkpoint", "c", "s")?;
    // By the group's session: that of the row may be damaged.
    let bytes = match opened.is_empty() {
        true => "SELECT bytes FROM checkpoint_bytes WHERE checkpoint = ?1",
        false => {
            "SELECT unsealed(b.bytes, 'bytes', c.id, 'session:' || s.id, s.wrapped_key)
             FROM checkpoint_bytes AS b JOIN checkpoint AS c ON c.key = b.checkpoint
             LEFT JOIN checkpoint_group AS g ON g.key = c.group_key LEFT JOIN session AS s ON s.key = g.session
             WHERE b.checkpoint = ?1"
        }
    };
    let mut statement = db.prepare_cached(&format!(
        "SELECT c.*, (SELECT id FROM checkpoint WHERE key = c.parent) AS parent_id{opened} FROM checkpoint AS c
         JOIN checkpoint_group AS g ON g.key = c.group_key JOIN session AS s ON s.key = g.session
         WHERE c.group_key = ?1 ORDER BY c.seq"
    ))?;
    let mut rows = statement.query(params![key])?;
    let mut texts: HashMap<i64, Arc<[u8]>> = HashMap::new();
    let mut checkpoints = Vec::new();
    while let Some(row) = rows.next()? {
        let decoded = read_text(db, bytes, row, &texts)?;
        // What follows is proven by its own hash, also when the hash of this one is damaged.
        if let Some(text) = &decoded {
            texts.insert(row.get("key")?, Arc::clone(text));
        }
        let mut saved = MirroredCheckpoint { columns: columns::read(row)?, text: None };
        saved.text = decoded.filter(|text| saved.is_text(text));
        checkpoints.push(saved);
    }
    Ok(Some(Group { row, session, checkpoints }))
}

/// What the bytes of a checkpoint decode to, with the texts before it by their keys; `None` when they do not.
fn read_text(
    db: &Connection,
    bytes: &str,
    row: &Row<'_>,
    before: &HashMap<i64, Arc<[u8]>>,
) -> DbResult<Option<Arc<[u8]>>> {
    let bytes = db
        .prepare_cached(bytes)?
        .query_row(params![row.get::<_, i64>("key")?], |row| row.get(0))
        .optional()
        .map(Option::flatten);
    let bytes: Option<Vec<u8>> = match bytes {
        Err(error) if is_damage(&error) => None,
        bytes => bytes?,
    };
    let base: Option<&[u8]> = match row.get::<_, Option<i64>>("base")? {
        Some(key) => before.get(&key).map(AsRef::as_ref),
        None => Some(&[]),
    };
    let (Some(bytes), Some(base), Ok(raw_bytes)) = (bytes, base, row.get("raw_bytes")) else { return Ok(None) };
    Ok(decompress(&bytes, raw_bytes, base).ok().map(Arc::from))
}
