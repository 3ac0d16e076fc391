//! `/api/audit`

use axum::extract::State;
use axum::http::Method;
use waystone_core::api::{AuditPage, ListAudit};

use super::Http;
use super::extract::Query;
use super::reply::{HttpResult, ok};
use super::route::Route;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::GET, "/api/audit", "list_audit", list)
            .summary("List what was done and what was loaded, newest first, with the hashes that chain it")
            .query::<ListAudit>()
            .replies::<AuditPage>(200),
    ]
}

async fn list(State(http): State<Http>, Query(request): Query<ListAudit>) -> HttpResult<AuditPage> {
    ok(http.engine.list_audit(&http.scope(), request).await)
}
