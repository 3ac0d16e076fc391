//! The keys of a database wrapped by another master key, and a plain database sealed value by value.

use std::sync::Arc;

use rusqlite::types::Value as Written;
use rusqlite::{Connection, params};
use serde_json::{Value, json};
use waystone_core::audit::{CONTINUES, chain};
use waystone_core::clock::Timestamp;
use waystone_core::store::Scope;

use super::audit::{head, list_chains};
use super::columns;
use super::connection::open_writer;
use super::doctor::is_chain_whole;
use super::error::{DbResult, unreadable};
use super::log::{Operation, append, hash_of};
use super::maintenance::checkpoint;
use super::seal::Keys;
use crate::directory::DataDirectory;
use crate::seal::MasterKey;

/// Whose keys are wrapped: the table, and how the owner is named.
const OWNERS: [(&str, &str); 3] =
    [("space", "'store'"), ("session", "'session:' || id"), ("project", "'project:' || id")];

/// The project of a segment or snapshot, by which its values are sealed.
const PROJECT: &str = "(SELECT 'project:' || p.id FROM project AS p WHERE p.key = project),
                       (SELECT p.wrapped_key FROM project AS p WHERE p.key = project)";
/// Whose a segment's text is: its conversation's, or its project's.
const TEXT_OWNER: &str = "coalesce((SELECT 'session:' || c.id FROM session AS c WHERE c.key = conversation),
                                   (SELECT 'project:' || p.id FROM project AS p WHERE p.key = project)),
                          coalesce((SELECT c.wrapped_key FROM session AS c WHERE c.key = conversation),
                                   (SELECT p.wrapped_key FROM project AS p WHERE p.key = project))";
/// The same from the row of the text.
const OWNER_OF_TEXT: &str =
    "(SELECT coalesce((SELECT 'session:' || c.id FROM session AS c WHERE c.key = s.conversation),
                                     (SELECT 'project:' || p.id FROM project AS p WHERE p.key = s.project))
                              FROM segment AS s WHERE s.key = segment),
                             (SELECT coalesce((SELECT c.wrapped_key FROM session AS c WHERE c.key = s.conversation),
                                     (SELECT p.wrapped_key FROM project AS p WHERE p.key = s.project))
                              FROM segment AS s WHERE s.key = segment)";
/// The conversation of a branch or message.
const CONVERSATION: &str = "(SELECT 'session:' || s.id FROM session AS s WHERE s.key = session),
                            (SELECT s.wrapped_key FROM session AS s WHERE s.key = session)";
/// The session of a checkpoint's bytes.
const BYTES_SESSION: &str =
    "(SELECT 'session:' || s.id FROM checkpoint AS c JOIN session AS s ON s.key = c.session WHERE c.key = checkpoint),
     (SELECT s.wrapped_key FROM checkpoint AS c JOIN session AS s ON s.key = c.session WHERE c.key = checkpoint)";

/// What is sealed besides the fields of sessions and checkpoints: table, column, and the sealed value. A row that is found by a hash is
/// known by the keyed one, so hashes come first.
fn values() -> Vec<(&'static str, &'static str, String)> {
    vec![
        (
            "checkpoint_bytes",
            "bytes",
            format!(
                "sealed(bytes, 'bytes', (SELECT c.id FROM checkpoint AS c WHERE c.key = checkpoint), {BYTES_SESSION})"
            ),
        ),
        ("segment", "text_hash", format!("keyed(text_hash, {TEXT_OWNER})")),
        ("segment", "tags", format!("sealed(tags, 'tags', id, {PROJECT})")),
        ("segment", "file_path", format!("sealed_alike(file_path, 'file_path', {PROJECT})")),
        (
            "segment_text",
            "text",
            format!("sealed(text, 'text', (SELECT s.id FROM segment AS s WHERE s.key = segment), {OWNER_OF_TEXT})"),
        ),
        (
            "conversation",
            "config",
            format!("sealed(config, 'config', (SELECT s.id FROM session AS s WHERE s.key = session), {CONVERSATION})"),
        ),
        (
            "conversation",
            "error",
            format!("sealed(error, 'error', (SELECT s.id FROM session AS s WHERE s.key = session), {CONVERSATION})"),
        ),
        (
            "conversation",
            "beginning",
            format!(
                "sealed(beginning, 'beginning', (SELECT s.id FROM session AS s WHERE s.key = session), {CONVERSATION})"
            ),
        ),
        ("branch", "name", format!("sealed_alike(name, 'branch', {CONVERSATION})")),
        (
            "message",
            "facts",
            format!("sealed(facts, 'facts', (SELECT s.id FROM segment AS s WHERE s.key = segment), {CONVERSATION})"),
        ),
        (
            "message",
            "parts",
            format!("sealed(parts, 'parts', (SELECT s.id FROM segment AS s WHERE s.key = segment), {CONVERSATION})"),
        ),
        ("tool_call", "call", format!("sealed(call, 'call', id, {CONVERSATION})")),
        ("tool_call", "answer", format!("sealed(answer, 'answer', id, {CONVERSATION})")),
        ("window", "manifest", format!("sealed(manifest, 'window', id, {CONVERSATION})")),
        ("snapshot", "name", format!("sealed(name, 'name', id, {PROJECT})")),
        ("given_context", "hash", "keyed(hash)".to_owned()),
        ("given_context", "bytes", "sealed(bytes, 'context', hash)".to_owned()),
        ("transcript", "path", "keyed(path)".to_owned()),
        ("transcript", "end_hash", "sealed(end_hash, 'end_hash', path)".to_owned()),
        ("transcript_turn", "hash", "keyed(hash)".to_owned()),
        ("idempotency_key", "id", "keyed_text(id)".to_owned()),
        ("idempotency_key", "request_hash", "keyed(request_hash)".to_owned()),
        ("event", "payload", "sealed(payload, 'event', seq)".to_owned()),
    ]
}

/// Wraps every key anew and has every file written again, in one transaction: it is all under one master key, or all under the other.
pub(crate) fn wrap_anew(directory: &DataDirectory, new: &MasterKey, at: Timestamp) -> DbResult<()> {
    let old = directory.keys().master().ok_or_else(|| unreadable("the store", "it is not sealed"))?;
    let db = open_writer(&directory.database(), directory.keys())?;
    let transaction = db.unchecked_transaction()?;
    for (table, owner) in OWNERS {
        let mut statement =
            db.prepare(&format!("SELECT rowid, {owner}, wrapped_key FROM {table} WHERE wrapped_key IS NOT NULL"))?;
        let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
        let rows: Vec<(i64, String, Vec<u8>)> = rows.collect::<Result<_, _>>()?;
        for (row, owner, wrapped) in rows {
            let key = old.unwrap(&wrapped, &owner).map_err(|error| unreadable(&owner, error))?;
            let wrapped = new.wrap(&key, &owner).map_err(|error| unreadable("a key", error))?;
            db.prepare_cached(&format!("UPDATE {table} SET wrapped_key = ?2 WHERE rowid = ?1"))?
                .execute(params![row, wrapped])?;
        }
    }
    db.execute("UPDATE checkpoint_group SET mirrored_seq = 0", [])?;
    record(&db, "store.rekeyed", json!({}), at)?;
    transaction.commit()?;
    // It is done; the log is folded back at some time.
    let _ = checkpoint(&db, "TRUNCATE");
    Ok(())
}

/// Seals every value of a plain database that no one else uses, and checks that each opens. Nothing plain is left in its file.
pub(crate) fn seal_all(directory: &DataDirectory, at: Timestamp, progress: &mut dyn FnMut(u64, u64)) -> DbResult<()> {
    let db = open_writer(&directory.database(), directory.keys())?;
    let transaction = db.unchecked_transaction()?;
    let (before, is_whole) = (head(&db, Scope::local("").space)?, is_chain_whole(&db, Scope::local("").space)?);
    for (table, owner) in OWNERS {
        db.execute(&format!("UPDATE {table} SET wrapped_key = new_key({owner})"), [])?;
    }
    unlock(&db, directory.keys())?;
    let values: Vec<(&str, &str, String)> = columns::sealing().into_iter().chain(values()).collect();
    let total = values.len() as u64 + 2;
    for (done, (table, column, sealed)) in values.iter().enumerate() {
        db.execute(&format!("UPDATE {table} SET {column} = {sealed}"), [])?;
        check(&db, table, column, sealed)?;
        progress(done as u64 + 1, total);
    }
    forget_words(&db)?;
    link_anew(&db)?;
    progress(total - 1, total);
    db.execute("UPDATE checkpoint_group SET mirrored_seq = 0", [])?;
    record(&db, "store.sealed", json!({ CONTINUES: before, "whole": is_whole }), at)?;
    transaction.commit()?;
    // Pages that were freed hold what was there before.
    db.execute_batch("VACUUM")?;
    progress(total, total);
    fold_back(&db)
}

fn unlock(db: &Connection, keys: &Arc<Keys>) -> DbResult<()> {
    let wrapped: Vec<u8> = db.query_row("SELECT wrapped_key FROM space", [], |row| row.get(0))?;
    keys.unlock(&wrapped).map_err(|error| unreadable("the key of the store", error))
}

/// Refuses to go on where a value does not open again.
fn check(db: &Connection, table: &str, column: &str, sealed: &str) -> DbResult<()> {
    let opened = match sealed.split_once('(') {
        Some(("sealed", arguments)) => format!("unsealed({arguments}"),
        // It is opened with its owner in the place of an id.
        Some(("sealed_alike", _)) if table == "branch" => {
            format!(
                "unsealed(name, 'branch', (SELECT 'session:' || s.id FROM session AS s WHERE s.key = session), {CONVERSATION})"
            )
        }
        Some(("sealed_alike", _)) => format!(
            "unsealed({column}, '{column}', (SELECT 'project:' || p.id FROM project AS p WHERE p.key = project), {PROJECT})"
        ),
        _ => return Ok(()),
    };
    let sql = format!("SELECT count(*) FROM {table} WHERE {column} IS NOT NULL AND {opened} IS NULL");
    match db.query_row(&sql, [], |row| row.get::<_, i64>(0))? {
        0 => Ok(()),
        count => Err(unreadable(table, format!("{count} values of {column} do not open again"))),
    }
}

/// Words are not kept of what is sealed.
fn forget_words(db: &Connection) -> rusqlite::Result<()> {
    db.execute_batch(
        "INSERT INTO segment_word (segment_word) VALUES ('delete-all');
         INSERT INTO checkpoint_word (checkpoint_word) VALUES ('delete-all');
         INSERT INTO checkpoint_term (checkpoint_term) VALUES ('delete-all');
         DELETE FROM segment_index;
         UPDATE checkpoint_index SET pieces = x'';
         UPDATE search_index SET round = round + 1, next_segment = NULL, found_key = 0;",
    )
}

/// Seals the payloads of all operations, and gives each the hash that follows from what is now written.
fn link_anew(db: &Connection) -> DbResult<()> {
    let space = Scope::local("").space;
    let chains = list_chains(db, space)?;
    let mut next = db.prepare(
        "SELECT seq, at_ms, actor, kind, subject, sealed(payload, 'operation', seq), payload_hash
         FROM operation WHERE space = ?1 AND seq > ?2 ORDER BY seq LIMIT 1",
    )?;
    let mut update =
        db.prepare("UPDATE operation SET payload = ?3, payload_hash = ?4, hash = ?5 WHERE space = ?1 AND seq = ?2")?;
    let (mut after, mut previous) = (0, Vec::new());
    while let Some(row) = next.query(params![space, after])?.next()? {
        let seq: i64 = row.get(0)?;
        if let Some(begun) = chains.iter().find(|chain| chain.first_seq == seq) {
            previous = hex::decode(&begun.genesis).map_err(|error| unreadable("a chain", error))?;
        }
        let (actor, kind, subject): (String, String, String) = (row.get(2)?, row.get(3)?, row.get(4)?);
        let payload: Written = row.get(5)?;
        // One that was erased leaves its hash.
        let payload_hash = match payload {
            Written::Null => row.get(6)?,
            _ => hash_of(&payload).0.to_vec(),
        };
        let at = Timestamp::from_ms(row.get(1)?);
        let hash = chain(&previous, seq, at, &actor, &kind, &subject, &payload_hash).0.to_vec();
        update.execute(params![space, seq, payload, payload_hash, hash])?;
        (after, previous) = (seq, hash);
    }
    db.execute(
        "UPDATE space SET operation_hash = coalesce((SELECT o.hash FROM operation AS o WHERE o.space = space.space
             AND o.seq = operation_seq), operation_hash)",
        [],
    )?;
    Ok(())
}

fn record(db: &Connection, kind: &str, payload: Value, at: Timestamp) -> DbResult<()> {
    let operation = Operation { at, kind, project: "default", subject: Vec::new(), payload };
    append(db, &Scope::local("maintenance"), &operation).map(drop)
}

/// Only the file itself counts from here on.
fn fold_back(db: &Connection) -> DbResult<()> {
    match checkpoint(db, "TRUNCATE")? {
        true => Ok(()),
        false => Err(unreadable("the log", "it could not be folded back")),
    }
}
