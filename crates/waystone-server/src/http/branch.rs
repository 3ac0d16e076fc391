//! `/api/contexts/{context_id}/branches`

use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode};
use waystone_core::api::{
    Branch, BranchDiff, BranchList, CreateBranch, DiffBranches, MergeBranch, MergedBranch, SwitchedBranch,
};
use waystone_core::id::{BranchName, IdempotencyKey, SessionId};

use super::Http;
use super::extract::{Body, IDEMPOTENCY_KEY, Id, Ids, Pair, Query, take_key};
use super::reply::{HttpError, HttpResult, Json, ok};
use super::route::Route;

pub(super) fn routes() -> Vec<Route> {
    const ALL: &str = "/api/contexts/{context_id}/branches";
    const ONE: &str = "/api/contexts/{context_id}/branches/{branch_name}";
    const RESTORE: &str = "/api/contexts/{context_id}/branches/{branch_name}/restore";
    vec![
        Route::new(Method::GET, ALL, "list_branches", list)
            .summary("List the branches of a conversation, oldest first")
            .replies::<BranchList>(200)
            .errors(&[404]),
        Route::new(Method::POST, ALL, "create_branch", create)
            .summary("Begin a branch after any message")
            .header::<IdempotencyKey>(IDEMPOTENCY_KEY, "The same as `idempotency_key` in the body.")
            .body::<CreateBranch>()
            .replies::<Branch>(201)
            .errors(&[404, 409, 422]),
        Route::new(Method::PUT, ONE, "switch_branch", switch)
            .summary("Make a branch the active one")
            .replies::<SwitchedBranch>(200)
            .errors(&[404]),
        Route::new(Method::DELETE, ONE, "delete_branch", delete)
            .summary("Delete a branch that is not active; its messages stay, and it can be restored")
            .replies_nothing()
            .errors(&[404]),
        Route::new(Method::POST, RESTORE, "restore_branch", restore)
            .summary("Bring back a branch that was deleted")
            .header::<IdempotencyKey>(IDEMPOTENCY_KEY, "Sent again with the same key, it has one effect.")
            .replies::<Branch>(200)
            .errors(&[404, 409]),
        Route::new(Method::GET, "/api/contexts/{context_id}/branches/{a}/diff/{b}", "diff_branches", diff)
            .summary("Compare two branches: where they part, and what each has since")
            .query::<DiffBranches>()
            .replies::<BranchDiff>(200)
            .errors(&[404]),
        Route::new(Method::POST, "/api/contexts/{context_id}/branches/{branch_name}/merge", "merge_branch", merge)
            .summary("Tell a branch what another one came to, or see what it would be told")
            .header::<IdempotencyKey>(IDEMPOTENCY_KEY, "The same as `idempotency_key` in the body.")
            .body::<MergeBranch>()
            .replies::<MergedBranch>(200)
            .errors(&[404, 409]),
    ]
}

async fn list(State(http): State<Http>, Id(context): Id<SessionId>) -> HttpResult<BranchList> {
    ok(http.engine.list_branches(&http.scope(), &context).await)
}

async fn create(
    State(http): State<Http>,
    Id(context): Id<SessionId>,
    headers: HeaderMap,
    Body(mut request, _turn): Body<CreateBranch>,
) -> HttpResult<Branch> {
    take_key(&headers, "idempotency_key", &mut request.idempotency_key)?;
    Ok(Json(StatusCode::CREATED, http.engine.create_branch(&http.scope(), &context, request).await?))
}

async fn switch(
    State(http): State<Http>,
    Ids(context, name): Ids<SessionId, BranchName>,
) -> HttpResult<SwitchedBranch> {
    ok(http.engine.switch_branch(&http.scope(), &context, &name).await)
}

async fn delete(
    State(http): State<Http>,
    Ids(context, name): Ids<SessionId, BranchName>,
) -> Result<StatusCode, HttpError> {
    http.engine.delete_branch(&http.scope(), &context, &name).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn restore(
    State(http): State<Http>,
    Ids(context, name): Ids<SessionId, BranchName>,
    headers: HeaderMap,
) -> HttpResult<Branch> {
    let mut key = None;
    take_key(&headers, IDEMPOTENCY_KEY, &mut key)?;
    ok(http.engine.restore_branch(&http.scope(), &context, &name, key).await)
}

async fn diff(
    State(http): State<Http>,
    Pair(context, a, b): Pair<SessionId, BranchName>,
    Query(request): Query<DiffBranches>,
) -> HttpResult<BranchDiff> {
    ok(http.engine.diff_branches(&http.scope(), &context, &a, &b, request).await)
}

async fn merge(
    State(http): State<Http>,
    Ids(context, name): Ids<SessionId, BranchName>,
    headers: HeaderMap,
    Body(mut request, _turn): Body<MergeBranch>,
) -> HttpResult<MergedBranch> {
    take_key(&headers, "idempotency_key", &mut request.idempotency_key)?;
    ok(http.engine.merge_branch(&http.scope(), &context, &name, request).await)
}
