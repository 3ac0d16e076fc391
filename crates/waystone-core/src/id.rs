//! Ids that come from clients. A value of one of these types has been checked; there is no other way to make one.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize};

const LENGTH_MAX: usize = 128;

fn check(noun: &str, id: &str) -> Result<(), String> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_.:-".contains(&byte);
    if id.is_empty() {
        return Err(format!("{noun} is empty"));
    }
    if id.len() > LENGTH_MAX {
        return Err(format!("{noun} has {} bytes, at most {LENGTH_MAX} are allowed", id.len()));
    }
    if !id.bytes().all(allowed) || id == "." || id == ".." {
        return Err(format!("{noun} `{}` may contain only A-Z a-z 0-9 _ . : -", id.escape_default()));
    }
    Ok(())
}

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident = $noun:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = String;

            fn from_str(id: &str) -> Result<Self, String> {
                check($noun, id)?;
                Ok(Self(id.to_owned()))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Cow::<str>::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn inline_schema() -> bool {
                true
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({
                    "type": "string", "minLength": 1, "maxLength": LENGTH_MAX, "pattern": "^[A-Za-z0-9_.:-]+$"
                })
            }
        }
    )*};
}

ids! {
    /// Names one run of work.
    SessionId = "session id";
    /// Names one save.
    CheckpointId = "checkpoint id";
    /// Names a body of work.
    ProjectId = "project id";
    /// Names who saved.
    AgentId = "agent id";
    /// Names the kind of work a session runs.
    WorkflowId = "workflow id";
    /// Names a piece of text.
    SegmentId = "segment id";
    /// Names what segments are grouped by.
    TaskId = "task id";
    /// Names what a segment is about.
    TopicId = "topic id";
    /// Names a capture of a task's segments.
    SnapshotId = "snapshot id";
    /// Names what a collection would do.
    PlanId = "plan id";
    /// Names one change.
    OperationId = "operation id";
    /// Names a call of a tool.
    ToolCallId = "tool call id";
    /// Names a way through the messages of a conversation.
    BranchName = "branch name";
    /// Chosen by a client so that a retry is recognised.
    IdempotencyKey = "idempotency key";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_take_what_other_tools_use_and_nothing_that_could_be_a_path() {
        let check = |id: &str, good: bool| assert_eq!(id.parse::<SessionId>().is_ok(), good, "{id:?}");
        for id in ["a", "run-1", "A_b.c:d-9", "...", &"x".repeat(128)] {
            check(id, true);
        }
        for id in ["", ".", "..", "a/b", "a b", "a\0", "ü", "a\\b", "a%2f", &"x".repeat(129)] {
            check(id, false);
        }
    }
}
