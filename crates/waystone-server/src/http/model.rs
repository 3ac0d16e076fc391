//! `/api/models`

use axum::extract::State;
use axum::http::{Method, StatusCode};
use waystone_core::api::ModelList;

use super::Http;
use super::reply::Json;
use super::route::Route;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::GET, "/api/models", "list_models", list)
            .summary("Models that conversations can name, and what they need")
            .replies::<ModelList>(200),
    ]
}

async fn list(State(http): State<Http>) -> Json<ModelList> {
    Json(StatusCode::OK, http.engine.list_models().await)
}
