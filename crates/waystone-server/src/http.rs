//! The REST face: one list of routes, from which the router, the OpenAPI document and the documentation page are made.
//!
//! Every answer that is not a success is our error object, whoever refused: extractors, the guard, or the engine.

mod checkpoint;
mod docs;
mod event;
mod extract;
mod guard;
mod mcp;
mod openapi;
mod reply;
mod route;
mod session;
mod status;

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::middleware;
use rmcp::ServerHandler;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use waystone_core::error::Unavailable;
use waystone_core::store::Scope;
use waystone_core::{Engine, Error};

pub use guard::Guard;
use reply::HttpError;
use route::Route;

use crate::mcp::Mcp;

/// Every route there is, besides `/mcp`.
pub(crate) fn routes() -> Vec<Route> {
    let mut routes = Vec::new();
    routes.extend(session::routes());
    routes.extend(checkpoint::routes());
    routes.extend(event::routes());
    routes.extend(status::routes());
    routes.extend(openapi::routes());
    routes.extend(docs::routes());
    routes
}

/// Method, path and engine method of every route: what must be tested on all of them is tested on this list.
pub fn operations() -> Vec<(axum::http::Method, &'static str, &'static str)> {
    routes().into_iter().map(|route| (route.method, route.path, route.operation)).collect()
}

/// What a request may put around a context.
const ENVELOPE_BYTES_MAX: u64 = 1024 * 1024;
/// Over this size, bodies are parsed and replies written where they hold up no other request.
const INLINE_BYTES_MAX: usize = 256 * 1024;

/// Does work on about `bytes` bytes: here, or on a thread of its own.
async fn offload<T: Send + 'static>(
    bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> waystone_core::Result<T> {
    if bytes <= INLINE_BYTES_MAX {
        return Ok(work());
    }
    tokio::task::spawn_blocking(work).await.map_err(|panic| Error::StorageUnavailable {
        reason: Unavailable::Broken,
        message: format!("the work was aborted: {panic}"),
    })
}

fn kib(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(1024)).unwrap_or(Semaphore::MAX_PERMITS as u32)
}

/// What handlers share. Cheap to clone.
#[derive(Clone)]
pub struct Http {
    engine: Engine,
    user: Arc<str>,
    /// Turns true when the server is to end: streams then end too.
    stopping: watch::Receiver<bool>,
    /// KiB of bodies that may be parsed at once. A parsed body takes many times its size in memory.
    budget: Arc<Semaphore>,
}

impl Http {
    pub fn new(engine: Engine, user: &str, stopping: watch::Receiver<bool>) -> Self {
        let budget = Arc::new(Semaphore::new(kib(engine.limits().context_bytes_max + ENVELOPE_BYTES_MAX) as usize));
        Self { engine, user: user.into(), stopping, budget }
    }

    /// The most bytes that a request may have.
    fn body_bytes_max(&self) -> u64 {
        self.engine.limits().context_bytes_max + ENVELOPE_BYTES_MAX
    }

    /// Waits for its turn to parse `length` bytes. Held until they are parsed.
    async fn take_budget(&self, length: usize) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.budget).acquire_many_owned(kib(length as u64)).await.ok()
    }

    fn scope(&self) -> Scope {
        Scope::local(&*self.user)
    }

    /// Everything: REST, MCP and documentation, behind the guard.
    pub fn router(self, guard: Guard) -> Router {
        let mcp = Mcp::new(self.engine.clone(), &self.user);
        self.router_with(guard, mcp)
    }

    /// The same with another MCP server in the place of ours, reached through all that ours is reached through.
    pub fn router_with<S: ServerHandler + Clone>(self, guard: Guard, handler: S) -> Router {
        let mcp = mcp::service(&self, &guard, handler);
        let mut router = Router::new();
        for route in routes() {
            router = router.route(route.path, route.handler);
        }
        router
            .nest_service("/mcp", mcp)
            .fallback(nothing_here)
            .method_not_allowed_fallback(method_not_allowed)
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
