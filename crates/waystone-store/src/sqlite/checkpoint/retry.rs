//! Retries: a request that is made again under the same key gets the first answer.

use rusqlite::{Connection, OptionalExtension, params};
use serde_json::{Map, Value, json};
use waystone_core::Error;
use waystone_core::error::Conflict;
use waystone_core::id::CheckpointId;
use waystone_core::store::{Added, KEY_LIFE_MS, NewCheckpoint, Scope, Used};

use super::find_by_id;
use crate::sqlite::error::{DbResult, unreadable};

/// What the keys are for.
const SAVED: &str = "checkpoint.saved";

/// The first answer to a request that is made again.
pub(super) fn replay(db: &Connection, scope: &Scope, new: &NewCheckpoint) -> DbResult<Option<Added>> {
    let Some(idempotency) = &new.idempotency else { return Ok(None) };
    let found: Option<(bool, String)> = db
        .prepare_cached(
            "SELECT request_hash = keyed(?6), reply FROM idempotency_key
             WHERE space = ?1 AND kind = ?2 AND actor = ?3 AND id = keyed_text(?4) AND at_ms > ?5",
        )?
        .query_row(
            params![
                scope.space,
                SAVED,
                scope.actor,
                idempotency.key,
                new.at.ms() - KEY_LIFE_MS,
                idempotency.request_hash.0
            ],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
        .optional()?;
    let Some((is_same, reply)) = found else { return Ok(None) };
    if !is_same {
        return Err(Error::Conflict(Conflict::KeyReused(idempotency.given.clone())).into());
    }
    let reply: Map<String, Value> =
        serde_json::from_str(&reply).map_err(|error| unreadable("a first answer", error))?;
    let id = reply.get("checkpointId").and_then(Value::as_str).unwrap_or_default();
    let id: CheckpointId = id.parse().map_err(|error| unreadable("a first answer", error))?;
    let checkpoint = find_by_id(db, scope, &id)?.ok_or(Error::CheckpointNotFound(id))?;
    let pruned = reply.get("pruned").and_then(Value::as_u64);
    if new.force && pruned.is_none() {
        // The engine saves anew what equals a damaged checkpoint; the answer given before does not stand.
        return Ok(None);
    }
    Ok(Some(match pruned {
        // What was told of room then is not told again.
        Some(pruned) => Added::New { checkpoint, pruned, used: Used::default() },
        None => Added::Unchanged(checkpoint),
    }))
}

/// Keeps what is needed to answer the same request again. `pruned` is there when the checkpoint is new.
pub(super) fn remember(
    db: &Connection,
    scope: &Scope,
    new: &NewCheckpoint,
    id: &CheckpointId,
    pruned: Option<u64>,
) -> DbResult<()> {
    let Some(idempotency) = &new.idempotency else { return Ok(()) };
    db.prepare_cached(
        "INSERT OR REPLACE INTO idempotency_key (space, kind, actor, id, request_hash, reply, at_ms)
         VALUES (?1, ?2, ?3, keyed_text(?4), keyed(?5), ?6, ?7)",
    )?
    .execute(params![
        scope.space,
        SAVED,
        scope.actor,
        idempotency.key,
        idempotency.request_hash.0,
        json!({ "checkpointId": id, "pruned": pruned }).to_string(),
        new.at.ms(),
    ])?;
    Ok(())
}
