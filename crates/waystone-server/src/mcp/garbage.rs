//! The tools for garbage collection.

use waystone_core::api::{AnalyzeGarbage, PinSegments, PruneSegments};

use super::tool::{Effect, Tool};

pub(super) fn tools() -> [Tool; 4] {
    [
        Tool::new(
            "context_gc_analyze",
            "Find what may go",
            Effect::Adds,
            |engine, scope, request: AnalyzeGarbage| async move { engine.analyze_garbage(&scope, request).await },
        ),
        Tool::new(
            "context_gc_prune",
            "Prune segments",
            Effect::Removes,
            |engine, scope, request: PruneSegments| async move { engine.prune_segments(&scope, request).await },
        ),
        Tool::new("context_gc_pin", "Pin segments", Effect::Adds, |engine, scope, request: PinSegments| async move {
            engine.pin_segments(&scope, request).await
        })
        .described("Pins segments: they are never pruned or stashed until they are unpinned."),
        Tool::new(
            "context_gc_unpin",
            "Unpin segments",
            Effect::Adds,
            |engine, scope, request: PinSegments| async move { engine.unpin_segments(&scope, request).await },
        )
        .described("Unpins segments: they may be pruned and stashed again."),
    ]
}
