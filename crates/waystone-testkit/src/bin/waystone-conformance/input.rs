//! Calls that ask the client for something before they answer: since 2026-07-28 in the result, and the client calls again.
//!
//! The state that goes to the client and back is a name that this file knows; any other is refused.

use rmcp::ErrorData;
use rmcp::model::{InputRequiredResult, InputResponses};
use rmcp::service::{RequestContext, RoleServer};
use serde_json::{Map, Value, json};

use crate::from_json;

/// What is asked for at once.
pub(crate) struct Round {
    requests: Map<String, Value>,
    state: Option<&'static str>,
}

impl Round {
    pub(crate) fn new(state: Option<&'static str>, requests: &[(&str, Value)]) -> Self {
        Self { requests: requests.iter().map(|(key, request)| ((*key).to_owned(), request.clone())).collect(), state }
    }

    /// The requests that the client said it can answer.
    fn for_client(&self, context: &RequestContext<RoleServer>) -> Result<Map<String, Value>, ErrorData> {
        let mut requests = self.requests.clone();
        requests.retain(|_, request| is_declared(request, context));
        if requests.is_empty() {
            return Err(missing_capability(self.requests.values()));
        }
        Ok(requests)
    }
}

/// What to ask next, or nothing when every round has been answered.
pub(crate) fn next(
    rounds: &[Round],
    state: Option<&str>,
    responses: Option<&InputResponses>,
    context: &RequestContext<RoleServer>,
) -> Result<Option<InputRequiredResult>, ErrorData> {
    let unknown = || ErrorData::invalid_params("requestState is none that was given out", None);
    let round = match state {
        None => 0,
        Some(_) => rounds.iter().position(|round| round.state == state).ok_or_else(unknown)?,
    };
    let is_answer = |key| responses.and_then(|responses| responses.get(key)).is_some_and(Value::is_object);
    let is_answered = rounds[round].state == state && rounds[round].for_client(context)?.keys().all(is_answer);
    let Some(round) = rounds.get(if is_answered { round + 1 } else { round }) else {
        return Ok(None);
    };
    let mut asked = json!({ "resultType": "input_required", "inputRequests": round.for_client(context)? });
    if let Some(state) = round.state {
        asked["requestState"] = json!(state);
    }
    from_json(asked).map(Some)
}

/// Whether the client said that it can answer `request`.
pub(crate) fn is_declared(request: &Value, context: &RequestContext<RoleServer>) -> bool {
    let declared = json!(context.client_capabilities().unwrap_or_default());
    declared.get(capability(request)).is_some()
}

pub(crate) fn missing_capability<'a>(requests: impl Iterator<Item = &'a Value>) -> ErrorData {
    let required: Map<_, _> = requests.map(|request| (capability(request).to_owned(), json!({}))).collect();
    match from_json(Value::Object(required)) {
        Ok(required) => ErrorData::missing_required_client_capability(required),
        Err(error) => error,
    }
}

/// `sampling` for `sampling/createMessage`, and so on.
fn capability(request: &Value) -> &str {
    request["method"].as_str().and_then(|method| method.split('/').next()).unwrap_or_default()
}

pub(crate) fn elicitation(message: &str, properties: Value) -> Value {
    let required: Vec<_> = properties.as_object().into_iter().flat_map(Map::keys).cloned().collect();
    let schema = json!({ "type": "object", "properties": properties, "required": required });
    json!({ "method": "elicitation/create", "params": { "mode": "form", "message": message, "requestedSchema": schema } })
}

pub(crate) fn sampling(prompt: &str) -> Value {
    let message = json!({ "role": "user", "content": { "type": "text", "text": prompt } });
    json!({ "method": "sampling/createMessage", "params": { "messages": [message], "maxTokens": 100 } })
}

pub(crate) fn roots() -> Value {
    json!({ "method": "roots/list", "params": {} })
}
