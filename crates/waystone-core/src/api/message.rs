//! Messages of a conversation. They never change: an edit makes another one, on a branch of its own.

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::segment::text_or_null;
use super::{ContextState, LIMIT_MAX, Origin, check_limit};
use crate::clock::Timestamp;
use crate::error::{Error, Result};
use crate::id::{BranchName, IdempotencyKey, SegmentId, ToolCallId};
use crate::json;

/// Who says a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum Role {
    User,
    Assistant,
    System,
}

impl Role {
    pub const ALL: [Self; 3] = [Self::User, Self::Assistant, Self::System];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::System => "system",
        }
    }
}

/// What kind of message it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum MessageType {
    Text,
    Plan,
    Question,
    ToolCall,
    ToolResult,
}

impl MessageType {
    pub const ALL: [Self; 5] = [Self::Text, Self::Plan, Self::Question, Self::ToolCall, Self::ToolResult];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Plan => "plan",
            Self::Question => "question",
            Self::ToolCall => "tool_call",
            Self::ToolResult => "tool_result",
        }
    }
}

/// A part of what a message says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
#[schemars(inline)]
pub enum ContentPart {
    Text {
        text: String,
    },
    /// The model calls a tool.
    ToolCall {
        id: ToolCallId,
        name: String,
        arguments: Value,
    },
    /// What a tool returned.
    ToolResult {
        tool_call_id: ToolCallId,
        tool_name: String,
        /// Text, or whatever else it returned.
        content: Value,
        /// What it was run with, if that is not what the model gave.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        arguments: Option<Value>,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
    },
}

impl ContentPart {
    /// The parts of a message whose text is kept apart. The content of a result is that text: `null` stands for it as it is, anything else
    /// for what it says as JSON.
    pub fn with_text(mut parts: Vec<Self>, text: String) -> Vec<Self> {
        for part in &mut parts {
            if let Self::ToolResult { content, .. } = part {
                *content = match content {
                    Value::Null => Value::String(text),
                    _ => json::parse_trusted(text.as_bytes()).unwrap_or(Value::String(text)),
                };
                return parts;
            }
        }
        if !text.is_empty() || parts.is_empty() {
            parts.insert(0, Self::Text { text });
        }
        parts
    }
}

/// One message.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Message {
    pub id: SegmentId,
    pub role: Role,
    pub content: Vec<ContentPart>,
    pub message_type: MessageType,
    pub metadata: MessageMetadata,
    /// The message before it; `null` for a first one.
    #[schemars(schema_with = "text_or_null")]
    pub parent_id: Option<SegmentId>,
}

impl Message {
    /// All that it says: its text, or where it calls tools its parts as JSON.
    pub fn whole_text(&self) -> String {
        match self.content.iter().any(|part| matches!(part, ContentPart::ToolCall { .. })) {
            true => serde_json::to_string(&self.content).unwrap_or_default(),
            false => self.text(),
        }
    }

    /// All its text: what it says in words, or what a tool returned.
    pub fn text(&self) -> String {
        let texts = self.content.iter().map(|part| match part {
            ContentPart::Text { text } => text.clone(),
            ContentPart::ToolCall { .. } => String::new(),
            ContentPart::ToolResult { content: Value::String(text), .. } => text.clone(),
            ContentPart::ToolResult { content, .. } => content.to_string(),
        });
        texts.collect()
    }
}

/// What is known of a message besides what it says.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct MessageMetadata {
    pub created_at: Timestamp,
    /// The branch it was said on.
    pub branch: String,
    pub tokens: MessageTokens,
    /// Where its text came from.
    pub origin: Origin,
    /// The model that wrote it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_id: Option<String>,
    /// What it cost in US dollars, by the prices that are configured; an estimate where the tokens are one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
    /// Someone ended it before it was whole.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub cancelled: bool,
    /// It ends where it does because the model may not write more at once.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
}

/// What a message costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct MessageTokens {
    /// What the model read: of a user's message its own text, of an answer all that came before it.
    pub prompt: u64,
    /// What the model wrote.
    pub completion: u64,
    pub total: u64,
    /// Of what the model read, what came from its provider's cache.
    #[serde(skip_serializing_if = "is_zero")]
    pub cache_read: u64,
    /// And what went into it.
    #[serde(skip_serializing_if = "is_zero")]
    pub cache_write: u64,
    /// They were not counted with the model's own tokenizer.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub estimated: bool,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A message in the tree.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct MessageNode {
    pub message: Message,
    #[schemars(schema_with = "text_or_null")]
    pub parent_id: Option<SegmentId>,
}

impl From<Message> for MessageNode {
    fn from(message: Message) -> Self {
        Self { parent_id: message.parent_id.clone(), message }
    }
}

/// Says something to the model. The reply comes at once; what the model answers comes as events, and is then a message too.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AddMessage {
    #[schemars(length(min = 1), regex(pattern = SAID))]
    pub content: String,
    /// On which branch; the active one when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<BranchName>,
    /// Makes a retry safe, as the header `Idempotency-Key` does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<IdempotencyKey>,
}

impl AddMessage {
    pub(crate) fn check(&self) -> Result<()> {
        check_said(&self.content)
    }
}

/// Something that is no white space, as [`check_said`] has it: what `\S` is differs from one language to the next.
const SAID: &str = r"[^\t-\r \u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]";

/// A model is told nothing by a text of nothing but spaces, and some refuse it.
fn check_said(content: &str) -> Result<()> {
    if content.trim().is_empty() {
        return Err(Error::InvalidInput("content is empty".to_owned()));
    }
    Ok(())
}

/// A message that was said, and where the conversation is now.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct AddedMessage {
    pub message_id: SegmentId,
    pub context_state: ContextState,
    /// The branch it is on.
    pub branch: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// Says a user's message anew, in other words: on a branch of its own that begins where the old one stands, and that is active then.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EditMessage {
    #[schemars(length(min = 1), regex(pattern = SAID))]
    pub content: String,
    /// What the branch is called; `edit-1`, `edit-2` and so on when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<BranchName>,
    /// Makes a retry safe, as the header `Idempotency-Key` does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<IdempotencyKey>,
}

impl EditMessage {
    pub(crate) fn check(&self) -> Result<()> {
        check_said(&self.content)
    }
}

/// Which messages to list.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListMessages {
    /// Of which branch; the active one when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<BranchName>,
    /// How many to return, 1 to 1000.
    #[serde(default = "ListMessages::default_limit")]
    #[schemars(range(min = 1, max = LIMIT_MAX))]
    pub limit: u32,
    /// How many of the oldest to pass over.
    #[serde(default)]
    #[schemars(range(max = 4_294_967_295u32))]
    pub offset: u32,
    /// These alone, separated by commas, wherever they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "ids_schema")]
    pub ids: Option<String>,
}

const IDS_MAX: usize = 1000;

fn ids_schema(_: &mut SchemaGenerator) -> Schema {
    schemars::json_schema!({ "type": "string", "pattern": "^[A-Za-z0-9_.:-]+(,[A-Za-z0-9_.:-]+)*$" })
}

impl ListMessages {
    pub fn default_limit() -> u32 {
        50
    }

    pub(crate) fn check(&self) -> Result<()> {
        check_limit(self.limit)
    }

    /// The ids that are asked for, if some are.
    pub(crate) fn ids(&self) -> Result<Option<Vec<SegmentId>>> {
        let Some(ids) = &self.ids else { return Ok(None) };
        let ids: Vec<SegmentId> = ids
            .split(',')
            .map(|id| id.parse().map_err(|error| Error::InvalidInput(format!("ids: {error}"))))
            .collect::<Result<_>>()?;
        match ids.len() {
            0..=IDS_MAX => Ok(Some(ids)),
            count => Err(Error::InvalidInput(format!("ids names {count} messages, at most {IDS_MAX} are returned"))),
        }
    }
}

impl Default for ListMessages {
    fn default() -> Self {
        Self { branch: None, limit: Self::default_limit(), offset: 0, ids: None }
    }
}

/// Messages of a branch, oldest first.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct MessagePage {
    pub messages: Vec<Message>,
    /// How many the branch has, those before its fork included.
    pub total: u64,
    pub has_more: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// From where on the text of a message is wanted.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReadContent {
    /// The first `sequence` that is wanted; 1, the beginning, when left out.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 4_294_967_295u32))]
    pub from_sequence: u32,
}

fn one() -> u32 {
    1
}

/// The text of a message, as far as it is written, or its rest.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct MessageContent {
    pub message_id: SegmentId,
    pub content: String,
    /// The sequence it begins with: 1 if where the wanted one begins is not known any more.
    pub from_sequence: u64,
    /// The sequence that comes next.
    pub next_sequence: u64,
    /// Which attempt to write the message this is, from 1 on. Another one begins anew.
    pub attempt: u64,
    pub is_complete: bool,
}
