//! `/api/contexts/{context_id}/messages`

use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::Response;
use waystone_core::api::{
    AddMessage, AddedMessage, EditMessage, ListMessages, Message, MessageContent, MessagePage, ReadContent,
};
use waystone_core::id::{IdempotencyKey, SegmentId, SessionId};

use super::Http;
use super::extract::{Body, IDEMPOTENCY_KEY, Id, Ids, Query, take_key};
use super::reply::{HttpError, HttpResult, Json, large, ok};
use super::route::Route;

pub(super) fn routes() -> Vec<Route> {
    const ALL: &str = "/api/contexts/{context_id}/messages";
    const ONE: &str = "/api/contexts/{context_id}/messages/{message_id}";
    vec![
        Route::new(Method::GET, ALL, "list_messages", list)
            .summary("List messages of a branch, oldest first, or those that are named")
            .query::<ListMessages>()
            .replies::<MessagePage>(200)
            .errors(&[404]),
        Route::new(Method::POST, ALL, "add_message", add)
            .summary("Say something to the model; its answer comes as events")
            .header::<IdempotencyKey>(IDEMPOTENCY_KEY, "The same as `idempotency_key` in the body.")
            .body::<AddMessage>()
            .replies::<AddedMessage>(201)
            .errors(&[404, 409, 422]),
        Route::new(Method::GET, ONE, "find_message", find)
            .summary("Get a message")
            .replies::<Message>(200)
            .errors(&[404]),
        Route::new(Method::PUT, ONE, "edit_message", edit)
            .summary("Say a user's message anew, on a branch of its own")
            .header::<IdempotencyKey>(IDEMPOTENCY_KEY, "The same as `idempotency_key` in the body.")
            .body::<EditMessage>()
            .replies::<AddedMessage>(201)
            .errors(&[404, 409, 422]),
        Route::new(Method::GET, "/api/contexts/{context_id}/messages/{message_id}/content", "read_content", content)
            .summary("Get the text of a message from a sequence on, also while it is being written")
            .query::<ReadContent>()
            .replies::<MessageContent>(200)
            .errors(&[404]),
    ]
}

async fn list(
    State(http): State<Http>,
    Id(context): Id<SessionId>,
    Query(request): Query<ListMessages>,
) -> Result<Response, HttpError> {
    let _taken = http.room.reply().await;
    large(http.engine.list_messages(&http.scope(), &context, request).await?).await
}

async fn add(
    State(http): State<Http>,
    Id(context): Id<SessionId>,
    headers: HeaderMap,
    Body(mut request, _turn): Body<AddMessage>,
) -> HttpResult<AddedMessage> {
    take_key(&headers, "idempotency_key", &mut request.idempotency_key)?;
    Ok(Json(StatusCode::CREATED, http.engine.add_message(&http.scope(), &context, request).await?))
}

async fn find(State(http): State<Http>, Ids(context, id): Ids<SessionId, SegmentId>) -> HttpResult<Message> {
    ok(http.engine.find_message(&http.scope(), &context, &id).await)
}

async fn edit(
    State(http): State<Http>,
    Ids(context, id): Ids<SessionId, SegmentId>,
    headers: HeaderMap,
    Body(mut request, _turn): Body<EditMessage>,
) -> HttpResult<AddedMessage> {
    take_key(&headers, "idempotency_key", &mut request.idempotency_key)?;
    Ok(Json(StatusCode::CREATED, http.engine.edit_message(&http.scope(), &context, &id, request).await?))
}

async fn content(
    State(http): State<Http>,
    Ids(context, id): Ids<SessionId, SegmentId>,
    Query(request): Query<ReadContent>,
) -> HttpResult<MessageContent> {
    ok(http.engine.read_content(&http.scope(), &context, &id, request).await)
}
