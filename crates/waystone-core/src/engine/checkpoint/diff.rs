//! What differs between two checkpoints.

use super::super::Engine;
use super::parse_context;
use crate::api::{CheckpointDiff, LoadCheckpoint};
use crate::diff::diff;
use crate::error::Result;
use crate::id::CheckpointId;
use crate::offload::offload_unless;
use crate::store::Scope;

impl Engine {
    /// What changed from `before` to `after`, key by key. They may be of different sessions.
    pub async fn diff_checkpoints(
        &self,
        scope: &Scope,
        before: CheckpointId,
        after: CheckpointId,
    ) -> Result<CheckpointDiff> {
        let wanted =
            |id: &CheckpointId| LoadCheckpoint { checkpoint_id: Some(id.clone()), ..LoadCheckpoint::default() };
        let first = self.load_checkpoint(scope, wanted(&before)).await?;
        let second = self.load_checkpoint(scope, wanted(&after)).await?;
        let origin = first.checkpoint.origin.lowest(second.checkpoint.origin);
        let compare = move || Ok(diff(&parse_context(&first.context)?, &parse_context(&second.context)?));
        Ok(CheckpointDiff {
            before_id: before,
            after_id: after,
            origin,
            changes: offload_unless(false, compare).await??,
            warnings: self.warnings(),
        })
    }
}
