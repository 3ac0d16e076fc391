//! `waystone undo`

use clap::Args;
use waystone_core::Engine;
use waystone_core::api::{ListOperations, Operation, UndoOperation};
use waystone_core::clock::Timestamp;
use waystone_core::id::{OperationId, ProjectId};
use waystone_core::store::Scope;

use super::render::{Out, ago, count, plain, table};

#[derive(Debug, Args)]
pub(crate) struct Undo {
    /// The operation; the project's newest that can be undone when left out
    operation: Option<OperationId>,
    /// List what was done, newest first, and undo nothing
    #[arg(long, conflicts_with = "operation")]
    list: bool,
    /// How many to list, 1 to 1000
    #[arg(long, requires = "list", default_value_t = ListOperations::default_limit())]
    limit: u32,
    /// Go on after the page that printed this cursor
    #[arg(long, requires = "list")]
    cursor: Option<String>,
}

pub(crate) async fn run(
    undo: Undo,
    engine: &Engine,
    scope: &Scope,
    out: &Out,
    project: ProjectId,
) -> anyhow::Result<()> {
    if undo.list {
        let request = ListOperations { project_id: Some(project), limit: undo.limit, cursor: undo.cursor };
        return out.print(&engine.list_operations(scope, request).await?, |page| {
            if page.operations.is_empty() {
                return "Nothing was done in this project yet.".to_owned();
            }
            let more = page.next_cursor.as_ref().map(|cursor| format!("more: --cursor {cursor}\n"));
            let header = ["OPERATION", "WHAT", "WHO", "WHEN", "UNDO"];
            table(&header, page.operations.iter().map(|operation| row(operation, engine.now())))
                + &more.unwrap_or_default()
        });
    }
    let project = undo.operation.is_none().then_some(project);
    let request = UndoOperation { project_id: project, operation_id: undo.operation };
    let undone = engine.undo_operation(scope, request).await?;
    if !out.json {
        super::warn(&undone.warnings);
    }
    out.print(&undone, |undone| {
        let segments = count(undone.segments_changed, "segment");
        let back = if undone.undone.kind == "operation.undone" { "takes it back" } else { "does it again" };
        format!("{}: {segments} changed (waystone undo {} {back})", plain(&undone.message), undone.operation_id)
    })
}

fn row(operation: &Operation, now: Timestamp) -> Vec<String> {
    let undo = match (operation.undone, operation.can_undo) {
        (true, _) => "undone",
        (false, true) => "possible",
        (false, false) => "",
    };
    let count = operation.data.get("segments").or_else(|| operation.data.get("added"));
    let what = match count.and_then(serde_json::Value::as_u64) {
        Some(count) => format!("{} ({count})", operation.kind),
        None => operation.kind.clone(),
    };
    vec![operation.operation_id.clone(), what, operation.actor.clone(), ago(operation.at, now), undo.to_owned()]
}
