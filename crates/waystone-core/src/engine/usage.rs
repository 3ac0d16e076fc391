//! Usage: how full the window is, and how well it is filled.

use std::collections::BTreeMap;

use serde_json::{Map, json};

use super::Engine;
use super::segment::Text;
use crate::api::{
    AnalyzeUsage, Descriptors, Factors, Health, Impact, NextCall, PutSegments, Recommendation, SegmentType, TOKENS_MAX,
    UsageMetrics, UsageReply, check_time,
};
use crate::clock::Timestamp;
use crate::error::{Error, Result};
use crate::id::{ProjectId, TaskId};
use crate::score::age_hours;
use crate::store::{Roots, Scope, Usage, WhichTask};

/// From here on the window is called full, in percent, and more so.
pub const USAGE_WARNED_PERCENT: f64 = 60.0;
const HIGH: f64 = 80.0;
const URGENT: f64 = 90.0;
/// Down to here it is to be emptied.
const RELIEVED: f64 = 50.0;
/// As many tasks are listed.
const TASKS_LISTED_MAX: usize = 100;
const HOUR_MS: i64 = 3_600_000;
/// So many of the current task's newest messages stay.
const ROOT_MESSAGES: u32 = 10;

impl Engine {
    /// How full the window is. What was described is captured first.
    pub async fn analyze_usage(&self, scope: &Scope, request: AnalyzeUsage) -> Result<UsageReply> {
        let (project, descriptors) = (request.project_id, request.context_descriptors.unwrap_or_default());
        let limit = request.token_limit.or(descriptors.token_limit).unwrap_or(self.limits.window_tokens);
        if !(1..=TOKENS_MAX).contains(&limit) {
            return Err(Error::InvalidInput(format!("token_limit is {limit}, it must be from 1 to {TOKENS_MAX}")));
        }
        let roots = self.roots(&descriptors);
        let (found, operation_id) = self.put_described(scope, &project, descriptors).await?;
        let which = request.task_id.map_or(WhichTask::Any, WhichTask::Named);
        let usage = self.store.sum_usage(scope, &project, &which, Some(roots)).await?;
        let metrics = self.metrics(&usage, limit);
        let next = self.next_when_full(&project, usage.task.as_ref(), metrics.total_tokens, limit);
        let candidates = metrics.total_segments.saturating_sub(usage.root_count);
        let freed = metrics.total_tokens.saturating_sub(usage.root_tokens);
        let percent = metrics.usage_percent;
        let mut warnings = self.warnings();
        warnings.extend(found);
        warnings.extend(
            (percent >= USAGE_WARNED_PERCENT)
                .then(|| format!("the window is {percent:.0} % full: {} of {limit} tokens", metrics.total_tokens)),
        );
        Ok(UsageReply {
            health_score: health(&metrics),
            recommendations: vec![recommend(percent)],
            warnings,
            suggested_actions: next.clone().into_iter().collect(),
            impact_summary: Impact {
                pruning_candidates_count: candidates,
                estimated_tokens_freed: freed,
                estimated_usage_after_pruning: self.percent(metrics.total_tokens - freed, limit),
            },
            pruning_candidates_count: candidates,
            usage_metrics: metrics,
            operation_id,
            next,
        })
    }

    /// What must stay in the window, besides pins.
    pub(super) fn roots(&self, descriptors: &Descriptors) -> Roots {
        Roots {
            file_path: descriptors.current_file.clone(),
            decisions_since: Timestamp::from_ms(self.clock.now().ms() - HOUR_MS),
            messages: ROOT_MESSAGES,
        }
    }

    /// Captures the messages and summaries that a platform describes. Returns what a client should know of them, and by which operation
    /// they were put.
    pub(super) async fn put_described(
        &self,
        scope: &Scope,
        project: &ProjectId,
        mut descriptors: Descriptors,
    ) -> Result<(Vec<String>, Option<String>)> {
        let told = self.forget_wrong_times(&mut descriptors);
        let pointer = |list: &str, at: usize, field: &str| format!("/context_descriptors/{list}/{at}/{field}");
        let said = descriptors.recent_messages.into_iter().enumerate();
        let said = said.map(|(at, message)| {
            Text::of_message(pointer("recent_messages", at, "content"), message, SegmentType::Message)
        });
        let summed = descriptors.segment_summaries.into_iter().enumerate();
        let summed = summed.map(|(at, (text, kind))| {
            let pointer = pointer("segment_summaries", at, "text");
            Text { pointer, text, kind, role: None, said: None }
        });
        let texts: Vec<Text> = said.chain(summed).collect();
        if texts.is_empty() {
            return Ok((Vec::new(), None));
        }
        self.check_writable()?;
        if texts.len() > PutSegments::TEXTS_MAX {
            let message = format!("{} texts are described, at most {} are taken", texts.len(), PutSegments::TEXTS_MAX);
            return Err(Error::InvalidInput(message));
        }
        let with = PutSegments { task_id: descriptors.task_id, ..PutSegments::default() };
        let put = self.put_texts(scope, project, texts, with).await?;
        Ok((told.into_iter().chain(put.warnings).collect(), put.operation.map(|seq| seq.to_string())))
    }

    /// Platforms describe themselves as they like: a time that cannot be is passed over, as all that is not understood.
    fn forget_wrong_times(&self, descriptors: &mut Descriptors) -> Option<String> {
        let (now, mut count) = (self.clock.now(), 0);
        for message in &mut descriptors.recent_messages {
            count += usize::from(message.timestamp.take_if(|said| check_time("", *said, now).is_err()).is_some());
        }
        let have = if count == 1 { "has" } else { "have" };
        (count > 0).then(|| {
            format!(
                "{count} of the described messages {have} a time before 1970 or more than a day from now: they count as said now"
            )
        })
    }

    pub(super) fn percent(&self, tokens: u64, limit: u64) -> f64 {
        tokens as f64 * 100.0 / limit as f64
    }

    /// What to call when the window fills up: a plan that empties it to the half.
    pub(super) fn next_when_full(
        &self,
        project: &ProjectId,
        task: Option<&TaskId>,
        tokens: u64,
        limit: u64,
    ) -> Option<NextCall> {
        if self.percent(tokens, limit) < USAGE_WARNED_PERCENT {
            return None;
        }
        let mut arguments = Map::from_iter([("project_id".to_owned(), json!(project))]);
        arguments.extend(task.map(|task| ("task_id".to_owned(), json!(task))));
        let target = tokens.saturating_sub((limit as f64 * RELIEVED / 100.0) as u64).max(1);
        arguments.insert("target_tokens".to_owned(), target.into());
        Some(NextCall { tool: "context_gc_analyze", arguments })
    }

    fn metrics(&self, usage: &Usage, limit: u64) -> UsageMetrics {
        let now = self.clock.now();
        let (mut tokens_by_type, mut segments_by_type) = (BTreeMap::new(), BTreeMap::new());
        let mut by_task: BTreeMap<String, u64> = BTreeMap::new();
        for row in usage.by_task.iter().filter(|row| row.segments > 0) {
            *tokens_by_type.entry(row.kind.as_str()).or_default() += row.tokens;
            *segments_by_type.entry(row.kind.as_str()).or_default() += row.segments;
            if let Some(task) = &row.task {
                *by_task.entry(task.to_string()).or_default() += row.tokens;
            }
        }
        let mut largest: Vec<_> = by_task.into_iter().collect();
        largest.sort_by_key(|(_, tokens)| std::cmp::Reverse(*tokens));
        largest.truncate(TASKS_LISTED_MAX);
        let age = |at: Option<Timestamp>| at.map_or(0.0, |at| age_hours(at, now));
        let tokens = usage.tokens();
        UsageMetrics {
            total_tokens: tokens,
            total_segments: usage.by_task.iter().map(|row| row.segments).sum(),
            tokens_by_type,
            segments_by_type,
            tokens_by_task: largest.into_iter().collect(),
            oldest_segment_age_hours: age(usage.oldest),
            newest_segment_age_hours: age(usage.newest),
            pinned_segments_count: usage.by_task.iter().map(|row| row.pinned).sum(),
            pinned_tokens: usage.by_task.iter().map(|row| row.pinned_tokens).sum(),
            usage_percent: self.percent(tokens, limit),
            estimated_remaining_tokens: limit.saturating_sub(tokens),
            token_limit: limit,
        }
    }
}

impl Usage {
    pub(super) fn tokens(&self) -> u64 {
        self.by_task.iter().map(|row| row.tokens).sum()
    }
}

/// What is full, old or all of one kind is less healthy.
fn health(metrics: &UsageMetrics) -> Health {
    let aged = (2.0 * metrics.oldest_segment_age_hours / 24.0).min(20.0);
    let spread = entropy(metrics.segments_by_type.values());
    let percent = metrics.usage_percent;
    Health {
        score: (100.0 - percent - aged + 10.0 * spread).clamp(0.0, 100.0),
        usage_percent: percent,
        factors: Factors { usage: (1.0 - percent / 100.0).max(0.0), distribution: spread, age: 1.0 - aged / 20.0 },
    }
}

/// How evenly things are spread over their kinds: 1 when all are alike, 0 when there is one kind.
fn entropy<'a>(counts: impl Iterator<Item = &'a u64> + Clone) -> f64 {
    let (total, kinds) = (counts.clone().sum::<u64>() as f64, counts.clone().count());
    if kinds < 2 {
        return 0.0;
    }
    let spread: f64 = counts.map(|count| *count as f64 / total).map(|share| -share * share.ln()).sum();
    (spread / (kinds as f64).ln()).clamp(0.0, 1.0)
}

fn recommend(percent: f64) -> Recommendation {
    let (priority, message) = match percent {
        percent if percent > 100.0 => ("urgent", "Context has more than its limit: prune now"),
        percent if percent >= URGENT => ("urgent", "Context is nearly full: prune now"),
        percent if percent >= HIGH => ("high", "Context usage is high: prune before it is full"),
        percent if percent >= USAGE_WARNED_PERCENT => ("medium", "Context fills up: plan what may go"),
        _ => ("low", "Context usage is healthy"),
    };
    let action = (percent >= USAGE_WARNED_PERCENT).then_some("context_gc_analyze");
    Recommendation { priority, message: message.to_owned(), action }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn health_is_worked_out_as_documented() {
        let check = |counts: &[u64], expected: f64| {
            let spread = entropy(counts.iter());
            assert!((spread - expected).abs() < 1e-3, "{counts:?}: {spread}");
        };
        check(&[], 0.0);
        check(&[7], 0.0);
        check(&[5, 5], 1.0);
        check(&[1, 1, 1], 1.0);
        check(&[3, 1], 0.811);
    }

    #[test]
    fn each_threshold_begins_where_it_says() {
        let check = |percent: f64, priority: &str| assert_eq!(recommend(percent).priority, priority, "{percent}");
        check(59.9, "low");
        check(60.0, "medium");
        check(79.9, "medium");
        check(80.0, "high");
        check(90.0, "urgent");
        check(250.0, "urgent");
    }
}
