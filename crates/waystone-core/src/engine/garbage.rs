//! Garbage collection: what may leave the window, planned and carried out; and pins, which keep it there.

use serde_json::{Map, json};

use super::Engine;
use super::stash::{first, unknown};
use crate::api::{
    AnalyzeGarbage, Candidate, GarbageReply, NextCall, PinReply, PinSegments, PruneAction, PruneReply, PruneSegments,
    PruningPlan, SegmentError, UnpinReply,
};
use crate::clock::Timestamp;
use crate::error::{Error, Result};
use crate::id::{ProjectId, SegmentId};
use crate::score;
use crate::store::{
    Candidates, Change, ChangeSegments, Changed, FindCandidates, Plan, Ranked, Scope, WhichSegments, WhichTask,
};

impl Engine {
    /// What may go, and with a target a plan of what goes.
    pub async fn analyze_garbage(&self, scope: &Scope, request: AnalyzeGarbage) -> Result<GarbageReply> {
        request.check()?;
        if request.target_tokens.is_some() {
            // A plan is kept until it is carried out.
            self.check_writable()?;
        }
        let (now, project) = (self.clock.now(), request.project_id.clone());
        let descriptors = request.context_descriptors.clone().unwrap_or_default();
        let roots = self.roots(&descriptors);
        let (told, operation_id) = self.put_described(scope, &project, descriptors).await?;
        let find = FindCandidates {
            project: project.clone(),
            task: request.task_id.clone().map_or(WhichTask::Any, WhichTask::Named),
            roots,
            rank: Box::new(move |facts| score::prune_score(facts, now)),
            target_tokens: request.target_tokens.unwrap_or(0),
            limit: request.limit as usize,
        };
        let found = self.store.find_candidates(scope, find).await?;
        let plan = match request.target_tokens {
            Some(target) => Some(self.plan(scope, &request, target, &found, now).await?),
            None => None,
        };
        let next = plan.as_ref().filter(|plan| plan.segment_count > 0).map(|plan| {
            let mut arguments = Map::from_iter([
                ("project_id".to_owned(), json!(project)),
                ("plan_id".to_owned(), json!(plan.plan_id)),
                ("action".to_owned(), json!(request.action)),
            ]);
            if request.action == PruneAction::Delete {
                arguments.insert("confirm".to_owned(), true.into());
            }
            NextCall { tool: "context_gc_prune", arguments }
        });
        let shown = found.first.iter().take(request.limit as usize);
        Ok(GarbageReply {
            pruning_candidates: shown.map(|ranked| candidate(ranked, now)).collect(),
            total_candidates: found.total,
            estimated_tokens_freed: found.tokens,
            pruning_plan: plan,
            operation_id,
            next,
            warnings: self.warnings().into_iter().chain(told).collect(),
        })
    }

    async fn plan(
        &self,
        scope: &Scope,
        request: &AnalyzeGarbage,
        target: u64,
        found: &Candidates,
        now: Timestamp,
    ) -> Result<PruningPlan> {
        let (count, freed) = score::enough(found.first.iter().map(|ranked| ranked.facts.tokens), target);
        let chosen = &found.first[..count];
        let ids: Vec<SegmentId> = chosen.iter().map(|ranked| ranked.id.clone()).collect();
        let (id, project, action) = (self.fresh_id()?, request.project_id.clone(), request.action);
        let plan = Plan { id, project, action, segments: ids.clone(), at: now };
        self.store.keep_plan(scope, plan.clone()).await?;
        let missing = target.checked_sub(freed).filter(|missing| *missing > 0);
        let doing = match action {
            PruneAction::Stash => "stashing",
            PruneAction::Delete => "deleting",
        };
        let segments = if count == 1 { "1 segment".to_owned() } else { format!("{count} segments") };
        let reason = match missing {
            None => format!("Plan to free {freed} tokens by {doing} {segments}"),
            Some(missing) => {
                format!(
                    "Plan to free {freed} tokens by {doing} {segments}: {missing} fewer than asked for, as the rest must stay"
                )
            }
        };
        let listed: Vec<SegmentId> = ids.into_iter().take(AnalyzeGarbage::PLAN_LISTED_MAX).collect();
        let (stash_segments, delete_segments) = match action {
            PruneAction::Stash => (listed, Vec::new()),
            PruneAction::Delete => (Vec::new(), listed),
        };
        Ok(PruningPlan {
            plan_id: plan.id,
            candidates: chosen.iter().take(request.limit as usize).map(|ranked| candidate(ranked, now)).collect(),
            total_tokens_freed: freed,
            stash_segments,
            delete_segments,
            segment_count: count as u64,
            tokens_missing: missing,
            reason,
        })
    }

    /// Stashes or deletes what is named, or what a plan says.
    pub async fn prune_segments(&self, scope: &Scope, request: PruneSegments) -> Result<PruneReply> {
        self.check_writable()?;
        request.check()?;
        let (ids, planned) = match &request.plan_id {
            Some(id) => {
                let plan = self
                    .store
                    .find_plan(scope, id, self.clock.now())
                    .await?
                    .filter(|plan| plan.project == request.project_id);
                let plan = plan.ok_or_else(|| Error::PlanNotFound(id.clone()))?;
                (plan.segments, Some(plan.action))
            }
            None => (request.segment_ids.unwrap_or_default(), None),
        };
        let action = request.action.or(planned);
        let action = action.ok_or_else(|| Error::InvalidInput("action is missing: stash or delete".to_owned()))?;
        if action == PruneAction::Delete && !request.confirm {
            return Err(Error::InvalidInput("delete needs confirm: true".to_owned()));
        }
        if ids.is_empty() {
            let (pruned_segments, errors, operation_id) = (Vec::new(), Vec::new(), None);
            let warnings = self.warnings();
            let action = action.done();
            return Ok(PruneReply { pruned_segments, tokens_freed: 0, action, errors, operation_id, warnings });
        }
        let (project, which, change) = (request.project_id, WhichSegments::Ids(ids), Change::Prune(action));
        let change = ChangeSegments { project, which, change, plan: request.plan_id, at: self.clock.now() };
        let changed = self.store.change_segments(scope, change).await?;
        Ok(PruneReply {
            tokens_freed: changed.tokens,
            action: action.done(),
            operation_id: operation_id(&changed),
            errors: errors(changed.unknown),
            pruned_segments: first(changed.done),
            warnings: self.warnings(),
        })
    }

    /// Keeps segments from being pruned.
    pub async fn pin_segments(&self, scope: &Scope, request: PinSegments) -> Result<PinReply> {
        self.check_writable()?;
        request.check()?;
        let changed = self.change(scope, request.project_id, request.segment_ids, Change::Pin).await?;
        Ok(PinReply {
            operation_id: operation_id(&changed),
            errors: errors(changed.unknown),
            pinned_segments: changed.done,
            warnings: self.warnings(),
        })
    }

    /// Lets segments be pruned again.
    pub async fn unpin_segments(&self, scope: &Scope, request: PinSegments) -> Result<UnpinReply> {
        self.check_writable()?;
        request.check()?;
        let changed = self.change(scope, request.project_id, request.segment_ids, Change::Unpin).await?;
        Ok(UnpinReply {
            operation_id: operation_id(&changed),
            errors: errors(changed.unknown),
            unpinned_segments: changed.done,
            warnings: self.warnings(),
        })
    }

    /// Changes the segments with these ids; if there is none of them, that is the error.
    async fn change(&self, scope: &Scope, project: ProjectId, ids: Vec<SegmentId>, change: Change) -> Result<Changed> {
        let which = WhichSegments::Ids(ids);
        let change = ChangeSegments { project, which, change, plan: None, at: self.clock.now() };
        self.store.change_segments(scope, change).await
    }
}

fn operation_id(changed: &Changed) -> Option<String> {
    changed.operation.map(|seq| seq.to_string())
}

fn errors(ids: Vec<SegmentId>) -> Vec<SegmentError> {
    ids.into_iter().map(unknown).collect()
}

fn candidate(ranked: &Ranked, now: Timestamp) -> Candidate {
    Candidate {
        segment_id: ranked.id.clone(),
        score: ranked.score,
        tokens: ranked.facts.tokens,
        reason: score::prune_reason(&ranked.facts, now),
        segment_type: ranked.facts.kind,
        age_hours: score::age_hours(ranked.facts.touched, now),
    }
}
