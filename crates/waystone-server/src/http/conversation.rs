//! `/api/contexts`: conversations

use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::Response;
use waystone_core::api::{
    Context, ContextPage, CreateContext, Deletion, FindContext, ListContexts, SaveContext, SavedCheckpoint,
    UpdateContext,
};
use waystone_core::id::{IdempotencyKey, SessionId};

use super::Http;
use super::extract::{Body, IDEMPOTENCY_KEY, Id, Query, take_key};
use super::reply::{HttpError, HttpResult, Json, large, ok};
use super::route::Route;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::GET, "/api/contexts", "list_contexts", list)
            .summary("List conversations, last used first, without their messages")
            .query::<ListContexts>()
            .replies::<ContextPage>(200),
        Route::new(Method::POST, "/api/contexts", "create_context", create)
            .summary("Begin a conversation")
            .header::<IdempotencyKey>(IDEMPOTENCY_KEY, "The same as `idempotency_key` in the body.")
            .body::<CreateContext>()
            .replies::<Context>(201)
            .errors(&[404, 409, 422]),
        Route::new(Method::GET, "/api/contexts/{context_id}", "find_context", find)
            .summary("Get a conversation with its branches and messages")
            .query::<FindContext>()
            .replies::<Context>(200)
            .errors(&[404]),
        Route::new(Method::PUT, "/api/contexts/{context_id}", "update_context", update)
            .summary("Change how a conversation is led, from the next time its model is asked")
            .body::<UpdateContext>()
            .replies::<Context>(200)
            .errors(&[404, 422]),
        Route::new(Method::DELETE, "/api/contexts/{context_id}", "delete_context", delete)
            .summary("Delete a conversation; it can be restored for a while as the session of the same id, or is removed for good")
            .query::<Deletion>()
            .replies_nothing()
            .errors(&[404]),
        Route::new(Method::POST, "/api/contexts/{context_id}/checkpoints", "save_context", save)
            .summary("Keep where a conversation stands as a checkpoint, from which a branch can begin")
            .header::<IdempotencyKey>(IDEMPOTENCY_KEY, "The same as `idempotency_key` in the body.")
            .body::<SaveContext>()
            .replies::<SavedCheckpoint>(201)
            .errors(&[404, 409, 422]),
    ]
}

async fn list(State(http): State<Http>, Query(request): Query<ListContexts>) -> HttpResult<ContextPage> {
    ok(http.engine.list_contexts(&http.scope(), request).await)
}

async fn create(
    State(http): State<Http>,
    headers: HeaderMap,
    Body(mut request, _turn): Body<CreateContext>,
) -> HttpResult<Context> {
    take_key(&headers, "idempotency_key", &mut request.idempotency_key)?;
    Ok(Json(StatusCode::CREATED, http.engine.create_context(&http.scope(), request).await?))
}

async fn save(
    State(http): State<Http>,
    Id(id): Id<SessionId>,
    headers: HeaderMap,
    Body(mut request, _turn): Body<SaveContext>,
) -> HttpResult<SavedCheckpoint> {
    take_key(&headers, "idempotency_key", &mut request.idempotency_key)?;
    Ok(Json(StatusCode::CREATED, http.engine.save_context(&http.scope(), &id, request).await?))
}

async fn find(
    State(http): State<Http>,
    Id(id): Id<SessionId>,
    Query(request): Query<FindContext>,
) -> Result<Response, HttpError> {
    let _taken = http.room.reply().await;
    large(http.engine.find_context(&http.scope(), &id, request).await?).await
}

async fn update(
    State(http): State<Http>,
    Id(id): Id<SessionId>,
    Body(request, _turn): Body<UpdateContext>,
) -> HttpResult<Context> {
    ok(http.engine.update_context(&http.scope(), &id, request).await)
}

async fn delete(
    State(http): State<Http>,
    Id(id): Id<SessionId>,
    Query(how): Query<Deletion>,
) -> Result<StatusCode, HttpError> {
    http.engine.delete_context(&http.scope(), &id, how).await?;
    Ok(StatusCode::NO_CONTENT)
}
