//! What a route is: where it is, what handles it, and everything the documentation says of it.

use std::collections::BTreeSet;

use axum::body::Body;
use axum::extract::Request;
use axum::handler::Handler;
use axum::http::Method;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, MethodRouter, on};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use waystone_core::Error;

use super::Http;
use super::extract::{Query, read_nothing};
use super::reply::HttpError;
use crate::schema;

/// What every route may answer: the query or an id is wrong, the guard refuses, the method is another, the fault is ours, the store cannot
/// be used.
const ANYWHERE: [u16; 5] = [400, 403, 405, 500, 503];

pub(super) struct Route {
    pub(super) method: Method,
    pub(super) path: &'static str,
    /// The engine method behind it, or what it does where there is none. Its operation id begins with it.
    pub(super) operation: &'static str,
    pub(super) summary: &'static str,
    pub(super) handler: MethodRouter<Http>,
    pub(super) query: Option<Map<String, Value>>,
    pub(super) headers: Vec<Header>,
    pub(super) body: Option<Map<String, Value>>,
    pub(super) replies: Vec<Reply>,
    /// Statuses of errors that this route gives besides [`ANYWHERE`].
    pub(super) errors: Vec<u16>,
}

/// The query of a route that takes none.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NoQuery {}

async fn without_query(Query(NoQuery {}): Query<NoQuery>, request: Request, next: Next) -> Response {
    next.run(request).await
}

async fn without_body(request: Request, next: Next) -> Result<Response, HttpError> {
    let (parts, body) = request.into_parts();
    read_nothing(body).await?;
    Ok(next.run(Request::from_parts(parts, Body::empty())).await)
}

async fn name_as_parameter(response: Response) -> Response {
    name_as(Error::as_parameter, response)
}

async fn name_as_validation(response: Response) -> Response {
    name_as(Error::as_validation, response)
}

fn name_as(name: fn(Error) -> Error, mut response: Response) -> Response {
    match response.extensions_mut().remove::<HttpError>() {
        Some(HttpError(error)) => HttpError(name(error)).into_response(),
        None => response,
    }
}

pub(super) struct Header {
    pub(super) name: &'static str,
    pub(super) description: &'static str,
    pub(super) schema: Map<String, Value>,
}

pub(super) struct Reply {
    pub(super) status: u16,
    /// Empty if there is no body.
    pub(super) media_type: &'static str,
    pub(super) schema: Map<String, Value>,
    pub(super) description: String,
}

impl Route {
    pub(super) fn new<H, T>(method: Method, path: &'static str, operation: &'static str, handler: H) -> Self
    where
        H: Handler<T, Http>,
        T: 'static,
    {
        let filter = MethodFilter::try_from(method.clone()).expect("routes use ordinary methods");
        Self {
            method,
            path,
            operation,
            summary: "",
            handler: on(filter, handler),
            query: None,
            headers: Vec::new(),
            body: None,
            replies: Vec::new(),
            errors: Vec::new(),
        }
    }

    pub(super) fn summary(mut self, summary: &'static str) -> Self {
        self.summary = summary;
        self
    }

    pub(super) fn query<T: JsonSchema>(mut self) -> Self {
        self.query = Some(schema::of_request::<T>().0);
        self
    }

    pub(super) fn header<T: JsonSchema>(mut self, name: &'static str, description: &'static str) -> Self {
        self.headers.push(Header { name, description, schema: schema::of_request::<T>().0 });
        self
    }

    pub(super) fn body<T: JsonSchema>(mut self) -> Self {
        self.body = Some(schema::of_body::<T>());
        self.errors.extend([413, 415]);
        self
    }

    pub(super) fn replies<T: JsonSchema>(mut self, status: u16) -> Self {
        let (schema, description) = schema::of_reply::<T>();
        self.replies.push(Reply { status, media_type: "application/json", schema, description });
        self
    }

    /// A reply that is not JSON.
    pub(super) fn replies_text(mut self, media_type: &'static str, description: &str) -> Self {
        let schema = Map::from_iter([("type".to_owned(), "string".into())]);
        self.replies.push(Reply { status: 200, media_type, schema, description: description.to_owned() });
        self
    }

    /// A reply that sends elsewhere.
    pub(super) fn redirects(mut self, to: &str) -> Self {
        let description = format!("It is at {to}.");
        self.replies.push(Reply { status: 307, media_type: "", schema: Map::new(), description });
        self
    }

    pub(super) fn errors(mut self, statuses: &[u16]) -> Self {
        self.errors.extend(statuses);
        self
    }

    /// The statuses of all errors that it gives, in order.
    pub(super) fn all_errors(&self) -> BTreeSet<u16> {
        self.errors.iter().chain(&ANYWHERE).copied().collect()
    }

    /// A reply without a body.
    pub(super) fn replies_nothing(mut self) -> Self {
        let description = "It is done.".to_owned();
        self.replies.push(Reply { status: 204, media_type: "", schema: Map::new(), description });
        self
    }

    /// What handles it, and refuses a query or a body if it takes none. A bad request has a name of its own in the contracts of segments
    /// and of conversations.
    pub(super) fn into_handler(self) -> MethodRouter<Http> {
        let handler = match self.query {
            Some(_) => self.handler,
            None => self.handler.route_layer(middleware::from_fn(without_query)),
        };
        let handler = match self.body {
            Some(_) => handler,
            None => handler.route_layer(middleware::from_fn(without_body)),
        };
        match self.path {
            path if path.starts_with("/api/projects") => {
                handler.route_layer(middleware::map_response(name_as_parameter))
            }
            path if path.starts_with("/api/contexts") => {
                handler.route_layer(middleware::map_response(name_as_validation))
            }
            _ => handler,
        }
    }

    /// The schema of its body, without what stands in its path.
    pub(super) fn body_schema(&self) -> Option<Map<String, Value>> {
        let mut schema = self.body.clone()?;
        for name in self.path_parameters() {
            if let Some(Value::Object(properties)) = schema.get_mut("properties") {
                properties.remove(name);
            }
            if let Some(Value::Array(required)) = schema.get_mut("required") {
                required.retain(|field| field != name);
            }
        }
        Some(schema)
    }

    /// The names in braces.
    pub(super) fn path_parameters(&self) -> impl Iterator<Item = &'static str> {
        self.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
    }
}
