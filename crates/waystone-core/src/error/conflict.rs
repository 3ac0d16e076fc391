//! Requests that run against what is there.

use serde_json::{Value, json};

use crate::api::ApprovalStatus;
use crate::id::{BranchName, CheckpointId, IdempotencyKey, ProjectId, SegmentId, SessionId, SnapshotId, ToolCallId};

/// What a request runs against.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Conflict {
    #[error("session `{0}` was deleted")]
    SessionDeleted(SessionId),
    #[error("session `{session}` belongs to project `{actual}`, not `{named}`")]
    OtherProject { session: SessionId, actual: String, named: ProjectId },
    #[error("{}", head_moved(session, actual.as_ref(), expected))]
    HeadMoved { session: SessionId, actual: Option<CheckpointId>, expected: CheckpointId },
    #[error("the idempotency key was used for another request")]
    KeyReused(IdempotencyKey),
    #[error("session `{0}` was deleted here")]
    ImportDeleted(SessionId),
    #[error("session `{session}` is here in project `{actual}`, in the document in `{named}`")]
    ImportMoved { session: SessionId, actual: String, named: ProjectId },
    #[error("checkpoint `{0}` is here with another content")]
    CheckpointDiffers(CheckpointId),
    #[error("checkpoint `{id}` is here in session `{session}`")]
    CheckpointElsewhere { id: CheckpointId, session: SessionId },
    #[error("segment `{0}` is here with another text, or in another project")]
    SegmentDiffers(SegmentId),
    #[error("snapshot `{0}` is here in another project")]
    SnapshotElsewhere(SnapshotId),
    #[error("{what} `{id}` is not deleted: there is nothing to restore")]
    NotDeleted { what: &'static str, id: String },
    #[error("session `{0}` is a conversation: it has messages instead of a context")]
    IsConversation(SessionId),
    #[error("there is a branch `{0}` already")]
    BranchExists(BranchName),
    #[error("tool call `{call}` is {} already", .status.as_str())]
    CallDecided { call: ToolCallId, status: ApprovalStatus },
    #[error("tool call `{0}` has other arguments now than those that were looked at")]
    CallChanged(ToolCallId),
    #[error("tool call `{0}` has a result already, or waits for none")]
    CallAnswered(ToolCallId),
    #[error("operation {operation} cannot be undone: what it is about was changed since, by {}", listed(.between))]
    ChangedSince { operation: i64, between: Vec<i64> },
    #[error("operation {0} is undone already")]
    UndoneAlready(i64),
    #[error("operation {0} cannot be undone any more: what it changed was removed for good")]
    RemovedSince(i64),
}

fn listed(operations: &[i64]) -> String {
    let shown: Vec<String> = operations.iter().map(|seq| format!("operation {seq}")).collect();
    shown.join(", ")
}

fn head_moved(session: &SessionId, actual: Option<&CheckpointId>, expected: &CheckpointId) -> String {
    match actual {
        Some(actual) => format!("the newest checkpoint is `{actual}`, not `{expected}`"),
        None => format!("session `{session}` has no checkpoint, so `{expected}` is not its newest"),
    }
}

impl Conflict {
    pub(super) fn hint(&self) -> &'static str {
        match self {
            Self::SessionDeleted(_) => "restore it (`waystone session restore`), or use another session",
            Self::OtherProject { .. } => "save into a session of your own",
            Self::HeadMoved { .. } => "load the newest checkpoint, reconcile, and save again",
            Self::KeyReused(_) => "use a fresh key for a new request",
            Self::ImportDeleted(_) => "bring it back with `waystone session restore`, then import again",
            Self::ImportMoved { .. }
            | Self::CheckpointDiffers(_)
            | Self::CheckpointElsewhere { .. }
            | Self::SegmentDiffers(_)
            | Self::SnapshotElsewhere(_) => {
                "nothing was imported: an id means one thing; import into another data directory"
            }
            Self::IsConversation(_) => {
                "use another session; this one is at GET /api/contexts/{id} and `waystone context`"
            }
            Self::NotDeleted { .. } => "go on with it as it is",
            Self::BranchExists(_) => "choose another name, or switch to it",
            Self::CallDecided { .. } | Self::CallAnswered(_) => "look at it with GET /api/contexts/{id}/tools/{call}",
            Self::CallChanged(_) => "look at its arguments once more, and decide with its new hash",
            Self::ChangedSince { .. } => "undo those first, the newest first",
            Self::UndoneAlready(_) | Self::RemovedSince(_) => {
                "see what was done with GET /api/operations or `waystone undo --list`"
            }
        }
    }

    pub(super) fn details(&self) -> Value {
        match self {
            Self::SessionDeleted(session) | Self::ImportDeleted(session) | Self::IsConversation(session) => {
                json!({ "sessionId": session })
            }
            Self::CheckpointDiffers(id) => json!({ "checkpointId": id }),
            Self::CheckpointElsewhere { id, session } => json!({ "checkpointId": id, "sessionId": session }),
            Self::NotDeleted { id, .. } => json!({ "id": id }),
            Self::BranchExists(name) => json!({ "name": name }),
            Self::CallDecided { call, .. } | Self::CallChanged(call) | Self::CallAnswered(call) => {
                json!({ "tool_call_id": call })
            }
            Self::SegmentDiffers(id) => json!({ "segment_id": id }),
            Self::SnapshotElsewhere(id) => json!({ "snapshot_id": id }),
            Self::OtherProject { actual, .. } | Self::ImportMoved { actual, .. } => json!({ "projectId": actual }),
            Self::HeadMoved { actual, expected, .. } => {
                json!({ "actualCheckpointId": actual, "expectedCheckpointId": expected })
            }
            Self::KeyReused(key) => json!({ "idempotencyKey": key }),
            Self::ChangedSince { operation, between } => {
                let between: Vec<String> = between.iter().map(i64::to_string).collect();
                json!({ "operation_id": operation.to_string(), "operations_between": between })
            }
            Self::UndoneAlready(operation) | Self::RemovedSince(operation) => {
                json!({ "operation_id": operation.to_string() })
            }
        }
    }
}
