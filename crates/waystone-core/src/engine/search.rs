//! Search in everything, and what it is searched by made anew.

use super::Engine;
use super::segment::preview;
use crate::api::{CheckpointPage, ListCheckpoints, SearchAll, SearchResults, SegmentFilters, Tier};
use crate::clock::Since;
use crate::error::Result;
use crate::store::{Scope, SelectSegments, WhichTask};

impl Engine {
    /// The segments and the newest checkpoints of sessions that fit a query best.
    pub async fn search(&self, scope: &Scope, request: SearchAll) -> Result<SearchResults> {
        request.check()?;
        let now = self.clock.now();
        let since = request.since.as_ref().map(|since| since.before(now));
        let filters = SegmentFilters { tier: request.tier, created_after: since, ..SegmentFilters::default() };
        let (filters, tiers) = filters.resolve(now, &[Tier::Working, Tier::Stashed]);
        let select = SelectSegments {
            first: None,
            project: request.project_id.clone(),
            task: WhichTask::Any,
            tiers,
            filters,
            query: request.query.clone(),
            fits: None,
            is_ascending: false,
            limit: request.limit,
            cursor: None,
            preview: preview(false),
            now,
        };
        let segments = self.store.search_segments(scope, select).await?.segments;
        let found = match request.tier {
            Some(_) => CheckpointPage::default(),
            None => {
                let filter = ListCheckpoints {
                    query: Some(request.query.clone()),
                    content: true,
                    project_id: request.project_id,
                    since: since.map(Since::At),
                    limit: request.limit,
                    ..ListCheckpoints::default()
                };
                self.store.search_checkpoints(scope, &filter, now).await?
            }
        };
        let warnings = self.warnings().into_iter().chain(found.warnings).collect();
        Ok(SearchResults { query: request.query, segments, checkpoints: found.checkpoints, warnings })
    }

    /// Makes all that is kept for search anew. `progress` is told how many texts are done, and of how many. Returns how many there were.
    pub async fn reindex(&self, scope: &Scope, mut progress: impl FnMut(u64, u64)) -> Result<u64> {
        self.check_writable()?;
        let total = self.store.reindex(scope, true, self.clock.now()).await?;
        let mut left = total;
        while left > 0 {
            progress(total - left, total);
            left = self.store.reindex(scope, false, self.clock.now()).await?.min(total);
        }
        Ok(total)
    }
}
