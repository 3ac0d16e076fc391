//! The part of the store that is about segments: each method hands one function to the writer or to a reader.

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

use crate::sqlite::{Sqlite, garbage, search, segment, usage};

#[async_trait]
impl SegmentStore for Sqlite {
    async fn known_texts(
        &self,
        scope: &Scope,
        project: &ProjectId,
        texts: Vec<(SegmentType, Hash)>,
    ) -> Result<Vec<bool>> {
        let (scope, project) = (scope.clone(), project.clone());
        self.readers.read(move |db| segment::known(db, &scope, &project, &texts)).await
    }

    async fn put_segments(&self, scope: &Scope, new: Arc<NewSegments>) -> Result<Put> {
        let scope = scope.clone();
        // Those that are believed to be known add nothing.
        let added = new.segments.iter().filter(|segment| segment.tokens.is_some());
        let size = added.map(|segment| segment.text.len() as u64).sum();
        self.write_with_room(size, move |db| segment::put(db, &scope, &new)).await
    }

    async fn list_segments(&self, scope: &Scope, select: SelectSegments) -> Result<SegmentPage> {
        let scope = scope.clone();
        self.readers.read(move |db| segment::list(db, &scope, &select)).await
    }

    async fn search_segments(&self, scope: &Scope, select: SelectSegments) -> Result<SegmentPage> {
        let (scope, corpora) = (scope.clone(), Arc::clone(&self.corpora));
        self.readers.read(move |db| search::search_segments(db, &scope, &corpora, &select)).await
    }

    async fn search_messages(&self, scope: &Scope, search: SearchMessages) -> Result<Vec<Segment>> {
        let (scope, corpora) = (scope.clone(), Arc::clone(&self.corpora));
        self.readers.read(move |db| search::search_messages(db, &scope, &corpora, &search)).await
    }

    async fn find_segment(&self, scope: &Scope, id: &SegmentId) -> Result<Option<Segment>> {
        let (scope, id) = (scope.clone(), id.clone());
        self.readers.read(move |db| segment::find(db, &scope, &id)).await
    }

    async fn sum_usage(
        &self,
        scope: &Scope,
        project: &ProjectId,
        task: &WhichTask,
        roots: Option<Roots>,
    ) -> Result<Usage> {
        let (scope, project, task) = (scope.clone(), project.clone(), task.clone());
        self.readers.read(move |db| usage::sum(db, &scope, &project, &task, roots.as_ref())).await
    }

    async fn find_candidates(&self, scope: &Scope, find: FindCandidates) -> Result<Candidates> {
        let scope = scope.clone();
        self.readers.read(move |db| garbage::find(db, &scope, &find)).await
    }

    async fn keep_plan(&self, scope: &Scope, plan: Plan) -> Result<()> {
        let scope = scope.clone();
        self.write_with_room(0, move |db| garbage::keep_plan(db, &scope, &plan)).await
    }

    async fn find_plan(&self, scope: &Scope, id: &PlanId, now: Timestamp) -> Result<Option<Plan>> {
        let (scope, id) = (scope.clone(), id.clone());
        self.readers.read(move |db| garbage::find_plan(db, &scope, &id, now)).await
    }

    async fn change_segments(&self, scope: &Scope, change: ChangeSegments) -> Result<Changed> {
        let scope = scope.clone();
        self.write_with_room(0, move |db| segment::change(db, &scope, &change)).await
    }

    async fn list_projects(&self, scope: &Scope) -> Result<Vec<ProjectId>> {
        let scope = scope.clone();
        self.readers.read(move |db| segment::list_projects(db, &scope)).await
    }
}
