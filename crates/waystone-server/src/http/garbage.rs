//! `/api/projects/{project_id}/gc`, and `pin`, which keeps segments from it.

use axum::extract::State;
use axum::http::Method;
use waystone_core::api::{AnalyzeGarbage, GarbageReply, PinReply, PinSegments, PruneReply, PruneSegments, UnpinReply};

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
            .errors(&[413, 422]),
        Route::new(Method::POST, "/api/projects/{project_id}/gc/prune", "prune_segments", prune)
            .summary("Carry out a plan, or prune the segments that are named")
            .body::<PruneSegments>()
            .replies::<PruneReply>(200)
            .errors(&[404]),
        Route::new(Method::POST, "/api/projects/{project_id}/pin", "pin_segments", pin)
            .summary("Keep segments from being pruned")
            .body::<PinSegments>()
            .replies::<PinReply>(200)
            .errors(&[404]),
        Route::new(Method::POST, "/api/projects/{project_id}/unpin", "unpin_segments", unpin)
            .summary("Let segments be pruned again")
            .body::<PinSegments>()
            .replies::<UnpinReply>(200)
            .errors(&[404]),
    ]
}

async fn analyze(State(http): State<Http>, Fields(request, _turn): Fields<AnalyzeGarbage>) -> HttpResult<GarbageReply> {
    ok(http.engine.analyze_garbage(&http.scope(), request).await)
}

async fn prune(State(http): State<Http>, Fields(request, _turn): Fields<PruneSegments>) -> HttpResult<PruneReply> {
    ok(http.engine.prune_segments(&http.scope(), request).await)
}

async fn pin(State(http): State<Http>, Fields(request, _turn): Fields<PinSegments>) -> HttpResult<PinReply> {
    ok(http.engine.pin_segments(&http.scope(), request).await)
}

async fn unpin(State(http): State<Http>, Fields(request, _turn): Fields<PinSegments>) -> HttpResult<UnpinReply> {
    ok(http.engine.unpin_segments(&http.scope(), request).await)
}
