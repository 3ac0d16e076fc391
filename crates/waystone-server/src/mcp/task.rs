//! The tools for tasks and their snapshots.

use waystone_core::api::{CreateSnapshot, RestoreSnapshot, SetCurrentTask};

use super::tool::{Effect, Tool};

pub(super) fn tools() -> [Tool; 3] {
    [
        Tool::new(
            "context_set_current_task",
            "Set the current task",
            Effect::Adds,
            |engine, scope, request: SetCurrentTask| async move { engine.set_current_task(&scope, request).await },
        ),
        Tool::new(
            "context_create_task_snapshot",
            "Snapshot a task",
            Effect::Adds,
            |engine, scope, request: CreateSnapshot| async move { engine.create_snapshot(&scope, request).await },
        ),
        Tool::new(
            "context_restore_task_snapshot",
            "Restore a snapshot",
            Effect::Adds,
            |engine, scope, request: RestoreSnapshot| async move { engine.restore_snapshot(&scope, request).await },
        ),
    ]
}
