//! A session or a project as one document, to be kept elsewhere or brought to another store.
//!
//! Its parts stand in a fixed order, so that it is written and read one part at a time. It has nothing that changes by being
//! imported: exported again from there it is the same, byte for byte. How it is read is in [`crate::document`].

use std::fmt;
use std::marker::PhantomData;

use schemars::JsonSchema;
use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::metadata::{TAGS_MAX, TEXT_MAX};
use super::segment::{check_lines, check_path, check_tags};
use super::{ContextRule, Git, MarkCritical, Metadata, Origin, SegmentType, Tier, UpdateSession};
use crate::clock::Timestamp;
use crate::document::SEGMENTS_MAX;
use crate::error::{Error, Result};
use crate::id::{AgentId, CheckpointId, ProjectId, SegmentId, SessionId, SnapshotId, TaskId, TopicId, WorkflowId};
use crate::json;

/// What a document has of a session itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SessionRecord {
    pub id: SessionId,
    pub project_id: ProjectId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(deserialize_with = "few::<_, _, TAGS_MAX>")]
    pub tags: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow_id: Option<WorkflowId>,
    pub created_at: Timestamp,
    #[serde(deserialize_with = "few::<_, _, { MarkCritical::MARKS_MAX }>")]
    pub critical_keys: Vec<String>,
    #[serde(deserialize_with = "few::<_, _, { ContextRule::RULES_MAX }>")]
    pub context_rules: Vec<ContextRule>,
}

impl SessionRecord {
    /// The same that is asked of a save, a name and a mark.
    pub(crate) fn check(&self, now: Timestamp) -> Result<()> {
        let refuse = |message: String| Err(Error::InvalidInput(format!("session: {message}")));
        let named = UpdateSession { name: self.name.clone(), tags: Some(self.tags.clone()) };
        named.check()?;
        if self.name.as_ref().is_some_and(String::is_empty) {
            return refuse("name is empty; leave it out".to_owned());
        }
        if self.critical_keys.iter().any(|key| key.chars().count() > MarkCritical::KEY_MAX) {
            return refuse(format!("a key in criticalKeys has more than {} characters", MarkCritical::KEY_MAX));
        }
        let mut keys: Vec<&String> = self.critical_keys.iter().collect();
        keys.sort_unstable();
        if keys.windows(2).any(|pair| pair[0] == pair[1]) {
            return refuse("a key stands in criticalKeys twice".to_owned());
        }
        ContextRule::check_all(&self.context_rules).or_else(refuse)?;
        check_time("session", self.created_at, now)
    }
}

/// What a document has of a checkpoint. Its context follows when it is written.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CheckpointRecord<'a> {
    pub checkpoint_id: CheckpointId,
    pub created_at: Timestamp,
    /// What was said where it was first saved; none in a document that is older than origins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<AgentId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow_id: Option<WorkflowId>,
    /// One that stands before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_checkpoint_id: Option<CheckpointId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git: Option<Git>,
    #[serde(deserialize_with = "small_metadata")]
    pub metadata: Metadata,
    pub context_hash: String,
    #[serde(borrow, skip_serializing)]
    pub context: Option<&'a RawValue>,
}

/// What a document has of a project itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProjectRecord {
    pub project_id: ProjectId,
}

/// What a document has of a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskRecord {
    pub task_id: TaskId,
    pub current: bool,
}

/// What a document has of a segment. Tokens are counted anew where it is imported.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SegmentRecord {
    pub segment_id: SegmentId,
    #[serde(rename = "type")]
    pub kind: SegmentType,
    /// What was said where it was first put; none in a document that is older than origins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_id: Option<TaskId>,
    pub tier: Tier,
    pub pinned: bool,
    /// How often it was met again.
    pub mentions: u32,
    /// Collections that it has survived.
    pub gc_survival_count: u32,
    pub created_at: Timestamp,
    pub last_touched_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topic_id: Option<TopicId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_path: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line_range: Option<[u64; 2]>,
    #[serde(deserialize_with = "few::<_, _, { TAGS_MAX + 1 }>")]
    pub tags: Vec<String>,
    pub text: String,
}

impl SegmentRecord {
    /// The same that is asked of a put.
    pub(crate) fn check(&self, now: Timestamp) -> Result<()> {
        if self.tier == Tier::Archive {
            return Err(Error::InvalidInput(format!("segment `{}` is deleted", self.segment_id)));
        }
        if self.text.trim().is_empty() {
            return Err(Error::InvalidInput(format!("the text of segment `{}` is empty", self.segment_id)));
        }
        // Who said it is one tag more than a client may give, and has a word of ours before it.
        let is_role = |tag: &String| tag.strip_prefix("role:").is_some_and(|role| role.chars().count() <= TEXT_MAX);
        let (roles, given): (Vec<String>, Vec<String>) = self.tags.iter().cloned().partition(is_role);
        check_tags(&given)?;
        check_tags(&roles.iter().map(|role| role[..1].to_owned()).collect::<Vec<_>>())?;
        check_path(self.file_path.as_deref())?;
        check_lines(self.line_range)?;
        check_time("segment", self.created_at, now)?;
        check_time("segment", self.last_touched_at, now)
    }
}

/// What a document has of a snapshot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SnapshotRecord {
    pub snapshot_id: SnapshotId,
    pub task_id: TaskId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub created_at: Timestamp,
    /// Each is also among the segments of the document.
    #[serde(deserialize_with = "few::<_, _, SEGMENTS_MAX>")]
    pub segments: Vec<SnapshotSegment>,
}

impl SnapshotRecord {
    pub(crate) fn check(&self, now: Timestamp) -> Result<()> {
        if self.name.as_ref().is_some_and(|name| name.chars().count() > TEXT_MAX) {
            let message = format!("name of snapshot `{}` has more than {TEXT_MAX} characters", self.snapshot_id);
            return Err(Error::InvalidInput(message));
        }
        if self.segments.iter().any(|segment| segment.tier == Tier::Archive) {
            return Err(Error::InvalidInput(format!("snapshot `{}` has a deleted segment", self.snapshot_id)));
        }
        check_time("snapshot", self.created_at, now)
    }
}

/// A segment of a snapshot, and where it was.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SnapshotSegment {
    pub segment_id: SegmentId,
    pub tier: Tier,
    pub pinned: bool,
}

/// Takes a document in: what `waystone session export` or `segment export`, or `GET …/export`, has written.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Document {
    /// waystone.session or waystone.project; it comes first.
    pub format: String,
    /// 1; it comes second.
    #[schemars(range(min = 1, max = 1))]
    pub version: u32,
}

/// What became of an import.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Imported {
    /// IMPORTED: on disk. UNCHANGED: everything in it was here. VOLATILE: the data directory cannot be used, and what was imported is
    /// lost when the process ends.
    pub status: ImportStatus,
    /// The project of the session, or the one that was imported.
    pub project_id: ProjectId,
    /// The session, if it was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoints_added: Option<u64>,
    /// How many were here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoints_known: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub segments_added: Option<u64>,
    /// How many were here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub segments_known: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshots_added: Option<u64>,
    /// What was here and stays as it is, though the document has it otherwise; or that nothing is kept beyond the end of the process.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[schemars(inline)]
pub enum ImportStatus {
    Imported,
    Unchanged,
    Volatile,
}

/// A clock may be wrong by a day. What is later would count as new for ever.
pub(crate) fn check_time(what: &str, at: Timestamp, now: Timestamp) -> Result<()> {
    const DAY_MS: i64 = 24 * 60 * 60 * 1000;
    match at.ms() {
        ms if ms < 0 => Err(Error::InvalidInput(format!("{what}: the time {at} is before 1970"))),
        ms if ms > now.ms().saturating_add(DAY_MS) => {
            Err(Error::InvalidInput(format!("{what}: the time {at} is more than a day from now")))
        }
        _ => Ok(()),
    }
}

/// A list of at most `MAX` items. One that is longer is refused before it is held.
fn few<'de, D: Deserializer<'de>, T: Deserialize<'de>, const MAX: usize>(deserializer: D) -> Result<Vec<T>, D::Error> {
    struct Few<T, const MAX: usize>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for Few<T, MAX> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "a list of at most {MAX}")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Vec<T>, A::Error> {
            let mut items = Vec::new();
            while let Some(item) = access.next_element()? {
                if items.len() == MAX {
                    return Err(A::Error::custom(format!("a list has more than {MAX} items")));
                }
                items.push(item);
            }
            Ok(items)
        }
    }

    deserializer.deserialize_seq(Few::<T, MAX>(PhantomData))
}

/// Metadata, looked at as text first: as values they would take many times as much.
fn small_metadata<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Metadata, D::Error> {
    const BYTES_MAX: usize = 256 * 1024;
    let text = <&RawValue>::deserialize(deserializer)?.get();
    if text.len() > BYTES_MAX {
        return Err(D::Error::custom(format!("metadata has {} bytes, at most {BYTES_MAX} are read", text.len())));
    }
    match json::parse_strict(text.as_bytes()).map_err(D::Error::custom)? {
        Value::Object(object) => Metadata::new(object).map_err(D::Error::custom),
        _ => Err(D::Error::custom("metadata is not an object")),
    }
}
