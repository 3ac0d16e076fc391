//! `waystone segment`

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use waystone_core::Engine;
use waystone_core::api::{
    AnalyzeGarbage, AnalyzeUsage, ListSegments, PinSegments, PruneAction, PruneSegments, PutSegments, RetrieveStashed,
    SearchStashed, Segment, SegmentFilters, SegmentType, StashSegments, UsageReply,
};
use waystone_core::clock::Timestamp;
use waystone_core::id::{PlanId, ProjectId, SegmentId, TaskId, TopicId};
use waystone_core::store::Scope;

use super::file::read_text;
use super::render::{Out, count, fields, plain, plain_text, short, table, time};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Keep a text, so that it is never lost
    Put(Put),
    /// List what is in the window: the current task's segments, or the project's
    List(List),
    /// Print one segment, whole
    Show {
        /// Its id, from a list
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
    /// Move segments out of the window into the stash
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
    /// Print stashed segments, and move them back into the window
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
    Prune {
        /// Their ids
        segments: Vec<SegmentId>,
        /// The plan that `segment gc --target` made
        #[arg(long, conflicts_with = "segments")]
        plan: Option<PlanId>,
        /// What to do with them; the plan's own when left out
        #[arg(long, value_enum)]
        action: Option<Action>,
        /// Delete without being asked
        #[arg(long, short = 'y', visible_alias = "confirm")]
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
    /// List projects that have segments
    Projects,
}

#[derive(Debug, Args)]
pub(crate) struct Put {
    /// One text or several, each a segment of its own
    #[arg(conflicts_with = "file", required_unless_present = "file")]
    texts: Vec<String>,
    /// Read one text from a file, or from standard input with -
    #[arg(long)]
    file: Option<PathBuf>,
    /// What it is: message, code, log, note, decision or summary
    #[arg(long = "type", value_parser = kind)]
    kind: Option<SegmentType>,
    /// The task it belongs to; the current one when left out
    #[arg(long)]
    task: Option<TaskId>,
    /// A word to filter by; may be repeated
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<String>,
    /// The file it is from
    #[arg(long)]
    file_path: Option<String>,
    /// First and last line in that file, as in 10-20
    #[arg(long, value_parser = lines)]
    line_range: Option<[u64; 2]>,
    /// What it is about: segments of one topic stay together
    #[arg(long)]
    topic: Option<TopicId>,
    /// Keep it from being pruned
    #[arg(long)]
    pinned: bool,
    /// Keep it outside of the window from the start
    #[arg(long)]
    stash: bool,
}

#[derive(Debug, Args)]
pub(crate) struct List {
    /// The task; the current one when left out
    #[arg(long)]
    task: Option<TaskId>,
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

/// Which segments, by words and by what is known of them.
#[derive(Debug, Args)]
pub(crate) struct Which {
    /// Words and "quoted phrases" that must all occur
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
        })
    }
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Action {
    /// Out of the window, searchable
    Stash,
    /// Gone, and kept for a while
    Delete,
}

impl From<Action> for PruneAction {
    fn from(action: Action) -> Self {
        match action {
            Action::Stash => Self::Stash,
            Action::Delete => Self::Delete,
        }
    }
}

fn kind(name: &str) -> Result<SegmentType, String> {
    let found = SegmentType::ALL.into_iter().find(|kind| kind.as_str() == name);
    found.ok_or_else(|| "it is one of message, code, log, note, decision, summary".to_owned())
}

fn lines(range: &str) -> Result<[u64; 2], String> {
    let parsed = range.split_once('-').and_then(|(first, last)| Some([first.parse().ok()?, last.parse().ok()?]));
    parsed.ok_or_else(|| "write it like 10-20".to_owned())
}

pub(crate) async fn run(
    command: Command,
    engine: &Engine,
    scope: &Scope,
    out: &Out,
    project: ProjectId,
) -> anyhow::Result<()> {
    match command {
        Command::Put(put) => run_put(put, engine, scope, out, project).await,
        Command::List(list) => run_list(list, engine, scope, out, project).await,
        Command::Show { segment } => {
            let handle = format!("ws:segment:{segment}");
            let request = waystone_core::api::ExpandHandle { handle, offset: None, limit: None };
            let expanded = engine.expand_handle(scope, request).await?;
            out.print(&expanded, |expanded| plain_text(expanded.content.as_str().unwrap_or_default()))
        }
        Command::Usage { task, limit } => {
            let request =
                AnalyzeUsage { project_id: project, context_descriptors: None, task_id: task, token_limit: limit };
            out.print(&engine.analyze_usage(scope, request).await?, show_usage)
        }
        Command::Stash(which) => {
            let request = StashSegments { project_id: Some(project), filters: which.filters(), query: which.query };
            out.print(&engine.stash_segments(scope, request).await?, |stashed| {
                let segments = count(stashed.stashed_segments.len() as u64, "segment");
                let pinned = match stashed.errors.len() as u64 {
                    0 => String::new(),
                    pinned => format!("; {} pinned and stay", count(pinned, "segment")),
                };
                format!(
                    "stashed {segments} with {} tokens{pinned}{}",
                    stashed.tokens_stashed,
                    undo(&stashed.operation_id)
                )
            })
        }
        Command::Search { which, all, limit, cursor, full } => {
            let filters = which.filters();
            let project_id = (!all).then_some(project);
            let request = SearchStashed { project_id, query: which.query, filters, limit, cursor, full };
            out.print(&engine.search_stashed(scope, request).await?, |found| {
                if found.segments.is_empty() {
                    return "Nothing is stashed that fits.".to_owned();
                }
                let more = more(found.next_cursor.as_deref());
                format!("{}\n{} found\n{more}", segments(&found.segments, full), found.total_matches)
            })
        }
        Command::Retrieve { which, move_to_active, limit, full } => {
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
                format!("{}\n{}", segments(&found.retrieved_segments, full), moved.unwrap_or_default())
            })
        }
        Command::Gc { task, target, action, limit } => {
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
        Command::Prune { segments, plan, action, yes } => {
            let request = PruneSegments {
                project_id: project,
                segment_ids: plan.is_none().then_some(segments),
                plan_id: plan,
                action: action.map(PruneAction::from),
                confirm: yes,
            };
            out.print(&engine.prune_segments(scope, request).await?, |pruned| {
                let segments = count(pruned.pruned_segments.len() as u64, "segment");
                let freed = pruned.tokens_freed;
                format!("{} {segments}, {freed} tokens are free{}", pruned.action, undo(&pruned.operation_id))
            })
        }
        Command::Pin { segments } => {
            let request = PinSegments { project_id: project, segment_ids: segments };
            out.print(&engine.pin_segments(scope, request).await?, |pinned| {
                format!(
                    "pinned {}{}",
                    count(pinned.pinned_segments.len() as u64, "segment"),
                    undo(&pinned.operation_id)
                )
            })
        }
        Command::Unpin { segments } => {
            let request = PinSegments { project_id: project, segment_ids: segments };
            out.print(&engine.unpin_segments(scope, request).await?, |unpinned| {
                let segments = count(unpinned.unpinned_segments.len() as u64, "segment");
                format!("unpinned {segments}{}", undo(&unpinned.operation_id))
            })
        }
        Command::Projects => out.print(&engine.list_projects(scope).await?, |list| {
            if list.projects.is_empty() {
                return "No project has segments yet.".to_owned();
            }
            list.projects.iter().map(|id| format!("{id}\n")).collect()
        }),
    }
}

async fn run_put(put: Put, engine: &Engine, scope: &Scope, out: &Out, project: ProjectId) -> anyhow::Result<()> {
    let texts = match &put.file {
        Some(file) => vec![read_text(file, engine.limits().context_bytes_max)?],
        None => put.texts,
    };
    let request = PutSegments {
        project_id: Some(project),
        texts: Some(texts),
        kind: put.kind,
        task_id: put.task,
        tags: put.tags,
        file_path: put.file_path,
        line_range: put.line_range,
        topic_id: put.topic,
        pinned: put.pinned,
        stash: put.stash,
        ..PutSegments::default()
    };
    out.print(&engine.put_segments(scope, request).await?, |put| {
        let ids: String = put.segment_ids.iter().map(|id| format!("{id}\n")).collect();
        let known = if put.touched > 0 { format!(", {} known before", put.touched) } else { String::new() };
        let (tokens, back) = (put.tokens_added, undo(&put.operation_id));
        format!(
            "{ids}{} new with {tokens} tokens{known}{back}\nthe window is {:.1} % full",
            put.added, put.usage_percent
        )
    })
}

async fn run_list(list: List, engine: &Engine, scope: &Scope, out: &Out, project: ProjectId) -> anyhow::Result<()> {
    let full = list.full;
    let request =
        ListSegments { project_id: project, task_id: list.task, limit: list.limit, cursor: list.cursor, full };
    if list.all {
        return out.print(&engine.list_task_context(scope, request).await?, |all| {
            let more = more(all.next_cursor.as_deref());
            format!(
                "{}\n{} with {} tokens\n{more}",
                segments(&all.segments, full),
                count(all.segment_count, "segment"),
                all.total_tokens
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
                    segments(worth, false)
                ),
            };
            return format!("Nothing of {place} is in the window.{worth}");
        }
        let more = more(set.next_cursor.as_deref());
        format!(
            "{}\n{}: {} with {} tokens\n{more}",
            segments(&set.segments, full),
            place,
            count(set.segment_count, "segment"),
            set.total_tokens
        )
    })
}

/// How to take it back, if something changed.
pub(super) fn undo(operation: &Option<String>) -> String {
    operation.as_ref().map(|id| format!(" (waystone undo {id} takes it back)")).unwrap_or_default()
}

fn more(cursor: Option<&str>) -> String {
    cursor.map(|cursor| format!("more: --cursor {cursor}\n")).unwrap_or_default()
}

fn segments(list: &[Segment], full: bool) -> String {
    if full {
        let whole = |segment: &Segment| {
            let Segment { segment_id: id, kind, tokens, .. } = segment;
            format!("{id}  {}  {tokens} tokens\n{}\n", kind.as_str(), plain_text(&segment.text))
        };
        return list.iter().map(whole).collect::<Vec<_>>().join("\n");
    }
    let row = |segment: &Segment| {
        let first = segment.text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
        let place = if segment.pinned {
            format!("{} (pinned)", segment.tier.as_str())
        } else {
            segment.tier.as_str().to_owned()
        };
        vec![
            segment.segment_id.to_string(),
            segment.kind.as_str().to_owned(),
            place,
            segment.tokens.to_string(),
            time(segment.last_touched_at),
            short(first.trim()),
        ]
    };
    table(&["SEGMENT", "TYPE", "TIER", "TOKENS", "LAST MET", "TEXT"], list.iter().map(row))
}

fn show_usage(usage: &UsageReply) -> String {
    let metrics = &usage.usage_metrics;
    let by = |map: &mut dyn Iterator<Item = String>| map.collect::<Vec<_>>().join(", ");
    let mut shown = fields(&[
        ("tokens", format!("{} of {} ({:.1} %)", metrics.total_tokens, metrics.token_limit, metrics.usage_percent)),
        ("segments", metrics.total_segments.to_string()),
        ("by type", by(&mut metrics.tokens_by_type.iter().map(|(kind, tokens)| format!("{kind} {tokens}")))),
        ("by task", by(&mut metrics.tokens_by_task.iter().map(|(task, tokens)| format!("{task} {tokens}")))),
        (
            "pinned",
            format!("{} with {} tokens", count(metrics.pinned_segments_count, "segment"), metrics.pinned_tokens),
        ),
        ("oldest", format!("{:.1} hours", metrics.oldest_segment_age_hours)),
        ("health", format!("{:.0} of 100", usage.health_score.score)),
        (
            "may go",
            format!(
                "{} with {} tokens",
                count(usage.pruning_candidates_count, "segment"),
                usage.impact_summary.estimated_tokens_freed
            ),
        ),
    ]);
    for advice in &usage.recommendations {
        shown.push_str(&format!("\n{}: {}\n", advice.priority, advice.message));
    }
    shown
}

fn show_garbage(found: &waystone_core::api::GarbageReply) -> String {
    if found.total_candidates == 0 {
        return "Nothing may go: all that is in the window must stay there.".to_owned();
    }
    let row = |candidate: &waystone_core::api::Candidate| {
        vec![
            candidate.segment_id.to_string(),
            candidate.segment_type.as_str().to_owned(),
            format!("{:.2}", candidate.score),
            candidate.tokens.to_string(),
            format!("{:.1} h", candidate.age_hours),
            plain(&candidate.reason),
        ]
    };
    let header = ["SEGMENT", "TYPE", "SCORE", "TOKENS", "AGE", "WHY"];
    let plan = found
        .pruning_plan
        .as_ref()
        .map(|plan| format!("{}\nwaystone segment prune --plan {} carries it out\n", plan.reason, plan.plan_id));
    let total =
        format!("{} with {} tokens may go", count(found.total_candidates, "segment"), found.estimated_tokens_freed);
    format!("{}\n{total}\n{}", table(&header, found.pruning_candidates.iter().map(row)), plan.unwrap_or_default())
}
