//! The tools that the suite calls.

use rmcp::ErrorData;
use rmcp::model::{CallToolRequestParams, CallToolResponse, CallToolResult, JsonObject, ProtocolVersion};
use rmcp::service::{RequestContext, RoleServer};
use serde_json::{Value, json};
use tokio::sync::broadcast;

use crate::from_json;
use crate::input::{self, Round, elicitation, roots, sampling};
use crate::schema::{self, defaults, enums, person};

/// One pixel.
pub(crate) const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg==";
/// No sample.
const WAV: &str = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAAAAA=";

pub(crate) struct Tool {
    pub(crate) name: &'static str,
    answer: Answer,
}

enum Answer {
    /// The same content each time.
    Content(Value),
    Error,
    /// Text, after the client has answered every round.
    Rounds(Vec<Round>),
    /// Text, after the client has answered a request that was sent while the call was under way.
    CallBack(fn(&JsonObject) -> Value),
    Log,
    Progress,
    /// Text, and a notification to those who listen.
    Change(&'static str),
}

pub(crate) fn all() -> Vec<Tool> {
    let name = || elicitation("What is your name?", json!({ "name": { "type": "string" } }));
    let colour = || elicitation("What is your favorite color?", json!({ "color": { "type": "string" } }));
    let confirm = || elicitation("Please confirm", json!({ "ok": { "type": "boolean" } }));
    let capital = || sampling("What is the capital of France?");
    let answers = [
        ("test_simple_text", Answer::Content(json!([text("This is a simple text response for testing.")]))),
        ("test_image_content", Answer::Content(json!([image()]))),
        ("test_audio_content", Answer::Content(json!([{ "type": "audio", "data": WAV, "mimeType": "audio/wav" }]))),
        ("test_embedded_resource", Answer::Content(json!([embedded("test://embedded-resource")]))),
        (
            "test_multiple_content_types",
            Answer::Content(json!([text("Several:"), image(), embedded("test://mixed-content-resource")])),
        ),
        ("test_custom_header", Answer::Content(json!([text("Its argument is in a header too.")]))),
        ("json_schema_2020_12_tool", Answer::Content(json!([text("Its schema is what matters.")]))),
        ("test_error_handling", Answer::Error),
        ("test_tool_with_logging", Answer::Log),
        ("test_logging_tool", Answer::Log),
        ("test_tool_with_progress", Answer::Progress),
        ("test_sampling", Answer::CallBack(|arguments| sampling(argument(arguments, "prompt")))),
        ("test_elicitation", Answer::CallBack(|arguments| elicitation(argument(arguments, "message"), person()))),
        ("test_elicitation_sep1034_defaults", Answer::CallBack(|_| elicitation("Please check", defaults()))),
        ("test_elicitation_sep1330_enums", Answer::CallBack(|_| elicitation("Please choose", enums()))),
        ("test_trigger_tool_change", Answer::Change("notifications/tools/list_changed")),
        ("test_trigger_prompt_change", Answer::Change("notifications/prompts/list_changed")),
        ("test_missing_capability", Answer::Rounds(vec![Round::new(None, &[("capital_question", capital())])])),
        ("test_streaming_elicitation", Answer::Rounds(vec![Round::new(None, &[("user_name", name())])])),
        ("test_input_required_result_elicitation", Answer::Rounds(vec![Round::new(None, &[("user_name", name())])])),
        (
            "test_input_required_result_sampling",
            Answer::Rounds(vec![Round::new(None, &[("capital_question", capital())])]),
        ),
        ("test_input_required_result_list_roots", Answer::Rounds(vec![Round::new(None, &[("client_roots", roots())])])),
        (
            "test_input_required_result_request_state",
            Answer::Rounds(vec![Round::new(Some("asked"), &[("confirm", confirm())])]),
        ),
        (
            "test_input_required_result_tampered_state",
            Answer::Rounds(vec![Round::new(Some("asked"), &[("confirm", confirm())])]),
        ),
        (
            "test_input_required_result_multiple_inputs",
            Answer::Rounds(vec![Round::new(
                Some("asked"),
                &[("user_name", name()), ("greeting", sampling("Generate a greeting")), ("client_roots", roots())],
            )]),
        ),
        (
            "test_input_required_result_multi_round",
            Answer::Rounds(vec![
                Round::new(Some("first"), &[("step1", name())]),
                Round::new(Some("second"), &[("step2", colour())]),
            ]),
        ),
        (
            "test_input_required_result_capabilities",
            Answer::Rounds(vec![Round::new(None, &[("user_name", name()), ("capital_question", capital())])]),
        ),
    ];
    answers.into_iter().map(|(name, answer)| Tool { name, answer }).collect()
}

impl Tool {
    pub(crate) fn definition(&self) -> rmcp::model::Tool {
        let schema = schema::input(self.name).as_object().cloned().unwrap_or_default();
        rmcp::model::Tool::new(self.name, format!("{} of the conformance suite", self.name), schema)
    }

    pub(crate) async fn call(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
        changes: &broadcast::Sender<&'static str>,
    ) -> Result<CallToolResponse, ErrorData> {
        match &self.answer {
            Answer::Content(content) => return Ok(CallToolResult::success(from_json(content.clone())?).into()),
            Answer::Error => {
                return Ok(CallToolResult::error(from_json(json!([text("This tool always fails.")]))?).into());
            }
            Answer::Rounds(rounds) => {
                let (state, responses) = (request.request_state.as_deref(), request.input_responses.as_ref());
                if let Some(asked) = input::next(rounds, state, responses, &context)? {
                    return Ok(asked.into());
                }
            }
            Answer::CallBack(ask) => call_back(ask(&request.arguments.unwrap_or_default()), &context).await?,
            Answer::Log => log(&context).await?,
            Answer::Progress => progress(&context).await?,
            // An error means that nobody listens.
            Answer::Change(method) => drop(changes.send(method)),
        }
        Ok(CallToolResult::success(from_json(json!([text("Done.")]))?).into())
    }
}

/// Up to 2025-11-25 a server sends requests of its own, if the client said in `initialize` that it answers them.
async fn call_back(request: Value, context: &RequestContext<RoleServer>) -> Result<(), ErrorData> {
    if !input::is_declared(&request, context) {
        return Err(input::missing_capability([request].iter()));
    }
    let answered = context.peer.send_request(from_json(request)?).await;
    answered.map(drop).map_err(|error| ErrorData::internal_error(error.to_string(), None))
}

async fn log(context: &RequestContext<RoleServer>) -> Result<(), ErrorData> {
    let asks_for_each = context.protocol_version().is_some_and(|version| version >= ProtocolVersion::V_2026_07_28);
    if asks_for_each && context.meta.log_level().is_none() {
        return Ok(());
    }
    for step in ["started", "under way", "done"] {
        notify(context, "notifications/message", json!({ "level": "info", "data": step })).await?;
    }
    Ok(())
}

async fn progress(context: &RequestContext<RoleServer>) -> Result<(), ErrorData> {
    let Some(token) = context.meta.get_progress_token() else {
        return Ok(());
    };
    for progress in [0, 50, 100] {
        let parameters = json!({ "progressToken": token, "progress": progress, "total": 100 });
        notify(context, "notifications/progress", parameters).await?;
    }
    Ok(())
}

async fn notify(context: &RequestContext<RoleServer>, method: &str, parameters: Value) -> Result<(), ErrorData> {
    let notification = from_json(json!({ "method": method, "params": parameters }))?;
    context
        .peer
        .send_notification(notification)
        .await
        .map_err(|error| ErrorData::internal_error(error.to_string(), None))
}

pub(crate) fn text(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

pub(crate) fn image() -> Value {
    json!({ "type": "image", "data": PNG, "mimeType": "image/png" })
}

pub(crate) fn embedded(uri: &str) -> Value {
    json!({ "type": "resource", "resource": { "uri": uri, "mimeType": "text/plain", "text": "Embedded for testing." } })
}

pub(crate) fn argument<'a>(arguments: &'a JsonObject, name: &str) -> &'a str {
    arguments.get(name).and_then(Value::as_str).unwrap_or_default()
}
