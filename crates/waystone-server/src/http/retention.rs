//! `/api/cleanup`

use axum::extract::State;
use axum::http::Method;
use waystone_core::api::{CleanUp, CleanedUp};

use super::Http;
use super::extract::Body;
use super::reply::{HttpResult, ok};
use super::route::Route;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::POST, "/api/cleanup", "clean_up", clean_up)
            .summary("Delete what is old, or tell what would be")
            .body::<CleanUp>()
            .replies::<CleanedUp>(200)
            .errors(&[404]),
    ]
}

async fn clean_up(State(http): State<Http>, Body(request, _turn): Body<CleanUp>) -> HttpResult<CleanedUp> {
    ok(http.engine.clean_up(&http.scope(), request, |_, _| {}).await)
}
