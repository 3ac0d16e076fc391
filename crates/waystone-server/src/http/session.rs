//! `/api/sessions`

use axum::extract::State;
use axum::http::Method;
use waystone_core::api::{DeletedSession, Deletion, ListSessions, Session, SessionPage, UpdateSession};
use waystone_core::id::SessionId;

use super::Http;
use super::extract::{Body, Id, Query};
use super::reply::{HttpResult, ok};
use super::route::Route;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::GET, "/api/sessions", "list_sessions", list)
            .summary("List sessions, last used first")
            .query::<ListSessions>()
            .replies::<SessionPage>(200),
        Route::new(Method::GET, "/api/sessions/{sessionId}", "find_session", find)
            .summary("Get a session")
            .replies::<Session>(200)
            .errors(&[404]),
        Route::new(Method::PATCH, "/api/sessions/{sessionId}", "update_session", update)
            .summary("Change a session's name and tags")
            .body::<UpdateSession>()
            .replies::<Session>(200)
            .errors(&[404]),
        Route::new(Method::DELETE, "/api/sessions/{sessionId}", "delete_session", delete)
            .summary("Delete a session with its checkpoints; they are kept for a while, or removed for good")
            .query::<Deletion>()
            .replies::<DeletedSession>(200)
            .errors(&[404]),
        Route::new(Method::POST, "/api/sessions/{sessionId}/restore", "restore_session", restore)
            .summary("Restore a deleted session with its checkpoints")
            .replies::<Session>(200)
            .errors(&[404, 409]),
    ]
}

async fn list(State(http): State<Http>, Query(request): Query<ListSessions>) -> HttpResult<SessionPage> {
    ok(http.engine.list_sessions(&http.scope(), request).await)
}

async fn find(State(http): State<Http>, Id(id): Id<SessionId>) -> HttpResult<Session> {
    ok(http.engine.find_session(&http.scope(), &id).await)
}

async fn update(
    State(http): State<Http>,
    Id(id): Id<SessionId>,
    Body(request, _turn): Body<UpdateSession>,
) -> HttpResult<Session> {
    ok(http.engine.update_session(&http.scope(), &id, request).await)
}

async fn delete(
    State(http): State<Http>,
    Id(id): Id<SessionId>,
    Query(how): Query<Deletion>,
) -> HttpResult<DeletedSession> {
    ok(http.engine.delete_session(&http.scope(), &id, how).await)
}

async fn restore(State(http): State<Http>, Id(id): Id<SessionId>) -> HttpResult<Session> {
    ok(http.engine.restore_session(&http.scope(), &id).await)
}
