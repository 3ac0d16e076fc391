//! Sessions and projects as documents, sent and received part by part

use std::io;

use axum::body::Body as HttpBody;
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use waystone_core::Export;
use waystone_core::api::{Document, ImportStatus, Imported};
use waystone_core::id::{ProjectId, SessionId};

use super::Http;
use super::extract::{Id, check_content_type, read_to_file};
use super::reply::{HttpError, HttpResult, Json};
use super::route::Route;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::GET, "/api/sessions/{sessionId}/export", "export_session", export_session)
            .summary("A session with its checkpoints as one document; it breaks off where one cannot be read")
            .replies::<Document>(200)
            .errors(&[404, 409]),
        Route::new(Method::GET, "/api/projects/{project_id}/export", "export_project", export_project)
            .summary("A project with its tasks, segments and snapshots as one document")
            .replies::<Document>(200)
            .errors(&[404]),
        Route::new(Method::POST, "/api/import", "import_document", import)
            .summary("Take in a document of a session or a project: all of it or nothing, under the ids it has")
            .body::<Document>()
            .replies::<Imported>(201)
            .replies::<Imported>(200)
            .replies::<Imported>(202)
            .errors(&[409, 422]),
    ]
}

async fn export_session(State(http): State<Http>, Id(id): Id<SessionId>) -> Result<Response, HttpError> {
    let export = http.engine.export_session(&http.scope(), &id).await?;
    Ok(send(http, export))
}

async fn export_project(State(http): State<Http>, Id(id): Id<ProjectId>) -> Result<Response, HttpError> {
    let export = http.engine.export_project(&http.scope(), &id).await?;
    Ok(send(http, export))
}

/// The document as it is made. When it cannot be ended it breaks off, which its reader can tell from an end.
fn send(http: Http, export: Export) -> Response {
    let parts = stream::unfold(Some((http, export)), |state| async {
        let (http, mut export) = state?;
        let taken = http.room.reply().await;
        let part = export.next_part().await;
        drop(taken);
        match part {
            Ok(part) => Some((Ok(part?), Some((http, export)))),
            Err(error) => {
                tracing::error!(code = error.code(), %error, "an export broke off");
                Some((Err(io::Error::other(error.to_string())), None))
            }
        }
    });
    ([(header::CONTENT_TYPE, "application/json")], HttpBody::from_stream(parts)).into_response()
}

async fn import(State(http): State<Http>, request: Request) -> HttpResult<Imported> {
    check_content_type(request.headers())?;
    let limits = http.engine.limits().clone();
    let _import = http.room.import().await;
    let document = read_to_file(request.into_body(), limits.import_bytes_max).await?;
    let _taken = http.room.body(limits.request_bytes_max()).await;
    let imported = http.engine.import_document(&http.scope(), document).await?;
    let status = match imported.status {
        ImportStatus::Imported => StatusCode::CREATED,
        ImportStatus::Unchanged => StatusCode::OK,
        ImportStatus::Volatile => StatusCode::ACCEPTED,
    };
    Ok(Json(status, imported))
}
