//! Which session is meant by who wants to go on and has no id. Pure: candidates in, an order with reasons out.
//!
//! What was asked for comes before what was not, and there the own project before others; inside of that a score decides: what was
//! asked for, the commit, the branch, and how long ago it was used. Sessions that began alike are runs of the same work, of which the
//! newest stands for all.

use std::collections::HashMap;

use crate::api::Git;
use crate::clock::Timestamp;
use crate::id::{ProjectId, SessionId, WorkflowId};
use crate::prose::quoted;
use crate::store::Resumable;

/// What each sign is worth. Words that are found count by how well they fit.
const WORDS: f64 = 4.0;
const NAMED: f64 = 4.0;
const WORKFLOW: f64 = 4.0;
const COMMIT: f64 = 3.0;
const BRANCH: f64 = 2.0;
/// Used now is worth this, used a day ago half of it.
const RECENCY: f64 = 1.0;
const MEANING: f64 = 1.0;
/// With less between the first and the second, neither is sure to be meant.
const CLEAR: f64 = 1.0;

const DAY_MS: f64 = 24.0 * 60.0 * 60.0 * 1000.0;
const ALIKE_MAX: usize = 10;

/// What is known of who asks.
#[derive(Debug, Clone)]
pub struct Asked<'a> {
    pub project: &'a ProjectId,
    pub workflow: Option<&'a WorkflowId>,
    pub query: Option<&'a str>,
    pub git: Option<&'a Git>,
    pub now: Timestamp,
}

/// A session in its place, with what speaks for it.
#[derive(Debug, Clone, PartialEq)]
pub struct Ranked {
    pub found: Resumable,
    pub why: Vec<String>,
    pub started_alike: Vec<SessionId>,
    /// Whether it is what was asked for: by workflow, or by words and not only by meaning.
    is_asked: bool,
    is_own: bool,
    is_on_other_branch: bool,
    score: f64,
}

impl Ranked {
    /// Whether it is what was asked for, if anything was.
    pub fn is_answer(&self, asked: &Asked<'_>) -> bool {
        self.is_asked || (asked.query.is_none() && asked.workflow.is_none())
    }

    fn rank(&self) -> (bool, bool) {
        (self.is_asked, self.is_own)
    }
}

/// Those of `found` that may be meant, best first.
pub fn rank(found: Vec<Resumable>, asked: &Asked<'_>) -> Vec<Ranked> {
    let best = found.iter().filter_map(|one| one.hit.as_ref()).fold(0.0, |best: f64, hit| best.max(hit.score));
    let weighed = found.into_iter().map(|one| weigh(one, asked, best));
    let mut ranked: Vec<Ranked> = weighed.filter(|one| one.is_own || one.is_asked).collect();
    ranked.sort_by(|a, b| {
        let newer = || b.found.accessed_seq.cmp(&a.found.accessed_seq);
        b.rank().cmp(&a.rank()).then_with(|| b.score.total_cmp(&a.score)).then_with(newer)
    });
    join_alike(ranked)
}

/// Whether the first is well ahead. Being the only one is enough, unless something was asked for that it is not, or it is another
/// project's and no words of it were: workflows of many projects have the same name.
pub fn is_clear(ranked: &[Ranked], asked: &Asked<'_>) -> bool {
    match ranked {
        [first, ..] if !first.is_own && asked.query.is_none() => false,
        [] => false,
        [first] => first.is_answer(asked),
        [first, second, ..] => {
            first.is_answer(asked) && (first.is_asked != second.is_asked || first.score - second.score >= CLEAR)
        }
    }
}

fn weigh(found: Resumable, asked: &Asked<'_>, best: f64) -> Ranked {
    let (mut score, mut why) = (0.0, Vec::new());
    let mut add = |worth: f64, reason: String| {
        score += worth;
        why.push(reason);
    };
    let session = &found.session;
    let is_workflow = asked.workflow.is_some() && asked.workflow == session.workflow_id.as_ref();
    if let Some(workflow) = asked.workflow.filter(|_| is_workflow) {
        add(WORKFLOW, format!("workflow `{workflow}`"));
    }
    let query = quoted(asked.query.unwrap_or_default());
    if found.is_named {
        add(NAMED, format!("named or tagged with {query}"));
    }
    let has_words = found.hit.as_ref().is_some_and(|hit| hit.why.contains("words"));
    if let Some(hit) = &found.hit {
        let share = if best > 0.0 { hit.score / best } else { 0.0 };
        match has_words {
            true => add(WORDS * share, format!("matches {query}")),
            false => add(MEANING * share, format!("is close in meaning to {query}")),
        }
    }
    let is_own = session.project_id == *asked.project;
    let (here, there) = (asked.git.filter(|_| is_own), found.git.as_ref());
    let same = |of: fn(&Git) -> Option<&String>| here.and_then(of).filter(|here| there.and_then(of) == Some(here));
    if let Some(head) = same(|git| git.head.as_ref()) {
        add(COMMIT, format!("same git commit `{}`", head.get(..12).unwrap_or(head)));
    }
    if let Some(branch) = same(|git| git.branch.as_ref()) {
        add(BRANCH, format!("same git branch {}", quoted(branch)));
    }
    let branches = (here.and_then(|git| git.branch.as_ref()), there.and_then(|git| git.branch.as_ref()));
    let is_on_other_branch = matches!(branches, (Some(here), Some(there)) if here != there);
    if !is_own {
        add(0.0, format!("in another project, `{}`", session.project_id));
    }
    let age_ms = asked.now.ms().saturating_sub(session.last_accessed_at.ms()).max(0) as f64;
    add(RECENCY / (1.0 + age_ms / DAY_MS), format!("last used {} ago", asked.now.age_of(session.last_accessed_at)));
    let is_asked = is_workflow || found.is_named || has_words;
    Ranked { found, why, started_alike: Vec::new(), is_asked, is_own, is_on_other_branch, score }
}

/// Of those that began alike in a project the newest takes the place of the best, or the newest that is what was asked for. One that was
/// saved on another branch does not stand for one of this.
fn join_alike(ranked: Vec<Ranked>) -> Vec<Ranked> {
    let mut groups: Vec<Vec<Ranked>> = Vec::new();
    let mut places: HashMap<(ProjectId, [u8; 32]), usize> = HashMap::new();
    for one in ranked {
        let kind = (one.found.session.project_id.clone(), one.found.correlation.0);
        match places.get(&kind) {
            Some(place) => groups[*place].push(one),
            None => {
                places.insert(kind, groups.len());
                groups.push(vec![one]);
            }
        }
    }
    let newest = |mut runs: Vec<Ranked>| {
        let score = runs.first().map(|best| best.score)?;
        // Stable, and what was asked for comes first already.
        runs.sort_by_key(|run| (!run.is_asked, run.is_on_other_branch, std::cmp::Reverse(run.found.accessed_seq)));
        let mut runs = runs.into_iter();
        let first = runs.next()?;
        let started_alike = runs.map(|run| run.found.session.id).take(ALIKE_MAX).collect();
        Some(Ranked { score, started_alike, ..first })
    };
    groups.into_iter().filter_map(newest).collect()
}

#[cfg(test)]
mod tests;
