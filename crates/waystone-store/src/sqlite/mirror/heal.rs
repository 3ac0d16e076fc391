//! Rows put right from their mirror file, or from a backup. A file proves itself by its hashes; a row does so only by the hash of its text.

use std::path::Path;

use rusqlite::{Connection, OptionalExtension, params};
use serde_json::Value;
use waystone_core::clock::Timestamp;
use waystone_core::pack::pack;

use super::read_group;
use crate::backup::{database_in, list};
use crate::directory::DataDirectory;
use crate::mirror::{Columns, Group, MirroredCheckpoint, hex, read_file};
use crate::sqlite::checkpoint::write_bytes;
use crate::sqlite::columns::{to_sql, update};
use crate::sqlite::connection::open_untouched;
use crate::sqlite::counter::recount;
use crate::sqlite::error::{DbResult, missing_id, unreadable};

/// How much of a file's copy counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trust {
    /// The texts: a checkpoint's never changes.
    Texts,
    /// Every column too, if the file holds the newest state of the group.
    Columns,
}

/// Columns that are this database's own, say how bytes are kept, are proven by the text, or change without being mirrored.
const NOT_COMPARED: [&str; 17] = [
    "key",
    "space",
    "session",
    "group_key",
    "parent",
    "base",
    "seq",
    "saved_seq",
    "size_bytes",
    "raw_hash",
    "raw_bytes",
    "accessed_seq",
    "last_accessed_at_ms",
    "head",
    "checkpoint_count",
    "mirrored_seq",
    "wrapped_key",
];

/// Puts right in the database what is damaged there and whole in the file. Returns the ids of what was healed.
pub(crate) fn heal(directory: &DataDirectory, db: &Connection, key: i64, trust: Trust) -> DbResult<Vec<String>> {
    let Some(mut group) = read_group(db, key)? else { return Ok(Vec::new()) };
    let Ok(Ok(copy)) = read_file(&directory.root().join(group.path().ok_or_else(missing_id)?), directory.keys()) else {
        return Ok(Vec::new());
    };
    // Tags are always there: where they do not open, it is the key that is damaged, and nothing else of the session opens.
    if group.session.get("tags") == Some(&Value::Null) && copy.session.id() == group.session.id() {
        let wrapped = copy.session.get("wrapped_key").unwrap_or(&Value::Null);
        update(db, "session", group.session.key(), "wrapped_key", wrapped)?;
        group = read_group(db, key)?.ok_or_else(missing_id)?;
    }
    heal_from(db, &group, &copy, trust)
}

/// The same from the newest backup that has what is damaged. A backup is older than the group: only its texts count.
pub(crate) fn heal_from_backups(
    directory: &DataDirectory,
    db: &Connection,
    key: i64,
    now: Timestamp,
) -> DbResult<Vec<String>> {
    let mut healed = Vec::new();
    for backup in list(directory, now).unwrap_or_default() {
        let Some(group) = read_group(db, key)? else { break };
        if group.checkpoints.iter().all(|saved| saved.text.is_some()) {
            break;
        }
        match read_from_backup(directory, &backup, &group) {
            Ok(Some(copy)) => healed.extend(heal_from(db, &group, &copy, Trust::Texts)?),
            Ok(None) => {}
            Err(error) => tracing::warn!(%error, backup = %backup.display(), "a backup cannot be read"),
        }
    }
    Ok(healed)
}

/// What a backup has of a group, as far as it is of the same contexts.
fn read_from_backup(directory: &DataDirectory, backup: &Path, group: &Group) -> DbResult<Option<Group>> {
    let db = open_untouched(&database_in(backup), directory.keys())?;
    let key = db.query_row("SELECT key FROM checkpoint_group WHERE id = ?1", [group.row.id()], |row| row.get(0));
    let Some(mut copy) = key.optional()?.map_or(Ok(None), |key| read_group(&db, key))? else { return Ok(None) };
    let identity = |saved: &MirroredCheckpoint| (saved.columns.id().to_owned(), saved.columns.hash("context_hash"));
    let known: Vec<_> = group.checkpoints.iter().map(identity).collect();
    copy.checkpoints.retain(|saved| known.contains(&identity(saved)));
    Ok(Some(copy))
}

fn heal_from(db: &Connection, group: &Group, copy: &Group, trust: Trust) -> DbResult<Vec<String>> {
    let mut healed = Vec::new();
    if copy.row.id() != group.row.id() || copy.session.id() != group.session.id() {
        return Ok(healed);
    }
    let trust = if copy.changed_seq() == group.changed_seq() { trust } else { Trust::Texts };
    for saved in &copy.checkpoints {
        let here = group.checkpoints.iter().find(|here| here.columns.id() == saved.columns.id());
        let is_healed = match here {
            Some(here) => heal_checkpoint(db, here, saved, trust)?,
            None => trust == Trust::Columns && take_back(db, group, saved)?,
        };
        if is_healed {
            healed.push(saved.columns.id().to_owned());
        }
    }
    if trust == Trust::Columns && is_newest(db, group)? && heal_columns(db, "session", &group.session, &copy.session)? {
        healed.push(copy.session.id().to_owned());
    }
    if !healed.is_empty() {
        recount(db)?;
        db.execute("UPDATE checkpoint_group SET mirrored_seq = 0 WHERE key = ?1", params![group.row.key()])?;
    }
    Ok(healed)
}

/// Whether the two copies say the same.
pub(crate) fn is_same(db: &Connection, group: &Group, copy: &Group) -> DbResult<bool> {
    let mut pairs = group.checkpoints.iter().zip(&copy.checkpoints);
    let are_same = group.checkpoints.len() == copy.checkpoints.len()
        && pairs.all(|(a, b)| a.text == b.text && differing(&a.columns, &b.columns).is_empty())
        && differing(&group.row, &copy.row).is_empty();
    Ok(are_same && (!is_newest(db, group)? || differing(&group.session, &copy.session).is_empty()))
}

fn is_newest(db: &Connection, group: &Group) -> DbResult<bool> {
    let newest: Option<i64> = db
        .prepare_cached("SELECT max(key) FROM checkpoint_group WHERE session = ?1")?
        .query_row(params![group.session.key()], |row| row.get(0))?;
    Ok(newest == group.row.key())
}

/// The columns that both have and that differ.
fn differing<'a>(here: &'a Columns, copy: &'a Columns) -> Vec<(&'a str, &'a Value)> {
    let differs = |(name, value): &(&str, &Value)| {
        !NOT_COMPARED.contains(name) && here.get(name).is_some_and(|other| other != *value)
    };
    copy.iter().filter(differs).collect()
}

fn heal_checkpoint(
    db: &Connection,
    here: &MirroredCheckpoint,
    copy: &MirroredCheckpoint,
    trust: Trust,
) -> DbResult<bool> {
    let mut is_healed = false;
    if here.text.is_none() && copy.text.is_some() {
        write_text(db, here.columns.key(), copy)?;
        is_healed = true;
    }
    if trust == Trust::Columns {
        is_healed |= heal_columns(db, "checkpoint", &here.columns, &copy.columns)?;
    }
    Ok(is_healed)
}

/// Puts a row that has lost its group back into it.
fn take_back(db: &Connection, group: &Group, copy: &MirroredCheckpoint) -> DbResult<bool> {
    let taken = db.execute(
        "UPDATE checkpoint SET group_key = ?2, session = ?3
         WHERE id = ?1 AND (group_key IS NULL OR NOT EXISTS (SELECT 1 FROM checkpoint_group WHERE key = group_key))",
        params![copy.columns.id(), group.row.key(), group.session.key()],
    )?;
    Ok(taken > 0)
}

/// Gives a row the values that the copy has.
fn heal_columns(db: &Connection, table: &str, here: &Columns, copy: &Columns) -> DbResult<bool> {
    let differing = differing(here, copy);
    for (name, value) in &differing {
        match *name {
            "parent_id" => {
                let sql = "UPDATE checkpoint AS c SET parent =
                    (SELECT key FROM checkpoint WHERE space = c.space AND id = ?2) WHERE key = ?1";
                db.execute(sql, params![here.key(), to_sql(value)])?;
            }
            // One of the table's own columns: it is in `here`, which was read from it.
            name => update(db, table, here.key(), name, value)?,
        }
    }
    Ok(!differing.is_empty())
}

/// Writes the text of `copy` as bytes that stand alone.
fn write_text(db: &Connection, key: Option<i64>, copy: &MirroredCheckpoint) -> DbResult<()> {
    let text = copy.text.as_deref().unwrap_or_default();
    let packed = pack(text).map_err(|error| unreadable("a mirror file", error))?;
    update(db, "checkpoint", key, "raw_hash", &hex(&packed.raw_hash.0))?;
    db.execute(
        "UPDATE checkpoint SET base = NULL, raw_bytes = ?2, size_bytes = ?3 WHERE key = ?1",
        params![key, packed.raw_bytes, packed.bytes.len()],
    )?;
    key.map_or(Ok(()), |key| write_bytes(db, key, &packed.bytes))
}
