//! Segments: pieces of text that an agent has met, kept whether they are in its window or not.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::metadata::{TAGS_MAX, TEXT_MAX};
use super::{Hit, LIMIT_MAX, NextCall, Origin, check_claimed, check_limit, check_time};
use crate::clock::Timestamp;
use crate::error::{Error, Result};
use crate::id::{ProjectId, SegmentId, TaskId, TopicId};

/// What a segment is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum SegmentType {
    Message,
    Code,
    Log,
    Note,
    Decision,
    Summary,
}

impl SegmentType {
    pub const ALL: [Self; 6] = [Self::Message, Self::Code, Self::Log, Self::Note, Self::Decision, Self::Summary];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Message => "message",
            Self::Code => "code",
            Self::Log => "log",
            Self::Note => "note",
            Self::Decision => "decision",
            Self::Summary => "summary",
        }
    }
}

/// Where a segment is: in the window, out of it and searchable, or deleted and kept for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum Tier {
    Working,
    Stashed,
    Archive,
}

impl Tier {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Working => "working",
            Self::Stashed => "stashed",
            Self::Archive => "archive",
        }
    }
}

/// Whether a segment has survived enough collections to have earned its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum Generation {
    Young,
    Old,
}

/// A piece of text, with all that is known of it.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Segment {
    pub segment_id: SegmentId,
    /// The text, or its beginning if it is long and not asked for in full.
    pub text: String,
    #[serde(rename = "type")]
    pub kind: SegmentType,
    /// Where its text came from, in falling order of trust: user, agent, tool, import. Of several the lowest.
    pub origin: Origin,
    pub project_id: ProjectId,
    #[schemars(schema_with = "text_or_null")]
    pub task_id: Option<TaskId>,
    /// When it was first met.
    pub created_at: Timestamp,
    /// When it was last met.
    pub last_touched_at: Timestamp,
    pub pinned: bool,
    /// old: it has survived three collections.
    pub generation: Generation,
    pub gc_survival_count: u64,
    /// How often it was met again, plus how many segments refer to it or share its topic.
    pub refcount: u64,
    #[schemars(schema_with = "text_or_null")]
    pub file_path: Option<String>,
    /// First and last line in the file.
    #[schemars(schema_with = "lines_or_null")]
    pub line_range: Option<[u64; 2]>,
    pub tags: Vec<String>,
    #[schemars(schema_with = "text_or_null")]
    pub topic_id: Option<TopicId>,
    pub tokens: u64,
    /// When its tokens were counted; null while they are an estimate.
    #[schemars(schema_with = "text_or_null")]
    pub tokens_computed_at: Option<Timestamp>,
    /// SHA-256 of its text.
    pub text_hash: String,
    pub tier: Tier,
    /// Leads to the whole text, if `text` is only its beginning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handle: Option<String>,
    /// Why a search found it.
    #[serde(flatten)]
    pub hit: Option<Hit>,
}

impl Segment {
    /// How many characters of a text are shown unless all are asked for.
    pub const PREVIEW_CHARS: usize = 2000;
    /// How long what describes a segment may be, in characters.
    const PATH_MAX: usize = 4096;
}

pub(super) fn text_or_null(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "anyOf": [{ "type": "string" }, { "type": "null" }] })
}

fn lines_or_null(_: &mut SchemaGenerator) -> Schema {
    let lines = serde_json::json!({ "type": "array", "items": { "type": "integer" }, "minItems": 2, "maxItems": 2 });
    json_schema!({ "anyOf": [lines, { "type": "null" }] })
}

/// Captures what you read, decided or were told: on disk when this returns. What is known is touched, not added. Give one of text, texts,
/// messages.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PutSegments {
    /// Inferred when left out. The body of work; named after the working directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project_id: Option<ProjectId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// In order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = PutSegments::TEXTS_MAX))]
    pub texts: Option<Vec<String>>,
    /// In order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = PutSegments::TEXTS_MAX))]
    pub messages: Option<Vec<SaidMessage>>,
    /// Note when left out. For messages it is message. Text that is known with the same type is touched; it stays as it is, unless pinned or
    /// stash asks for more.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<SegmentType>,
    /// The current one when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_id: Option<TaskId>,
    /// To filter by; `ref:<segment id>` refers to another.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = TAGS_MAX))]
    pub tags: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = Segment::PATH_MAX))]
    pub file_path: Option<String>,
    /// First and last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line_range: Option<[u64; 2]>,
    /// What it is about. Segments of one topic stay together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topic_id: Option<TopicId>,
    /// Keep it from being pruned.
    #[serde(default)]
    pub pinned: bool,
    /// Put it outside of the window.
    #[serde(default)]
    pub stash: bool,
    /// Who wrote it. `agent` when left out, and `tool` for logs; `user` for a person. What is known keeps the lowest that was said of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::origin::claimed_schema")]
    pub origin: Option<Origin>,
}

/// What someone said.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct SaidMessage {
    /// Who said it, such as user or assistant; kept as the tag `role:<role>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    pub content: String,
    /// When it was said, from 1970 to a day from now; now when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<Timestamp>,
}

impl SaidMessage {
    fn check(&self) -> Result<()> {
        let length = self.role.as_ref().map_or(0, |role| role.chars().count());
        if length > TEXT_MAX {
            return Err(Error::InvalidInput(format!("a role has {length} characters, at most {TEXT_MAX} are taken")));
        }
        Ok(())
    }
}

impl PutSegments {
    /// As many texts are taken at once.
    pub(crate) const TEXTS_MAX: usize = 10_000;
    /// The largest number that a line may have.
    const LINE_MAX: u64 = (1 << 53) - 1;

    pub(crate) fn check(&self, now: Timestamp) -> Result<()> {
        let given = [self.text.is_some(), self.texts.is_some(), self.messages.is_some()];
        if given.iter().filter(|given| **given).count() != 1 {
            return Err(Error::InvalidInput("give one of text, texts and messages".to_owned()));
        }
        let count = self.texts.as_ref().map_or(0, Vec::len).max(self.messages.as_ref().map_or(0, Vec::len));
        if count > Self::TEXTS_MAX {
            return Err(Error::InvalidInput(format!("{count} texts are given, at most {} are taken", Self::TEXTS_MAX)));
        }
        let said = self.messages.iter().flatten().map(|message| &message.content);
        if self.text.iter().chain(self.texts.iter().flatten()).chain(said).any(|text| text.trim().is_empty()) {
            return Err(Error::InvalidInput("a text is empty".to_owned()));
        }
        check_tags(&self.tags)?;
        check_claimed(self.origin)?;
        check_path(self.file_path.as_deref())?;
        for (at, message) in self.messages.iter().flatten().enumerate() {
            message.check()?;
            message.timestamp.map_or(Ok(()), |said| check_time(&format!("messages/{at}/timestamp"), said, now))?;
        }
        check_lines(self.line_range)
    }

    /// Whether it says something of its texts besides what they are.
    pub(crate) fn has_fields(&self) -> bool {
        let named = self.task_id.is_some() || self.topic_id.is_some() || self.file_path.is_some();
        named || self.line_range.is_some() || !self.tags.is_empty()
    }
}

pub(super) fn check_tags(tags: &[String]) -> Result<()> {
    let is_good = |tag: &String| (1..=TEXT_MAX).contains(&tag.chars().count());
    if tags.len() > TAGS_MAX || !tags.iter().all(is_good) {
        let message = format!("tags are at most {TAGS_MAX}, of 1 to {TEXT_MAX} characters each");
        return Err(Error::InvalidInput(message));
    }
    Ok(())
}

pub(super) fn check_lines(range: Option<[u64; 2]>) -> Result<()> {
    match range {
        Some([first, last]) if first > last || last > PutSegments::LINE_MAX => Err(Error::InvalidInput(format!(
            "line_range is the first and the last line, in that order, up to {}",
            PutSegments::LINE_MAX
        ))),
        _ => Ok(()),
    }
}

pub(super) fn check_path(path: Option<&str>) -> Result<()> {
    let length = path.map_or(0, |path| path.chars().count());
    if length > Segment::PATH_MAX {
        let message = format!("file_path has {length} characters, at most {} are taken", Segment::PATH_MAX);
        return Err(Error::InvalidInput(message));
    }
    Ok(())
}

/// What became of a put.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct PutReply {
    pub project_id: ProjectId,
    /// One for each text, in order; two equal texts have the same.
    pub segment_ids: Vec<SegmentId>,
    /// How many are new.
    pub added: u64,
    /// How many were known.
    pub touched: u64,
    /// Tokens of those that are new.
    pub tokens_added: u64,
    /// How full the window is, with the working set of the task or project in it.
    #[serde(serialize_with = "super::rounded")]
    pub usage_percent: f64,
    /// Give it to context_undo to take this back; left out when nothing is new.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation_id: Option<String>,
    /// The call that is useful next, if the window fills up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<NextCall>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// Whose segments to list.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListSegments {
    pub project_id: ProjectId,
    /// The task; the current one when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_id: Option<TaskId>,
    /// How many to return, 1 to 1000.
    #[serde(default = "ListSegments::default_limit")]
    #[schemars(range(min = 1, max = LIMIT_MAX))]
    pub limit: u32,
    /// `next_cursor` of the page before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^[0-7]?[0-9a-f]{1,15}$"))]
    pub cursor: Option<String>,
    /// Return long texts whole.
    #[serde(default)]
    pub full: bool,
    /// Without task_id: all of the project, whatever task is current.
    #[serde(default)]
    pub all_tasks: bool,
}

impl ListSegments {
    pub fn default_limit() -> u32 {
        50
    }

    pub(crate) fn check(&self) -> Result<()> {
        check_limit(self.limit)
    }
}

/// What is in the window.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct WorkingSetReply {
    pub working_set: WorkingSet,
    /// Oldest first.
    pub segments: Vec<Segment>,
    /// Of all, not of this page.
    pub total_tokens: u64,
    pub segment_count: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    /// If it is empty: what is stashed and most worth having back.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub worth_retrieving: Vec<Segment>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<NextCall>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// A working set as a whole.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct WorkingSet {
    pub project_id: ProjectId,
    #[schemars(schema_with = "text_or_null")]
    pub task_id: Option<TaskId>,
    pub total_tokens: u64,
    #[schemars(schema_with = "text_or_null")]
    pub last_updated: Option<Timestamp>,
}

/// All segments of a task.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct TaskContext {
    pub project_id: ProjectId,
    #[schemars(schema_with = "text_or_null")]
    pub task_id: Option<TaskId>,
    /// Oldest first.
    pub segments: Vec<Segment>,
    /// Of all, not of this page.
    pub total_tokens: u64,
    pub segment_count: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// A segment that a call could not act on.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct SegmentError {
    pub segment_id: SegmentId,
    /// SEGMENT_NOT_FOUND or PERMISSION_DENIED.
    pub code: &'static str,
    pub message: String,
}

/// Every project with a segment.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ProjectList {
    pub projects: Vec<ProjectId>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}
