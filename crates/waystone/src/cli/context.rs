//! `waystone context`: conversations as they are kept. They are led with [`super::chat`].

mod branch;
mod markdown;
mod outcome;
pub(super) mod window;

use clap::{Subcommand, ValueEnum};
use serde::Serialize;
use serde_json::{Map, json};
use waystone_core::api::{
    Branch, ChatConfig, ContentPart, Context, ContextPage, ContextState, Deletion, DiffBranches, FindContext,
    FindWindow, ListContexts, ListMessages, Message, Metadata, SaveContext,
};
use waystone_core::clock::Timestamp;
use waystone_core::id::{BranchName, SessionId};
use waystone_core::secret::Secrets;
use waystone_core::store::Scope;
use waystone_core::{Engine, Error, GRACE_DAYS};

use self::outcome::Outcomes;
use super::document::{MARKDOWN, Target, Text};
use super::failure::Failure;
use super::render::{Out, ago, confirm, count, cut, fields, line, plain_text, table, time};
use crate::settings::Settings;

/// What is left of 80 columns beside an id and an age.
const TITLE_CHARS_MAX: usize = 27;
/// So much of a call is shown: three lines. An export has all of it.
const CALL_CHARS_MAX: usize = 240;
/// Messages are read so many at once.
const PAGE: u32 = 1000;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List conversations, last used first
    List {
        /// Only those in this state, such as Idle, StreamingLLMResponse or PermanentFailure
        #[arg(long, value_parser = state)]
        state: Option<ContextState>,
        /// How many to show, 1 to 1000
        #[arg(long, default_value_t = ListContexts::default_limit())]
        limit: u32,
        /// Go on after the page that printed this cursor
        #[arg(long)]
        cursor: Option<String>,
    },
    /// Show how a conversation is led, where it is, and what was said on a branch
    Show {
        /// Its id, from the list
        context: SessionId,
        /// The branch to show [default: the active one]
        #[arg(long)]
        branch: Option<BranchName>,
        /// How many messages to show, 1 to 1000
        #[arg(long, default_value_t = ListMessages::default_limit())]
        limit: u32,
        /// How many of the oldest to pass over
        #[arg(long, default_value_t = 0)]
        offset: u32,
    },
    /// List the branches of a conversation, oldest first
    Branches {
        /// Its id, from the list
        context: SessionId,
    },
    /// Compare two branches: where they part, and what each has since
    Diff {
        /// Its id, from the list
        context: SessionId,
        a: BranchName,
        b: BranchName,
        /// How many messages of each to show, 1 to 1000
        #[arg(long, default_value_t = DiffBranches::default_limit())]
        limit: u32,
    },
    /// Tell a branch what another one came to, after showing what it will be told
    Merge {
        /// Its id, from the list
        context: SessionId,
        /// The branch whose messages are meant
        from: BranchName,
        /// The branch that is told [default: the active one]
        #[arg(long)]
        into: Option<BranchName>,
        /// Only show what would be added
        #[arg(long)]
        dry_run: bool,
        /// Do not ask
        #[arg(long, short)]
        yes: bool,
    },
    /// Keep where a conversation stands as a checkpoint; each turn that ends does so by itself
    Checkpoint {
        /// Its id, from the list
        context: SessionId,
        /// The branch that is meant [default: the active one]
        #[arg(long)]
        branch: Option<BranchName>,
        /// To find it by
        #[arg(long)]
        name: Option<String>,
    },
    /// Show what fills the model's window: in the last call, or in the next
    Window {
        /// Its id, from the list
        context: SessionId,
        /// Show the window of the next call, as it would be now
        #[arg(long)]
        next: bool,
        /// The branch to look at [default: the active one]
        #[arg(long)]
        branch: Option<BranchName>,
    },
    /// Write a conversation into one file: all of it as JSON, or one branch as Markdown
    Export {
        /// Its id, from the list
        context: SessionId,
        /// What to write: the fields of the REST API, or a text for people
        #[arg(long, value_enum, default_value_t = Format::Json)]
        format: Format,
        /// The branch to write as Markdown [default: the active one]
        #[arg(long)]
        branch: Option<BranchName>,
        #[command(flatten)]
        target: Target,
    },
    /// Delete a conversation with its messages; they are kept for a while
    Delete {
        /// Its id, from the list
        context: SessionId,
        /// Remove it for good at once, also when it was deleted before
        #[arg(long)]
        purge: bool,
        /// Do not ask
        #[arg(long, short)]
        yes: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    Json,
    Markdown,
}

fn state(name: &str) -> Result<ContextState, String> {
    let found = ContextState::ALL.into_iter().find(|state| state.as_str().eq_ignore_ascii_case(name));
    found.ok_or_else(|| format!("it is one of {}", ContextState::ALL.map(ContextState::as_str).join(", ")))
}

/// A conversation with messages of one branch.
#[derive(Serialize)]
struct Shown {
    #[serde(flatten)]
    context: Context,
    messages: Vec<Message>,
    total: u64,
    has_more: bool,
}

pub(crate) async fn run(
    command: Command,
    engine: &Engine,
    scope: &Scope,
    out: &Out,
    settings: &Settings,
) -> anyhow::Result<()> {
    match command {
        Command::List { state, limit, cursor } => {
            let project_id = settings.given_project();
            let is_narrowed = project_id.is_some() || state.is_some();
            let page = engine.list_contexts(scope, ListContexts { project_id, state, limit, cursor }).await?;
            out.print(&page, |page| list(page, is_narrowed, engine.now()))
        }
        Command::Show { context, branch, limit, offset } => {
            let found = engine.find_context(scope, &context, FindContext { message_pool: false }).await?;
            let branch = branch.map_or_else(|| found.active_branch_name.parse(), Ok).map_err(anyhow::Error::msg)?;
            let request = ListMessages { branch: Some(branch.clone()), limit, offset, ids: None };
            let page = engine.list_messages(scope, &context, request).await?;
            let outcomes = Outcomes::find(engine, scope, &context, &page.messages).await?;
            let shown = Shown { context: found, messages: page.messages, total: page.total, has_more: page.has_more };
            out.print(&shown, |shown| show(shown, &outcomes, &branch, offset))
        }
        Command::Branches { context } => {
            out.print(&engine.list_branches(scope, &context).await?, |list| branches(&list.branches))
        }
        Command::Diff { context, a, b, limit } => {
            out.print(&engine.diff_branches(scope, &context, &a, &b, DiffBranches { limit }).await?, branch::diff)
        }
        Command::Merge { context, from, into, dry_run, yes } => {
            let merge = branch::Merge { context, from, into, is_dry_run: dry_run, yes };
            branch::merge(merge, engine, scope, out).await
        }
        Command::Checkpoint { context, branch, name } => {
            let named = |name: String| Metadata::new(Map::from_iter([("name".to_owned(), name.into())]));
            let metadata = name.map(named).transpose().map_err(Error::InvalidInput)?;
            let request = SaveContext { branch, metadata, idempotency_key: None };
            out.print(&engine.save_context(scope, &context, request).await?, |saved| {
                format!("saved {} in session {context}\n", saved.checkpoint_id)
            })
        }
        Command::Window { context, next, branch } => {
            out.print(&engine.find_window(scope, &context, FindWindow { next, branch }).await?, window::show)
        }
        Command::Export { context, format, branch, target } => {
            let text = match (format, branch) {
                (Format::Json, None) => json_of(engine, scope, &context, &settings.secrets()).await?,
                (Format::Markdown, branch) => markdown_of(engine, scope, &context, branch, &settings.secrets()).await?,
                (Format::Json, Some(_)) => {
                    return Err(Failure {
                        code: "INVALID_INPUT",
                        message: "a conversation as JSON has all its branches".to_owned(),
                        hint: "leave --branch out, or use --format markdown".to_owned(),
                    }
                    .into());
                }
            };
            let text = Text { is_read_only: settings.is_on("readOnly"), ..text };
            target.write_text(text, &settings.data_dir, "message", out).await
        }
        Command::Delete { context, purge, yes } => delete(context, Deletion { purge }, yes, engine, scope, out).await,
    }
}

fn list(page: &ContextPage, is_narrowed: bool, now: Timestamp) -> String {
    match page.contexts.is_empty() {
        true if is_narrowed => return "No such conversations.".to_owned(),
        true => return "No conversations yet. `waystone chat` begins one.".to_owned(),
        false => {}
    }
    let row = |context: &Context| {
        vec![
            context.id.to_string(),
            ago(context.updated_at, now),
            cut(
                &[mark(context.current_state), &line(context.title.as_deref().unwrap_or_default())].concat(),
                TITLE_CHARS_MAX,
            ),
        ]
    };
    let header = ["CONTEXT", "LAST USED", "BEGINS WITH"];
    let more = page.next_cursor.as_ref().map(|cursor| format!("more: --cursor {cursor}\n"));
    table(&header, page.contexts.iter().map(row)) + &more.unwrap_or_default()
}

/// What is to be known of a turn that has not ended well.
fn mark(state: ContextState) -> &'static str {
    match state {
        ContextState::Idle => "",
        ContextState::PermanentFailure => "[failed] ",
        ContextState::AwaitingToolApproval => "[asks you] ",
        _ => "[under way] ",
    }
}

pub(super) fn branches(branches: &[Branch]) -> String {
    let row = |branch: &Branch| {
        let continued = branch.parent_message_id.as_ref().map(ToString::to_string);
        vec![
            format!("{}{}", branch.name, if branch.is_active { " *" } else { "" }),
            branch.message_ids.len().to_string(),
            continued.unwrap_or_default(),
        ]
    };
    table(&["BRANCH", "OWN MESSAGES", "CONTINUES"], branches.iter().map(row)) + "* is active\n"
}

fn show(shown: &Shown, outcomes: &Outcomes, branch: &BranchName, offset: u32) -> String {
    let (context, config) = (&shown.context, &shown.context.config);
    let mut text = fields(&[
        ("context", context.id.to_string()),
        ("project", context.project_id.to_string()),
        ("began with", context.parent_id.as_ref().map(ToString::to_string).unwrap_or_default()),
        ("model", config.model_id.clone()),
        ("mode", config.mode.clone()),
        ("role", config.agent_role.clone()),
        ("prompt", config.system_prompt_id.clone().unwrap_or_default()),
        ("parameters", parameters(config)),
        ("workspace", config.workspace_path.clone().unwrap_or_default()),
        ("state", context.current_state.as_str().to_owned()),
        ("error", context.error.as_ref().map(|error| error.message.clone()).unwrap_or_default()),
        ("created", time(context.created_at)),
        ("last used", time(context.updated_at)),
    ]);
    let all: Vec<Branch> = context.branches.iter().flat_map(|all| all.values().cloned()).collect();
    text += &format!("\n{}\n{branch}: {}\n", branches(&all), count(shown.total, "message"));
    for message in &shown.messages {
        // No line of a text stands where lines of ours do.
        let said = plain_text(said(message, outcomes, CALL_CHARS_MAX).trim_end()).replace('\n', "\n  ");
        text += &format!("\n{}\n  {said}\n", heading(message));
    }
    if shown.has_more {
        let next = u64::from(offset) + shown.messages.len() as u64;
        text += &format!("\n{next} of {}; more: --offset {next}\n", shown.total);
    }
    text
}

/// What a message says, and what it calls.
fn said(message: &Message, outcomes: &Outcomes, call_chars_max: usize) -> String {
    let calls = message.content.iter().filter_map(|part| match part {
        ContentPart::ToolCall { id, name, arguments } => {
            Some(cut(&format!("→ {name} {arguments}"), call_chars_max) + &outcomes.of(id))
        }
        _ => None,
    });
    let text = Some(message.text()).filter(|text| !text.is_empty());
    text.into_iter().chain(calls).collect::<Vec<_>>().join("\n")
}

/// Parameters as JSON, if there are some.
fn parameters(config: &ChatConfig) -> String {
    if config.parameters.is_empty() { String::new() } else { json!(config.parameters).to_string() }
}

/// Who says a message, when, and what is special about it. None of it is a text of someone's.
fn heading(message: &Message) -> String {
    let kind = match message.message_type.as_str() {
        "text" => String::new(),
        kind => format!(", {}", kind.replace('_', " ")),
    };
    let ended = match (message.metadata.cancelled, message.metadata.truncated) {
        (true, _) => ", broken off",
        (_, true) => ", cut at its limit",
        _ => "",
    };
    format!("{}, {}{kind}{ended}", message.role.as_str(), time(message.metadata.created_at))
}

fn document(name: &SessionId, text: String, extension: &'static str, engine: &Engine) -> Text {
    let name = name.to_string();
    Text { text, name, extension, at: engine.now(), count: 0, covered: 0, is_read_only: false }
}

/// All of a conversation.
async fn json_of(engine: &Engine, scope: &Scope, id: &SessionId, secrets: &Secrets) -> anyhow::Result<Text> {
    let mut found = engine.find_context(scope, id, FindContext { message_pool: true }).await?;
    let nodes = found.message_pool.iter_mut().flat_map(|pool| pool.values_mut());
    let covered = secrets.shown().map_or(0, |cover| nodes.map(|node| node.message.cover(cover)).sum::<u64>());
    let covered = covered + secrets.shown().map_or(0, |cover| found.config.cover(cover));
    let count = found.message_pool.as_ref().map_or(0, |pool| pool.len() as u64);
    let text = serde_json::to_string_pretty(&found)? + "\n";
    Ok(Text { count, covered, ..document(id, text, "json", engine) })
}

/// One branch of a conversation.
async fn markdown_of(
    engine: &Engine,
    scope: &Scope,
    id: &SessionId,
    branch: Option<BranchName>,
    secrets: &Secrets,
) -> anyhow::Result<Text> {
    let mut found = engine.find_context(scope, id, FindContext { message_pool: false }).await?;
    let branch = branch.map_or_else(|| found.active_branch_name.parse(), Ok).map_err(anyhow::Error::msg)?;
    let mut messages = Vec::new();
    let mut covered = secrets.shown().map_or(0, |cover| found.config.cover(cover));
    loop {
        let offset = u32::try_from(messages.len())?;
        let request = ListMessages { branch: Some(branch.clone()), limit: PAGE, offset, ids: None };
        let page = engine.list_messages(scope, id, request).await?;
        messages.extend(page.messages);
        if !page.has_more {
            break;
        }
    }
    if let Some(cover) = secrets.shown() {
        covered += messages.iter_mut().map(|message| message.cover(cover)).sum::<u64>();
    }
    let outcomes = Outcomes::find(engine, scope, id, &messages).await?;
    let text = markdown::of(&found, &branch, &messages, &outcomes)?;
    Ok(Text { count: messages.len() as u64, covered, ..document(id, text, MARKDOWN, engine) })
}

async fn delete(
    id: SessionId,
    how: Deletion,
    yes: bool,
    engine: &Engine,
    scope: &Scope,
    out: &Out,
) -> anyhow::Result<()> {
    if !yes && how.purge {
        confirm(&format!("conversation {id} for good"), "It cannot be restored.")?;
    } else if !yes {
        let found = engine.find_context(scope, &id, FindContext { message_pool: false }).await?;
        let messages: usize = found.branches.iter().flatten().map(|(_, branch)| branch.message_ids.len()).sum();
        let what = format!("conversation {id} with {}", count(messages as u64, "message"));
        confirm(&what, &format!("It is hidden and kept for at least {GRACE_DAYS} days."))?;
    }
    engine.delete_context(scope, &id, how).await?;
    out.print(&json!({ "context_id": id, "purged": how.purge }), |_| match how.purge {
        true => format!("removed {id}\n"),
        false => format!(
            "deleted {id}; kept for at least {GRACE_DAYS} days\n`waystone session restore {id}` brings it back\n"
        ),
    })
}
