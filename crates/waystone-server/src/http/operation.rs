//! `/api/operations`

use axum::extract::State;
use axum::http::Method;
use waystone_core::api::{ListOperations, OperationPage, UndoOperation, UndoneOperation};
use waystone_core::id::{OperationId, ProjectId};

use super::Http;
use super::extract::{Id, Query};
use super::reply::{HttpResult, ok};
use super::route::Route;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::GET, "/api/operations", "list_operations", list)
            .summary("List what was done, newest first")
            .query::<ListOperations>()
            .replies::<OperationPage>(200),
        Route::new(Method::POST, "/api/operations/{operation_id}/undo", "undo_operation", undo)
            .summary("Take an operation back")
            .replies::<UndoneOperation>(200)
            .errors(&[404, 409]),
        Route::new(Method::POST, "/api/projects/{project_id}/undo", "undo_operation", undo_newest)
            .summary("Take back the newest operation of a project that can be undone; again to go further back")
            .replies::<UndoneOperation>(200)
            .errors(&[404, 409]),
    ]
}

async fn list(State(http): State<Http>, Query(request): Query<ListOperations>) -> HttpResult<OperationPage> {
    ok(http.engine.list_operations(&http.scope(), request).await)
}

async fn undo(State(http): State<Http>, Id(operation): Id<OperationId>) -> HttpResult<UndoneOperation> {
    let request = UndoOperation { project_id: None, operation_id: Some(operation) };
    ok(http.engine.undo_operation(&http.scope(), request).await)
}

async fn undo_newest(State(http): State<Http>, Id(project): Id<ProjectId>) -> HttpResult<UndoneOperation> {
    let request = UndoOperation { project_id: Some(project), operation_id: None };
    ok(http.engine.undo_operation(&http.scope(), request).await)
}
