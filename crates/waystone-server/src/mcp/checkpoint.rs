//! The tools for checkpoints.

use waystone_core::api::{ListCheckpoints, LoadCheckpoint, SaveCheckpoint};

use super::tool::{Effect, Tool};

pub(super) fn tools() -> [Tool; 3] {
    [
        Tool::new(
            "workflow_checkpoint_save",
            "Save a checkpoint",
            Effect::Adds,
            |engine, scope, request: SaveCheckpoint| async move { engine.save_checkpoint(&scope, request).await },
        ),
        Tool::new(
            "workflow_checkpoint_load",
            "Load a checkpoint",
            Effect::Reads,
            |engine, scope, request: LoadCheckpoint| async move { engine.load_checkpoint(&scope, request).await },
        )
        .with_large_reply(),
        Tool::new(
            "workflow_checkpoint_list",
            "List checkpoints",
            Effect::Reads,
            |engine, scope, request: ListCheckpoints| async move { engine.list_checkpoints(&scope, request).await },
        ),
    ]
}
