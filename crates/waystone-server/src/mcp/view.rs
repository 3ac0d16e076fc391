//! The tools for views.

use waystone_core::api::{CompressContext, PrioritizeContext};

use super::tool::{Effect, Tool};

pub(super) fn tools() -> [Tool; 2] {
    [
        Tool::new(
            "workflow_context_compress",
            "Compress a context",
            Effect::Reads,
            |engine, scope, request: CompressContext| async move { engine.compress_context(&scope, request).await },
        )
        .with_large_reply(),
        Tool::new(
            "workflow_context_prioritize",
            "Prioritize a context",
            Effect::Reads,
            |engine, scope, request: PrioritizeContext| async move { engine.prioritize_context(&scope, request).await },
        )
        .with_large_reply(),
    ]
}
