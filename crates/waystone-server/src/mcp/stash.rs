//! The tools for the stash.

use waystone_core::api::{RetrieveStashed, SearchStashed, StashSegments};

use super::tool::{Effect, Tool};

pub(super) fn tools() -> [Tool; 3] {
    [
        Tool::new(
            "context_stash",
            "Stash segments",
            Effect::Adds,
            |engine, scope, request: StashSegments| async move { engine.stash_segments(&scope, request).await },
        ),
        Tool::new(
            "context_search_stashed",
            "Search the stash",
            Effect::Reads,
            |engine, scope, request: SearchStashed| async move { engine.search_stashed(&scope, request).await },
        )
        .with_large_reply(),
        Tool::new(
            "context_retrieve_stashed",
            "Retrieve stashed segments",
            Effect::Adds,
            |engine, scope, request: RetrieveStashed| async move { engine.retrieve_stashed(&scope, request).await },
        )
        .with_large_reply(),
    ]
}
