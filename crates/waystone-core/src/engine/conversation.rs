//! Conversations: begun, configured, looked at. A conversation is also a session, and is deleted as one.

use std::path::Path;
use std::sync::Arc;

use serde::Serialize;
use serde_json::{Value, json};

use super::tool_call::ToolPolicy;
use super::{Engine, Limits};
use crate::api::{
    ChatConfig, Context, ContextPage, ContextState, CreateContext, DeletedSession, Deletion, FindContext, ListContexts,
    ModelInfo, UpdateContext,
};
use crate::canon::Hash;
use crate::error::{Error, Result};
use crate::id::{IdempotencyKey, ProjectId, SessionId};
use crate::model::{Answer, Model, ModelCall, ModelError};
use crate::store::{Idempotency, NewConversation, Scope};
use crate::tools::{NoTools, Tools};

/// What conversations need of the world around.
#[derive(Clone)]
pub struct Chat {
    pub model: Arc<dyn Model>,
    /// Which model answers where none is named.
    pub model_id: String,
    /// The text of a system prompt that is not built in.
    pub prompt: Lookup<String>,
    /// The project of a folder that is worked in.
    pub project_of: Lookup<ProjectId>,
    pub tools: Arc<dyn Tools>,
    pub policy: ToolPolicy,
    /// Whether where a conversation stands is kept as a checkpoint after each turn.
    pub saves_turns: bool,
}

/// What there is of a name, if there is something.
pub type Lookup<T> = Arc<dyn Fn(&str) -> Option<T> + Send + Sync>;

/// The branch that every conversation begins with.
pub const MAIN: &str = "main";

/// A title is no longer.
const TITLE_CHARS_MAX: usize = 80;

/// In a process that runs no turns.
pub(super) struct NoModel;

#[async_trait::async_trait]
impl Model for NoModel {
    async fn call(&self, call: ModelCall) -> Result<Box<dyn Answer>, ModelError> {
        let error = crate::api::TurnError {
            code: "MODEL_NOT_CONFIGURED".to_owned(),
            message: format!("this process has no model `{}`", call.model),
            hint: "use `waystone serve` or `waystone chat`".to_owned(),
        };
        Err(ModelError { is_recoverable: false, retry_after: None, error })
    }

    fn describe(&self, model: &str) -> ModelInfo {
        ModelInfo {
            id: model.to_owned(),
            provider: String::new(),
            name: model.to_owned(),
            limit: Limits::default().window_tokens,
            limit_assumed: true,
            prices: None,
            ready: false,
            hint: None,
        }
    }

    async fn list(&self) -> Vec<ModelInfo> {
        Vec::new()
    }
}

impl Default for Chat {
    fn default() -> Self {
        Self {
            model: Arc::new(NoModel),
            model_id: "demo".to_owned(),
            prompt: Arc::new(|_| None),
            project_of: Arc::new(|_| None),
            tools: Arc::new(NoTools),
            policy: ToolPolicy::default(),
            saves_turns: true,
        }
    }
}

impl Engine {
    /// The same engine, which can hold conversations.
    pub fn with_chat(self, chat: Chat) -> Self {
        Self { chat: Arc::new(chat), ..self }
    }

    /// Begins a conversation.
    pub async fn create_context(&self, scope: &Scope, request: CreateContext) -> Result<Context> {
        self.check_writable()?;
        let config = request.config(&self.chat.model_id);
        config.check()?;
        let mut warnings = self.scan_config(&config)?;
        warnings.extend(self.check_workspace(request.workspace_path.as_deref()).await?);
        let inferred = config.workspace_path.as_deref().and_then(|path| (self.chat.project_of)(path));
        let new = NewConversation {
            id: self.fresh_id()?,
            project: inferred.unwrap_or_else(|| self.project.clone()),
            parent: request.parent_id.clone(),
            at: self.clock.now(),
            total_bytes_max: self.limits.total_bytes_max,
            idempotency: request.idempotency_key.clone().map(|key| retry_of(key, "contexts", &request)),
            config,
        };
        let config = new.config.clone();
        let (id, is_before) = self.store.add_conversation(scope, new).await?;
        let mut context = self.find_context(scope, &id, FindContext { message_pool: false }).await?;
        context.warnings.extend(warnings);
        context.warnings.extend(self.nearly_full(scope, None).await);
        Ok(if is_before { as_it_began(context, config) } else { context })
    }

    /// What a client is told of secrets in a configuration; an error if it must not be kept.
    fn scan_config(&self, config: &ChatConfig) -> Result<Vec<String>> {
        let mut scan = self.scan();
        if let Value::Object(fields) = json!(config) {
            scan.object("", &fields);
        }
        scan.end()
    }

    /// What a client is told of a folder that is not there: it may be made later. One that is relative is refused, since nobody knows to what.
    async fn check_workspace(&self, path: Option<&str>) -> Result<Option<String>> {
        let Some(path) = path else { return Ok(None) };
        if !Path::new(path).is_absolute() {
            return Err(Error::InvalidInput(format!("workspace_path `{path}` is relative: give it from the root on")));
        }
        let is_there = self.chat.tools.has_workspace(path).await;
        Ok((!is_there).then(|| format!("workspace_path `{path}` is no folder here: tools that work in it will fail")))
    }

    /// A conversation with its branches, and its messages if they are wanted.
    pub async fn find_context(&self, scope: &Scope, id: &SessionId, request: FindContext) -> Result<Context> {
        let found = self.store.find_conversation(scope, id, request.message_pool).await?;
        Ok(Context { warnings: self.warnings(), ..found })
    }

    /// Conversations, last used first. Of their messages only the beginning of the first is read.
    pub async fn list_contexts(&self, scope: &Scope, request: ListContexts) -> Result<ContextPage> {
        request.check()?;
        let mut page = self.store.list_conversations(scope, &request).await?;
        for context in &mut page.contexts {
            context.title = context.title.as_deref().and_then(title);
        }
        Ok(ContextPage { warnings: self.warnings(), ..page })
    }

    /// Changes how a conversation is led, from its next call of the model on.
    pub async fn update_context(&self, scope: &Scope, id: &SessionId, request: UpdateContext) -> Result<Context> {
        self.check_writable()?;
        loop {
            let before: ChatConfig = self.store.find_turn(scope, id).await?.config;
            let config = request.clone().apply(before.clone());
            config.check()?;
            let mut warnings = self.scan_config(&config)?;
            warnings.extend(self.check_workspace(request.workspace_path.as_ref().and_then(Option::as_deref)).await?);
            if self.store.configure_conversation(scope, id, &before, &config, self.clock.now()).await? {
                let mut context = self.find_context(scope, id, FindContext { message_pool: false }).await?;
                context.warnings.extend(warnings);
                return Ok(context);
            }
        }
    }

    /// Hides a conversation, which is a session too; it is kept for a while, or removed for good.
    pub async fn delete_context(&self, scope: &Scope, id: &SessionId, how: Deletion) -> Result<DeletedSession> {
        self.check_writable()?;
        // What was deleted before can still be removed; what is another session is none.
        if !self.store.is_conversation(scope, id).await? {
            return Err(Error::ContextNotFound(id.clone()));
        }
        match self.delete_session(scope, id, how).await {
            Err(Error::SessionNotFound(id)) => Err(Error::ContextNotFound(id)),
            deleted => deleted,
        }
    }
}

/// What a conversation is called that begins so: its first words on one line.
fn title(text: &str) -> Option<String> {
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    Some(match words.char_indices().nth(TITLE_CHARS_MAX) {
        Some((end, _)) => format!("{}…", words[..end].trim_end()),
        None => words,
    })
    .filter(|title| !title.is_empty())
}

/// A conversation as it was when it was begun, which a retry is told.
fn as_it_began(context: Context, config: ChatConfig) -> Context {
    let mut branches = context.branches.unwrap_or_default();
    branches.retain(|name, _| name == MAIN);
    if let Some(main) = branches.get_mut(MAIN) {
        main.is_active = true;
        if context.parent_id.is_none() {
            main.message_ids.clear();
        }
    }
    Context {
        config,
        branches: Some(branches),
        active_branch_name: MAIN.to_owned(),
        current_state: ContextState::Idle,
        error: None,
        updated_at: context.created_at,
        ..context
    }
}

/// What makes a retry of a request at `place` recognisable.
pub(super) fn retry_of(given: IdempotencyKey, place: &str, request: &impl Serialize) -> Idempotency {
    let request = serde_json::to_vec(request).unwrap_or_default();
    Idempotency { key: format!("{place}\n{given}"), request_hash: Hash::of(&request), given }
}
