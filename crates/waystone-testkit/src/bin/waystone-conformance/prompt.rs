//! The prompts that the suite gets.

use rmcp::ErrorData;
use rmcp::model::{GetPromptRequestParams, GetPromptResponse, GetPromptResult};
use rmcp::service::{RequestContext, RoleServer};
use serde_json::{Value, json};

use crate::from_json;
use crate::input::{self, Round, elicitation};
use crate::tool::{argument, embedded, image, text};

pub(crate) fn list() -> Value {
    let prompt = |name: &str, arguments: &[&str]| {
        let arguments: Vec<_> = arguments.iter().map(|name| json!({ "name": name, "required": true })).collect();
        json!({ "name": name, "description": format!("{name} of the conformance suite"), "arguments": arguments })
    };
    json!({ "resultType": "complete", "prompts": [
        prompt("test_simple_prompt", &[]),
        prompt("test_prompt_with_arguments", &["arg1", "arg2"]),
        prompt("test_prompt_with_embedded_resource", &["resourceUri"]),
        prompt("test_prompt_with_image", &[]),
        prompt("test_input_required_result_prompt", &[]),
    ] })
}

pub(crate) fn get(
    request: &GetPromptRequestParams,
    context: &RequestContext<RoleServer>,
) -> Result<GetPromptResponse, ErrorData> {
    let arguments = request.arguments.clone().unwrap_or_default();
    let contents = match request.name.as_str() {
        "test_simple_prompt" => vec![text("This is a simple prompt for testing.")],
        "test_prompt_with_arguments" => {
            let (first, second) = (argument(&arguments, "arg1"), argument(&arguments, "arg2"));
            vec![text(&format!("Prompt with arguments: arg1='{first}', arg2='{second}'"))]
        }
        "test_prompt_with_embedded_resource" => {
            vec![embedded(argument(&arguments, "resourceUri")), text("Please process the embedded resource above.")]
        }
        "test_prompt_with_image" => vec![image(), text("Please analyze the image above.")],
        "test_input_required_result_prompt" => {
            let ask = elicitation("What context should the prompt use?", json!({ "context": { "type": "string" } }));
            let rounds = [Round::new(None, &[("user_context", ask)])];
            let (state, responses) = (request.request_state.as_deref(), request.input_responses.as_ref());
            if let Some(asked) = input::next(&rounds, state, responses, context)? {
                return Ok(asked.into());
            }
            vec![text("This prompt has its context.")]
        }
        name => return Err(ErrorData::invalid_params(format!("no prompt {name}"), None)),
    };
    let messages: Vec<_> = contents.iter().map(|content| json!({ "role": "user", "content": content })).collect();
    Ok(GetPromptResult::new(from_json(json!(messages))?).into())
}
