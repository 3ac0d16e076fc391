//! The tasks of a project, and their snapshots

use axum::extract::State;
use axum::http::{Method, StatusCode};
use waystone_core::api::{
    CreateSnapshot, CurrentTask, ListSnapshots, ListTasks, RestoreSnapshot, RestoredSnapshot, SetCurrentTask, Snapshot,
    SnapshotPage, TaskList,
};
use waystone_core::id::{ProjectId, SnapshotId};

use super::Http;
use super::extract::{Fields, Filter, Ids};
use super::reply::{HttpResult, Json, ok};
use super::route::Route;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::GET, "/api/projects/{project_id}/tasks", "list_tasks", list)
            .summary("List tasks, last used first")
            .query::<ListTasks>()
            .replies::<TaskList>(200),
        Route::new(Method::PUT, "/api/projects/{project_id}/current-task", "set_current_task", set_current)
            .summary("Make a task the current one, or none")
            .body::<SetCurrentTask>()
            .replies::<CurrentTask>(200),
        Route::new(Method::GET, "/api/projects/{project_id}/snapshots", "list_snapshots", list_snapshots)
            .summary("List snapshots of tasks, newest first")
            .query::<ListSnapshots>()
            .replies::<SnapshotPage>(200),
        Route::new(Method::POST, "/api/projects/{project_id}/snapshots", "create_snapshot", create_snapshot)
            .summary("Capture which segments a task has")
            .body::<CreateSnapshot>()
            .replies::<Snapshot>(201),
        Route::new(
            Method::POST,
            "/api/projects/{project_id}/snapshots/{snapshot_id}/restore",
            "restore_snapshot",
            restore_snapshot,
        )
        .summary("Put the segments of a task back to where a snapshot has them")
        .replies::<RestoredSnapshot>(200)
        .errors(&[404]),
    ]
}

async fn list(State(http): State<Http>, Filter(request): Filter<ListTasks>) -> HttpResult<TaskList> {
    ok(http.engine.list_tasks(&http.scope(), request).await)
}

async fn set_current(
    State(http): State<Http>,
    Fields(request, _turn): Fields<SetCurrentTask>,
) -> HttpResult<CurrentTask> {
    ok(http.engine.set_current_task(&http.scope(), request).await)
}

async fn list_snapshots(State(http): State<Http>, Filter(request): Filter<ListSnapshots>) -> HttpResult<SnapshotPage> {
    ok(http.engine.list_snapshots(&http.scope(), request).await)
}

async fn create_snapshot(
    State(http): State<Http>,
    Fields(request, _turn): Fields<CreateSnapshot>,
) -> HttpResult<Snapshot> {
    Ok(Json(StatusCode::CREATED, http.engine.create_snapshot(&http.scope(), request).await?))
}

async fn restore_snapshot(
    State(http): State<Http>,
    Ids(project, snapshot_id): Ids<ProjectId, SnapshotId>,
) -> HttpResult<RestoredSnapshot> {
    let request = RestoreSnapshot { project_id: Some(project), snapshot_id: Some(snapshot_id) };
    ok(http.engine.restore_snapshot(&http.scope(), request).await)
}
