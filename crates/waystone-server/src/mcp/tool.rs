//! What a tool is: a request type that is its input schema and description, a reply type that is its output schema, and
//! the engine method between them.

use std::pin::Pin;
use std::sync::Arc;

use rmcp::model::{CallToolResult, ContentBlock, JsonObject, ToolAnnotations};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use waystone_core::error::Face;
use waystone_core::offload::offload;
use waystone_core::store::Scope;
use waystone_core::{Engine, Error, Result, json};

use crate::request::request_from;
use crate::schema;

/// What a call does to what is kept, for clients that ask people before they let a model act.
pub(super) enum Effect {
    Reads,
    /// Adds or moves.
    Adds,
    /// What it takes away can be brought back for a while, and is then removed for good.
    Removes,
}

/// The request of a tool that is asked for nothing in particular.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Nothing {}

type Call = dyn Fn(Engine, Scope, JsonObject) -> Pin<Box<dyn Future<Output = Result<String>> + Send>> + Send + Sync;

#[derive(Clone)]
pub(super) struct Tool {
    pub(super) definition: rmcp::model::Tool,
    /// Whether its replies may be as large as a context.
    pub(super) has_large_reply: bool,
    call: Arc<Call>,
}

impl Tool {
    pub(super) fn new<Request, Reply, Answer>(
        name: &'static str,
        title: &str,
        effect: Effect,
        method: impl Fn(Engine, Scope, Request) -> Answer + Clone + Send + Sync + 'static,
    ) -> Self
    where
        Request: DeserializeOwned + JsonSchema + Send,
        Reply: Serialize + JsonSchema,
        Answer: Future<Output = Result<Reply>> + Send,
    {
        let (input, description) = schema::of_arguments::<Request>();
        // What is not said is taken for false by clients, except for these.
        let annotations = match effect {
            Effect::Reads => ToolAnnotations::new().read_only(true).open_world(false),
            Effect::Adds => ToolAnnotations::new().destructive(false).open_world(false),
            Effect::Removes => ToolAnnotations::new().destructive(true).open_world(false),
        };
        let definition = rmcp::model::Tool::new(name, description, input)
            .with_title(title)
            .with_raw_output_schema(schema::of_result::<Reply>().into())
            .with_annotations(annotations);
        let call = move |engine, scope, arguments| -> Pin<Box<dyn Future<Output = Result<String>> + Send>> {
            let method = method.clone();
            Box::pin(async move {
                let reply = method(engine, scope, request_from(Value::Object(arguments))?).await?;
                serde_json::to_string(&reply)
                    .map_err(|error| Error::broken(format!("the reply cannot be written: {error}")))
            })
        };
        Self { definition, has_large_reply: false, call: Arc::new(call) }
    }

    /// What it does, where several tools take the same request.
    pub(super) fn described(mut self, description: &'static str) -> Self {
        self.definition.description = Some(description.into());
        self
    }

    /// Takes arguments, and fields of the reply, out of what is told of the tool.
    pub(super) fn hide(&mut self, arguments: &[&str]) {
        let tool = self.definition.name.clone();
        let is_hidden =
            |name: &str| arguments.iter().any(|hidden| *hidden == name || *hidden == format!("{tool}.{name}"));
        let input = Arc::make_mut(&mut self.definition.input_schema);
        input.remove("additionalProperties");
        if let Some(Value::Object(properties)) = input.get_mut("properties") {
            properties.retain(|name, _| !is_hidden(name));
        }
        // What a reply has besides is seen in the reply.
        let output = self.definition.output_schema.as_mut().map(Arc::make_mut);
        if let Some(Value::Object(properties)) = output.and_then(|output| output.get_mut("properties")) {
            properties.retain(|name, _| !is_hidden(name));
        }
    }

    pub(super) fn with_large_reply(self) -> Self {
        Self { has_large_reply: true, ..self }
    }

    /// Calls the engine, and returns its reply as text.
    pub(super) async fn call(&self, engine: Engine, scope: Scope, arguments: JsonObject) -> Result<String> {
        let name = &self.definition.name;
        let reply = (self.call)(engine, scope, arguments).await;
        reply.map_err(|error| name_for(name, error)).inspect_err(|error| log(name, error))
    }
}

/// A bad request of a tool, as its contract calls it.
pub(super) fn name_for(tool: &str, error: Error) -> Error {
    if tool.starts_with("context_") { error.as_parameter() } else { error }
}

/// What a call returns. Whatever goes wrong becomes a result that the model can read.
pub(super) async fn result(reply: Result<String>) -> CallToolResult {
    let rendered = match reply {
        Ok(text) => offload(text.len(), || render(text)).await,
        Err(error) => Err(error),
    };
    rendered.unwrap_or_else(|error| failure(&error))
}

/// A message may quote what was sent, so only what storage says goes to the log.
fn log(tool: &str, error: &Error) {
    match error {
        Error::StorageUnavailable { .. } | Error::Internal(_) => {
            tracing::error!(tool, code = error.code(), %error, "a call failed")
        }
        _ => tracing::info!(tool, code = error.code(), "a call failed"),
    }
}

pub(super) fn failure(error: &Error) -> CallToolResult {
    CallToolResult::structured_error(serde_json::to_value(error.reply_to(Face::Agent)).unwrap_or_default())
}

/// The reply as text and as structured content. The text is parsed back rather than built twice, since a context in it is
/// already text.
fn render(text: String) -> CallToolResult {
    let structured = json::parse_trusted(text.as_bytes()).unwrap_or_default();
    let mut result = CallToolResult::success(vec![ContentBlock::text(text)]);
    result.structured_content = Some(structured);
    result
}
