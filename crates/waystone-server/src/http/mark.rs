//! `/api/sessions/{sessionId}/critical`

use axum::extract::State;
use axum::http::Method;
use waystone_core::api::{KeyClass, MarkCritical, MarkedCritical};
use waystone_core::id::SessionId;

use super::Http;
use super::extract::Ids;
use super::reply::{HttpResult, ok};
use super::route::Route;

const PATH: &str = "/api/sessions/{sessionId}/critical/{key}";

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::GET, PATH, "find_class", find)
            .summary("How a key of the session's newest checkpoint is treated in views, and why")
            .replies::<KeyClass>(200)
            .errors(&[404, 422]),
        Route::new(Method::PUT, PATH, "mark_critical", mark)
            .summary("Mark a key: it is never shortened or dropped in views")
            .replies::<MarkedCritical>(200)
            .errors(&[404, 422]),
        Route::new(Method::DELETE, PATH, "unmark_critical", unmark)
            .summary("Take the mark of a key away")
            .replies::<MarkedCritical>(200)
            .errors(&[404]),
    ]
}

async fn find(State(http): State<Http>, Ids(session, context_key): Ids<SessionId, String>) -> HttpResult<KeyClass> {
    ok(http.engine.find_class(&http.scope(), session, context_key).await)
}

async fn mark(
    State(http): State<Http>,
    Ids(session, context_key): Ids<SessionId, String>,
) -> HttpResult<MarkedCritical> {
    let request = MarkCritical { context_key, session_id: Some(session) };
    ok(http.engine.mark_critical(&http.scope(), request).await)
}

async fn unmark(
    State(http): State<Http>,
    Ids(session, context_key): Ids<SessionId, String>,
) -> HttpResult<MarkedCritical> {
    let request = MarkCritical { context_key, session_id: Some(session) };
    ok(http.engine.unmark_critical(&http.scope(), request).await)
}
