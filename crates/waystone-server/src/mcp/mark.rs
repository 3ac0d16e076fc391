//! The tool for marks.

use waystone_core::api::MarkCritical;

use super::tool::{Effect, Tool};

pub(super) fn tools() -> [Tool; 1] {
    [Tool::new(
        "workflow_mark_critical",
        "Mark a key as critical",
        Effect::Adds,
        |engine, scope, request: MarkCritical| async move { engine.mark_critical(&scope, request).await },
    )]
}
