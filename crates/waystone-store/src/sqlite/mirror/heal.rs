//! Rows put right from their mirror file. A file proves itself by its hashes; a row does so only by the hash of its text.

use rusqlite::{Connection, params};
use serde_json::Value;
use waystone_core::pack::pack;

use super::{changed_seq, path_of, read_file, read_group, to_sql};
use crate::directory::DataDirectory;
use crate::mirror::{Columns, Group, Saved};
use crate::sqlite::error::{DbError, DbResult, unreadable};

/// How much of a file's copy counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trust {
    /// The texts: a checkpoint's never changes.
    Texts,
    /// Every column too, if the file holds the newest state of the group.
    Columns,
}

/// Columns that are this database's own, say how bytes are kept, are proven by the text, or change without being mirrored.
const NOT_COMPARED: [&str; 16] = [
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
];

/// Puts right in the database what is damaged there and whole in the file. Returns the ids of what was healed.
pub(crate) fn heal(directory: &DataDirectory, db: &Connection, key: i64, trust: Trust) -> DbResult<Vec<String>> {
    let Some(group) = read_group(db, key)? else { return Ok(Vec::new()) };
    let Ok(Ok(copy)) = read_file(&directory.root().join(path_of(&group)?)) else { return Ok(Vec::new()) };
    let mut healed = Vec::new();
    if id_of(&copy.row) != id_of(&group.row) || id_of(&copy.session) != id_of(&group.session) {
        return Ok(healed);
    }
    let trust = if changed_seq(&copy) == changed_seq(&group) { trust } else { Trust::Texts };
    for saved in &copy.checkpoints {
        let here = group.checkpoints.iter().find(|here| id_of(&here.columns) == id_of(&saved.columns));
        let is_healed = match here {
            Some(here) => heal_checkpoint(db, here, saved, trust)?,
            None => trust == Trust::Columns && take_back(db, &group, saved)?,
        };
        if is_healed {
            healed.push(id_of(&saved.columns).to_owned());
        }
    }
    if trust == Trust::Columns && is_newest(db, &group)? && heal_columns(db, "session", &group.session, &copy.session)?
    {
        healed.push(id_of(&copy.session).to_owned());
    }
    if !healed.is_empty() {
        recount(db)?;
        db.execute("UPDATE checkpoint_group SET mirrored_seq = 0 WHERE key = ?1", params![key])?;
    }
    Ok(healed)
}

fn id_of(columns: &Columns) -> &str {
    columns.get("id").and_then(Value::as_str).unwrap_or_default()
}

fn key_of(columns: &Columns) -> Option<i64> {
    columns.get("key").and_then(Value::as_i64)
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
        .query_row(params![key_of(&group.session)], |row| row.get(0))?;
    Ok(newest == key_of(&group.row))
}

/// The columns that both have and that differ.
fn differing<'a>(here: &'a Columns, copy: &'a Columns) -> Vec<(&'a str, &'a Value)> {
    let differs = |(name, value): &(&'a String, &'a Value)| {
        !NOT_COMPARED.contains(&name.as_str()) && here.get(name.as_str()).is_some_and(|other| other != *value)
    };
    copy.iter().filter(differs).map(|(name, value)| (name.as_str(), value)).collect()
}

fn heal_checkpoint(db: &Connection, here: &Saved, copy: &Saved, trust: Trust) -> DbResult<bool> {
    let mut is_healed = false;
    if here.text.is_none() && copy.text.is_some() {
        write_text(db, key_of(&here.columns), copy)?;
        is_healed = true;
    }
    if trust == Trust::Columns {
        is_healed |= heal_columns(db, "checkpoint", &here.columns, &copy.columns)?;
    }
    Ok(is_healed)
}

/// Puts a row that has lost its group back into it.
fn take_back(db: &Connection, group: &Group, copy: &Saved) -> DbResult<bool> {
    let taken = db.execute(
        "UPDATE checkpoint SET group_key = ?2, session = ?3
         WHERE id = ?1 AND (group_key IS NULL OR NOT EXISTS (SELECT 1 FROM checkpoint_group WHERE key = group_key))",
        params![id_of(&copy.columns), key_of(&group.row), key_of(&group.session)],
    )?;
    Ok(taken > 0)
}

/// Gives a row the values that the copy has.
fn heal_columns(db: &Connection, table: &str, here: &Columns, copy: &Columns) -> DbResult<bool> {
    let differing = differing(here, copy);
    for (name, value) in &differing {
        let sql = match *name {
            "parent_id" => "UPDATE checkpoint AS c SET parent =
                (SELECT key FROM checkpoint WHERE space = c.space AND id = ?2) WHERE key = ?1"
                .to_owned(),
            // The name is one of the table's own columns: it is in `here`, which was read from it.
            name => format!("UPDATE {table} SET \"{name}\" = ?2 WHERE key = ?1"),
        };
        db.execute(&sql, params![key_of(here), to_sql(value)])?;
    }
    Ok(!differing.is_empty())
}

/// Writes the text of `copy` as bytes that stand alone.
fn write_text(db: &Connection, key: Option<i64>, copy: &Saved) -> DbResult<()> {
    let text = copy.text.as_deref().unwrap_or_default();
    let packed = pack(text).map_err(|error| unreadable("a mirror file", error))?;
    db.execute(
        "UPDATE checkpoint SET base = NULL, raw_hash = ?2, raw_bytes = ?3, size_bytes = ?4 WHERE key = ?1",
        params![key, packed.raw_hash.0, packed.raw_bytes, packed.bytes.len()],
    )?;
    db.execute(
        "INSERT OR REPLACE INTO checkpoint_bytes (checkpoint, bytes) VALUES (?1, ?2)",
        params![key, packed.bytes],
    )?;
    Ok(())
}

/// Inserts a row with those of `columns` that the table has.
pub(crate) fn insert(db: &Connection, table: &str, columns: &Columns) -> DbResult<i64> {
    let known: Vec<String> = db
        .prepare_cached("SELECT name FROM pragma_table_info(?1)")?
        .query_map(params![table], |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    let columns: Vec<(&String, &Value)> = known.iter().filter_map(|name| columns.get_key_value(name)).collect();
    let names: Vec<String> = columns.iter().map(|(name, _)| format!("\"{name}\"")).collect();
    let marks = vec!["?"; names.len()].join(", ");
    let sql = format!("INSERT INTO {table} ({}) VALUES ({marks})", names.join(", "));
    db.prepare_cached(&sql)?.execute(rusqlite::params_from_iter(columns.iter().map(|(_, value)| to_sql(value))))?;
    Ok(db.last_insert_rowid())
}

/// Counts anew what sessions and the space keep count of.
pub(crate) fn recount(db: &Connection) -> DbResult<()> {
    db.execute_batch(
        "UPDATE session AS s SET
             head = (SELECT key FROM checkpoint WHERE session = s.key AND archived_at_ms IS NULL ORDER BY seq DESC LIMIT 1),
             checkpoint_count = (SELECT count(*) FROM checkpoint WHERE session = s.key AND archived_at_ms IS NULL),
             size_bytes = (SELECT coalesce(sum(size_bytes), 0) FROM checkpoint WHERE session = s.key);
         UPDATE checkpoint_group AS g SET
             checkpoint_count = max(checkpoint_count, (SELECT count(*) FROM checkpoint WHERE group_key = g.key)),
             raw_bytes = max(raw_bytes, (SELECT coalesce(sum(raw_bytes), 0) FROM checkpoint WHERE group_key = g.key));
         UPDATE space AS p SET
             session_count = (SELECT count(*) FROM session WHERE space = p.space AND archived_at_ms IS NULL),
             checkpoint_count = (SELECT coalesce(sum(checkpoint_count), 0) FROM session WHERE space = p.space AND archived_at_ms IS NULL),
             size_bytes = (SELECT coalesce(sum(size_bytes), 0) FROM session WHERE space = p.space);",
    )
    .map_err(DbError::from)
}
