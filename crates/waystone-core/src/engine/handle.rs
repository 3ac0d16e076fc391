//! Handles: the original behind what a view left out.

use serde_json::{Value, json};

use super::Engine;
use crate::api::{ExpandHandle, ExpandedHandle, LoadCheckpoint, Origin};
use crate::error::{Error, Result};
use crate::handle::{Handle, Holder, Range, text_of};
use crate::offload::offload_unless;
use crate::pack::unpack;
use crate::prose::quoted;
use crate::store::Scope;

/// A context that comes with a request is an agent's: no one said otherwise.
pub(super) const GIVEN: Origin = Origin::Agent;

impl Engine {
    /// The value that a handle names, or the part of it that is asked for.
    pub async fn expand_handle(&self, scope: &Scope, request: ExpandHandle) -> Result<ExpandedHandle> {
        let handle: Handle = request.handle.parse().map_err(Error::InvalidInput)?;
        if request.limit == Some(0) {
            return Err(Error::InvalidInput("limit is 0, it must be at least 1".to_owned()));
        }
        let missing = |why: &str| not_found(&request, why.to_owned());
        let (text, origin) = match &handle.holder {
            Holder::Checkpoint(id) => {
                let wanted = LoadCheckpoint { checkpoint_id: Some(id.clone()), ..LoadCheckpoint::default() };
                let loaded = match self.load_checkpoint(scope, wanted).await {
                    Err(Error::CheckpointNotFound(_)) => return Err(missing("there is no such checkpoint")),
                    loaded => loaded?,
                };
                (loaded.context.get().as_bytes().to_vec(), loaded.checkpoint.origin)
            }
            Holder::Segment(id) => {
                let found = self.store.find_segment(scope, id).await?;
                let segment = found.ok_or_else(|| missing("there is no such segment"))?;
                (json!(segment.text).to_string().into_bytes(), segment.origin)
            }
            Holder::Context(hash) => {
                let packed = self.store.find_context(scope, *hash).await?;
                let packed = packed.ok_or_else(|| missing("one that was given with a request is kept for 7 days"))?;
                let unpack = move || unpack(&[packed], &[]).map_err(|damage| Error::broken(damage.to_string()));
                (offload_unless(false, unpack).await??, GIVEN)
            }
        };
        let warnings = self.warnings();
        offload_unless(false, move || {
            let context = crate::json::parse_trusted(&text).map_err(|error| Error::broken(error.to_string()))?;
            let value = context.pointer(&handle.pointer).ok_or_else(|| not_found(&request, what_is_there(&context)))?;
            part(value, &handle, &request).map(|expanded| ExpandedHandle { origin, warnings, ..expanded })
        })
        .await?
    }
}

fn not_found(request: &ExpandHandle, why: String) -> Error {
    Error::HandleNotFound { handle: request.handle.clone(), why }
}

/// The keys that a pointer may begin with, as many as one reads.
fn what_is_there(context: &Value) -> String {
    const SHOWN_MAX: usize = 20;
    if !context.is_object() {
        return "it leads to a text, which has no parts but ?lines= and ?bytes=".to_owned();
    }
    let keys: Vec<&String> = context.as_object().into_iter().flat_map(|map| map.keys()).collect();
    let more = if keys.len() > SHOWN_MAX { ", …" } else { "" };
    let shown: Vec<String> = keys.iter().take(SHOWN_MAX).map(|key| quoted(key)).collect();
    format!("the context has the keys {}{more}", shown.join(", "))
}

fn part(value: &Value, handle: &Handle, request: &ExpandHandle) -> Result<ExpandedHandle> {
    // Lines of a value that is not text are those that people see of it.
    let text = match (value, handle.range) {
        (Value::String(_), _) | (_, None | Some(Range::Bytes(..))) => text_of(value),
        (other, Some(Range::Lines(..))) => serde_json::to_string_pretty(other).unwrap_or_default().into(),
    };
    let outside = || format!("it has {} lines and {} bytes", text.split('\n').count(), text.len());
    let text = match handle.range {
        Some(range) => range.of(&text).ok_or_else(|| not_found(request, outside()))?,
        None => &text,
    };
    let total_chars = text.chars().count() as u64;
    let offset = request.offset.unwrap_or(0).min(total_chars);
    let end = request.limit.map_or(total_chars, |limit| offset.saturating_add(limit).min(total_chars));
    let is_whole = handle.range.is_none() && offset == 0 && end == total_chars;
    let content = match is_whole {
        true => value.clone(),
        false => text.chars().skip(offset as usize).take((end - offset) as usize).collect::<String>().into(),
    };
    let next_offset = (end < total_chars).then_some(end);
    Ok(ExpandedHandle {
        handle: request.handle.clone(),
        content,
        origin: Origin::default(),
        total_chars,
        offset,
        next_offset,
        warnings: Vec::new(),
    })
}
