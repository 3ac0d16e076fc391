//! What the store does with conversations: each method one transaction.

use std::sync::Arc;

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

use crate::lock;
use crate::sqlite::{Sqlite, branch, conversation, message, session, tool_call, turn, window};

#[async_trait]
impl ConversationStore for Sqlite {
    async fn add_conversation(&self, scope: &Scope, new: NewConversation) -> Result<(SessionId, bool)> {
        let (scope, clock, new) = (scope.clone(), Arc::clone(&self.clock), Arc::new(new));
        // How much a copy of another one takes is known only inside; without one it is little.
        self.write_with_room(0, move |db| conversation::add(db, &scope, &*clock, &new)).await
    }

    async fn find_conversation(&self, scope: &Scope, id: &SessionId, with_messages: bool) -> Result<Context> {
        let (scope, id) = (scope.clone(), id.clone());
        self.readers.read(move |db| conversation::find(db, &scope, &id, with_messages)).await
    }

    async fn list_conversations(&self, scope: &Scope, filter: &ListContexts) -> Result<ContextPage> {
        let (scope, filter) = (scope.clone(), filter.clone());
        self.readers.read(move |db| conversation::list(db, &scope, &filter)).await
    }

    async fn configure_conversation(
        &self,
        scope: &Scope,
        id: &SessionId,
        before: &ChatConfig,
        config: &ChatConfig,
        at: Timestamp,
    ) -> Result<bool> {
        let (scope, id, before, config) = (scope.clone(), id.clone(), before.clone(), config.clone());
        self.write_with_room(0, move |db| conversation::configure(db, &scope, &id, &before, &config, at)).await
    }

    async fn list_messages(&self, scope: &Scope, id: &SessionId, which: &WhichMessages) -> Result<Messages> {
        let (scope, id, which) = (scope.clone(), id.clone(), which.clone());
        self.readers.read(move |db| message::list(db, &scope, &id, &which)).await
    }

    async fn read_content(
        &self,
        scope: &Scope,
        id: &SessionId,
        message: &SegmentId,
        from_sequence: u64,
    ) -> Result<MessageContent> {
        let (scope, id, message) = (scope.clone(), id.clone(), message.clone());
        self.readers.read(move |db| message::read_content(db, &scope, &id, &message, from_sequence)).await
    }

    async fn list_branches(&self, scope: &Scope, id: &SessionId) -> Result<BranchList> {
        let (scope, id) = (scope.clone(), id.clone());
        let list = self.readers.read(move |db| {
            let row = conversation::find_row(db, &scope, &id)?;
            branch::list(db, row.session)
        });
        Ok(BranchList { branches: list.await?, warnings: Vec::new() })
    }

    async fn add_branch(
        &self,
        scope: &Scope,
        id: &SessionId,
        new: NewBranch,
        at: Timestamp,
        idempotency: Option<Idempotency>,
    ) -> Result<Branch> {
        let (scope, id) = (scope.clone(), id.clone());
        self.write_with_room(0, move |db| branch::add(db, &scope, &id, &new, at, idempotency.as_ref())).await
    }

    async fn switch_branch(
        &self,
        scope: &Scope,
        id: &SessionId,
        name: &BranchName,
        at: Timestamp,
    ) -> Result<SwitchedBranch> {
        let (scope, id, name) = (scope.clone(), id.clone(), name.clone());
        self.write_with_room(0, move |db| branch::switch(db, &scope, &id, &name, at)).await
    }

    async fn archive_branch(&self, scope: &Scope, id: &SessionId, name: &BranchName, at: Timestamp) -> Result<()> {
        let (scope, id, name) = (scope.clone(), id.clone(), name.clone());
        self.write_deletion(move |db| branch::archive(db, &scope, &id, &name, at)).await
    }

    async fn restore_branch(
        &self,
        scope: &Scope,
        id: &SessionId,
        name: &BranchName,
        at: Timestamp,
        idempotency: Option<Idempotency>,
    ) -> Result<Branch> {
        let (scope, id, name) = (scope.clone(), id.clone(), name.clone());
        self.write_with_room(0, move |db| branch::restore(db, &scope, &id, &name, at, idempotency.as_ref())).await
    }

    async fn is_conversation(&self, scope: &Scope, id: &SessionId) -> Result<bool> {
        let (scope, id) = (scope.clone(), id.clone());
        let is_one = move |db: &rusqlite::Connection| match session::find_row(db, &scope, &id)? {
            Some(row) => conversation::is_one(db, row.key),
            None => Ok(false),
        };
        self.readers.read(is_one).await
    }

    async fn find_turn(&self, scope: &Scope, id: &SessionId) -> Result<Turn> {
        let (scope, id) = (scope.clone(), id.clone());
        self.readers.read(move |db| turn::find(db, &scope, &id)).await
    }

    async fn step_turn(&self, scope: &Scope, step: Step) -> Result<Stepped> {
        let (scope, owner) = (scope.clone(), self.instance.clone());
        let size = step.messages.iter().map(|message| message.text.len() as u64).sum();
        self.write_with_room(size, move |db| turn::step(db, &scope, &owner, &step)).await
    }

    async fn remember_turn(
        &self,
        scope: &Scope,
        kind: &'static str,
        idempotency: Idempotency,
        state: ContextState,
        at: Timestamp,
    ) -> Result<ContextState> {
        let scope = scope.clone();
        self.write_with_room(0, move |db| turn::remember(db, &scope, kind, &idempotency, state, at)).await
    }

    async fn load_window(
        &self,
        scope: &Scope,
        id: &SessionId,
        branch: Option<&BranchName>,
        part: WindowPart,
    ) -> Result<WindowRows> {
        let (scope, id, branch) = (scope.clone(), id.clone(), branch.cloned());
        self.readers.read(move |db| window::load(db, &scope, &id, branch.as_ref(), part)).await
    }

    async fn list_open_calls(&self, scope: &Scope, id: &SessionId) -> Result<Vec<OpenCall>> {
        let (scope, id) = (scope.clone(), id.clone());
        self.readers.read(move |db| tool_call::list_open(db, &scope, &id)).await
    }

    async fn find_tool_call(&self, scope: &Scope, id: &SessionId, call: &ToolCallId) -> Result<ToolCall> {
        let (scope, id, call) = (scope.clone(), id.clone(), call.clone());
        self.readers.read(move |db| tool_call::find(db, &scope, &id, &call)).await
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
        let (scope, id, call) = (scope.clone(), id.clone(), call.clone());
        let (size, answer) = (answer.content.to_string().len() as u64, Arc::new(answer));
        let write = move |db: &rusqlite::Connection| {
            tool_call::answer(db, &scope, &id, &call, &answer, at, idempotency.as_ref())
        };
        self.write_with_room(size, write).await
    }

    async fn list_expired_calls(&self, scope: &Scope, at: Timestamp) -> Result<Vec<SessionId>> {
        let scope = scope.clone();
        self.readers.read(move |db| tool_call::list_expired(db, &scope, at)).await
    }

    async fn list_orphaned_turns(&self, scope: &Scope) -> Result<Vec<(SessionId, String)>> {
        let (scope, directory, own) = (scope.clone(), self.directory.clone(), self.instance.clone());
        let owned = move |db: &rusqlite::Connection| {
            let owned = turn::list_owned(db, &scope)?;
            let orphaned =
                owned.into_iter().filter(|(.., owner)| *owner == own || !lock::is_present(&directory, owner));
            Ok(orphaned.map(|(id, run, _)| (id, run)).collect())
        };
        self.readers.read(owned).await
    }

    async fn list_turn_events(&self, scope: &Scope, id: &SessionId, from: i64, limit: u32) -> Result<Vec<TurnEvent>> {
        let (scope, id) = (scope.clone(), id.clone());
        self.readers.read(move |db| turn::list_events(db, &scope, &id, from, limit)).await
    }

    async fn find_turn_event(&self, scope: &Scope, id: &SessionId, run: &str, n: u64) -> Result<Option<i64>> {
        let (scope, id, run) = (scope.clone(), id.clone(), run.to_owned());
        self.readers.read(move |db| turn::find_event(db, &scope, &id, &run, n)).await
    }

    async fn find_resync(&self, scope: &Scope, id: &SessionId, run: &str) -> Result<(Resync, Option<TurnEvent>)> {
        let (scope, id, run) = (scope.clone(), id.clone(), run.to_owned());
        self.readers.read(move |db| turn::find_resync(db, &scope, &id, &run)).await
    }
}
