//! A branch is told what another one came to.

use super::common;
use crate::api::{BranchMerged, ContextState, MergeBranch, MergedBranch, Message, MessageType, Origin, Role};
use crate::engine::Engine;
use crate::engine::conversation::retry_of;
use crate::engine::turn::plain_step;
use crate::error::{Error, Result};
use crate::id::{BranchName, SessionId};
use crate::offload::offload_unless;
use crate::store::{MessageFacts, Scope, StepBranch, Stepped, Turn};
use crate::tokens;
use crate::window::{Entry, digest_of, tell_digest};

/// What is said of another branch has at most so many tokens.
const MERGE_TOKENS_MAX: u64 = 2000;
const BRANCH_MERGED: &str = "BranchMerged";

impl Engine {
    /// Adds what another branch came to, as far as this one does not know it, at the tip of a branch; or only shows it.
    pub async fn merge_branch(
        &self,
        scope: &Scope,
        id: &SessionId,
        name: &BranchName,
        request: MergeBranch,
    ) -> Result<MergedBranch> {
        if !request.dry_run {
            self.check_writable()?;
        }
        loop {
            let turn = self.store.find_turn(scope, id).await?;
            let (merged, origin) = self.preview_merge(scope, id, name, &request.from).await?;
            if request.dry_run {
                return Ok(merged);
            }
            // What changed since makes it another one.
            if let Some(message) = self.add_merged(scope, id, name, &request, (&turn, &merged.content, origin)).await? {
                let content = message.text();
                return Ok(MergedBranch { message_id: Some(message.id), content, ..merged });
            }
        }
    }

    /// What would be added, and where it came from.
    async fn preview_merge(
        &self,
        scope: &Scope,
        id: &SessionId,
        name: &BranchName,
        from: &BranchName,
    ) -> Result<(MergedBranch, Origin)> {
        let into = self.store.load_window(scope, id, Some(name)).await?.entries;
        let other = self.store.load_window(scope, id, Some(from)).await?.entries;
        let own: Vec<Entry> = other[common(&into, &other)..].to_vec();
        if own.is_empty() {
            return Err(Error::InvalidInput(format!("branch `{from}` has no message that `{name}` has not")));
        }
        let (messages, messages_tokens) = (own.len() as u64, own.iter().map(|entry| entry.tokens).sum());
        let origin = own.iter().map(|entry| entry.message.metadata.origin).max().unwrap_or_default();
        let said = from.clone();
        let tell = move || {
            let content = merged_text(&said, own);
            (tokens::count(&content) as u64, content)
        };
        let (tokens, content) = offload_unless(false, tell).await?;
        let warnings = self.warnings();
        Ok((MergedBranch { message_id: None, content, tokens, messages, messages_tokens, warnings }, origin))
    }

    /// The message that was added, now or when the same was asked first; `None` if the conversation is not where it was.
    async fn add_merged(
        &self,
        scope: &Scope,
        id: &SessionId,
        name: &BranchName,
        request: &MergeBranch,
        (turn, content, origin): (&Turn, &str, Origin),
    ) -> Result<Option<Message>> {
        let (kind, facts) = (MessageType::Text, MessageFacts::default());
        let new = self.prepare_message(Role::System, kind, content.to_owned(), Vec::new(), origin, facts).await?;
        let place = format!("contexts/{id}/branches/{name}/merge");
        let run = self.clock.new_id();
        let mut step = plain_step(id, turn, turn.state, &run, self);
        step.operation = Some("branch.merged");
        step.idempotency = request.idempotency_key.clone().map(|key| retry_of(key, &place, request));
        if turn.state != ContextState::Idle {
            if let Some((Some(before), _)) = self.asked_before(scope, turn, &step).await? {
                return self.find_message(scope, id, &before).await.map(Some);
            }
            let (why, hint) = ("a turn is under way, or has failed", "wait until it is Idle");
            return Err(Error::InvalidState { context: id.clone(), state: turn.state, why, hint });
        }
        let told = BranchMerged {
            context_id: id.clone(),
            branch: name.to_string(),
            from: request.from.to_string(),
            message_id: new.id.clone(),
        };
        let added = new.id.clone();
        (step.from_seq, step.branch, step.messages) = (Some(turn.seq), StepBranch::Beside(name.clone()), vec![new]);
        step.tell(1, BRANCH_MERGED, serde_json::to_string(&told).unwrap_or_default());
        let message = match self.store.step_turn(scope, step).await? {
            Stepped::Done { .. } => added,
            Stepped::Before { message, .. } => message.unwrap_or(added),
            Stepped::Moved(_) => return Ok(None),
        };
        self.find_message(scope, id, &message).await.map(Some)
    }
}

fn merged_text(from: &BranchName, own: Vec<Entry>) -> String {
    let head = format!(
        "[What branch `{from}` of this conversation came to, in {} messages that are not on this one. ",
        own.len()
    );
    let messages: Vec<Message> = own.into_iter().map(|entry| entry.message).collect();
    tell_digest(&head, "", &digest_of(&messages), MERGE_TOKENS_MAX)
}
