//! `waystone segment usage`, `gc` and `prune`: how their replies look

use clap::ValueEnum;
use waystone_core::api::{Candidate, GarbageReply, PruneAction, PruneReply, SegmentError, UsageReply};

use super::undo;
use crate::cli::hint::in_commands;
use crate::cli::render::{age, count, fields, plain, table, thousands};

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

pub(super) fn show_usage(usage: &UsageReply) -> String {
    let metrics = &usage.usage_metrics;
    let by = |map: &mut dyn Iterator<Item = String>| map.collect::<Vec<_>>().join(", ");
    let mut shown = fields(&[
        (
            "tokens",
            format!(
                "{} of {} ({:.1} %)",
                thousands(metrics.total_tokens),
                thousands(metrics.token_limit),
                metrics.usage_percent
            ),
        ),
        ("segments", thousands(metrics.total_segments)),
        (
            "by type",
            by(&mut metrics.tokens_by_type.iter().map(|(kind, tokens)| format!("{kind} {}", thousands(*tokens)))),
        ),
        (
            "by task",
            by(&mut metrics.tokens_by_task.iter().map(|(task, tokens)| format!("{task} {}", thousands(*tokens)))),
        ),
        (
            "pinned",
            format!(
                "{} with {} tokens",
                count(metrics.pinned_segments_count, "segment"),
                thousands(metrics.pinned_tokens)
            ),
        ),
        ("oldest", age(metrics.oldest_segment_age_hours)),
        ("health", format!("{:.0} of 100", usage.health_score.score)),
        (
            "may go",
            format!(
                "{} with {} tokens",
                count(usage.pruning_candidates_count, "segment"),
                thousands(usage.impact_summary.estimated_tokens_freed)
            ),
        ),
    ]);
    for advice in &usage.recommendations {
        shown.push_str(&format!("\n{}: {}\n", advice.priority, advice.message));
    }
    shown
}

pub(super) fn show_garbage(found: &GarbageReply) -> String {
    if found.total_candidates == 0 {
        return "Nothing may go: all that is in the window must stay there.".to_owned();
    }
    let row = |candidate: &Candidate| {
        vec![
            candidate.segment_id.to_string(),
            candidate.segment_type.as_str().to_owned(),
            format!("{:.2}", candidate.score),
            thousands(candidate.tokens),
            age(candidate.age_hours),
            plain(&candidate.reason),
        ]
    };
    let header = ["SEGMENT", "TYPE", "SCORE", "TOKENS", "AGE", "WHY"];
    let plan = found.pruning_plan.as_ref().map(|plan| {
        // It deletes only when that is said.
        let action = if plan.delete_segments.is_empty() { "" } else { " --action delete" };
        format!("{}\nwaystone segment prune --plan {}{action} carries it out\n", plan.reason, plan.plan_id)
    });
    let total = format!(
        "{} with {} tokens may go",
        count(found.total_candidates, "segment"),
        thousands(found.estimated_tokens_freed)
    );
    format!("{}\n{total}\n{}", table(&header, found.pruning_candidates.iter().map(row)), plan.unwrap_or_default())
}

pub(super) fn show_pruned(pruned: &PruneReply) -> String {
    let segments = count(pruned.pruned_segments.len() as u64, "segment");
    let freed = thousands(pruned.tokens_freed);
    format!(
        "{} {segments}, {freed} tokens are free{}{}",
        pruned.action,
        undo(&pruned.operation_id),
        show_errors(&pruned.errors)
    )
}

/// What could not be done, a line each.
pub(super) fn show_errors(errors: &[SegmentError]) -> String {
    errors.iter().map(|error| format!("\n{}: {}", error.segment_id, plain(&in_commands(&error.message)))).collect()
}
