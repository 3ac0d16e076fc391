//! Retries of saves: what the first answer is made of.

use rusqlite::Connection;
use serde_json::{Value, json};
use waystone_core::Error;
use waystone_core::id::CheckpointId;
use waystone_core::store::{Added, NewCheckpoint, Scope, Used};

use super::find_by_id;
use crate::sqlite::error::{DbResult, unreadable};
use crate::sqlite::retry;

/// What the keys are for.
const SAVED: &str = "checkpoint.saved";

/// The first answer to a request that is made again.
pub(super) fn replay(db: &Connection, scope: &Scope, new: &NewCheckpoint) -> DbResult<Option<Added>> {
    let Some(reply) = retry::find(db, scope, SAVED, new.idempotency.as_ref(), new.at)? else { return Ok(None) };
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
    let reply = json!({ "checkpointId": id, "pruned": pruned });
    retry::remember(db, scope, SAVED, new.idempotency.as_ref(), &reply, new.at)
}
