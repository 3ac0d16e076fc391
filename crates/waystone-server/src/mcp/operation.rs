//! The tool for operations.

use waystone_core::api::UndoOperation;

use super::tool::{Effect, Tool};

pub(super) fn tools() -> [Tool; 1] {
    [Tool::new("context_undo", "Undo", Effect::Removes, |engine, scope, request: UndoOperation| async move {
        engine.undo_operation(&scope, request).await
    })]
}
