//! Messages of conversations: said, edited, listed. What follows when one is said is in [`super::turn`].

use serde_json::json;

use super::Engine;
use super::conversation::retry_of;
use super::turn::Begin;
use super::turn::prompt::missing;
use crate::api::{
    AddMessage, AddedMessage, ContentPart, EditMessage, ListMessages, Message, MessageContent, MessagePage,
    MessageType, Origin, ReadContent, Role,
};
use crate::canon::Hash;
use crate::error::{Error, Result};
use crate::id::{BranchName, SegmentId, SessionId};
use crate::meaning;
use crate::offload::{offload, offload_unless};
use crate::search::searched_message;
use crate::store::{Fork, Idempotency, MessageFacts, NewBranch, NewMessage, Scope, StepBranch, WhichMessages};
use crate::tokens;

/// So many branches are tried for one that has no name.
const EDITS_MAX: u32 = 10_000;

impl Engine {
    /// Says something to the model. It is kept and the turn has begun when this returns.
    pub async fn add_message(&self, scope: &Scope, id: &SessionId, request: AddMessage) -> Result<AddedMessage> {
        self.check_writable()?;
        request.check()?;
        let place = format!("contexts/{id}/messages");
        let idempotency = request.idempotency_key.clone().map(|key| retry_of(key, &place, &request));
        let branch = request.branch.map_or(StepBranch::Active, StepBranch::Named);
        self.say(scope, id, request.content, branch, idempotency).await
    }

    /// Says a user's message anew, on a branch of its own.
    pub async fn edit_message(
        &self,
        scope: &Scope,
        id: &SessionId,
        message: &SegmentId,
        request: EditMessage,
    ) -> Result<AddedMessage> {
        self.check_writable()?;
        request.check()?;
        let place = format!("contexts/{id}/messages/{message}");
        let idempotency = request.idempotency_key.clone().map(|key| retry_of(key, &place, &request));
        let edited = self.find_message(scope, id, message).await?;
        if edited.role != Role::User || edited.message_type == MessageType::ToolResult {
            let why = format!("message `{message}` was not said by the user, and cannot be edited");
            return Err(Error::InvalidInput(why));
        }
        let name = match request.branch {
            Some(name) => {
                let mut scan = self.scan();
                scan.text("/branch", name.as_str());
                scan.end()?;
                name
            }
            None => self.free_branch_name(scope, id).await?,
        };
        let branch = StepBranch::New(NewBranch { name, fork: Fork::InPlaceOf(message.clone()) });
        self.say(scope, id, request.content, branch, idempotency).await
    }

    async fn free_branch_name(&self, scope: &Scope, id: &SessionId) -> Result<BranchName> {
        let taken = self.store.list_branches(scope, id).await?.branches;
        let names = (1..EDITS_MAX).map(|number| format!("edit-{number}"));
        let free = names.into_iter().find(|name| taken.iter().all(|branch| branch.name != *name));
        let free = free.ok_or_else(|| Error::InvalidInput("there are too many branches; name this one".to_owned()))?;
        free.parse().map_err(Error::InvalidInput)
    }

    async fn say(
        &self,
        scope: &Scope,
        id: &SessionId,
        text: String,
        branch: StepBranch,
        idempotency: Option<Idempotency>,
    ) -> Result<AddedMessage> {
        let size = text.len();
        self.check_text_size(size)?;
        let mut scan = self.scan();
        let search = move || {
            scan.text("/content", &text);
            scan.end().map(|warnings| (text, warnings))
        };
        let (text, mut warnings) = offload(size, search).await??;
        let facts = MessageFacts::default();
        let message =
            self.prepare_message(Role::User, MessageType::Text, text, Vec::new(), Origin::User, facts).await?;
        let config = self.store.find_turn(scope, id).await?.config;
        let message = NewMessage { facts: self.expect_facts(&config.model_id, message.facts), ..message };
        warnings.extend(missing(&config, |id| (self.chat.prompt)(id)));
        let (message_id, branch, state) =
            self.begin_turn(scope, id, Begin::Message { message: Box::new(message), branch, idempotency }).await?;
        warnings.extend(self.nearly_full(scope, None).await);
        warnings.extend(self.warnings());
        Ok(AddedMessage { message_id, context_state: state, branch: branch.to_string(), warnings })
    }

    /// A message with all that follows from its text.
    pub(super) async fn prepare_message(
        &self,
        role: Role,
        kind: MessageType,
        text: String,
        parts: Vec<ContentPart>,
        origin: Origin,
        facts: MessageFacts,
    ) -> Result<NewMessage> {
        let id = self.fresh_id()?;
        let prepare = move || {
            // Calls of tools are words of a model too.
            let calls = parts.iter().filter(|part| matches!(part, ContentPart::ToolCall { .. }));
            let called: usize = calls.map(|call| tokens::count(&json!(call).to_string())).sum();
            let tokens = (tokens::count(&text) + called) as u64;
            let pieces = meaning::pieces(&searched_message(&text, &parts));
            let mut facts = facts;
            if role == Role::User {
                (facts.prompt_tokens, facts.completion_tokens) = (tokens, 0);
            }
            let text_hash = Hash::of(text.as_bytes());
            NewMessage { id, role, kind, text, parts, text_hash, pieces, tokens, origin, facts }
        };
        // The first count loads the vocabulary.
        offload_unless(false, prepare).await
    }

    /// One message, wherever it is in the tree.
    pub async fn find_message(&self, scope: &Scope, id: &SessionId, message: &SegmentId) -> Result<Message> {
        let which = WhichMessages::Ids(vec![message.clone()]);
        let found = self.store.list_messages(scope, id, &which).await?.messages;
        let missing = || Error::MessageNotFound { context: id.clone(), message: message.clone() };
        found.into_iter().next().ok_or_else(missing)
    }

    /// The newest message of a branch, if it has one.
    pub(super) async fn newest_message(
        &self,
        scope: &Scope,
        id: &SessionId,
        branch: &BranchName,
    ) -> Result<Option<Message>> {
        let page = |offset, limit| WhichMessages::Branch { name: Some(branch.clone()), offset, limit };
        let total = self.store.list_messages(scope, id, &page(0, 0)).await?.total;
        let last = self.store.list_messages(scope, id, &page(total.saturating_sub(1), 1)).await?;
        Ok(last.messages.into_iter().next())
    }

    /// Messages of a branch, or those that are named.
    pub async fn list_messages(&self, scope: &Scope, id: &SessionId, request: ListMessages) -> Result<MessagePage> {
        request.check()?;
        let named = request.ids()?;
        let is_named = named.is_some();
        let (offset, limit) = (u64::from(request.offset), u64::from(request.limit));
        let which = named.map_or(WhichMessages::Branch { name: request.branch, offset, limit }, WhichMessages::Ids);
        let found = self.store.list_messages(scope, id, &which).await?;
        let has_more = !is_named && offset + (found.messages.len() as u64) < found.total;
        Ok(MessagePage { messages: found.messages, total: found.total, has_more, warnings: self.warnings() })
    }

    /// The text of a message from a sequence on, also while it is written.
    pub async fn read_content(
        &self,
        scope: &Scope,
        id: &SessionId,
        message: &SegmentId,
        request: ReadContent,
    ) -> Result<MessageContent> {
        if request.from_sequence == 0 {
            return Err(Error::InvalidInput("from_sequence is 0, the first one is 1".to_owned()));
        }
        self.store.read_content(scope, id, message, u64::from(request.from_sequence)).await
    }
}
