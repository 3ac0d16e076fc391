//! A conversation as this process leads it: where it is, and what is said.

use std::io;

use waystone_core::api::{
    AddMessage, AddedMessage, CreateContext, Deletion, EditMessage, FindContext, ListMessages, Message, MessageType,
    Role, UpdateContext,
};
use waystone_core::id::{BranchName, SegmentId, SessionId};
use waystone_core::store::Scope;
use waystone_core::{Engine, Reader};

use super::answer::{Ended, Interrupts, follow};
use super::decide::decide;
use super::input::Input;
use super::recall::recall;
use super::screen::Screen;
use super::waits;
use crate::cli::failure::TurnFailed;
use crate::cli::note;
use crate::platform::terminal_columns;

/// The newest messages are read so many at once.
const PAGE: u32 = 100;

/// Where one speaks.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) context: SessionId,
    pub(super) branch: BranchName,
}

/// What a turn begins with.
pub(super) enum Begin {
    Say(String),
    Edit(SegmentId, String),
    Retry,
}

pub(super) struct Talk<'a> {
    pub(super) engine: &'a Engine,
    pub(super) scope: &'a Scope,
    pub(super) interrupts: Interrupts,
    pub(super) input: Input,
    /// How a conversation is begun, which it is with the first message.
    pub(super) new: CreateContext,
    pub(super) place: Option<Place>,
    /// Whether answers are shown as they come.
    pub(super) is_shown: bool,
    /// Whether someone is there who can be asked.
    pub(super) is_asked: bool,
    /// The message that was completed last.
    pub(super) answer: Option<SegmentId>,
}

impl Talk<'_> {
    fn screen(&self, is_shown: bool) -> Screen<impl io::Write + use<>> {
        Screen::new(is_shown.then(anstream::stdout), terminal_columns(io::stdout()))
    }

    /// Goes on with a conversation. A turn that is under way is followed to its end first.
    pub(super) async fn open(
        &mut self,
        context: SessionId,
        branch: Option<BranchName>,
        change: UpdateContext,
        is_alone: bool,
    ) -> anyhow::Result<()> {
        let found = self.engine.find_context(self.scope, &context, FindContext { message_pool: false }).await?;
        let name = branch.clone().map_or_else(|| found.active_branch_name.parse(), Ok).map_err(anyhow::Error::msg)?;
        if !is_alone {
            recall(self, &Place { context: context.clone(), branch: name }).await?;
        }
        if found.current_state.is_running() {
            let ended = self.follow_other(&context, !is_alone).await?;
            if matches!(ended, Ended::Waits) {
                return Err(waits(self.engine, self.scope, &context).await);
            }
        }
        if change.model_id.is_some() {
            self.check_model(change.model_id.as_deref()).await?;
        }
        if change.model_id.is_some() || change.mode.is_some() {
            self.engine.update_context(self.scope, &context, change).await?;
        }
        let branch = match branch {
            Some(name) => self.engine.switch_branch(self.scope, &context, &name).await?.active_branch_name,
            None => found.active_branch_name,
        };
        self.place = Some(Place { context, branch: branch.parse().map_err(anyhow::Error::msg)? });
        Ok(())
    }

    /// Follows a turn that someone else has begun.
    async fn follow_other(&mut self, context: &SessionId, is_shown: bool) -> anyhow::Result<Ended> {
        let (engine, scope) = (self.engine, self.scope);
        let mut reader = engine.follow_context(scope, context, None).await?;
        let state = engine.find_turn(scope, context).await?.current_state;
        if !state.is_running() {
            return Ok(Ended::Answered);
        }
        let mut screen = self.screen(is_shown);
        if !state.is_driven() {
            return self.go_on(context, &mut reader, &mut screen, Ended::Waits).await;
        }
        note("an answer is under way; Ctrl-C ends it");
        if !engine.adopt_turn(scope, context).await? {
            // What was written before now is wanted too.
            reader = engine.follow_context(scope, context, Some("")).await?;
        }
        self.follow_through(context, &mut reader, &mut screen).await
    }

    /// Follows a turn to its end. What has to be decided on the way is asked for, where someone can answer.
    async fn follow_through<W: io::Write>(
        &mut self,
        context: &SessionId,
        reader: &mut Reader,
        screen: &mut Screen<W>,
    ) -> anyhow::Result<Ended> {
        let ended = follow((self.engine, self.scope, context), reader, screen, &mut self.interrupts).await?;
        self.go_on(context, reader, screen, ended).await
    }

    /// Goes on with a turn that may wait for decisions.
    async fn go_on<W: io::Write>(
        &mut self,
        context: &SessionId,
        reader: &mut Reader,
        screen: &mut Screen<W>,
        mut ended: Ended,
    ) -> anyhow::Result<Ended> {
        while matches!(ended, Ended::Waits) && self.is_asked {
            if !decide(self, context).await? {
                return Ok(Ended::Cancelled);
            }
            ended = follow((self.engine, self.scope, context), reader, screen, &mut self.interrupts).await?;
        }
        Ok(ended)
    }

    /// Before anything is made or changed: what is begun with a model that cannot be asked would only be in the way.
    pub(super) async fn check_model(&self, model: Option<&str>) -> anyhow::Result<()> {
        Ok(self.engine.check_model(model).await.map_err(TurnFailed)?)
    }

    /// The place, and a conversation if there is none yet.
    pub(super) async fn place(&mut self) -> anyhow::Result<Place> {
        if let Some(place) = &self.place {
            return Ok(place.clone());
        }
        self.check_model(self.new.model_id.as_deref()).await?;
        let created = self.engine.create_context(self.scope, self.new.clone()).await?;
        let branch = created.active_branch_name.parse().map_err(anyhow::Error::msg)?;
        Ok(self.place.insert(Place { context: created.id, branch }).clone())
    }

    /// Begins a turn and follows it to its end.
    pub(super) async fn turn(&mut self, begin: Begin) -> anyhow::Result<Ended> {
        let is_first = self.place.is_none();
        let Place { context, branch } = self.place().await?;
        let mut reader = self.engine.follow_context(self.scope, &context, None).await?;
        let added = match self.begin(begin, &context, branch.clone()).await {
            // Nothing is left of a conversation in which nothing could be said.
            Err(error) if is_first => {
                self.place = None;
                self.engine.delete_context(self.scope, &context, Deletion { purge: true }).await?;
                return Err(error.into());
            }
            added => added?,
        };
        if let Some(added) = added {
            crate::cli::warn(&added.warnings);
            self.go_to(&context, &added.branch)?;
            if added.branch != branch.as_str() {
                note(&format!("on branch {} now; `/switch {branch}` goes back", added.branch));
            }
        }
        let mut screen = self.screen(self.is_shown);
        let ended = self.follow_through(&context, &mut reader, &mut screen).await?;
        self.answer = screen.completed.map(|(message, _)| message);
        Ok(ended)
    }

    async fn begin(
        &self,
        begin: Begin,
        context: &SessionId,
        branch: BranchName,
    ) -> waystone_core::Result<Option<AddedMessage>> {
        let (engine, scope) = (self.engine, self.scope);
        Ok(match begin {
            Begin::Say(content) => {
                let request = AddMessage { content, branch: Some(branch), idempotency_key: None };
                Some(engine.add_message(scope, context, request).await?)
            }
            Begin::Edit(message, content) => {
                let request = EditMessage { content, branch: None, idempotency_key: None };
                Some(engine.edit_message(scope, context, &message, request).await?)
            }
            Begin::Retry => {
                engine.retry_turn(scope, context, None).await?;
                None
            }
        })
    }

    /// From now on what is said is said on this branch.
    pub(super) fn go_to(&mut self, context: &SessionId, branch: &str) -> anyhow::Result<()> {
        let branch = branch.parse().map_err(anyhow::Error::msg)?;
        self.place = Some(Place { context: context.clone(), branch });
        Ok(())
    }

    /// The newest message of a branch that `is_wanted`.
    async fn find_last(&self, place: &Place, is_wanted: fn(&Message) -> bool) -> anyhow::Result<Option<Message>> {
        let request = |limit, offset| ListMessages { branch: Some(place.branch.clone()), limit, offset, ids: None };
        let mut end = self.engine.list_messages(self.scope, &place.context, request(1, 0)).await?.total;
        while end > 0 {
            let start = end.saturating_sub(PAGE.into());
            let (limit, offset) = (u32::try_from(end - start)?, u32::try_from(start)?);
            let page = self.engine.list_messages(self.scope, &place.context, request(limit, offset)).await?;
            if let Some(found) = page.messages.into_iter().rfind(is_wanted) {
                return Ok(Some(found));
            }
            end = start;
        }
        Ok(None)
    }

    /// The newest message of a branch.
    pub(super) async fn find_newest(&self, place: &Place) -> anyhow::Result<Option<Message>> {
        self.find_last(place, |_| true).await
    }

    /// What a person said last. What tools return is said in the user's name, and by no person.
    pub(super) async fn find_last_said(&self, place: &Place) -> anyhow::Result<Option<Message>> {
        let is_said = |message: &Message| message.role == Role::User && message.message_type == MessageType::Text;
        self.find_last(place, is_said).await
    }
}
