//! `/api/search`

use axum::extract::State;
use axum::http::Method;
use waystone_core::api::{SearchAll, SearchResults};

use super::Http;
use super::extract::Query;
use super::reply::{HttpResult, ok};
use super::route::Route;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::GET, "/api/search", "search", search)
            .summary("Search segments, and what sessions last saved, by words and by meaning")
            .query::<SearchAll>()
            .replies::<SearchResults>(200),
    ]
}

async fn search(State(http): State<Http>, Query(request): Query<SearchAll>) -> HttpResult<SearchResults> {
    ok(http.engine.search(&http.scope(), request).await)
}
