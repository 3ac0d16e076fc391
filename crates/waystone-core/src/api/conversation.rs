//! Conversations, on the wire *contexts*: a tree of messages with named branches, a configuration and a state.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use super::metadata::{TEXT_MAX, is_short};
use super::{Branch, ContextState, LIMIT_MAX, MessageNode, Metadata, Tool, TurnError, check_limit};
use crate::clock::Timestamp;
use crate::error::{Error, Result};
use crate::id::{BranchName, IdempotencyKey, ProjectId, SessionId};
use crate::json;
use crate::tools::TOOLS_MAX;

/// How a conversation is led.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct ChatConfig {
    /// Which model answers. `demo` is built in and needs no network.
    pub model_id: String,
    /// A label, such as `code` or `plan`, whose instructions follow the system prompt.
    pub mode: String,
    /// What is passed on to the model, such as `temperature`.
    pub parameters: Map<String, Value>,
    /// Which system prompt: `default` is built in, others are files `prompts/<id>.md` in the data directory.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub system_prompt_id: Option<String>,
    /// What the model is to be.
    pub agent_role: String,
    /// The folder that is worked in; the project follows from it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub workspace_path: Option<String>,
    /// Tools that the client has, and answers calls of itself.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub tools: Vec<Tool>,
}

impl ChatConfig {
    pub const MODE: &'static str = "chat";
    pub const AGENT_ROLE: &'static str = "assistant";
    pub const PROMPT: &'static str = "default";
}

/// Begins a conversation. Everything may be left out.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateContext {
    /// Which model answers; the configured one when left out, else `demo`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = TEXT_MAX))]
    pub model_id: Option<String>,
    /// A label such as `chat`, `code` or `plan`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = TEXT_MAX))]
    pub mode: Option<String>,
    /// What is passed on to the model, such as `{"temperature": 0.2}`.
    #[serde(default)]
    pub parameters: Map<String, Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = TEXT_MAX))]
    pub system_prompt_id: Option<String>,
    /// What the model is to be; `assistant` when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = TEXT_MAX))]
    pub agent_role: Option<String>,
    /// The folder that is worked in, from the root on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = PATH_MAX))]
    pub workspace_path: Option<String>,
    /// Tools of the client's own: the model may call them, and the client answers with `POST …/tools/{id}/result`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = TOOLS_MAX))]
    pub tools: Vec<Tool>,
    /// Another conversation, whose active branch this one begins with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_id: Option<SessionId>,
    /// Makes a retry safe, as the header `Idempotency-Key` does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<IdempotencyKey>,
}

const PATH_MAX: usize = 4096;
const PARAMETER_BYTES_MAX: usize = 16 * 1024;
const PARAMETER_DEPTH_MAX: usize = 32;
const TOOL_BYTES_MAX: usize = 256 * 1024;

/// Changes how a conversation is led, from the next time its model is asked. What is left out stays as it is.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UpdateContext {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = TEXT_MAX))]
    pub model_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = TEXT_MAX))]
    pub mode: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<Map<String, Value>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = TEXT_MAX))]
    pub system_prompt_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = TEXT_MAX))]
    pub agent_role: Option<String>,
    /// `null` takes the folder away.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    #[schemars(with = "Option<String>", length(min = 1, max = PATH_MAX))]
    pub workspace_path: Option<Option<String>>,
    /// In place of those that there were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = TOOLS_MAX))]
    pub tools: Option<Vec<Tool>>,
}

/// What is given, if only to say that there is nothing.
fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> std::result::Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

impl CreateContext {
    /// The configuration that it asks for.
    pub(crate) fn config(&self, model: &str) -> ChatConfig {
        let or = |given: &Option<String>, default: &str| given.clone().unwrap_or_else(|| default.to_owned());
        ChatConfig {
            model_id: or(&self.model_id, model),
            mode: or(&self.mode, ChatConfig::MODE),
            parameters: self.parameters.clone(),
            system_prompt_id: Some(or(&self.system_prompt_id, ChatConfig::PROMPT)),
            agent_role: or(&self.agent_role, ChatConfig::AGENT_ROLE),
            workspace_path: self.workspace_path.clone(),
            tools: self.tools.clone(),
        }
    }
}

impl UpdateContext {
    /// `config` with what it changes.
    pub(crate) fn apply(self, config: ChatConfig) -> ChatConfig {
        ChatConfig {
            model_id: self.model_id.unwrap_or(config.model_id),
            mode: self.mode.unwrap_or(config.mode),
            parameters: self.parameters.unwrap_or(config.parameters),
            system_prompt_id: self.system_prompt_id.or(config.system_prompt_id),
            agent_role: self.agent_role.unwrap_or(config.agent_role),
            workspace_path: self.workspace_path.unwrap_or(config.workspace_path),
            tools: self.tools.unwrap_or(config.tools),
        }
    }
}

impl ChatConfig {
    pub(crate) fn check(&self) -> Result<()> {
        let named = [
            ("model_id", Some(&self.model_id)),
            ("mode", Some(&self.mode)),
            ("system_prompt_id", self.system_prompt_id.as_ref()),
            ("agent_role", Some(&self.agent_role)),
        ];
        for (name, value) in named {
            if value.is_some_and(|value| !is_short(value)) {
                return Err(Error::InvalidInput(format!("{name} must be text of 1 to {TEXT_MAX} characters")));
            }
        }
        if self.workspace_path.as_ref().is_some_and(|path| path.is_empty() || path.chars().count() > PATH_MAX) {
            return Err(Error::InvalidInput(format!("workspace_path must be text of 1 to {PATH_MAX} characters")));
        }
        let size = serde_json::to_string(&self.parameters).map_or(usize::MAX, |text| text.len());
        if size > PARAMETER_BYTES_MAX {
            let message = format!("parameters has {size} bytes, at most {PARAMETER_BYTES_MAX} are allowed");
            return Err(Error::InvalidInput(message));
        }
        if self.parameters.values().any(|value| json::is_deeper(value, PARAMETER_DEPTH_MAX - 1)) {
            let message = format!("parameters is nested deeper than {PARAMETER_DEPTH_MAX} levels");
            return Err(Error::InvalidInput(message));
        }
        self.check_tools()
    }

    fn check_tools(&self) -> Result<()> {
        let wrong = |message: String| Err(Error::InvalidInput(message));
        if self.tools.len() > TOOLS_MAX {
            return wrong(format!("tools has {} tools, at most {TOOLS_MAX} are possible", self.tools.len()));
        }
        for (at, tool) in self.tools.iter().enumerate() {
            tool.check()?;
            if self.tools[..at].iter().any(|other| other.name == tool.name) {
                return wrong(format!("tools has two tools `{}`", tool.name));
            }
        }
        let size = serde_json::to_string(&self.tools).map_or(usize::MAX, |text| text.len());
        if size > TOOL_BYTES_MAX {
            return wrong(format!("tools has {size} bytes, at most {TOOL_BYTES_MAX} are allowed"));
        }
        if self
            .tools
            .iter()
            .flat_map(|tool| tool.input_schema.values())
            .any(|value| json::is_deeper(value, PARAMETER_DEPTH_MAX))
        {
            return wrong(format!("tools: an input_schema is nested deeper than {PARAMETER_DEPTH_MAX} levels"));
        }
        Ok(())
    }
}

/// Keeps where a conversation stands as a checkpoint.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SaveContext {
    /// Of which branch; the active one when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<BranchName>,
    /// To find it by: a name, tags and other small fields.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Metadata>,
    /// Makes a retry safe, as the header `Idempotency-Key` does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<IdempotencyKey>,
}

/// A conversation.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Context {
    pub id: SessionId,
    /// The conversation whose branch it began with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_id: Option<SessionId>,
    /// The first words that a user said in it; only in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The project its messages are kept in.
    pub project_id: ProjectId,
    pub config: ChatConfig,
    /// Every message by its id; left out in lists and with `message_pool=false`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_pool: Option<BTreeMap<String, MessageNode>>,
    /// Every branch by its name; left out in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub branches: Option<BTreeMap<String, Branch>>,
    pub active_branch_name: String,
    pub current_state: ContextState,
    /// Why its last turn failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<TurnError>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// How much of a conversation is wanted.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FindContext {
    /// Whether its messages are.
    #[serde(default = "yes")]
    pub message_pool: bool,
}

fn yes() -> bool {
    true
}

/// Lists conversations, last used first.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListContexts {
    /// Only those of this project.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project_id: Option<ProjectId>,
    /// Only those in this state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<ContextState>,
    /// How many to return, 1 to 1000.
    #[serde(default = "ListContexts::default_limit")]
    #[schemars(range(min = 1, max = LIMIT_MAX))]
    pub limit: u32,
    /// `next_cursor` of the page before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^[0-7]?[0-9a-f]{1,15}$"))]
    pub cursor: Option<String>,
}

impl ListContexts {
    pub fn default_limit() -> u32 {
        50
    }

    pub(crate) fn check(&self) -> Result<()> {
        check_limit(self.limit)
    }
}

impl Default for ListContexts {
    fn default() -> Self {
        Self { project_id: None, state: None, limit: Self::default_limit(), cursor: None }
    }
}

/// One page of a list of conversations.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ContextPage {
    pub contexts: Vec<Context>,
    /// Give this as `cursor` to get the next page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}
