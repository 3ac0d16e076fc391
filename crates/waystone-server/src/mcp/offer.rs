//! What a reply says to call next, for who is offered few tools: the engine names what is useful, and knows of no face and what it offers.

use serde_json::{Map, Value};
use waystone_core::json;

use super::tool::Tool;

/// Where replies name tools, each as a call or by its name.
const CALLS: [&str; 2] = ["next", "suggested_actions"];
const RECOMMENDED: &str = "recommendations";
/// What helps when a recommendation cannot be followed: they are all about room.
const INSTEAD: &str = "; none of your tools makes room, your user can with `waystone segment gc --target TOKENS`";

/// The names of the tools that are not offered.
#[derive(Clone, Default)]
pub(super) struct Withheld(Vec<String>);

impl Withheld {
    pub(super) fn of(all: &[Tool], offered: &[Tool]) -> Self {
        let name = |tool: &Tool| tool.definition.name.to_string();
        let is_offered = |tool: &&Tool| offered.iter().any(|other| other.definition.name == tool.definition.name);
        Self(all.iter().filter(|tool| !is_offered(tool)).map(name).collect())
    }

    /// The reply without calls of these. For replies of ours alone: one with a whole context in it would be parsed for what that says.
    pub(super) fn take_from(&self, reply: String) -> String {
        if !self.0.iter().any(|name| reply.contains(&format!("\"{name}\""))) {
            return reply;
        }
        let Ok(Value::Object(mut fields)) = json::parse_trusted(reply.as_bytes()) else { return reply };
        for field in CALLS {
            match fields.get_mut(field) {
                Some(Value::Array(calls)) => calls.retain(|call| !self.is_named(&call["tool"])),
                Some(call) if self.is_named(&call["tool"]) => drop(fields.remove(field)),
                _ => {}
            }
        }
        for recommended in fields.get_mut(RECOMMENDED).and_then(Value::as_array_mut).into_iter().flatten() {
            if let Value::Object(recommended) = recommended {
                self.reword(recommended);
            }
        }
        Value::Object(fields).to_string()
    }

    fn reword(&self, recommended: &mut Map<String, Value>) {
        if !recommended.get("action").is_some_and(|action| self.is_named(action)) {
            return;
        }
        recommended.insert("action".to_owned(), Value::Null);
        if let Some(Value::String(message)) = recommended.get_mut("message") {
            message.push_str(INSTEAD);
        }
    }

    fn is_named(&self, tool: &Value) -> bool {
        tool.as_str().is_some_and(|tool| self.0.iter().any(|name| name == tool))
    }
}
