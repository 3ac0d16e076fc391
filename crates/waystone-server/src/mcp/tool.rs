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
use waystone_core::api::ErrorReply;
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
        let (input, description) = schema::<Request>(SchemaSettings::draft2020_12());
        let annotations = ToolAnnotations::with_title(title)
            .read_only(matches!(effect, Effect::Reads))
            .destructive(false)
            .idempotent(matches!(effect, Effect::Reads))
            .open_world(false);
        let definition = rmcp::model::Tool::new(name, description, input)
            .with_title(title)
            .with_raw_output_schema(output_schema::<Reply>().into())
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
            Ok(text) => tokio::task::spawn_blocking(|| render(text))
                .await
                .unwrap_or_else(|error| CallToolResult::error(vec![ContentBlock::text(error.to_string())])),
            Err(error) => {
                log(&self.definition.name, &error);
                failure(&error)
            }
        }
    }
}

/// A message may quote what was sent, so only what storage says goes to the log.
fn log(tool: &str, error: &Error) {
    match error {
        Error::StorageUnavailable { .. } => tracing::error!(tool, code = error.code(), %error, "a call failed"),
        _ => tracing::info!(tool, code = error.code(), "a call failed"),
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
        let is_named = path == "." || message.starts_with("unknown field");
        Error::InvalidInput(if is_named { message } else { format!("{path}: {message}") })
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

/// The schema of what a call returns: the reply, or the error in its place. Clients check failures against it too.
fn output_schema<Reply: JsonSchema>() -> JsonObject {
    let (mut reply, _) = schema::<Reply>(SchemaSettings::draft2020_12().for_serialize());
    let (mut failure, _) = schema::<ErrorReply>(SchemaSettings::draft2020_12().for_serialize());
    let one_of = [reply.remove("required"), failure.remove("required")];
    let one_of = one_of.into_iter().flatten().map(|required| serde_json::json!({ "required": required })).collect();
    if let (Some(Value::Object(all)), Some(Value::Object(error))) =
        (reply.get_mut("properties"), failure.remove("properties"))
    {
        all.extend(error);
    }
    reply.insert("anyOf".to_owned(), one_of);
    reply
}

/// The schema of a type, whole in one object, and its description apart.
fn schema<T: JsonSchema>(mut settings: SchemaSettings) -> (JsonObject, String) {
    settings.inline_subschemas = true;
    settings.meta_schema = None;
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    RecursiveTransform(plain_types).transform(&mut schema);
    let object = schema.ensure_object();
    let description =
        object.remove("description").and_then(|text| text.as_str().map(str::to_owned)).unwrap_or_default();
    object.remove("title");
    (std::mem::take(object), description)
}

/// Says what models and clients understand: formats such as `uint32` are Rust's, not JSON Schema's; a field that may be left
/// out need not be said to take `null` as well; lines of a description end where the source did.
fn plain_types(schema: &mut Schema) {
    let Some(object) = schema.as_object_mut() else { return };
    let is_ours =
        |format: &Value| format.as_str().is_some_and(|format| format.starts_with("uint") || format.starts_with("int"));
    if object.get("format").is_some_and(is_ours) {
        object.remove("format");
    }
    if let Some(Value::Array(types)) = object.get_mut("type") {
        types.retain(|kind| kind != "null");
        if let [kind] = types.as_slice() {
            let kind = kind.clone();
            object.insert("type".to_owned(), kind);
        }
    }
    if let Some(Value::String(text)) = object.get_mut("description") {
        *text = unwrap_lines(text);
    }
}

fn unwrap_lines(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
