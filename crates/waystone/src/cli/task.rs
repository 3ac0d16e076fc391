//! `waystone task`

use clap::Subcommand;
use waystone_core::Engine;
use waystone_core::api::{
    CreateSnapshot, CurrentTask, ListSnapshots, ListTasks, RestoreSnapshot, SetCurrentTask, Snapshot, Task,
};
use waystone_core::clock::Timestamp;
use waystone_core::id::{ProjectId, SnapshotId, TaskId};
use waystone_core::store::Scope;

use super::render::{Out, ago, count, table, thousands};
use super::segment::undo;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List tasks, last used first
    List {
        /// How many to show, 1 to 1000
        #[arg(long, default_value_t = ListTasks::default_limit())]
        limit: u32,
    },
    /// Make a task the current one: what is put belongs to it, and the window is its own
    Use {
        /// Its id; a new one makes a task
        task: TaskId,
    },
    /// Let no task be current
    Clear,
    /// Capture which segments a task has
    Snapshot {
        /// The task; the current one when left out
        #[arg(long)]
        task: Option<TaskId>,
        /// What to find it by
        #[arg(long)]
        name: Option<String>,
    },
    /// List snapshots, newest first
    Snapshots {
        /// Only this task's
        #[arg(long)]
        task: Option<TaskId>,
        /// How many to show, 1 to 1000
        #[arg(long, default_value_t = ListTasks::default_limit())]
        limit: u32,
        /// Go on after the page that printed this cursor
        #[arg(long)]
        cursor: Option<String>,
    },
    /// Put the segments of a task back to where a snapshot has them
    Restore {
        /// Its id, from the list of snapshots; the newest of the current task when left out
        snapshot: Option<SnapshotId>,
    },
}

pub(crate) async fn run(
    command: Command,
    engine: &Engine,
    scope: &Scope,
    out: &Out,
    project: ProjectId,
) -> anyhow::Result<()> {
    match command {
        Command::List { limit } => {
            let list = engine.list_tasks(scope, ListTasks { project_id: project, limit }).await?;
            out.print(&list, |list| {
                if list.tasks.is_empty() {
                    return format!("No tasks in project {}. `waystone task use ID` makes one.", list.project_id);
                }
                table(
                    &["", "TASK", "IN THE WINDOW", "STASHED", "LAST USED"],
                    list.tasks.iter().map(|task| row(task, engine.now())),
                )
            })
        }
        Command::Use { task } => {
            let request = SetCurrentTask { project_id: project, task_id: Some(task) };
            out.print(&engine.set_current_task(scope, request).await?, show_current)
        }
        Command::Clear => {
            let request = SetCurrentTask { project_id: project, task_id: None };
            out.print(&engine.set_current_task(scope, request).await?, show_current)
        }
        Command::Snapshot { task, name } => {
            let request = CreateSnapshot { project_id: project, task_id: task, name };
            out.print(&engine.create_snapshot(scope, request).await?, |snapshot| {
                let (id, segments) = (&snapshot.snapshot_id, count(snapshot.segments_snapshot, "segment"));
                format!("{id}  task {} with {segments}; waystone task restore {id} brings it back", snapshot.task_id)
            })
        }
        Command::Snapshots { task, limit, cursor } => {
            let request = ListSnapshots { project_id: project, task_id: task, limit, cursor };
            out.print(&engine.list_snapshots(scope, request).await?, |page| {
                if page.snapshots.is_empty() {
                    return "No snapshots yet.".to_owned();
                }
                let more = page.next_cursor.as_ref().map(|cursor| format!("more: --cursor {cursor}\n"));
                let header = ["SNAPSHOT", "TASK", "NAME", "SEGMENTS", "TOKENS", "MADE"];
                table(&header, page.snapshots.iter().map(|snapshot| snapshot_row(snapshot, engine.now())))
                    + &more.unwrap_or_default()
            })
        }
        Command::Restore { snapshot } => {
            let request = RestoreSnapshot { project_id: Some(project), snapshot_id: snapshot };
            out.print(&engine.restore_snapshot(scope, request).await?, |restored| {
                format!(
                    "task {}: {} back in the window, {} stashed; {} tokens{}",
                    restored.task_id,
                    count(restored.segments_restored, "segment"),
                    restored.segments_stashed,
                    thousands(restored.total_tokens),
                    undo(&restored.operation_id)
                )
            })
        }
    }
}

fn row(task: &Task, now: Timestamp) -> Vec<String> {
    vec![
        if task.current { "*".to_owned() } else { String::new() },
        task.task_id.to_string(),
        format!("{} ({})", task.working_segments, count(task.working_tokens, "token")),
        format!("{} ({})", task.stashed_segments, count(task.stashed_tokens, "token")),
        ago(task.last_updated, now),
    ]
}

fn snapshot_row(snapshot: &Snapshot, now: Timestamp) -> Vec<String> {
    vec![
        snapshot.snapshot_id.to_string(),
        snapshot.task_id.to_string(),
        snapshot.name.clone().unwrap_or_default(),
        snapshot.segments_snapshot.to_string(),
        thousands(snapshot.tokens_snapshot),
        ago(snapshot.created_at, now),
    ]
}

fn show_current(current: &CurrentTask) -> String {
    let now = match &current.task_id {
        Some(task) => format!("task {task} is current in project {}", current.project_id),
        None => format!("no task is current in project {}", current.project_id),
    };
    let before = current.previous_task_id.as_ref().map(|task| format!("; before it was {task}")).unwrap_or_default();
    let worth = match current.worth_retrieving.len() as u64 {
        0 => String::new(),
        worth => format!(
            "\nnothing of it is in the window; {} worth having back: waystone segment retrieve --move-to-active",
            count(worth, "stashed segment")
        ),
    };
    format!("{now}{before}{}{worth}", undo(&current.operation_id))
}
