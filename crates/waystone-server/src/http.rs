//! The REST face: one list of routes, from which the router, the OpenAPI document and the documentation page are made.
//!
//! Every answer that is not a success is our error object, whoever refused: extractors, the guard, or the engine.

mod audit;
mod backup;
mod branch;
mod checkpoint;
mod conversation;
mod docs;
mod document;
mod event;
mod extract;
mod garbage;
mod guard;
mod handle;
mod mark;
mod mcp;
mod message;
mod model;
mod openapi;
mod operation;
mod reply;
mod resume;
mod retention;
mod route;
mod search;
mod segment;
mod session;
mod spool;
mod stash;
mod stats;
mod status;
mod task;
mod tool_call;
mod turn;
mod usage;
mod view;
mod window;

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::middleware;
use rmcp::ServerHandler;
use tokio::sync::watch;
use waystone_core::store::Scope;
use waystone_core::{Engine, Error};

pub use guard::{Guard, Peer};
use reply::HttpError;
use route::Route;

use crate::mcp::{Mcp, ToolSet};
use crate::room::Room;

/// Every route there is, besides `/mcp`.
fn routes() -> Vec<Route> {
    let mut routes = Vec::new();
    routes.extend(session::routes());
    routes.extend(mark::routes());
    routes.extend(checkpoint::routes());
    routes.extend(view::routes());
    routes.extend(handle::routes());
    routes.extend(resume::routes());
    routes.extend(search::routes());
    routes.extend(segment::routes());
    routes.extend(stash::routes());
    routes.extend(usage::routes());
    routes.extend(garbage::routes());
    routes.extend(task::routes());
    routes.extend(conversation::routes());
    routes.extend(message::routes());
    routes.extend(branch::routes());
    routes.extend(turn::routes());
    routes.extend(tool_call::routes());
    routes.extend(window::routes());
    routes.extend(model::routes());
    routes.extend(operation::routes());
    routes.extend(audit::routes());
    routes.extend(retention::routes());
    routes.extend(backup::routes());
    routes.extend(document::routes());
    routes.extend(event::routes());
    routes.extend(stats::routes());
    routes.extend(status::routes());
    routes.extend(openapi::routes());
    routes.extend(docs::routes());
    routes
}

/// Method, path and operation of every route: what must be tested on all of them is tested on this list.
pub fn operations() -> Vec<(axum::http::Method, &'static str, &'static str)> {
    routes().into_iter().map(|route| (route.method, route.path, route.operation)).collect()
}

/// What handlers share. Cheap to clone.
#[derive(Clone)]
pub struct Http {
    engine: Engine,
    user: Arc<str>,
    /// Turns true when the server is to end: streams then end too.
    stopping: watch::Receiver<bool>,
    room: Room,
    tools: ToolSet,
}

impl Http {
    pub fn new(engine: Engine, user: &str, stopping: watch::Receiver<bool>) -> Self {
        let room = Room::new(engine.limits());
        Self { engine, user: user.into(), stopping, room, tools: ToolSet::All }
    }

    /// With these tools for agents.
    pub fn with_tools(self, tools: ToolSet) -> Self {
        Self { tools, ..self }
    }

    fn scope(&self) -> Scope {
        Scope::local(&self.user)
    }

    /// Everything: REST, MCP and documentation, behind the guard.
    pub fn router(self, guard: Guard) -> Router {
        let mcp = Mcp::with(self.engine.clone(), &self.user, self.tools, self.room.clone());
        self.router_with(guard, mcp)
    }

    /// The same with another MCP server in the place of ours, reached through all that ours is reached through. Only ours
    /// knows where the arguments of large calls are.
    pub fn router_with<S: ServerHandler + Clone>(self, guard: Guard, handler: S) -> Router {
        let mcp = mcp::service(&self, handler);
        let mut router = Router::new();
        for route in routes() {
            let path = route.path;
            let timed: (Self, Arc<str>) = (self.clone(), format!("{} {}", route.method, route.path).into());
            let handler = route.into_handler().layer(middleware::from_fn_with_state(timed, stats::time));
            router = router.route(path, handler);
        }
        router
            .route("/mcp", mcp)
            .fallback(nothing_here)
            .method_not_allowed_fallback(method_not_allowed)
            .layer(middleware::from_fn(reply::answer_fault))
            .layer(middleware::from_fn_with_state(Arc::new(guard), guard::check))
            .with_state(self)
    }
}

async fn nothing_here(request: Request) -> HttpError {
    HttpError(Error::NotFound(request.uri().path().to_owned()))
}

async fn method_not_allowed(request: Request) -> HttpError {
    HttpError(Error::MethodNotAllowed { method: request.method().to_string(), path: request.uri().path().to_owned() })
}
