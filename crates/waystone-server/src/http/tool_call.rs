//! `/api/contexts/{context_id}/tools`

use axum::extract::State;
use axum::http::{HeaderMap, Method};
use waystone_core::api::{AnswerToolCall, DecideTools, DecidedTools, EditArguments, ToolCall, ToolList};
use waystone_core::id::{IdempotencyKey, SessionId, ToolCallId};

use super::Http;
use super::extract::{Body, IDEMPOTENCY_KEY, Id, Ids, take_key};
use super::reply::{HttpResult, ok};
use super::route::Route;

pub(super) fn routes() -> Vec<Route> {
    const ALL: &str = "/api/contexts/{context_id}/tools";
    const ONE: &str = "/api/contexts/{context_id}/tools/{tool_call_id}";
    const KEY: &str = "Makes a retry of this request safe.";
    vec![
        Route::new(Method::GET, ALL, "list_tools", list)
            .summary("List the tools that a conversation can call")
            .replies::<ToolList>(200)
            .errors(&[404]),
        Route::new(Method::POST, "/api/contexts/{context_id}/tools/approve", "approve_tools", approve)
            .summary("Let calls of tools run that wait for it")
            .header::<IdempotencyKey>(IDEMPOTENCY_KEY, "The same as `idempotency_key` in the body.")
            .body::<DecideTools>()
            .replies::<DecidedTools>(200)
            .errors(&[404, 409]),
        Route::new(Method::POST, "/api/contexts/{context_id}/tools/deny", "deny_tools", deny)
            .summary("Refuse calls of tools that wait for approval; the model is told")
            .header::<IdempotencyKey>(IDEMPOTENCY_KEY, "The same as `idempotency_key` in the body.")
            .body::<DecideTools>()
            .replies::<DecidedTools>(200)
            .errors(&[404, 409]),
        Route::new(Method::GET, ONE, "find_tool_call", find)
            .summary("Get a call of a tool, whether it may run, and what came of it")
            .replies::<ToolCall>(200)
            .errors(&[404]),
        Route::new(
            Method::POST,
            "/api/contexts/{context_id}/tools/{tool_call_id}/arguments",
            "edit_arguments",
            edit_arguments,
        )
        .summary("Give a call other arguments before it is approved")
        .header::<IdempotencyKey>(IDEMPOTENCY_KEY, KEY)
        .body::<EditArguments>()
        .replies::<ToolCall>(200)
        .errors(&[404, 409, 422]),
        Route::new(Method::POST, "/api/contexts/{context_id}/tools/{tool_call_id}/result", "answer_tool_call", answer)
            .summary("Answer a call of a tool that the client declared")
            .header::<IdempotencyKey>(IDEMPOTENCY_KEY, KEY)
            .body::<AnswerToolCall>()
            .replies::<ToolCall>(200)
            .errors(&[404, 409, 422]),
    ]
}

async fn list(State(http): State<Http>, Id(context): Id<SessionId>) -> HttpResult<ToolList> {
    ok(http.engine.list_tools(&http.scope(), &context).await)
}

async fn approve(
    State(http): State<Http>,
    Id(context): Id<SessionId>,
    headers: HeaderMap,
    Body(mut request, _turn): Body<DecideTools>,
) -> HttpResult<DecidedTools> {
    take_key(&headers, "idempotency_key", &mut request.idempotency_key)?;
    ok(http.engine.approve_tools(&http.scope(), &context, request).await)
}

async fn deny(
    State(http): State<Http>,
    Id(context): Id<SessionId>,
    headers: HeaderMap,
    Body(mut request, _turn): Body<DecideTools>,
) -> HttpResult<DecidedTools> {
    take_key(&headers, "idempotency_key", &mut request.idempotency_key)?;
    ok(http.engine.deny_tools(&http.scope(), &context, request).await)
}

async fn find(State(http): State<Http>, Ids(context, id): Ids<SessionId, ToolCallId>) -> HttpResult<ToolCall> {
    ok(http.engine.find_tool_call(&http.scope(), &context, &id).await)
}

async fn edit_arguments(
    State(http): State<Http>,
    Ids(context, id): Ids<SessionId, ToolCallId>,
    headers: HeaderMap,
    Body(request, _turn): Body<EditArguments>,
) -> HttpResult<ToolCall> {
    let mut key = None;
    take_key(&headers, IDEMPOTENCY_KEY, &mut key)?;
    ok(http.engine.edit_arguments(&http.scope(), &context, &id, request, key).await)
}

async fn answer(
    State(http): State<Http>,
    Ids(context, id): Ids<SessionId, ToolCallId>,
    headers: HeaderMap,
    Body(request, _turn): Body<AnswerToolCall>,
) -> HttpResult<ToolCall> {
    let mut key = None;
    take_key(&headers, IDEMPOTENCY_KEY, &mut key)?;
    ok(http.engine.answer_tool_call(&http.scope(), &context, &id, request, key).await)
}
