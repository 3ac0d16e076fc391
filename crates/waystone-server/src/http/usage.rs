//! `/api/projects/{project_id}/usage`

use axum::extract::State;
use axum::http::Method;
use waystone_core::api::{AnalyzeUsage, UsageReply};

use super::Http;
use super::extract::Fields;
use super::reply::{HttpResult, ok};
use super::route::Route;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::POST, "/api/projects/{project_id}/usage", "analyze_usage", analyze)
            .summary("How full the window is, and what to do about it; what is described is captured on the way")
            .body::<AnalyzeUsage>()
            .replies::<UsageReply>(200)
            .errors(&[413, 422]),
    ]
}

async fn analyze(State(http): State<Http>, Fields(request, _turn): Fields<AnalyzeUsage>) -> HttpResult<UsageReply> {
    ok(http.engine.analyze_usage(&http.scope(), request).await)
}
