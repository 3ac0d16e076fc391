//! `/api/backups`

use axum::extract::State;
use axum::http::Method;
use waystone_core::api::BackedUp;

use super::Http;
use super::reply::{HttpResult, ok};
use super::route::Route;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::POST, "/api/backups", "back_up", back_up)
            .summary("Copy all that is kept into the data directory, while others go on")
            .replies::<BackedUp>(200),
    ]
}

async fn back_up(State(http): State<Http>) -> HttpResult<BackedUp> {
    ok(http.engine.back_up(&http.scope(), None).await)
}
