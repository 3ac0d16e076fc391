//! The tools for segments.

use waystone_core::api::{ListSegments, PutSegments};

use super::tool::{Effect, Nothing, Tool};

pub(super) fn tools() -> [Tool; 4] {
    [
        Tool::new("context_put", "Put text", Effect::Adds, |engine, scope, request: PutSegments| async move {
            engine.put_segments(&scope, request).await
        }),
        Tool::new(
            "context_get_working_set",
            "Get the working set",
            Effect::Reads,
            |engine, scope, request: ListSegments| async move { engine.list_working_set(&scope, request).await },
        )
        .described("Lists what is in the window: the segments of the current task, or of the project if none is current, oldest first.")
        .with_large_reply(),
        Tool::new(
            "context_get_task_context",
            "Get a task's segments",
            Effect::Reads,
            |engine, scope, request: ListSegments| async move { engine.list_task_context(&scope, request).await },
        )
        .described("Lists all segments of a task, in the window and in the stash, oldest first.")
        .with_large_reply(),
        Tool::new("context_list_projects", "List projects", Effect::Reads, |engine, scope, _: Nothing| async move {
            engine.list_projects(&scope).await
        })
        .described("Lists the ids of all projects that have a segment."),
    ]
}
