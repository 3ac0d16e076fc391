//! The two logs, appended to inside the caller's transaction: operations, which are kept and chained by their hashes, and
//! events, which tell subscribers and expire.

use rusqlite::types::Value as Written;
use rusqlite::{Connection, params};
use serde_json::{Value, json};
use waystone_core::audit::chain;
use waystone_core::canon::Hash;
use waystone_core::clock::Timestamp;
use waystone_core::store::Scope;

use super::error::DbResult;

/// One change, to be numbered and chained.
pub(crate) struct Operation<'a> {
    pub(crate) at: Timestamp,
    /// What became true.
    pub(crate) kind: &'a str,
    pub(crate) project: &'a str,
    /// Handles of what it is about.
    pub(crate) subject: Vec<String>,
    /// Ids and small fields; never text of a context, never a secret.
    pub(crate) payload: Value,
}

/// Appends `operation` and returns its number.
pub(crate) fn append(db: &Connection, scope: &Scope, operation: &Operation<'_>) -> DbResult<i64> {
    Ok(add(db, scope, operation, 0)?.0)
}

/// Appends `operation` and tells subscribers.
pub(crate) fn append_and_publish(db: &Connection, scope: &Scope, operation: &Operation<'_>) -> DbResult<i64> {
    let (seq, event) = add(db, scope, operation, 1)?;
    db.prepare_cached(
        "INSERT INTO event (space, seq, at_ms, kind, payload) VALUES (?1, ?2, ?3, ?4, sealed(?5, 'event', ?2))",
    )?
    .execute(params![scope.space, event, operation.at.ms(), operation.kind, operation.payload.to_string()])?;
    Ok(seq)
}

/// Adds `operation` and makes room for so many events about it. Returns its number and that of the newest event.
fn add(db: &Connection, scope: &Scope, operation: &Operation<'_>, events: i64) -> DbResult<(i64, i64)> {
    let (seq, previous): (i64, [u8; 32]) = db
        .prepare_cached("SELECT operation_seq + 1, operation_hash FROM space WHERE space = ?1")?
        .query_row(params![scope.space], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let mut subject = operation.subject.clone();
    subject.push(handle("project", operation.project));
    let subject = json!(subject).to_string();
    // The hash is of what is written: a chain verifies without the key.
    let payload: Written = db
        .prepare_cached("SELECT sealed(?1, 'operation', ?2)")?
        .query_row(params![operation.payload.to_string(), seq], |row| row.get(0))?;
    let payload_hash = hash_of(&payload);
    let hash = chain(&previous, seq, operation.at, &scope.actor, operation.kind, &subject, &payload_hash.0);
    db.prepare_cached(
        "INSERT INTO operation (space, seq, at_ms, actor, kind, project, subject, payload, payload_hash, hash)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
    )?
    .execute(params![
        scope.space,
        seq,
        operation.at.ms(),
        scope.actor,
        operation.kind,
        operation.project,
        subject,
        payload,
        payload_hash.0,
        hash.0,
    ])?;
    let event = db
        .prepare_cached(
            "UPDATE space SET operation_seq = ?2, operation_hash = ?3, event_seq = event_seq + ?4 WHERE space = ?1
             RETURNING event_seq",
        )?
        .query_row(params![scope.space, seq, hash.0, events], |row| row.get(0))?;
    Ok((seq, event))
}

/// The hash of a payload as it is written: the hash of its text, and of what is sealed as an audit has it.
pub(crate) fn hash_of(payload: &Written) -> Hash {
    match payload {
        Written::Text(text) => Hash::of(text.as_bytes()),
        Written::Blob(bytes) => Hash::of(format!("\"{}\"", hex::encode(bytes)).as_bytes()),
        Written::Null | Written::Integer(_) | Written::Real(_) => Hash::of(&[]),
    }
}

pub(crate) fn handle(kind: &str, id: &str) -> String {
    format!("ws:{kind}:{id}")
}

/// The next number for a row that has an order of its own.
pub(crate) fn next_row_seq(db: &Connection, scope: &Scope) -> DbResult<i64> {
    Ok(db
        .prepare_cached("UPDATE space SET row_seq = row_seq + 1 WHERE space = ?1 RETURNING row_seq")?
        .query_row(params![scope.space], |row| row.get(0))?)
}
