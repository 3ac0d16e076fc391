//! A database made from mirror files, and groups brought back from them into one.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OptionalExtension, params};
use serde_json::{Value, json};
use waystone_core::api::{Finding, FindingKind};
use waystone_core::clock::Timestamp;
use waystone_core::id::CheckpointId;
use waystone_core::pack::{pack, pack_delta};
use waystone_core::store::Scope;

use super::connection::{open_untouched, open_writer};
use super::error::{DbResult, unreadable};
use super::log::{Operation, append, next_row_seq};
use super::migration::{VERSION, is_confirmed, known_schema, make, schema, version};
use super::mirror::{changed_seq, insert, list_dirty, read_file, read_group, recount};
use crate::OpenError;
use crate::directory::DataDirectory;
use crate::mirror::{Columns, Group, Saved};

/// The newest copy of each session's own fields, and the number of the change it is from.
type Sessions = HashMap<String, (i64, Columns)>;

/// How many groups are asked for at once.
const SALVAGE_PAGE: usize = 64;

/// Where a group's file is, and where the group stands in the order of all.
struct Source<'a> {
    path: &'a Path,
    first_seq: i64,
}

/// Groups of a damaged database that can still be read and are not mirrored as they are: what was saved last.
pub(crate) fn salvage(directory: &DataDirectory) -> Vec<Group> {
    let (mut groups, mut after) = (Vec::new(), 0);
    let Ok(db) = open_untouched(&directory.database()) else { return groups };
    while let Ok(dirty) = list_dirty(&db, after, SALVAGE_PAGE)
        && let Some(last) = dirty.last()
    {
        after = *last;
        groups.extend(dirty.iter().filter_map(|key| read_group(&db, *key).ok().flatten()));
    }
    groups
}

/// Brings what is in `files`, and then what was salvaged, into the database, as far as it is not there.
fn import(
    directory: &DataDirectory,
    db: &Connection,
    files: &[PathBuf],
    salvaged: Vec<Group>,
    at: Timestamp,
    progress: &mut dyn FnMut(u64, u64),
) -> DbResult<Vec<Finding>> {
    let (mut findings, mut sessions, mut sources) = (Vec::new(), Sessions::new(), Vec::new());
    let total = 2 * files.len() as u64;
    for (done, path) in files.iter().enumerate() {
        match read_file(&directory.root().join(path)) {
            Ok(Ok(group)) => {
                sources.push(Source { path, first_seq: first_seq(&group) });
                survey(&group, &mut sessions);
            }
            Ok(Err(error)) => findings.push(unhealed(path, &error)),
            Err(error) => findings.push(unhealed(path, &error)),
        }
        progress(done as u64 + 1, total);
    }
    salvaged.iter().for_each(|group| survey(group, &mut sessions));
    // Parents come before their children.
    sources.sort_by_key(|source| source.first_seq);
    let mut restored = 0;
    for (done, source) in sources.iter().enumerate() {
        let Ok(Ok(group)) = read_file(&directory.root().join(source.path)) else { continue };
        let imported = in_savepoint(db, |db| import_group(db, &group, &sessions, &mut findings));
        match imported {
            Ok(count) => restored += count,
            Err(error) => findings.push(unhealed(source.path, &error)),
        }
        progress((files.len() + done) as u64 + 1, total);
    }
    for group in &salvaged {
        // A text proves itself by its hash; a group that does not fit is left.
        restored += in_savepoint(db, |db| import_group(db, group, &sessions, &mut findings)).unwrap_or(0);
    }
    recount(db)?;
    continue_counters(db)?;
    if restored > 0 {
        record(db, restored, at)?;
    }
    Ok(findings)
}

fn unhealed(path: &Path, error: &dyn std::fmt::Display) -> Finding {
    let (subject, message) = (path.display().to_string(), format!("could not be brought back: {error}"));
    Finding { kind: FindingKind::Unhealed, subject, message }
}

fn text<'a>(columns: &'a Columns, name: &str) -> &'a str {
    columns.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn first_seq(group: &Group) -> i64 {
    group.checkpoints.iter().filter_map(|saved| saved.columns.get("seq")?.as_i64()).min().unwrap_or(i64::MAX)
}

fn survey(group: &Group, sessions: &mut Sessions) {
    let changed = changed_seq(group);
    let newest = sessions.entry(text(&group.session, "id").to_owned()).or_insert((changed, Columns::new()));
    if changed >= newest.0 {
        *newest = (changed, group.session.clone());
    }
}

fn in_savepoint<T>(db: &Connection, work: impl FnOnce(&Connection) -> DbResult<T>) -> DbResult<T> {
    db.execute_batch("SAVEPOINT import")?;
    let done = work(db);
    db.execute_batch(if done.is_ok() { "RELEASE import" } else { "ROLLBACK TO import; RELEASE import" })?;
    done
}

/// Brings back a group, and returns how many of its checkpoints were not there.
fn import_group(db: &Connection, group: &Group, sessions: &Sessions, findings: &mut Vec<Finding>) -> DbResult<u64> {
    let space = group.row.get("space").and_then(Value::as_i64).unwrap_or(1);
    let session_id = text(&group.session, "id");
    let session = match find(db, "session", space, session_id)? {
        Some(key) => key,
        None => {
            let mut columns =
                sessions.get(session_id).map_or_else(|| group.session.clone(), |(_, newest)| newest.clone());
            columns.remove("key");
            columns.insert("head".to_owned(), Value::Null);
            let key = insert(db, "session", &columns)?;
            findings.push(restored(session_id, "a session came back from its files"));
            key
        }
    };
    let group_key = join_group(db, group, session)?;
    let mut previous: Option<(i64, CheckpointId, &[u8])> = None;
    let mut count = 0;
    for saved in &group.checkpoints {
        let id = text(&saved.columns, "id");
        let Some(context) = saved.text.as_deref() else {
            let message = "is damaged in its file too".to_owned();
            findings.push(Finding { kind: FindingKind::Lost, subject: id.to_owned(), message });
            continue;
        };
        if find(db, "checkpoint", space, id)?.is_some() {
            continue;
        }
        let key = import_checkpoint(db, saved, context, (session, group_key), previous.as_ref())?;
        let id = id.parse().map_err(|error| unreadable("an id", error))?;
        previous = Some((key, id, context));
        count += 1;
    }
    Ok(count)
}

fn restored(subject: &str, message: &str) -> Finding {
    Finding { kind: FindingKind::Restored, subject: subject.to_owned(), message: message.to_owned() }
}

fn find(db: &Connection, table: &str, space: i64, id: &str) -> DbResult<Option<i64>> {
    let sql = format!("SELECT key FROM {table} WHERE space = ?1 AND id = ?2");
    Ok(db.prepare_cached(&sql)?.query_row(params![space, id], |row| row.get(0)).optional()?)
}

fn join_group(db: &Connection, group: &Group, session: i64) -> DbResult<i64> {
    let found: Option<i64> = db
        .prepare_cached("SELECT key FROM checkpoint_group WHERE session = ?1 AND id = ?2")?
        .query_row(params![session, text(&group.row, "id")], |row| row.get(0))
        .optional()?;
    if let Some(key) = found {
        return Ok(key);
    }
    let mut columns = group.row.clone();
    columns.remove("key");
    columns.insert("session".to_owned(), session.into());
    // Its rows get other keys, so the file is written anew.
    columns.insert("mirrored_seq".to_owned(), 0.into());
    insert(db, "checkpoint_group", &columns)
}

fn import_checkpoint(
    db: &Connection,
    saved: &Saved,
    context: &[u8],
    (session, group): (i64, i64),
    previous: Option<&(i64, CheckpointId, &[u8])>,
) -> DbResult<i64> {
    let packed = match previous {
        Some((_, id, text)) => pack_delta(context, id, text),
        None => pack(context),
    };
    let packed = packed.map_err(|error| unreadable("a context", error))?;
    let mut columns = saved.columns.clone();
    columns.remove("key");
    let space = columns.get("space").and_then(Value::as_i64).unwrap_or(1);
    let parent = find(db, "checkpoint", space, text(&columns, "parent_id"))?;
    let is_taken = db
        .prepare_cached("SELECT 1 FROM checkpoint WHERE space = ?1 AND seq = ?2")?
        .exists(params![space, columns.get("seq").and_then(Value::as_i64)])?;
    let scope = Scope { space, actor: String::new() };
    if is_taken {
        columns.insert("seq".to_owned(), next_row_seq(db, &scope)?.into());
    }
    let base = previous.map(|(key, _, _)| *key);
    let own = json!({
        "session": session, "group_key": group, "parent": parent, "base": base, "size_bytes": packed.bytes.len(),
    });
    columns.extend(own.as_object().cloned().unwrap_or_default());
    let key = insert(db, "checkpoint", &columns)?;
    db.prepare_cached("INSERT INTO checkpoint_bytes (checkpoint, bytes) VALUES (?1, ?2)")?
        .execute(params![key, packed.bytes])?;
    Ok(key)
}

/// Numbers go on after the highest one found. Operations before that are gone, so another chain begins.
fn continue_counters(db: &Connection) -> DbResult<()> {
    db.execute_batch(
        "UPDATE space AS p SET row_seq = max(row_seq,
             (SELECT coalesce(max(seq), 0) FROM checkpoint WHERE space = p.space),
             (SELECT coalesce(max(max(seq, accessed_seq)), 0) FROM session WHERE space = p.space));",
    )?;
    let highest: i64 = db.query_row(
        "SELECT max((SELECT coalesce(max(changed_seq), 0) FROM checkpoint_group),
                    (SELECT coalesce(max(max(saved_seq, coalesce(archived_seq, 0))), 0) FROM checkpoint))",
        [],
        |row| row.get(0),
    )?;
    let changed = db.execute(
        "UPDATE space SET operation_seq = ?1, operation_hash = randomblob(32), event_seq = max(event_seq, ?1)
         WHERE operation_seq < ?1",
        params![highest],
    )?;
    if changed > 0 {
        db.execute(
            "INSERT INTO chain (space, first_seq, genesis) SELECT space, operation_seq + 1, operation_hash FROM space",
            [],
        )?;
    }
    Ok(())
}

fn record(db: &Connection, restored: u64, at: Timestamp) -> DbResult<()> {
    let operation = Operation {
        at,
        kind: "store.rebuilt",
        project: "default",
        subject: Vec::new(),
        payload: json!({ "checkpoints": restored }),
    };
    append(db, &Scope::local("maintenance"), &operation).map(drop)
}

/// Why the database cannot be used as it is; `None` when it can. One of a newer version is not touched.
pub(crate) fn why_unusable(directory: &DataDirectory) -> Result<Option<String>, OpenError> {
    let path = directory.database();
    if path.metadata().map_or(true, |metadata| metadata.len() == 0) {
        return Ok(Some("it is missing".to_owned()));
    }
    let look = || -> rusqlite::Result<Result<Option<String>, u32>> {
        let db = open_untouched(&path)?;
        let found = version(&db)?;
        if found > VERSION && is_confirmed(&db, found)? {
            return Ok(Err(found));
        }
        if let Some(damage) = damage(&db)? {
            return Ok(Ok(Some(damage)));
        }
        Ok(Ok(None))
    };
    match look() {
        Ok(Err(found)) => Err(OpenError::Newer { path, found, known: VERSION }),
        Ok(Ok(damage)) => Ok(damage),
        Err(error) => Ok(Some(error.to_string())),
    }
}

/// The first thing that is wrong with a database as a whole.
pub(crate) fn damage(db: &Connection) -> rusqlite::Result<Option<String>> {
    let (found, is_ours) = (version(db)?, schema(db)? == known_schema()?);
    // An older one is brought to the present schema when it is opened.
    if !matches!((found, is_ours), (VERSION, true) | (1..VERSION, false)) {
        return Ok(Some(format!("version {found} is not what its tables are")));
    }
    let found: String = db.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))?;
    if found != "ok" {
        return Ok(Some(found));
    }
    db.prepare("SELECT \"table\" || ' has a row that refers to nothing' FROM pragma_foreign_key_check")?
        .query_row([], |row| row.get(0))
        .optional()
}

/// [`import`] into a database that no one else uses.
pub(crate) fn import_files(
    directory: &DataDirectory,
    database: &Path,
    files: &[PathBuf],
    salvaged: Vec<Group>,
    at: Timestamp,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Vec<Finding>, OpenError> {
    make(database, at)?;
    let failed =
        |error: &dyn std::fmt::Display| OpenError::Database { path: database.to_owned(), message: error.to_string() };
    let db = open_writer(database).map_err(|error| failed(&error))?;
    db.execute_batch("BEGIN IMMEDIATE").map_err(|error| failed(&error))?;
    let findings = import(directory, &db, files, salvaged, at, progress).map_err(|error| failed(&error))?;
    db.execute_batch("COMMIT").map_err(|error| failed(&error))?;
    // The last connection folds the log back when it closes, and syncs.
    db.close().map_err(|(_, error)| failed(&error))?;
    Ok(findings)
}
