//! `/api/projects`, and the segments of a project

use axum::extract::State;
use axum::http::{Method, StatusCode};
use axum::response::Response;
use waystone_core::api::{ListSegments, ProjectList, PutReply, PutSegments, TaskContext, WorkingSetReply};

use super::Http;
use super::extract::{Fields, Filter};
use super::reply::{HttpError, HttpResult, Json, large, ok};
use super::route::Route;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::GET, "/api/projects", "list_projects", list_projects)
            .summary("List all projects that have a segment")
            .replies::<ProjectList>(200),
        Route::new(Method::POST, "/api/projects/{project_id}/segments", "put_segments", put)
            .summary("Capture texts; those that are known are touched")
            .body::<PutSegments>()
            .replies::<PutReply>(201)
            .errors(&[413, 422]),
        Route::new(Method::GET, "/api/projects/{project_id}/working-set", "list_working_set", working_set)
            .summary("List what is in the window, oldest first")
            .query::<ListSegments>()
            .replies::<WorkingSetReply>(200),
        Route::new(Method::GET, "/api/projects/{project_id}/task-context", "list_task_context", task_context)
            .summary("List all segments of a task, in the window and in the stash, oldest first")
            .query::<ListSegments>()
            .replies::<TaskContext>(200),
    ]
}

async fn list_projects(State(http): State<Http>) -> HttpResult<ProjectList> {
    ok(http.engine.list_projects(&http.scope()).await)
}

async fn put(State(http): State<Http>, Fields(request, _turn): Fields<PutSegments>) -> HttpResult<PutReply> {
    Ok(Json(StatusCode::CREATED, http.engine.put_segments(&http.scope(), request).await?))
}

async fn working_set(State(http): State<Http>, Filter(request): Filter<ListSegments>) -> Result<Response, HttpError> {
    let _taken = http.room.reply().await;
    large(http.engine.list_working_set(&http.scope(), request).await?).await
}

async fn task_context(State(http): State<Http>, Filter(request): Filter<ListSegments>) -> Result<Response, HttpError> {
    let _taken = http.room.reply().await;
    large(http.engine.list_task_context(&http.scope(), request).await?).await
}
