//! What a model is told: the system prompt, and what was said.

use crate::api::{ChatConfig, ContentPart, Message, MessageType, Role};
use crate::compress::extract;
use crate::model::{Call, Said};
use crate::secret::Cover;

const DEFAULT: &str =
    "You are a careful assistant. Answer what is asked, say what you do not know, and keep to what was decided before.";
const CODE: &str = "You help with code. Prefer small, complete changes; name the files; say how to check the result.";
const PLAN: &str =
    "You are planning, not acting. Answer with a plan: numbered steps, what each needs, what could go wrong.";

/// What a client is told whose system prompt is not there.
pub(in crate::engine) fn missing(config: &ChatConfig, find: impl Fn(&str) -> Option<String>) -> Option<String> {
    let wanted = config.system_prompt_id.as_deref().filter(|id| *id != ChatConfig::PROMPT)?;
    find(wanted).is_none().then(|| {
        format!("there is no system prompt `{wanted}` (prompts/{wanted}.md in the data directory); `default` is used")
    })
}

/// The system prompt of a conversation, with what its mode and role add.
pub(super) fn system_prompt(config: &ChatConfig, find: impl Fn(&str) -> Option<String>) -> String {
    let found = find(config.system_prompt_id.as_deref().unwrap_or(ChatConfig::PROMPT));
    let mut prompt = found.unwrap_or_else(|| DEFAULT.to_owned());
    let mode = match config.mode.as_str() {
        "code" => Some(CODE.to_owned()),
        "plan" => Some(PLAN.to_owned()),
        _ => None,
    };
    let role = (config.agent_role != ChatConfig::AGENT_ROLE).then(|| format!("Your role: {}.", config.agent_role));
    for part in mode.into_iter().chain(role) {
        prompt.push_str("\n\n");
        prompt.push_str(&part);
    }
    prompt
}

/// How often tools were called since the user said something, and how many.
pub(super) struct Called {
    pub(super) rounds: usize,
    pub(super) calls: usize,
}

pub(super) fn tools_called(messages: &[Message]) -> Called {
    let is_users = |message: &&Message| message.role == Role::User && message.message_type != MessageType::ToolResult;
    let mut called = Called { rounds: 0, calls: 0 };
    for message in messages.iter().rev().take_while(|message| !is_users(message)) {
        let calls = message.content.iter().filter(|part| matches!(part, ContentPart::ToolCall { .. })).count();
        called.rounds += usize::from(calls > 0);
        called.calls += calls;
    }
    called
}

/// More of a result is not shown to a model as it is.
const RESULT_TOKENS_MAX: u64 = 4000;
/// For the line that says so.
const NOTE_TOKENS: usize = 100;

/// Messages as a model sees them. A call is always followed by its result, whatever was forked, edited or ended in between.
pub(super) fn said(messages: &[Message], cover: Option<Cover<'_>>) -> Vec<Said> {
    let covered = |text: String| cover.and_then(|cover| cover.text(&text)).unwrap_or(text);
    let mut all = Vec::new();
    let mut at = 0;
    while let Some(message) = messages.get(at) {
        at += 1;
        let mut calls: Vec<Call> = message.content.iter().filter_map(call_of).collect();
        let text: String = message.content.iter().filter_map(text_of).collect();
        if calls.is_empty() {
            // The result of a call that is not on this branch is something that is known all the same.
            let text = if message.message_type == MessageType::ToolResult { shown(message) } else { text };
            if !text.is_empty() {
                all.push(Said::Text { role: message.role, text: covered(text) });
            }
            continue;
        }
        let following = messages[at..].iter().take_while(|next| next.message_type == MessageType::ToolResult);
        let results: Vec<&Message> = following.collect();
        at += results.len();
        let answered = calls.iter().map(|call| {
            let found = results.iter().find_map(|result| result_of(result, &call.id));
            let (text, is_error) = found.unwrap_or_else(|| ("there is no result: the turn was ended".to_owned(), true));
            Said::Result { call_id: call.id.clone(), tool: call.tool.clone(), text: covered(text), is_error }
        });
        let answered: Vec<Said> = answered.collect();
        if let Some(cover) = cover {
            for call in &mut calls {
                cover.value(&mut call.arguments);
            }
        }
        all.push(Said::Calls { text: covered(text), calls });
        all.extend(answered);
    }
    all
}

fn call_of(part: &ContentPart) -> Option<Call> {
    match part {
        ContentPart::ToolCall { id, name, arguments } => {
            Some(Call { id: id.to_string(), tool: name.clone(), arguments: arguments.clone() })
        }
        _ => None,
    }
}

fn text_of(part: &ContentPart) -> Option<&str> {
    match part {
        ContentPart::Text { text } => Some(text),
        _ => None,
    }
}

fn result_of(message: &Message, call: &str) -> Option<(String, bool)> {
    message.content.iter().find_map(|part| match part {
        ContentPart::ToolResult { tool_call_id, is_error, arguments, .. } if tool_call_id.as_str() == call => {
            let edited = arguments.as_ref().map(|given| format!("[the user changed the arguments to {given}]\n"));
            Some((edited.unwrap_or_default() + &shown(message), *is_error))
        }
        _ => None,
    })
}

/// A result as it is, or the best of a long one with the handle of the whole.
fn shown(result: &Message) -> String {
    let text = result.text();
    let tokens = result.metadata.tokens.prompt;
    if tokens <= RESULT_TOKENS_MAX {
        return if text.is_empty() { "(nothing)".to_owned() } else { text };
    }
    let room = usize::try_from(RESULT_TOKENS_MAX).unwrap_or(usize::MAX) - NOTE_TOKENS;
    let best = extract(&text, room).unwrap_or_default();
    format!(
        "{best}\n[{tokens} tokens were returned; these are the most telling lines. The whole is ws:segment:{}]",
        result.id
    )
}
