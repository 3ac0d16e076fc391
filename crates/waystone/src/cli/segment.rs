//! `waystone segment`

mod garbage;
mod list;
mod put;

use clap::{ArgGroup, Args, Subcommand};

use waystone_core::api::{
    AnalyzeGarbage, AnalyzeUsage, ExpandHandle, PinSegments, PruneAction, PruneSegments, RetrieveStashed,
    SearchStashed, SegmentFilters, SegmentType, StashSegments, Tier,
};
use waystone_core::clock::{Since, Timestamp};
use waystone_core::handle::{Handle, Holder};
use waystone_core::id::{PlanId, ProjectId, SegmentId, TaskId};
use waystone_core::store::Scope;
use waystone_core::{Engine, GRACE_DAYS};

use super::document::{Import, Target};
use super::render::{Out, count, plain_text};
use crate::settings::Settings;
use garbage::{Action, show_errors, show_garbage, show_pruned, show_usage};
use list::{List, more, segments};
use put::Put;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Keep a text, so that it is never lost
    Put(Put),
    /// List what is in the window: the current task's segments, or the project's
    List(List),
    /// Print one segment, whole
    Show {
        /// Its id, from a list, or its handle, such as ws:segment:<id>
        #[arg(value_parser = segment)]
        segment: SegmentId,
    },
    /// Show how full the window is, and what to do about it
    Usage {
        /// Only this task's segments
        #[arg(long)]
        task: Option<TaskId>,
        /// How many tokens the window holds
        #[arg(long, value_name = "TOKENS")]
        limit: Option<u64>,
    },
    #[command(flatten)]
    Stash(OnStash),
    #[command(flatten)]
    Garbage(Garbage),
    /// List projects that have segments
    Projects,
    /// Write a project with its tasks, segments and snapshots into one file
    Export(Target),
    /// Take in what `export` has written, here or elsewhere: what is not here is added, under the ids it has
    Import(Import),
}

/// What is done with the stash.
#[derive(Debug, Subcommand)]
pub(crate) enum OnStash {
    /// Move segments out of the window into the stash; all of them if nothing says which
    Stash(Which),
    /// Search the stash
    Search {
        #[command(flatten)]
        which: Which,
        /// Search all projects
        #[arg(long)]
        all: bool,
        /// How many to show, 1 to 1000
        #[arg(long, default_value_t = SearchStashed::default_limit())]
        limit: u32,
        /// Go on after the page that printed this cursor
        #[arg(long)]
        cursor: Option<String>,
        /// Print texts whole
        #[arg(long)]
        full: bool,
    },
    /// Print stashed segments that fit, and with --move-to-active bring them back into the window
    Retrieve {
        #[command(flatten)]
        which: Which,
        /// Move them back into the window
        #[arg(long)]
        move_to_active: bool,
        /// How many, 1 to 1000
        #[arg(long, default_value_t = RetrieveStashed::default_limit())]
        limit: u32,
        /// Print texts whole
        #[arg(long)]
        full: bool,
    },
}

/// What leaves the window, and what stays.
#[derive(Debug, Subcommand)]
pub(crate) enum Garbage {
    /// Show what may leave the window, and plan what does
    Gc {
        /// Only this task's segments
        #[arg(long)]
        task: Option<TaskId>,
        /// How many tokens to free: makes a plan
        #[arg(long, value_name = "TOKENS")]
        target: Option<u64>,
        /// What the plan does with them
        #[arg(long, value_enum, default_value_t = Action::Stash)]
        action: Action,
        /// How many to show, 1 to 1000
        #[arg(long, default_value_t = AnalyzeGarbage::default_limit())]
        limit: u32,
    },
    /// Carry out a plan, or prune segments by their ids
    #[command(group = ArgGroup::new("which").args(["segments", "plan"]).required(true))]
    Prune {
        /// Their ids
        segments: Vec<SegmentId>,
        /// The plan that `segment gc --target` made
        #[arg(long)]
        plan: Option<PlanId>,
        /// What to do with them; the plan's own when left out
        #[arg(long, value_enum)]
        action: Option<Action>,
        /// Do not ask before deleting
        #[arg(long, short)]
        yes: bool,
    },
    /// Keep segments from being pruned
    Pin {
        /// Their ids
        #[arg(required = true)]
        segments: Vec<SegmentId>,
    },
    /// Let segments be pruned again
    Unpin {
        /// Their ids
        #[arg(required = true)]
        segments: Vec<SegmentId>,
    },
}

/// Which segments, by words and by what is known of them.
#[derive(Debug, Args)]
pub(crate) struct Which {
    /// Words, names or "quoted phrases"; `stash` takes only texts that have all of them, or the one segment whose id it is
    query: Option<String>,
    /// Only of this file
    #[arg(long)]
    file_path: Option<String>,
    /// Only of this task
    #[arg(long)]
    task: Option<TaskId>,
    /// Only with this tag; may be repeated
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<String>,
    /// Only message, code, log, note, decision or summary
    #[arg(long = "type", value_parser = kind)]
    kind: Option<SegmentType>,
    /// Only from this time on, or this date
    #[arg(long, value_name = "TIME")]
    created_after: Option<Timestamp>,
    /// Only before this time, or this date
    #[arg(long, value_name = "TIME")]
    created_before: Option<Timestamp>,
    /// Only since a time, or since so long ago, such as 24h or 7d
    #[arg(long, value_name = "TIME")]
    since: Option<Since>,
    /// Only of this tier: working or stashed
    #[arg(long, value_parser = tier)]
    tier: Option<Tier>,
}

impl Which {
    fn filters(&self) -> Option<SegmentFilters> {
        Some(SegmentFilters {
            file_path: self.file_path.clone(),
            task_id: self.task.clone(),
            tags: self.tags.clone(),
            kind: self.kind,
            created_after: self.created_after,
            created_before: self.created_before,
            since: self.since.clone(),
            tier: self.tier,
        })
    }
}

/// A segment by its id, or by the handle that leads to all of it.
fn segment(named: &str) -> Result<SegmentId, String> {
    match named.parse::<Handle>() {
        Ok(handle) => match handle.holder.clone() {
            Holder::Segment(id) if handle == Handle::to_segment(&id) => Ok(id),
            _ => Err(format!("it is a handle, which `waystone expand '{named}'` follows")),
        },
        Err(_) => named.parse(),
    }
}

/// A tier that is searched.
pub(super) fn tier(name: &str) -> Result<Tier, String> {
    let found = [Tier::Working, Tier::Stashed].into_iter().find(|tier| tier.as_str() == name);
    found.ok_or_else(|| "it is working or stashed".to_owned())
}

fn kind(name: &str) -> Result<SegmentType, String> {
    let found = SegmentType::ALL.into_iter().find(|kind| kind.as_str() == name);
    found.ok_or_else(|| "it is one of message, code, log, note, decision, summary".to_owned())
}

pub(crate) async fn run(
    command: Command,
    engine: &Engine,
    scope: &Scope,
    out: &Out,
    settings: &Settings,
) -> anyhow::Result<()> {
    let project = settings.project.clone();
    match command {
        Command::Export(target) => {
            let export = engine.export_project(scope, &project).await?;
            target.write(export, &settings.data_dir, "segment", out).await
        }
        Command::Import(import) => import.run(engine, scope, out).await,
        Command::Put(put) => put::run(put, engine, scope, out, project).await,
        Command::List(list) => list::run(list, engine, scope, out, project).await,
        Command::Show { segment } => {
            let handle = format!("ws:segment:{segment}");
            let request = ExpandHandle { handle, offset: None, limit: None };
            let expanded = engine.expand_handle(scope, request).await?;
            out.print(&expanded, |expanded| plain_text(expanded.content.as_str().unwrap_or_default()))
        }
        Command::Usage { task, limit } => {
            let request =
                AnalyzeUsage { project_id: project, context_descriptors: None, task_id: task, token_limit: limit };
            out.print(&engine.analyze_usage(scope, request).await?, show_usage)
        }
        Command::Projects => out.print(&engine.list_projects(scope).await?, |list| {
            if list.projects.is_empty() {
                return "No project has segments yet.".to_owned();
            }
            list.projects.iter().map(|id| format!("{id}\n")).collect()
        }),
        Command::Stash(command) => run_on_stash(command, engine, scope, out, project).await,
        Command::Garbage(command) => run_collection(command, engine, scope, out, project).await,
    }
}

async fn run_on_stash(
    command: OnStash,
    engine: &Engine,
    scope: &Scope,
    out: &Out,
    project: ProjectId,
) -> anyhow::Result<()> {
    match command {
        OnStash::Stash(which) => {
            let request = StashSegments { project_id: Some(project), filters: which.filters(), query: which.query };
            out.print(&engine.stash_segments(scope, request).await?, |stashed| {
                let segments = count(stashed.stashed_segments.len() as u64, "segment");
                let pinned = match stashed.errors.len() as u64 {
                    0 => String::new(),
                    1 => "; 1 segment is pinned and stays".to_owned(),
                    pinned => format!("; {} are pinned and stay", count(pinned, "segment")),
                };
                format!(
                    "stashed {segments} with {}{pinned}{}",
                    count(stashed.tokens_stashed, "token"),
                    undo(&stashed.operation_id)
                )
            })
        }
        OnStash::Search { which, all, limit, cursor, full } => {
            let filters = which.filters();
            let project_id = (!all).then_some(project);
            let request = SearchStashed { project_id, query: which.query, filters, limit, cursor, full };
            out.print(&engine.search_stashed(scope, request).await?, |found| {
                if found.segments.is_empty() {
                    return "Nothing is stashed that fits.".to_owned();
                }
                let more = more(found.next_cursor.as_deref());
                let (rows, total) = (found.segments.len(), found.total_matches);
                let shown = match full {
                    false if found.segments.iter().any(|segment| segment.hit.is_some()) => {
                        super::search::segments(&found.segments)
                    }
                    _ => segments(&found.segments, full, engine.now()) + "\n",
                };
                format!("{shown}{rows} shown, {total} have its words or meaning\n{more}")
            })
        }
        OnStash::Retrieve { which, move_to_active, limit, full } => {
            let filters = which.filters();
            let request =
                RetrieveStashed { project_id: Some(project), query: which.query, filters, move_to_active, limit, full };
            out.print(&engine.retrieve_stashed(scope, request).await?, |found| {
                if found.retrieved_segments.is_empty() {
                    return "Nothing is stashed that fits.".to_owned();
                }
                let moved = found.moved_to_active.as_ref().map(|moved| {
                    format!(
                        "{} in the window again{}\n",
                        count(moved.len() as u64, "segment"),
                        undo(&found.operation_id)
                    )
                });
                format!("{}\n{}", segments(&found.retrieved_segments, full, engine.now()), moved.unwrap_or_default())
            })
        }
    }
}

async fn run_collection(
    command: Garbage,
    engine: &Engine,
    scope: &Scope,
    out: &Out,
    project: ProjectId,
) -> anyhow::Result<()> {
    match command {
        Garbage::Gc { task, target, action, limit } => {
            let request = AnalyzeGarbage {
                project_id: project,
                context_descriptors: None,
                task_id: task,
                target_tokens: target,
                action: action.into(),
                limit,
            };
            let found = engine.analyze_garbage(scope, request).await?;
            out.print(&found, show_garbage)
        }
        Garbage::Prune { segments, plan, action, yes } => {
            let action = action.map(PruneAction::from);
            // What a plan does is not known here: without an action, deleting must have been said.
            let confirm = yes || action.is_some();
            if action == Some(PruneAction::Delete) && !yes {
                let what = match plan {
                    Some(_) => "the segments of the plan".to_owned(),
                    None => count(segments.len() as u64, "segment"),
                };
                super::render::confirm(&what, &format!("They are hidden and kept for {GRACE_DAYS} days."))?;
            }
            let segment_ids = plan.is_none().then_some(segments);
            let request = PruneSegments { project_id: project, segment_ids, plan_id: plan, action, confirm };
            out.print(&engine.prune_segments(scope, request).await?, show_pruned)
        }
        Garbage::Pin { segments } => {
            let request = PinSegments { project_id: project, segment_ids: segments };
            out.print(&engine.pin_segments(scope, request).await?, |pinned| {
                let segments = count(pinned.pinned_segments.len() as u64, "segment");
                format!("pinned {segments}{}{}", undo(&pinned.operation_id), show_errors(&pinned.errors))
            })
        }
        Garbage::Unpin { segments } => {
            let request = PinSegments { project_id: project, segment_ids: segments };
            out.print(&engine.unpin_segments(scope, request).await?, |unpinned| {
                let segments = count(unpinned.unpinned_segments.len() as u64, "segment");
                format!("unpinned {segments}{}{}", undo(&unpinned.operation_id), show_errors(&unpinned.errors))
            })
        }
    }
}

/// How to take it back, if something changed.
pub(super) fn undo(operation: &Option<String>) -> String {
    operation.as_ref().map(|id| format!(" (waystone undo {id} takes it back)")).unwrap_or_default()
}
