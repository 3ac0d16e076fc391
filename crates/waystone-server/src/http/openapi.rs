//! `/api/openapi.json`, made from the list of routes.

use axum::http::{Method, StatusCode, header};
use axum::response::IntoResponse;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};
use waystone_core::api::ErrorReply;
use waystone_core::api::MarkCritical;
use waystone_core::id::SessionId;

use super::route::{Header, Route};
use crate::schema;

/// An OpenAPI 3.1 document.
#[derive(Serialize, JsonSchema)]
struct OpenApi {}

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::GET, "/api/openapi.json", "openapi", openapi)
            .summary("This description, as OpenAPI 3.1")
            .replies::<OpenApi>(200),
    ]
}

async fn openapi() -> impl IntoResponse {
    (StatusCode::OK, [(header::CONTENT_TYPE, "application/json")], document().to_string())
}

fn document() -> Value {
    let mut paths = Map::new();
    for route in super::routes() {
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method.as_str().to_lowercase()] = operation(&route);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Waystone",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "The context engine for LLM agents: what an agent knows, kept and never lost.",
            "license": { "name": "MIT", "identifier": "MIT" },
        },
        "servers": [{ "url": "/" }],
        "paths": paths,
        "components": { "schemas": { "Error": schema::of_reply::<ErrorReply>().0 } },
    })
}

fn operation(route: &Route) -> Value {
    let mut responses = Map::new();
    for reply in &route.replies {
        let mut response = json!({ "description": reply.description });
        if !reply.media_type.is_empty() {
            response["content"] = json!({ reply.media_type: { "schema": reply.schema } });
        }
        responses.insert(reply.status.to_string(), response);
    }
    for status in route.all_errors() {
        let content = json!({ "application/json": { "schema": { "$ref": "#/components/schemas/Error" } } });
        responses.insert(status.to_string(), json!({ "description": meaning(status), "content": content }));
    }
    if route.query.is_some() {
        let description = "The request line is longer than 64 KiB.";
        responses.insert("414".to_owned(), json!({ "description": description }));
    }
    let mut operation = json!({
        "operationId": operation_id(route), "summary": route.summary,
        "parameters": parameters(route), "responses": responses,
    });
    if let Some(body) = route.body_schema() {
        operation["requestBody"] = json!({ "required": true, "content": { "application/json": { "schema": body } } });
    }
    operation
}

/// Operations that stand at two paths are told apart by what the path names.
fn operation_id(route: &Route) -> String {
    let place = match route.path {
        path if path.contains("/sessions/{sessionId}/") => "_of_session",
        // One stands under a project and once more for itself.
        "/api/projects/{project_id}/stash/search" | "/api/projects/{project_id}/undo" => "_of_project",
        _ => "",
    };
    format!("{}{place}", route.operation)
}

fn parameters(route: &Route) -> Vec<Value> {
    let path = route.path_parameters().map(|name| {
        let schema = match name {
            "key" => json!({ "type": "string", "minLength": 1, "maxLength": MarkCritical::KEY_MAX }),
            "handle" => json!({ "type": "string", "minLength": 1 }),
            // Everything else is an id, and all ids look alike.
            _ => schema::of_request::<SessionId>().0.into(),
        };
        json!({ "name": name, "in": "path", "required": true, "schema": schema })
    });
    let query = route.query.as_ref().and_then(|query| query.get("properties")?.as_object()).into_iter().flatten();
    let required =
        route.query.as_ref().and_then(|query| query.get("required")?.as_array()).cloned().unwrap_or_default();
    let required: Vec<String> = required.iter().filter_map(|name| name.as_str().map(str::to_owned)).collect();
    let in_path: Vec<&str> = route.path_parameters().collect();
    let query = query.filter(|(name, _)| !in_path.contains(&name.as_str())).map(|(name, schema)| {
        let description = schema.get("description").cloned().unwrap_or_default();
        json!({ "name": name, "in": "query", "required": required.contains(name), "description": description, "schema": schema })
    });
    let headers = route.headers.iter().map(|Header { name, description, schema }| {
        json!({ "name": name, "in": "header", "required": false, "description": description, "schema": schema })
    });
    path.chain(query).chain(headers).collect()
}

fn meaning(status: u16) -> &'static str {
    match status {
        400 => "The request is wrong; the message names the field.",
        403 => "The request comes from another machine's page.",
        404 => "There is no such thing.",
        405 => "Another method is needed.",
        409 => "Something changed meanwhile, was used for something else, or is not in a state for it.",
        413 => "The body is too large, or a quota is exceeded.",
        415 => "The body is not JSON.",
        422 => {
            "What was saved is damaged, and the nearest good one is named; or it has a secret that the settings refuse."
        }
        500 => "A fault of Waystone's; its log file tells more.",
        _ => "The store cannot be used now; nothing was saved.",
    }
}
