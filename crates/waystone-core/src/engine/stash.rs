//! The stash: segments moved out of the window, searched there, and brought back.

use super::Engine;
use super::segment::preview;
use crate::api::{
    RetrieveReply, RetrieveStashed, SearchReply, SearchStashed, Segment, SegmentError, SegmentFilters, StashReply,
    StashSegments, Tier,
};
use crate::error::Result;
use crate::id::{ProjectId, SegmentId};
use crate::search::{Found, is_retrieved};
use crate::store::{Change, ChangeSegments, Scope, SegmentPage, SelectSegments, WhichSegments, WhichTask};
use crate::words::Words;

/// As many ids stand in a reply.
const IDS_LISTED_MAX: usize = 10_000;

impl Engine {
    /// Moves what is selected out of the window.
    pub async fn stash_segments(&self, scope: &Scope, request: StashSegments) -> Result<StashReply> {
        self.check_writable()?;
        request.check()?;
        let project = self.project_or_own(request.project_id);
        let query = request.query.unwrap_or_default();
        let words = Words::parse(&query);
        let now = self.clock.now();
        let (filters, tiers) = request.filters.unwrap_or_default().resolve(now, &[Tier::Working]);
        // What is stashed already is not stashed again.
        let which = match tiers.contains(&Tier::Working) {
            true if filters == SegmentFilters::default() => match self.find_named(scope, &project, &query).await? {
                Some(id) => WhichSegments::Ids(vec![id]),
                None => WhichSegments::Working { filters, words },
            },
            true => WhichSegments::Working { filters, words },
            false => WhichSegments::Ids(Vec::new()),
        };
        let change = ChangeSegments { project: project.clone(), which, change: Change::Stash, plan: None, at: now };
        let changed = self.store.change_segments(scope, change).await?;
        Ok(StashReply {
            project_id: project,
            segments_matched: (changed.done.len() + changed.pinned.len()) as u64,
            stashed_segments: first(changed.done),
            tokens_stashed: changed.tokens,
            errors: first(changed.pinned).into_iter().map(pinned).collect(),
            operation_id: changed.operation.map(|seq| seq.to_string()),
            warnings: self.warnings(),
        })
    }

    /// The segment in the window that a query names by its id.
    async fn find_named(&self, scope: &Scope, project: &ProjectId, query: &str) -> Result<Option<SegmentId>> {
        let Ok(id) = query.trim().parse::<SegmentId>() else { return Ok(None) };
        let found = self.store.find_segment(scope, &id).await?;
        let is_meant = |segment: &Segment| segment.project_id == *project && segment.tier == Tier::Working;
        Ok(found.filter(is_meant).map(|segment| segment.segment_id))
    }

    /// What is stashed and fits the query best; without one the newest.
    pub async fn search_stashed(&self, scope: &Scope, request: SearchStashed) -> Result<SearchReply> {
        request.check()?;
        let (query, filters) = (request.query, request.filters.unwrap_or_default());
        let look = Look { limit: request.limit, cursor: request.cursor, full: request.full, fits: None };
        let page = self.look_in_stash(scope, request.project_id, query.as_deref(), &filters, look).await?;
        Ok(SearchReply {
            segments: page.segments,
            total_matches: page.total,
            total_is_lower_bound: page.total_is_lower_bound,
            query,
            filters_applied: filters,
            next_cursor: page.next_cursor,
            warnings: self.warnings(),
        })
    }

    /// The same, and moved into the window if that is asked for.
    pub async fn retrieve_stashed(&self, scope: &Scope, request: RetrieveStashed) -> Result<RetrieveReply> {
        if request.move_to_active {
            self.check_writable()?;
        }
        request.check()?;
        let project = self.project_or_own(request.project_id);
        let filters = request.filters.unwrap_or_default();
        let look = Look { limit: request.limit, cursor: None, full: request.full, fits: Some(is_retrieved) };
        let found = self.look_in_stash(scope, Some(project.clone()), request.query.as_deref(), &filters, look).await?;
        let (mut segments, mut moved, mut operation) = (found.segments, None, None);
        if request.move_to_active {
            let ids: Vec<SegmentId> = segments.iter().map(|segment| segment.segment_id.clone()).collect();
            let which = WhichSegments::Ids(ids);
            let change = ChangeSegments {
                project: project.clone(),
                which,
                change: Change::Retrieve,
                plan: None,
                at: self.clock.now(),
            };
            let changed = self.store.change_segments(scope, change).await?;
            for segment in segments.iter_mut().filter(|segment| changed.done.contains(&segment.segment_id)) {
                segment.tier = Tier::Working;
            }
            (moved, operation) = (Some(changed.done), changed.operation);
        }
        Ok(RetrieveReply {
            project_id: project,
            retrieved_segments: segments,
            moved_to_active: moved,
            segments_found: found.total,
            operation_id: operation.map(|seq| seq.to_string()),
            warnings: self.warnings(),
        })
    }

    async fn look_in_stash(
        &self,
        scope: &Scope,
        project: Option<ProjectId>,
        query: Option<&str>,
        filters: &SegmentFilters,
        look: Look,
    ) -> Result<SegmentPage> {
        let now = self.clock.now();
        let (filters, tiers) = filters.resolve(now, &[Tier::Stashed]);
        let select = SelectSegments {
            first: Some(self.project.clone()),
            project,
            task: WhichTask::Any,
            tiers,
            filters,
            query: query.unwrap_or_default().to_owned(),
            fits: look.fits,
            is_ascending: false,
            limit: look.limit,
            cursor: look.cursor,
            preview: preview(look.full),
            now,
        };
        match select.query.trim().is_empty() {
            true => self.store.list_segments(scope, select).await,
            false => self.store.search_segments(scope, select).await,
        }
    }
}

/// How much of what is found is wanted.
struct Look {
    limit: u32,
    cursor: Option<String>,
    full: bool,
    fits: Option<fn(&Found, f32) -> bool>,
}

fn pinned(id: SegmentId) -> SegmentError {
    let message = "it is pinned; unpin it with context_gc_unpin first".to_owned();
    SegmentError { segment_id: id, code: "PERMISSION_DENIED", message }
}

/// As many ids as a reply has; the numbers beside them are of all.
pub(super) fn first(mut ids: Vec<SegmentId>) -> Vec<SegmentId> {
    ids.truncate(IDS_LISTED_MAX);
    ids
}

pub(super) fn unknown(id: SegmentId) -> SegmentError {
    let message = "there is no such segment in the project".to_owned();
    SegmentError { segment_id: id, code: "SEGMENT_NOT_FOUND", message }
}
