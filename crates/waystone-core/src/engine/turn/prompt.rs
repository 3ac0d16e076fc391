//! What a model is told before all that was said.

use crate::api::{ChatConfig, ContentPart, Message, MessageType, Role};

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
pub(in crate::engine) fn system_prompt(config: &ChatConfig, find: impl Fn(&str) -> Option<String>) -> String {
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
#[derive(Default)]
pub(in crate::engine) struct Called {
    pub(in crate::engine) rounds: usize,
    pub(in crate::engine) calls: usize,
}

pub(in crate::engine) fn tools_called<'a>(messages: impl DoubleEndedIterator<Item = &'a Message>) -> Called {
    let is_users = |message: &&Message| message.role == Role::User && message.message_type != MessageType::ToolResult;
    let mut called = Called::default();
    for message in messages.rev().take_while(|message| !is_users(message)) {
        let calls = message.content.iter().filter(|part| matches!(part, ContentPart::ToolCall { .. })).count();
        called.rounds += usize::from(calls > 0);
        called.calls += calls;
    }
    called
}
