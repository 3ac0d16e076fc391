//! The tool for usage.

use waystone_core::api::AnalyzeUsage;

use super::tool::{Effect, Tool};

pub(super) fn tools() -> [Tool; 1] {
    [Tool::new(
        "context_analyze_usage",
        "Analyze usage",
        Effect::Adds,
        |engine, scope, request: AnalyzeUsage| async move { engine.analyze_usage(&scope, request).await },
    )]
}
