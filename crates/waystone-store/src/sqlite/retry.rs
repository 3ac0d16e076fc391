//! Retries: a request that is made again under the same key gets the first answer.

use rusqlite::{Connection, OptionalExtension, params};
use serde_json::Value;
use waystone_core::Error;
use waystone_core::clock::Timestamp;
use waystone_core::error::Conflict;
use waystone_core::store::{Idempotency, KEY_LIFE_MS, Scope};

use super::error::{DbResult, unreadable};

/// The first answer to a request that is made again: the ids that it was made of.
pub(crate) fn find(
    db: &Connection,
    scope: &Scope,
    kind: &str,
    idempotency: Option<&Idempotency>,
    at: Timestamp,
) -> DbResult<Option<Value>> {
    let Some(Idempotency { given, key, request_hash }) = idempotency else { return Ok(None) };
    let found: Option<(bool, String)> = db
        .prepare_cached(
            "SELECT request_hash = keyed(?6), reply FROM idempotency_key
             WHERE space = ?1 AND kind = ?2 AND actor = ?3 AND id = keyed_text(?4) AND at_ms > ?5",
        )?
        .query_row(params![scope.space, kind, scope.actor, key, at.ms() - KEY_LIFE_MS, request_hash.0], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .optional()?;
    match found {
        None => Ok(None),
        Some((false, _)) => Err(Error::Conflict(Conflict::KeyReused(given.clone())).into()),
        Some((true, reply)) => {
            Ok(Some(serde_json::from_str(&reply).map_err(|error| unreadable("a first answer", error))?))
        }
    }
}

/// Keeps what is needed to answer the same request again.
pub(crate) fn remember(
    db: &Connection,
    scope: &Scope,
    kind: &str,
    idempotency: Option<&Idempotency>,
    reply: &Value,
    at: Timestamp,
) -> DbResult<()> {
    let Some(Idempotency { key, request_hash, .. }) = idempotency else { return Ok(()) };
    db.prepare_cached(
        "INSERT OR REPLACE INTO idempotency_key (space, kind, actor, id, request_hash, reply, at_ms)
         VALUES (?1, ?2, ?3, keyed_text(?4), keyed(?5), ?6, ?7)",
    )?
    .execute(params![scope.space, kind, scope.actor, key, request_hash.0, reply.to_string(), at.ms()])?;
    Ok(())
}
