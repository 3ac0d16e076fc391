//! `/api/contexts/{context_id}/window`

use axum::extract::State;
use axum::http::Method;
use waystone_core::api::{FindWindow, Window};
use waystone_core::id::SessionId;

use super::Http;
use super::extract::{Id, Query};
use super::reply::{HttpResult, ok};
use super::route::Route;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::GET, "/api/contexts/{context_id}/window", "find_window", find)
            .summary("Look at what the model is told: in the last call, or in the next")
            .query::<FindWindow>()
            .replies::<Window>(200)
            .errors(&[404, 422]),
    ]
}

async fn find(
    State(http): State<Http>,
    Id(context): Id<SessionId>,
    Query(request): Query<FindWindow>,
) -> HttpResult<Window> {
    ok(http.engine.find_window(&http.scope(), &context, request).await)
}
