//! `/api/status`, `/healthz` and `/readyz`

use axum::extract::State;
use axum::http::{Method, StatusCode};
use schemars::JsonSchema;
use serde::Serialize;
use waystone_core::api::Status;

use super::Http;
use super::reply::{HttpResult, Json, ok};
use super::route::Route;

/// The server is there.
#[derive(Debug, Serialize, JsonSchema)]
struct Health {
    status: &'static str,
    /// What every other reply says too: that nothing is kept, if so.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::GET, "/healthz", "health", healthy)
            .summary("Whether the process lives")
            .replies::<Health>(200),
        Route::new(Method::GET, "/readyz", "readiness", ready)
            .summary("Whether the store can be read")
            .replies::<Health>(200),
        Route::new(Method::GET, "/api/status", "status", status)
            .summary("What is kept, where, and who uses it")
            .replies::<Status>(200),
    ]
}

async fn healthy(State(http): State<Http>) -> Json<Health> {
    Json(StatusCode::OK, Health { status: "ok", warnings: http.engine.warnings() })
}

async fn ready(State(http): State<Http>) -> HttpResult<Health> {
    // Asked often, and any read will do: this one is of a single row.
    http.engine.list_events(&http.scope(), None).await?;
    Ok(healthy(State(http)).await)
}

async fn status(State(http): State<Http>) -> HttpResult<Status> {
    ok(http.engine.status(&http.scope()).await)
}
