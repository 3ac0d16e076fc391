//! The tool for handles.

use waystone_core::api::ExpandHandle;

use super::tool::{Effect, Tool};

pub(super) fn tools() -> [Tool; 1] {
    [Tool::new("context_expand", "Expand a handle", Effect::Reads, |engine, scope, request: ExpandHandle| async move {
        engine.expand_handle(&scope, request).await
    })
    .with_large_reply()]
}
