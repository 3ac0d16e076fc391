//! `/docs`: the routes for people to read. Made here, so that it needs no network and no script.

use std::fmt::Write;

use axum::http::{Method, header};
use axum::response::{IntoResponse, Redirect};
use serde_json::{Map, Value};

use super::route::Route;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::GET, "/docs", "docs", docs)
            .summary("This description, for people")
            .replies_text("text/html; charset=utf-8", "A page."),
        Route::new(Method::GET, "/", "home", to_docs).summary("Where a reader begins").redirects("/docs"),
        Route::new(Method::GET, "/api", "api_home", to_docs).summary("Where a reader begins").redirects("/docs"),
    ]
}

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1c2733}\
    h1{margin-bottom:0}details{border:1px solid #d5dde5;border-radius:6px;margin:.5rem 0;padding:.4rem .8rem}\
    summary{cursor:pointer}code,pre{font:14px/1.45 ui-monospace,monospace}.m{display:inline-block;min-width:5rem;font-weight:700}\
    .GET{color:#0b6bcb}.POST{color:#1a7f37}.PATCH{color:#9a6700}.DELETE{color:#cf222e}td,th{padding:.15rem .8rem .15rem 0;text-align:left;\
    vertical-align:top}p.s{color:#57636f;margin-top:.2rem}@media(prefers-color-scheme:dark){body{background:#12181f;color:#dbe4ee}\
    details{border-color:#34404d}p.s{color:#9aa7b4}}";

async fn docs() -> impl IntoResponse {
    let policy = "default-src 'none'; style-src 'unsafe-inline'";
    ([(header::CONTENT_TYPE, "text/html; charset=utf-8"), (header::CONTENT_SECURITY_POLICY, policy)], page())
}

async fn to_docs() -> Redirect {
    Redirect::temporary("/docs")
}

fn page() -> String {
    let mut page = format!(
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content=\"width=device-width\">\
         <title>Waystone API</title><style>{STYLE}</style><h1>Waystone</h1>\
         <p class=s>Version {}. The same as <a href=/api/openapi.json>OpenAPI 3.1</a>. Agents connect over MCP at <code>/mcp</code>.</p>",
        env!("CARGO_PKG_VERSION")
    );
    for route in super::routes() {
        section(&mut page, &route);
    }
    page
}

fn section(page: &mut String, route: &Route) {
    let method = route.method.as_str();
    let (path, summary) = (escape(route.path), escape(route.summary));
    let _ = write!(
        page,
        "<details><summary><span class=\"m {method}\">{method}</span><code>{path}</code> — {summary}</summary>"
    );
    if let Some(query) = &route.query {
        let _ = write!(page, "<h4>Query</h4>{}", fields(query));
    }
    if !route.headers.is_empty() {
        let rows = route.headers.iter().map(|header| row(header.name, "string", true, header.description));
        let _ = write!(page, "<h4>Headers</h4><table>{}</table>", rows.collect::<String>());
    }
    if let Some(body) = &route.body {
        let _ = write!(page, "<h4>Body</h4>{}", fields(body));
    }
    for reply in &route.replies {
        let _ = write!(
            page,
            "<h4>{} {}</h4><p>{}</p>{}",
            reply.status,
            reply.media_type,
            escape(&reply.description),
            fields(&reply.schema)
        );
    }
    let errors: Vec<String> = route.all_errors().iter().map(u16::to_string).collect();
    let _ = write!(page, "<p class=s>Errors: {}</p></details>", errors.join(", "));
}

/// The properties of an object's schema as a table.
fn fields(schema: &Map<String, Value>) -> String {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return String::new() };
    let required: Vec<&str> =
        schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    let rows = properties.iter().map(|(name, property)| {
        let description = property.get("description").and_then(Value::as_str).unwrap_or_default();
        row(name, &kind(property), !required.contains(&name.as_str()), description)
    });
    format!("<table>{}</table>", rows.collect::<String>())
}

fn row(name: &str, kind: &str, is_optional: bool, about: &str) -> String {
    let needed = if is_optional { "optional" } else { "" };
    format!("<tr><td><code>{}</code><td>{}<td>{needed}<td>{}", escape(name), escape(kind), escape(about))
}

/// The types that a schema allows.
fn kind(schema: &Value) -> String {
    let any_of = ["type", "anyOf", "oneOf"].iter().find_map(|key| schema.get(key));
    match any_of {
        Some(Value::String(kind)) => kind.clone(),
        Some(Value::Array(kinds)) => {
            let kinds = kinds.iter().map(|kind| kind.as_str().map_or_else(|| self::kind(kind), str::to_owned));
            let mut kinds: Vec<String> = kinds.collect();
            kinds.dedup();
            kinds.join(" or ")
        }
        _ => "any".to_owned(),
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
