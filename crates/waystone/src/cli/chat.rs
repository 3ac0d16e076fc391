//! `waystone chat`: a conversation with a model, on a terminal or with one message.
//!
//! This file opens a conversation and says how to go on with it. What is led on a terminal is in [`prompt`], what a line means in
//! [`command`], where the conversation is in [`talk`], and what was said before in [`recall`]; a turn is followed in [`answer`] and shown in [`screen`], and what it waits for is
//! asked in [`decide`].

mod answer;
mod call;
mod command;
mod decide;
mod edit;
mod flow;
mod input;
mod prompt;
mod recall;
mod screen;
mod talk;

use std::io::IsTerminal;
use std::path::Path;

use clap::Args;
use serde::Serialize;
use waystone_core::Engine;
use waystone_core::api::{CreateContext, ListContexts, Message, UpdateContext};
use waystone_core::id::{BranchName, SessionId};
use waystone_core::store::Scope;

use super::failure::{Failure, TurnFailed};
use super::file::read_text;
use super::note;
use super::render::Out;
use crate::settings::Settings;
use answer::{Ended, Interrupts};
use input::Input;
use talk::{Begin, Place, Talk};

pub(crate) const AFTER_HELP: &str =
    "On a terminal /help shows what there is besides talking, and Ctrl-C ends an answer.";

#[derive(Debug, Args)]
pub(crate) struct Chat {
    /// What to say; its answer is printed, and that is all. Without it one talks on a terminal, and elsewhere all of standard input
    /// is said
    message: Vec<String>,
    /// Go on with this conversation, from `waystone context list` [default: a new one]
    #[arg(long, value_name = "ID", group = "which")]
    context: Option<SessionId>,
    /// Go on with the conversation of this project that was used last
    #[arg(long, group = "which")]
    last: bool,
    /// Go on with this branch of it, which is active then [default: the active one]
    #[arg(long, requires = "which")]
    branch: Option<BranchName>,
    /// A label whose instructions the model gets, such as chat, code or plan
    #[arg(long)]
    mode: Option<String>,
}

/// An answer, and where it is.
#[derive(Serialize)]
struct Answered {
    context_id: SessionId,
    branch: BranchName,
    message: Message,
}

pub(crate) async fn run(
    chat: Chat,
    engine: &Engine,
    scope: &Scope,
    out: &Out,
    settings: &Settings,
) -> anyhow::Result<()> {
    let message = chat.read(engine.limits().context_bytes_max, out)?;
    let mut talk = Talk {
        engine,
        scope,
        interrupts: Interrupts::listen(),
        input: Input::open(),
        new: CreateContext { mode: chat.mode.clone(), workspace_path: working_directory(), ..CreateContext::default() },
        place: None,
        is_shown: !out.json,
        is_asked: message.is_none() || (std::io::stdin().is_terminal() && !out.json),
        answer: None,
    };
    let context = match chat.context {
        None if chat.last => Some(find_last(engine, scope, settings).await?),
        context => context,
    };
    if let Some(context) = context {
        let change = UpdateContext { model_id: settings.given_model(), mode: chat.mode, ..UpdateContext::default() };
        talk.open(context, chat.branch, change, message.is_some()).await?;
    }
    let done = match message {
        Some(message) => say(message, &mut talk, out).await,
        None => {
            greet(&talk, settings).await;
            prompt::run(&mut talk).await
        }
    };
    if let Some(Place { context, .. }) = talk.place.filter(|_| !out.json) {
        note(&format!("`waystone chat --context {context}` goes on"));
    }
    done
}

impl Chat {
    /// What is said at once; `None` if someone is to talk on a terminal.
    fn read(&self, bytes_max: u64, out: &Out) -> anyhow::Result<Option<String>> {
        let message = match std::io::stdin().is_terminal() {
            _ if !self.message.is_empty() => self.message.join(" "),
            false => read_text(Path::new("-"), bytes_max)?,
            true if out.json => return Err(nothing("what is said on a terminal is no JSON").into()),
            true => return Ok(None),
        };
        match message.trim_end() {
            "" => Err(nothing("there is no message").into()),
            message => Ok(Some(message.to_owned())),
        }
    }
}

fn nothing(message: &str) -> Failure {
    let hint = "give the message as an argument, or on standard input".to_owned();
    Failure { code: "INVALID_INPUT", message: message.to_owned(), hint }
}

/// The folder that is worked in, if its name is text.
fn working_directory() -> Option<String> {
    std::env::current_dir().ok()?.to_str().map(str::to_owned)
}

async fn greet(talk: &Talk<'_>, settings: &Settings) {
    match &talk.place {
        Some(place) => {
            note(&format!("going on with branch {}; /help shows what there is besides talking", place.branch))
        }
        None => {
            let model = settings.text("model");
            note(&format!("talking with {model}; /help shows what there is besides talking"));
            if let Err(error) = talk.engine.check_model(talk.new.model_id.as_deref()).await {
                prompt::complain(&TurnFailed(error).into());
            }
        }
    }
}

/// The conversation of this project that was used last.
async fn find_last(engine: &Engine, scope: &Scope, settings: &Settings) -> anyhow::Result<SessionId> {
    let project_id = Some(settings.project.clone());
    let request = ListContexts { project_id, limit: 1, ..ListContexts::default() };
    let found = engine.list_contexts(scope, request).await?.contexts.into_iter().next();
    let none = || Failure {
        code: "CONTEXT_NOT_FOUND",
        message: format!("there is no conversation of project {} yet", settings.project),
        hint: "`waystone chat` begins one, `waystone context list` shows those of all projects".to_owned(),
    };
    Ok(found.ok_or_else(none)?.id)
}

/// Nobody is there who could be asked. Says about what.
async fn waits(engine: &Engine, scope: &Scope, context: &SessionId) -> anyhow::Error {
    let calls = match engine.find_turn(scope, context).await {
        Ok(turn) => turn.pending_tool_calls,
        Err(error) => return error.into(),
    };
    let named: Vec<String> = calls.iter().map(|call| format!("{} ({})", call.tool_name, call.id)).collect();
    Failure {
        code: "APPROVAL_WANTED",
        message: format!("the model wants to call {}, and someone has to approve that", named.join(", ")),
        hint: format!(
            "`waystone chat --context {context}` on a terminal asks; --tool-policy and --allowed-tools say what runs unasked"
        ),
    }
    .into()
}

/// Says one message, and prints the answer.
async fn say(message: String, talk: &mut Talk<'_>, out: &Out) -> anyhow::Result<()> {
    match talk.turn(Begin::Say(message)).await? {
        Ended::Answered => {}
        Ended::Failed(error) => return Err(TurnFailed(error).into()),
        Ended::Waits => {
            let context = talk.place().await?.context;
            return Err(waits(talk.engine, talk.scope, &context).await);
        }
        Ended::Cancelled => {
            return Err(Failure {
                code: "CANCELLED",
                message: "the answer was ended before it was whole".to_owned(),
                hint: "what was written of it is kept".to_owned(),
            }
            .into());
        }
    }
    let (Some(Place { context, branch }), Some(answer), true) = (&talk.place, &talk.answer, out.json) else {
        return Ok(());
    };
    let message = talk.engine.find_message(talk.scope, context, answer).await?;
    out.print(&Answered { context_id: context.clone(), branch: branch.clone(), message }, |_| String::new())
}
