//! What a tool is: a request type that is its input schema and description, a reply type that is its output schema, and
//! the engine method between them.

use std::pin::Pin;
use std::sync::Arc;

use rmcp::model::{CallToolResult, ContentBlock, JsonObject, ToolAnnotations};
use schemars::generate::SchemaSettings;
use schemars::transform::{RecursiveTransform, Transform};
use schemars::{JsonSchema, Schema};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use waystone_core::store::Scope;
use waystone_core::{Engine, Error, Result, json};

/// Replies over this size are rendered where they hold up no other request.
const INLINE_BYTES_MAX: usize = 256 * 1024;

/// What a call does to what is kept, for clients that ask people before they let a model act.
pub(super) enum Effect {
    Reads,
    Adds,
}

type Call = dyn Fn(Engine, Scope, JsonObject) -> Pin<Box<dyn Future<Output = Result<String>> + Send>> + Send + Sync;

#[derive(Clone)]
pub(super) struct Tool {
    pub(super) definition: rmcp::model::Tool,
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
        let (input, description) = schema::<Request>();
        let annotations = ToolAnnotations::with_title(title)
            .read_only(matches!(effect, Effect::Reads))
            .destructive(false)
            .idempotent(matches!(effect, Effect::Reads))
            .open_world(false);
        let definition = rmcp::model::Tool::new(name, description, input)
            .with_title(title)
            .with_raw_output_schema(schema::<Reply>().0.into())
            .with_annotations(annotations);
        let call = move |engine, scope, arguments| -> Pin<Box<dyn Future<Output = Result<String>> + Send>> {
            let method = method.clone();
            Box::pin(async move {
                let reply = method(engine, scope, parse(arguments)?).await?;
                serde_json::to_string(&reply).map_err(|error| Error::InvalidInput(error.to_string()))
            })
        };
        Self { definition, call: Arc::new(call) }
    }

    /// Calls the engine; whatever goes wrong becomes a result that the model can read.
    pub(super) async fn call(&self, engine: Engine, scope: Scope, arguments: JsonObject) -> CallToolResult {
        match (self.call)(engine, scope, arguments).await {
            Ok(text) if text.len() <= INLINE_BYTES_MAX => render(text),
            Ok(text) => tokio::task::spawn_blocking(|| render(text)).await.unwrap_or_else(|error| {
                CallToolResult::error(vec![ContentBlock::text(error.to_string())])
            }),
            Err(error) => {
                tracing::info!(tool = %self.definition.name, code = error.code(), %error, "a call failed");
                failure(&error)
            }
        }
    }
}

pub(super) fn failure(error: &Error) -> CallToolResult {
    CallToolResult::structured_error(serde_json::to_value(error.reply()).unwrap_or_default())
}

fn parse<Request: DeserializeOwned>(arguments: JsonObject) -> Result<Request> {
    let arguments = Value::Object(arguments);
    json::check_parsed(&arguments).map_err(Error::InvalidInput)?;
    serde_path_to_error::deserialize(arguments).map_err(|error| {
        let path = error.path().to_string();
        let message = error.into_inner().to_string();
        Error::InvalidInput(if path == "." { message } else { format!("{path}: {message}") })
    })
}

/// The reply as text and as structured content. The text is parsed back rather than built twice, since a context in it is
/// already text.
fn render(text: String) -> CallToolResult {
    let structured = json::parse_trusted(text.as_bytes()).unwrap_or_default();
    let mut result = CallToolResult::success(vec![ContentBlock::text(text)]);
    result.structured_content = Some(structured);
    result
}

/// The schema of a type, whole in one object, and its description apart.
fn schema<T: JsonSchema>() -> (JsonObject, String) {
    let mut settings = SchemaSettings::draft2020_12();
    settings.inline_subschemas = true;
    settings.meta_schema = None;
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    RecursiveTransform(plain_integers).transform(&mut schema);
    let object = schema.ensure_object();
    let description = object.remove("description").and_then(|text| text.as_str().map(unwrap_lines)).unwrap_or_default();
    object.remove("title");
    (std::mem::take(object), description)
}

/// Formats such as `uint32` are Rust's, not JSON Schema's, and clients warn about them.
fn plain_integers(schema: &mut Schema) {
    let is_ours = |format: &Value| format.as_str().is_some_and(|format| format.starts_with("uint") || format.starts_with("int"));
    if schema.get("format").is_some_and(is_ours) {
        schema.remove("format");
    }
}

fn unwrap_lines(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
