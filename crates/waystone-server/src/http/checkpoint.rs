//! `/api/checkpoints`, and the checkpoints of a session

use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::Response;
use schemars::JsonSchema;
use serde::Deserialize;
use waystone_core::api::{
    CheckpointDiff, CheckpointPage, DeletedCheckpoint, Deletion, ListCheckpoints, LoadCheckpoint, LoadedCheckpoint,
    RestoredCheckpoint, SaveCheckpoint, SaveStatus, SavedCheckpoint, TOKENS_MAX,
};
use waystone_core::id::{CheckpointId, IdempotencyKey, SessionId};

use super::Http;
use super::extract::{Body, IDEMPOTENCY_KEY, Id, Ids, Query, given, same, take_key};
use super::reply::{HttpError, HttpResult, Json, large, ok, sized};
use super::route::Route;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::GET, "/api/checkpoints", "list_checkpoints", list)
            .summary("List checkpoints of any session, newest first")
            .query::<ListCheckpoints>()
            .replies::<CheckpointPage>(200)
            .errors(&[404]),
        saving(Route::new(Method::POST, "/api/checkpoints", "save_checkpoint", save))
            .summary("Save a context; without a session id a session is made"),
        Route::new(Method::GET, "/api/checkpoints/{checkpointId}", "load_checkpoint", load)
            .summary("Load a checkpoint with its context, or a view of it")
            .query::<Within>()
            .replies::<LoadedCheckpoint>(200)
            .errors(&[404, 422]),
        Route::new(Method::DELETE, "/api/checkpoints/{checkpointId}", "delete_checkpoint", delete)
            .summary("Delete a checkpoint; it is kept for a while and loads by its id, or it is removed for good")
            .query::<Deletion>()
            .replies::<DeletedCheckpoint>(200)
            .errors(&[404]),
        Route::new(Method::POST, "/api/checkpoints/{checkpointId}/restore", "restore_checkpoint", restore)
            .summary("List a deleted or archived checkpoint again")
            .replies::<RestoredCheckpoint>(200)
            .errors(&[404, 409]),
        Route::new(Method::GET, "/api/checkpoints/{before}/diff/{after}", "diff_checkpoints", diff)
            .summary("What differs between the contexts of two checkpoints")
            .replies::<CheckpointDiff>(200)
            .errors(&[404, 422]),
        Route::new(Method::GET, "/api/sessions/{sessionId}/checkpoints", "list_checkpoints", list_of_session)
            .summary("List a session's checkpoints, newest first")
            .query::<ListCheckpoints>()
            .replies::<CheckpointPage>(200)
            .errors(&[404]),
        saving(Route::new(Method::POST, "/api/sessions/{sessionId}/checkpoints", "save_checkpoint", save_in_session))
            .summary("Save a context in a session"),
        Route::new(Method::GET, "/api/sessions/{sessionId}/latest", "load_checkpoint", load_latest)
            .summary("Load a session's newest checkpoint with its context, or a view of it")
            .query::<Within>()
            .replies::<LoadedCheckpoint>(200)
            .errors(&[404, 422]),
    ]
}

fn saving(route: Route) -> Route {
    route
        .header::<IdempotencyKey>(IDEMPOTENCY_KEY, "The same as `idempotencyKey` in the body.")
        .body::<SaveCheckpoint>()
        .replies::<SavedCheckpoint>(201)
        .replies::<SavedCheckpoint>(200)
        .replies::<SavedCheckpoint>(202)
        .errors(&[404, 409, 422])
}

async fn list(State(http): State<Http>, Query(request): Query<ListCheckpoints>) -> HttpResult<CheckpointPage> {
    ok(http.engine.list_checkpoints(&http.scope(), request).await)
}

async fn list_of_session(
    State(http): State<Http>,
    Id(session): Id<SessionId>,
    Query(mut request): Query<ListCheckpoints>,
) -> HttpResult<CheckpointPage> {
    same("sessionId", &mut request.session_id, session)?;
    ok(http.engine.list_checkpoints(&http.scope(), request).await)
}

async fn save(
    State(http): State<Http>,
    headers: HeaderMap,
    Body(mut request, _turn): Body<SaveCheckpoint>,
) -> HttpResult<SavedCheckpoint> {
    take_key(&headers, "idempotencyKey", &mut request.idempotency_key)?;
    let saved = http.engine.save_checkpoint(&http.scope(), request).await?;
    let status = match saved.status {
        SaveStatus::Saved => StatusCode::CREATED,
        SaveStatus::SkippedUnchanged => StatusCode::OK,
        SaveStatus::Volatile => StatusCode::ACCEPTED,
    };
    Ok(Json(status, saved))
}

async fn save_in_session(
    state: State<Http>,
    Id(session): Id<SessionId>,
    headers: HeaderMap,
    Body(mut request, taken): Body<SaveCheckpoint>,
) -> HttpResult<SavedCheckpoint> {
    same("sessionId", &mut request.session_id, session)?;
    save(state, headers, Body(request, taken)).await
}

/// What [`LoadCheckpoint`] has besides its ids.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Within {
    /// Load a view of the context that has at most so many tokens; left out, all of it.
    #[serde(default, deserialize_with = "given")]
    #[schemars(range(min = 1, max = TOKENS_MAX))]
    max_tokens: Option<u64>,
}

async fn load(
    State(http): State<Http>,
    Id(id): Id<CheckpointId>,
    Query(Within { max_tokens }): Query<Within>,
) -> Result<Response, HttpError> {
    load_any(&http, LoadCheckpoint { checkpoint_id: Some(id), session_id: None, max_tokens }).await
}

async fn load_latest(
    State(http): State<Http>,
    Id(session): Id<SessionId>,
    Query(Within { max_tokens }): Query<Within>,
) -> Result<Response, HttpError> {
    load_any(&http, LoadCheckpoint { checkpoint_id: None, session_id: Some(session), max_tokens }).await
}

async fn diff(
    State(http): State<Http>,
    Ids(before, after): Ids<CheckpointId, CheckpointId>,
) -> Result<Response, HttpError> {
    let _taken = http.room.reply().await;
    large(http.engine.diff_checkpoints(&http.scope(), before, after).await?).await
}

async fn load_any(http: &Http, request: LoadCheckpoint) -> Result<Response, HttpError> {
    let _taken = http.room.reply().await;
    let loaded = http.engine.load_checkpoint(&http.scope(), request).await?;
    sized(loaded.context.get().len(), loaded).await
}

async fn delete(
    State(http): State<Http>,
    Id(id): Id<CheckpointId>,
    Query(how): Query<Deletion>,
) -> HttpResult<DeletedCheckpoint> {
    ok(http.engine.delete_checkpoint(&http.scope(), &id, how).await)
}

async fn restore(State(http): State<Http>, Id(id): Id<CheckpointId>) -> HttpResult<RestoredCheckpoint> {
    ok(http.engine.restore_checkpoint(&http.scope(), &id).await)
}
