//! What became of calls that did not do what they were made for. Of one that was cancelled no message tells.

use std::collections::HashMap;

use waystone_core::api::{ApprovalStatus, ContentPart, Message, ToolCall, ToolOutcome};
use waystone_core::id::{SessionId, ToolCallId};
use waystone_core::store::Scope;
use waystone_core::{Engine, Error};

#[derive(Debug, Default)]
pub(super) struct Outcomes(HashMap<ToolCallId, String>);

impl Outcomes {
    /// Those of the calls in these messages.
    pub(super) async fn find(
        engine: &Engine,
        scope: &Scope,
        context: &SessionId,
        messages: &[Message],
    ) -> waystone_core::Result<Self> {
        let mut outcomes = HashMap::new();
        for part in messages.iter().flat_map(|message| &message.content) {
            let ContentPart::ToolCall { id, .. } = part else { continue };
            match engine.find_tool_call(scope, context, id).await {
                Ok(call) => outcomes.extend(outcome(&call).map(|outcome| (id.clone(), outcome))),
                // It was made in the conversation that this one began with.
                Err(Error::ToolCallNotFound { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Self(outcomes))
    }

    /// What is said after a call.
    pub(super) fn of(&self, call: &ToolCallId) -> String {
        self.0.get(call).map(|outcome| format!(": {outcome}")).unwrap_or_default()
    }
}

fn outcome(call: &ToolCall) -> Option<String> {
    match (call.outcome, call.approval_status) {
        (Some(ToolOutcome::Succeeded), _) => None,
        (None | Some(ToolOutcome::OutcomeUnknown), ApprovalStatus::Pending) => Some("waits for approval".to_owned()),
        (Some(outcome), _) => Some(outcome.as_str().replace('_', " ")),
        (None, _) => Some("has no result yet".to_owned()),
    }
}
