//! Conversations, on a store that fails.

use async_trait::async_trait;
use waystone_core::Result;
use waystone_core::api::{
    Branch, BranchList, ChatConfig, Context, ContextPage, ContextState, ListContexts, MessageContent, Resync,
    SwitchedBranch, ToolCall,
};
use waystone_core::clock::Timestamp;
use waystone_core::id::{BranchName, SegmentId, SessionId, ToolCallId};
use waystone_core::store::{
    ConversationStore, Idempotency, Messages, NewBranch, NewConversation, OpenCall, Scope, Step, Stepped, Turn,
    TurnEvent, WhichMessages, WindowPart, WindowRows,
};

use waystone_core::tools::ToolOutput;

use super::FaultyStore;

#[async_trait]
impl ConversationStore for FaultyStore {
    async fn add_conversation(&self, scope: &Scope, new: NewConversation) -> Result<(SessionId, bool)> {
        self.step()?;
        let done = self.inner.add_conversation(scope, new).await?;
        self.step()?;
        Ok(done)
    }

    async fn find_conversation(&self, scope: &Scope, id: &SessionId, with_messages: bool) -> Result<Context> {
        self.step()?;
        self.inner.find_conversation(scope, id, with_messages).await
    }

    async fn list_conversations(&self, scope: &Scope, filter: &ListContexts) -> Result<ContextPage> {
        self.step()?;
        self.inner.list_conversations(scope, filter).await
    }

    async fn configure_conversation(
        &self,
        scope: &Scope,
        id: &SessionId,
        before: &ChatConfig,
        config: &ChatConfig,
        at: Timestamp,
    ) -> Result<bool> {
        self.step()?;
        let done = self.inner.configure_conversation(scope, id, before, config, at).await?;
        self.step()?;
        Ok(done)
    }

    async fn list_messages(&self, scope: &Scope, id: &SessionId, which: &WhichMessages) -> Result<Messages> {
        self.step()?;
        self.inner.list_messages(scope, id, which).await
    }

    async fn read_content(
        &self,
        scope: &Scope,
        id: &SessionId,
        message: &SegmentId,
        from_sequence: u64,
    ) -> Result<MessageContent> {
        self.step()?;
        self.inner.read_content(scope, id, message, from_sequence).await
    }

    async fn list_branches(&self, scope: &Scope, id: &SessionId) -> Result<BranchList> {
        self.step()?;
        self.inner.list_branches(scope, id).await
    }

    async fn add_branch(
        &self,
        scope: &Scope,
        id: &SessionId,
        new: NewBranch,
        at: Timestamp,
        idempotency: Option<Idempotency>,
    ) -> Result<Branch> {
        self.step()?;
        let done = self.inner.add_branch(scope, id, new, at, idempotency).await?;
        self.step()?;
        Ok(done)
    }

    async fn switch_branch(
        &self,
        scope: &Scope,
        id: &SessionId,
        name: &BranchName,
        at: Timestamp,
    ) -> Result<SwitchedBranch> {
        self.step()?;
        let done = self.inner.switch_branch(scope, id, name, at).await?;
        self.step()?;
        Ok(done)
    }

    async fn archive_branch(&self, scope: &Scope, id: &SessionId, name: &BranchName, at: Timestamp) -> Result<()> {
        self.step()?;
        let done = self.inner.archive_branch(scope, id, name, at).await?;
        self.step()?;
        Ok(done)
    }

    async fn restore_branch(
        &self,
        scope: &Scope,
        id: &SessionId,
        name: &BranchName,
        at: Timestamp,
        idempotency: Option<Idempotency>,
    ) -> Result<Branch> {
        self.step()?;
        let done = self.inner.restore_branch(scope, id, name, at, idempotency).await?;
        self.step()?;
        Ok(done)
    }

    async fn is_conversation(&self, scope: &Scope, id: &SessionId) -> Result<bool> {
        self.step()?;
        self.inner.is_conversation(scope, id).await
    }

    async fn find_turn(&self, scope: &Scope, id: &SessionId) -> Result<Turn> {
        self.step()?;
        self.inner.find_turn(scope, id).await
    }

    async fn remember_turn(
        &self,
        scope: &Scope,
        kind: &'static str,
        idempotency: Idempotency,
        state: ContextState,
        at: Timestamp,
    ) -> Result<ContextState> {
        self.step()?;
        let done = self.inner.remember_turn(scope, kind, idempotency, state, at).await?;
        self.step()?;
        Ok(done)
    }

    async fn step_turn(&self, scope: &Scope, step: Step) -> Result<Stepped> {
        self.step_of_turn()?;
        for message in &step.messages {
            self.note(message.text.as_bytes());
        }
        let done = self.inner.step_turn(scope, step).await?;
        self.step()?;
        Ok(done)
    }

    async fn load_window(
        &self,
        scope: &Scope,
        id: &SessionId,
        branch: Option<&BranchName>,
        part: WindowPart,
    ) -> Result<WindowRows> {
        self.step()?;
        self.inner.load_window(scope, id, branch, part).await
    }

    async fn list_open_calls(&self, scope: &Scope, id: &SessionId) -> Result<Vec<OpenCall>> {
        self.step()?;
        self.inner.list_open_calls(scope, id).await
    }

    async fn find_tool_call(&self, scope: &Scope, id: &SessionId, call: &ToolCallId) -> Result<ToolCall> {
        self.step()?;
        self.inner.find_tool_call(scope, id, call).await
    }

    async fn answer_tool_call(
        &self,
        scope: &Scope,
        id: &SessionId,
        call: &ToolCallId,
        answer: ToolOutput,
        at: Timestamp,
        idempotency: Option<Idempotency>,
    ) -> Result<bool> {
        self.step()?;
        let done = self.inner.answer_tool_call(scope, id, call, answer, at, idempotency).await?;
        self.step()?;
        Ok(done)
    }

    async fn list_expired_calls(&self, scope: &Scope, at: Timestamp) -> Result<Vec<SessionId>> {
        self.step()?;
        self.inner.list_expired_calls(scope, at).await
    }

    async fn list_orphaned_turns(&self, scope: &Scope) -> Result<Vec<(SessionId, String)>> {
        self.step()?;
        self.inner.list_orphaned_turns(scope).await
    }

    async fn list_turn_events(&self, scope: &Scope, id: &SessionId, from: i64, limit: u32) -> Result<Vec<TurnEvent>> {
        self.step()?;
        self.inner.list_turn_events(scope, id, from, limit).await
    }

    async fn find_turn_event(&self, scope: &Scope, id: &SessionId, run: &str, n: u64) -> Result<Option<i64>> {
        self.step()?;
        self.inner.find_turn_event(scope, id, run, n).await
    }

    async fn find_resync(&self, scope: &Scope, id: &SessionId, run: &str) -> Result<(Resync, Option<TurnEvent>)> {
        self.step()?;
        self.inner.find_resync(scope, id, run).await
    }
}
