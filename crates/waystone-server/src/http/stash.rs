//! `/api/projects/{project_id}/stash`, and the stash of all projects

use axum::extract::State;
use axum::http::Method;
use axum::response::Response;
use waystone_core::api::{RetrieveReply, RetrieveStashed, SearchReply, SearchStashed, StashReply, StashSegments};

use super::Http;
use super::extract::Fields;
use super::reply::{HttpError, HttpResult, large, ok};
use super::route::Route;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::POST, "/api/projects/{project_id}/stash", "stash_segments", stash)
            .summary("Move segments out of the window into the stash")
            .body::<StashSegments>()
            .replies::<StashReply>(200),
        Route::new(Method::POST, "/api/projects/{project_id}/stash/search", "search_stashed", search)
            .summary("Search the stash of a project")
            .body::<SearchStashed>()
            .replies::<SearchReply>(200),
        Route::new(Method::POST, "/api/projects/{project_id}/stash/retrieve", "retrieve_stashed", retrieve)
            .summary("Get stashed segments back, into the window if that is asked for")
            .body::<RetrieveStashed>()
            .replies::<RetrieveReply>(200),
        Route::new(Method::POST, "/api/stash/search", "search_stashed", search)
            .summary("Search the stash of all projects, or of the one in the body")
            .body::<SearchStashed>()
            .replies::<SearchReply>(200),
    ]
}

async fn stash(State(http): State<Http>, Fields(request, _turn): Fields<StashSegments>) -> HttpResult<StashReply> {
    ok(http.engine.stash_segments(&http.scope(), request).await)
}

async fn search(
    State(http): State<Http>,
    Fields(request, _turn): Fields<SearchStashed>,
) -> Result<Response, HttpError> {
    let _taken = http.room.reply().await;
    large(http.engine.search_stashed(&http.scope(), request).await?).await
}

async fn retrieve(
    State(http): State<Http>,
    Fields(request, _turn): Fields<RetrieveStashed>,
) -> Result<Response, HttpError> {
    let _taken = http.room.reply().await;
    large(http.engine.retrieve_stashed(&http.scope(), request).await?).await
}
