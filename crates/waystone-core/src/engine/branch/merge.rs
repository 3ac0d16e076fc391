//! A branch is told what another one came to.
//!
//! What was told says itself which messages it stands for, from one to another. As long as it is in windows these are not told again.

use super::common;
use crate::api::{BranchMerged, ContextState, MergeBranch, MergedBranch, MessageType, Origin, Role};
use crate::engine::Engine;
use crate::engine::conversation::retry_of;
use crate::engine::turn::plain_step;
use crate::error::{Error, Result};
use crate::handle::{Handle, Holder};
use crate::id::{BranchName, SegmentId, SessionId};
use crate::offload::offload_unless;
use crate::store::{MessageFacts, Scope, Step, StepBranch, Stepped, WhichMessages, WindowPart};
use crate::tokens;
use crate::window::{Entry, digest_of, tell_digest};

/// What is said of another branch has at most so many tokens.
const MERGE_TOKENS_MAX: u64 = 2000;
const BRANCH_MERGED: &str = "BranchMerged";
/// What stands around the name of a branch, and after it the messages that are meant, in every text that is merged.
const HEAD: [&str; 4] = ["[What branch `", "` of this conversation came to, from ", " to ", ", in "];

impl Engine {
    /// Adds what another branch came to, as far as this one does not know it, at the tip of a branch; or only shows it.
    pub async fn merge_branch(
        &self,
        scope: &Scope,
        id: &SessionId,
        name: &BranchName,
        request: MergeBranch,
    ) -> Result<MergedBranch> {
        if request.dry_run {
            return Ok(self.preview_merge(scope, id, name, &request.from).await?.0);
        }
        self.check_writable()?;
        let place = format!("contexts/{id}/branches/{name}/merge");
        loop {
            let turn = self.store.find_turn(scope, id).await?;
            let mut step = plain_step(id, &turn, turn.state, &self.clock.new_id(), self);
            step.operation = Some("branch.merged");
            step.idempotency = request.idempotency_key.clone().map(|key| retry_of(key, &place, &request));
            if let Some((Some(before), _)) = self.asked_before(scope, &turn, &step).await? {
                return self.find_merged(scope, id, &request.from, &before).await;
            }
            let (merged, origin) = self.preview_merge(scope, id, name, &request.from).await?;
            if !matches!(turn.state, ContextState::Idle | ContextState::PermanentFailure) {
                let (why, hint) = ("a turn is under way", "wait until it has ended");
                return Err(Error::InvalidState { context: id.clone(), state: turn.state, why, hint });
            }
            // A turn that failed can be tried again afterwards.
            step.error = turn.error;
            step.from_seq = Some(turn.seq);
            // What changed since makes it another one.
            if let Some(added) = self.add_merged(scope, step, name, &request.from, (&merged.content, origin)).await? {
                return Ok(MergedBranch { message_id: Some(added), ..merged });
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
        let into = self.load_window(scope, id, Some(name), WindowPart::Whole).await?.entries;
        let other = self.load_window(scope, id, Some(from), WindowPart::Whole).await?.entries;
        let common = common(&into, &other);
        let mut is_known: Vec<bool> = (0..other.len()).map(|at| at < common).collect();
        self.mark_told(scope, id, &into, &other, &mut is_known).await?;
        // What was told in between is told again: what is told stands for all messages from one to another.
        let (first, last) = (is_known.iter().position(|known| !known), is_known.iter().rposition(|known| !known));
        let (Some(first), Some(last)) = (first, last) else {
            let why = format!("branch `{from}` has no message that `{name}` does not have, or was not told of");
            return Err(Error::InvalidInput(why));
        };
        let own = other[first..=last].to_vec();
        let origin = own.iter().map(|entry| entry.message.metadata.origin).max().unwrap_or_default();
        let (messages, messages_tokens) = (own.len() as u64, own.iter().map(|entry| entry.tokens).sum());
        let said = from.clone();
        let tell = move || {
            let content = merged_text(&said, &own);
            (tokens::count(&content) as u64, content)
        };
        let (tokens, content) = offload_unless(false, tell).await?;
        let warnings = self.warnings();
        Ok((MergedBranch { message_id: None, content, tokens, messages, messages_tokens, warnings }, origin))
    }

    /// Marks which messages of `other` a branch was told of: in texts that are still in its windows.
    async fn mark_told(
        &self,
        scope: &Scope,
        id: &SessionId,
        into: &[Entry],
        other: &[Entry],
        is_known: &mut [bool],
    ) -> Result<()> {
        let place_of = |id: &SegmentId| other.iter().position(|entry| entry.message.id == *id);
        let live = into.iter().filter(|entry| !entry.is_stashed && entry.message.role == Role::System);
        for (first, last) in live.filter_map(|entry| told_in(&entry.message.text())) {
            // Who does not have the first of them has none that came after it.
            let Some(from) = place_of(&first) else { continue };
            let end = match place_of(&last) {
                Some(last) => last + 1,
                // It goes on from the middle of what was told.
                None => {
                    let told = self.store.list_messages(scope, id, &WhichMessages::UpTo(last)).await?.messages;
                    other.iter().zip(told).take_while(|(entry, told)| entry.message.id == told.id).count()
                }
            };
            is_known.iter_mut().take(end).skip(from).for_each(|known| *known = true);
        }
        Ok(())
    }

    /// What was added when the same was asked first.
    async fn find_merged(
        &self,
        scope: &Scope,
        id: &SessionId,
        from: &BranchName,
        message: &SegmentId,
    ) -> Result<MergedBranch> {
        let content = self.find_message(scope, id, message).await?.text();
        let other = self.load_window(scope, id, Some(from), WindowPart::Whole).await?.entries;
        let (first, last) = told_in(&content).ok_or_else(|| Error::broken("a merged message stands for nothing"))?;
        let told = other.iter().skip_while(|entry| entry.message.id != first);
        let (mut messages, mut messages_tokens) = (0, 0);
        for entry in told {
            (messages, messages_tokens) = (messages + 1, messages_tokens + entry.tokens);
            if entry.message.id == last {
                break;
            }
        }
        let count = move || (tokens::count(&content) as u64, content);
        let (tokens, content) = offload_unless(false, count).await?;
        let (message_id, warnings) = (Some(message.clone()), self.warnings());
        Ok(MergedBranch { message_id, content, tokens, messages, messages_tokens, warnings })
    }

    /// The message that was added; `None` if the conversation is not where it was.
    async fn add_merged(
        &self,
        scope: &Scope,
        mut step: Step,
        name: &BranchName,
        from: &BranchName,
        (content, origin): (&str, Origin),
    ) -> Result<Option<SegmentId>> {
        let (kind, facts) = (MessageType::Text, MessageFacts::default());
        let new = self.prepare_message(Role::System, kind, content.to_owned(), Vec::new(), origin, facts).await?;
        let added = new.id.clone();
        let told = BranchMerged {
            context_id: step.context.clone(),
            branch: name.to_string(),
            from: from.to_string(),
            message_id: added.clone(),
        };
        (step.branch, step.messages) = (StepBranch::Beside(name.clone()), vec![new]);
        step.tell(BRANCH_MERGED, &told);
        Ok(match self.store.step_turn(scope, step).await? {
            Stepped::Done { .. } => Some(added),
            // Of two who ask the same at once one finds what the other has added.
            Stepped::Before { .. } | Stepped::Moved(_) => None,
        })
    }
}

fn merged_text(from: &BranchName, own: &[Entry]) -> String {
    let handle = |entry: Option<&Entry>| entry.map(|entry| Handle::to_segment(&entry.message.id).to_string());
    let (first, last) = (handle(own.first()).unwrap_or_default(), handle(own.last()).unwrap_or_default());
    let [before, after, to, count] = HEAD;
    let head =
        format!("{before}{from}{after}{first}{to}{last}{count}{} messages that are not on this one. ", own.len());
    let told = tell_digest(&head, "", &digest_of(own), MERGE_TOKENS_MAX);
    // Without a word of what was said it says at least where that is.
    if told.starts_with(&head) {
        told
    } else {
        format!("{head}context_expand returns what a handle (ws:…) stands for.]")
    }
}

/// The first and the last of the messages that a merged text stands for.
fn told_in(text: &str) -> Option<(SegmentId, SegmentId)> {
    let [before, after, to, count] = HEAD;
    let (_, told) = text.strip_prefix(before)?.split_once(after)?;
    let (first, rest) = told.split_once(to)?;
    let (last, _) = rest.split_once(count)?;
    let id = |handle: &str| match handle.parse::<Handle>().ok()?.holder {
        Holder::Segment(id) => Some(id),
        _ => None,
    };
    Some((id(first)?, id(last)?))
}
