//! `waystone segment list`, and how segments look in any list

use clap::Args;
use waystone_core::Engine;
use waystone_core::api::{ListSegments, Segment};
use waystone_core::clock::Timestamp;
use waystone_core::id::{ProjectId, TaskId};
use waystone_core::store::Scope;

use crate::cli::render::{Out, ago, count, plain_text, short, table, thousands};

#[derive(Debug, Args)]
pub(crate) struct List {
    /// The task; the current one when left out
    #[arg(long)]
    task: Option<TaskId>,
    /// Those of all tasks, whichever is current
    #[arg(long, conflicts_with = "task")]
    all_tasks: bool,
    /// Stashed segments too
    #[arg(long)]
    all: bool,
    /// How many to show, 1 to 1000
    #[arg(long, default_value_t = ListSegments::default_limit())]
    limit: u32,
    /// Go on after the page that printed this cursor
    #[arg(long)]
    cursor: Option<String>,
    /// Print texts whole
    #[arg(long)]
    full: bool,
}

pub(super) async fn run(
    list: List,
    engine: &Engine,
    scope: &Scope,
    out: &Out,
    project: ProjectId,
) -> anyhow::Result<()> {
    let full = list.full;
    let request = ListSegments {
        project_id: project,
        task_id: list.task,
        limit: list.limit,
        cursor: list.cursor,
        full,
        all_tasks: list.all_tasks,
    };
    if list.all {
        return out.print(&engine.list_task_context(scope, request).await?, |all| {
            let more = more(all.next_cursor.as_deref());
            format!(
                "{}\n{} with {}\n{more}",
                segments(&all.segments, full, engine.now()),
                count(all.segment_count, "segment"),
                count(all.total_tokens, "token")
            )
        });
    }
    out.print(&engine.list_working_set(scope, request).await?, |set| {
        let place = match &set.working_set.task_id {
            Some(task) => format!("task {task} of project {}", set.working_set.project_id),
            None => format!("project {}", set.working_set.project_id),
        };
        if set.segments.is_empty() {
            let worth = match set.worth_retrieving.as_slice() {
                [] => String::new(),
                worth => format!(
                    "\nWorth having back (waystone segment retrieve --move-to-active):\n{}",
                    segments(worth, false, engine.now())
                ),
            };
            return format!("Nothing of {place} is in the window.{worth}");
        }
        let more = more(set.next_cursor.as_deref());
        format!(
            "{}\n{}: {} with {}\n{more}",
            segments(&set.segments, full, engine.now()),
            place,
            count(set.segment_count, "segment"),
            count(set.total_tokens, "token")
        )
    })
}

pub(super) fn more(cursor: Option<&str>) -> String {
    cursor.map(|cursor| format!("more: --cursor {cursor}\n")).unwrap_or_default()
}

/// How many tokens a segment has; what is not counted yet is an estimate, and said to be.
fn tokens(segment: &Segment) -> String {
    let about = if segment.tokens_computed_at.is_none() { "~" } else { "" };
    format!("{about}{}", thousands(segment.tokens))
}

pub(super) fn segments(list: &[Segment], full: bool, now: Timestamp) -> String {
    if full {
        let whole = |segment: &Segment| {
            let Segment { segment_id: id, kind, origin, .. } = segment;
            let text = plain_text(&segment.text);
            format!("{id}  {}  from {origin}  {} tokens\n{text}\n", kind.as_str(), tokens(segment))
        };
        return list.iter().map(whole).collect::<Vec<_>>().join("\n");
    }
    let row = |segment: &Segment| {
        let first = segment.text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
        let first = segment.hit.as_ref().map_or(first, |hit| hit.snippet.as_str());
        let place = if segment.pinned {
            format!("{} (pinned)", segment.tier.as_str())
        } else {
            segment.tier.as_str().to_owned()
        };
        vec![
            segment.segment_id.to_string(),
            segment.kind.as_str().to_owned(),
            place,
            tokens(segment),
            ago(segment.last_touched_at, now),
            short(first.trim()),
        ]
    };
    table(&["SEGMENT", "TYPE", "TIER", "TOKENS", "LAST MET", "TEXT"], list.iter().map(row))
}
