//! `/api/resume`

use axum::extract::State;
use axum::http::Method;
use waystone_core::api::{ResumeSessions, Resumed};

use super::Http;
use super::extract::Query;
use super::reply::{HttpResult, ok};
use super::route::Route;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::GET, "/api/resume", "resume_sessions", resume)
            .summary("Find the session to go on with, without its id")
            .query::<ResumeSessions>()
            .replies::<Resumed>(200),
    ]
}

async fn resume(State(http): State<Http>, Query(request): Query<ResumeSessions>) -> HttpResult<Resumed> {
    ok(http.engine.resume_sessions(&http.scope(), request).await)
}
