//! The tool that finds the session to go on with.

use waystone_core::api::ResumeSessions;

use super::tool::{Effect, Tool};

pub(super) fn tools() -> [Tool; 1] {
    [Tool::new("workflow_resume", "Resume work", Effect::Reads, |engine, scope, request: ResumeSessions| async move {
        engine.resume_sessions(&scope, request).await
    })]
}
