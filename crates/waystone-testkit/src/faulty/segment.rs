//! Segments, on a store that fails.

use std::sync::Arc;

use async_trait::async_trait;
use waystone_core::Result;
use waystone_core::api::{Segment, SegmentType};
use waystone_core::canon::Hash;
use waystone_core::clock::Timestamp;
use waystone_core::id::{PlanId, ProjectId, SegmentId};
use waystone_core::store::{
    Candidates, ChangeSegments, Changed, FindCandidates, NewSegments, Plan, Put, Roots, Scope, SearchMessages,
    SegmentPage, SegmentStore, SelectSegments, Usage, WhichTask,
};

use super::{Fault, FaultyStore, unsaved};

#[async_trait]
impl SegmentStore for FaultyStore {
    async fn known_texts(
        &self,
        scope: &Scope,
        project: &ProjectId,
        texts: Vec<(SegmentType, Hash)>,
    ) -> Result<Vec<bool>> {
        self.step()?;
        self.inner.known_texts(scope, project, texts).await
    }

    async fn put_segments(&self, scope: &Scope, new: Arc<NewSegments>) -> Result<Put> {
        self.step()?;
        new.segments.iter().for_each(|segment| self.note(segment.text.as_bytes()));
        if let Fault::AcknowledgeEarly(delay) = self.fault {
            let (inner, scope, put) = (Arc::clone(&self.inner), scope.clone(), unsaved::put(&new));
            tokio::spawn(async move {
                tokio::time::sleep(delay).await;
                inner.put_segments(&scope, new).await
            });
            return Ok(put);
        }
        let put = self.inner.put_segments(scope, new).await?;
        self.step()?;
        Ok(put)
    }

    async fn list_segments(&self, scope: &Scope, select: SelectSegments) -> Result<SegmentPage> {
        self.step()?;
        self.inner.list_segments(scope, select).await
    }

    async fn search_segments(&self, scope: &Scope, select: SelectSegments) -> Result<SegmentPage> {
        self.step()?;
        self.inner.search_segments(scope, select).await
    }

    async fn search_messages(&self, scope: &Scope, search: SearchMessages) -> Result<Vec<Segment>> {
        self.step()?;
        self.inner.search_messages(scope, search).await
    }

    async fn find_segment(&self, scope: &Scope, id: &SegmentId) -> Result<Option<Segment>> {
        self.step()?;
        self.inner.find_segment(scope, id).await
    }

    async fn sum_usage(
        &self,
        scope: &Scope,
        project: &ProjectId,
        task: &WhichTask,
        roots: Option<Roots>,
    ) -> Result<Usage> {
        self.step()?;
        self.inner.sum_usage(scope, project, task, roots).await
    }

    async fn find_candidates(&self, scope: &Scope, find: FindCandidates) -> Result<Candidates> {
        self.step()?;
        self.inner.find_candidates(scope, find).await
    }

    async fn keep_plan(&self, scope: &Scope, plan: Plan) -> Result<()> {
        self.step()?;
        self.inner.keep_plan(scope, plan).await
    }

    async fn find_plan(&self, scope: &Scope, id: &PlanId, now: Timestamp) -> Result<Option<Plan>> {
        self.step()?;
        self.inner.find_plan(scope, id, now).await
    }

    async fn change_segments(&self, scope: &Scope, change: ChangeSegments) -> Result<Changed> {
        self.step()?;
        let changed = self.inner.change_segments(scope, change).await?;
        self.step()?;
        Ok(changed)
    }

    async fn list_projects(&self, scope: &Scope) -> Result<Vec<ProjectId>> {
        self.step()?;
        self.inner.list_projects(scope).await
    }
}
