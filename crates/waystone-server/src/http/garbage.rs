//! `/api/projects/{project_id}/gc`

use axum::extract::State;
use axum::http::Method;
use waystone_core::api::{AnalyzeGarbage, GarbageReply, PruneReply, PruneSegments};

use super::Http;
use super::extract::Fields;
use super::reply::{HttpResult, ok};
use super::route::Route;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::POST, "/api/projects/{project_id}/gc/analyze", "analyze_garbage", analyze)
            .summary("Find segments that may leave the window, and plan which do")
            .body::<AnalyzeGarbage>()
            .replies::<GarbageReply>(200)
            .errors(&[413]),
        Route::new(Method::POST, "/api/projects/{project_id}/gc/prune", "prune_segments", prune)
            .summary("Carry out a plan, or prune the segments that are named")
            .body::<PruneSegments>()
            .replies::<PruneReply>(200)
            .errors(&[404]),
    ]
}

async fn analyze(State(http): State<Http>, Fields(request, _turn): Fields<AnalyzeGarbage>) -> HttpResult<GarbageReply> {
    ok(http.engine.analyze_garbage(&http.scope(), request).await)
}

async fn prune(State(http): State<Http>, Fields(request, _turn): Fields<PruneSegments>) -> HttpResult<PruneReply> {
    ok(http.engine.prune_segments(&http.scope(), request).await)
}
