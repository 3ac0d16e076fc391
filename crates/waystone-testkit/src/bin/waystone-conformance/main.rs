//! The product's HTTP stack around the tools, prompts and resources that the MCP conformance suite asks for by name.
//!
//! Only the MCP handler is not ours: guard, body bound and transport are those of `waystone serve`, and so is the line that
//! says where it listens. It takes the command line of `waystone serve` and ignores it.

#![expect(deprecated, reason = "older revisions have methods that the newest has not, and both are tested")]

mod input;
mod prompt;
mod resource;
mod schema;
mod tool;

use std::io::Write;
use std::sync::Arc;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CompleteRequestParams, CompleteResult, GetPromptRequestParams,
    GetPromptResponse, Implementation, ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult,
    ListToolsResult, PaginatedRequestParams, ReadResourceRequestParams, ReadResourceResponse, ServerConfig,
    SetLevelRequestParams, SubscribeRequestParams, SubscriptionFilter, UnsubscribeRequestParams,
};
use rmcp::service::{RequestContext, RoleServer, SubscriptionContext};
use rmcp::{ErrorData, ServerHandler};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Mutex, broadcast, watch};
use waystone_core::{Engine, Limits};
use waystone_server::http::{Guard, Http};
use waystone_store::Sqlite;
use waystone_testkit::clock::ManualClock;

/// Notifications that a slow subscriber may be behind.
const CHANGES_MAX: usize = 16;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let clock = Arc::new(ManualClock::unique());
    let store = Sqlite::open(directory.path(), clock.clone(), &Limits::default())?;
    let engine = Engine::new(Arc::new(store), clock, Limits::default(), "default".parse()?);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let mut terminate = signal(SignalKind::terminate())?;
    writeln!(std::io::stdout(), "Waystone is listening on http://{}", listener.local_addr()?)?;
    let (_stop, stopping) = watch::channel(false);
    let router = Http::new(engine.clone(), "conformance", stopping).router_with(Guard::default(), Fixtures::new());
    tokio::select! {
        served = axum::serve(listener, router) => served?,
        _ = terminate.recv() => {}
    }
    engine.close().await;
    Ok(())
}

/// A fixture as the type that the SDK wants. Fixtures are written in JSON, as the suite describes them.
fn from_json<T: DeserializeOwned>(value: Value) -> Result<T, ErrorData> {
    serde_json::from_value(value).map_err(|error| ErrorData::internal_error(error.to_string(), None))
}

struct Fixtures {
    tools: Arc<[tool::Tool]>,
    /// Methods of the notifications to those who listen.
    changes: broadcast::Sender<&'static str>,
    /// The changes since this clone was made.
    heard: Mutex<broadcast::Receiver<&'static str>>,
}

impl Fixtures {
    fn new() -> Self {
        let (changes, heard) = broadcast::channel(CHANGES_MAX);
        Self { tools: tool::all().into(), changes, heard: Mutex::new(heard) }
    }
}

/// Every request has a clone of its own. It hears from the start: a change may follow the acknowledgement at once.
impl Clone for Fixtures {
    fn clone(&self) -> Self {
        let heard = Mutex::new(self.changes.subscribe());
        Self { tools: Arc::clone(&self.tools), changes: self.changes.clone(), heard }
    }
}

impl ServerHandler for Fixtures {
    fn get_info(&self) -> ServerConfig {
        let capabilities = json!({
            "tools": { "listChanged": true },
            "prompts": { "listChanged": true },
            "resources": { "subscribe": true },
            "completions": {},
            "logging": {},
        });
        ServerConfig::new(from_json(capabilities).expect("they are of the specification"))
            .with_server_info(Implementation::new("waystone-conformance", env!("CARGO_PKG_VERSION")))
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.tools.iter().map(tool::Tool::definition).collect()))
    }

    fn get_tool(&self, name: &str) -> Option<rmcp::model::Tool> {
        self.tools.iter().find(|tool| tool.name == name).map(tool::Tool::definition)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let tool = self.tools.iter().find(|tool| tool.name == request.name);
        let tool = tool.ok_or_else(|| ErrorData::invalid_params(format!("no tool {}", request.name), None))?;
        tool.call(request, context, &self.changes).await
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        from_json(prompt::list())
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        prompt::get(&request, &context)
    }

    async fn complete(
        &self,
        _: CompleteRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        from_json(
            json!({ "resultType": "complete", "completion": { "values": ["test"], "total": 1, "hasMore": false } }),
        )
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        from_json(resource::list())
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        from_json(resource::templates())
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        resource::read(&request.uri)
    }

    // Accepted and forgotten: the next request is on its own.

    async fn subscribe(&self, _: SubscribeRequestParams, _: RequestContext<RoleServer>) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn unsubscribe(&self, _: UnsubscribeRequestParams, _: RequestContext<RoleServer>) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn set_level(&self, _: SetLevelRequestParams, _: RequestContext<RoleServer>) -> Result<(), ErrorData> {
        Ok(())
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(requested.clone())
    }

    async fn listen(&self, subscription: SubscriptionContext) -> Result<(), ErrorData> {
        let mut changes = self.heard.lock().await;
        loop {
            tokio::select! {
                () = subscription.cancelled() => return Ok(()),
                Ok(method) = changes.recv() => {
                    // What was not asked for is refused by the sink, and that is what the suite looks at.
                    let _ = subscription.sink().send(from_json(json!({ "method": method }))?).await;
                }
            }
        }
    }
}
