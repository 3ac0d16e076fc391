//! A conversation on a terminal: one line after the other, and what is done about each.

use std::io::{self, Write};

use clap::builder::styling::{AnsiColor, Style};
use waystone_core::api::{
    ContextState, CreateBranch, FindWindow, MessageType, Role, Tool, ToolList, TurnError, UpdateContext,
};
use waystone_core::id::BranchName;
use waystone_core::store::Fork;

use super::answer::Ended;
use super::call::COLUMNS;
use super::command::{Command, HELP, Lines, parse};
use super::talk::{Begin, Place, Talk};
use crate::cli::context::{branches, window};
use crate::cli::failure::{self, Failure, TurnFailed};
use crate::cli::render::{cut, table};
use crate::cli::{note, warn};

/// So many branches are tried for one that has no name.
const UNDOS_MAX: u32 = 10_000;
/// The branch that needs not be shown.
const MAIN: &str = "main";

/// Talks until someone has had enough.
pub(super) async fn run(talk: &mut Talk<'_>) -> anyhow::Result<()> {
    let mut lines = Lines::default();
    loop {
        let mark = mark(talk.place.as_ref(), lines.is_begun());
        let Some(line) = talk.input.ask(&mark, &mut talk.interrupts).await? else { return Ok(()) };
        let Some(typed) = lines.add(&line) else { continue };
        talk.input.remember(&typed);
        match parse(&typed) {
            Ok(None) => {}
            Ok(Some(Command::Quit)) => return Ok(()),
            Ok(Some(command)) => {
                if let Err(error) = carry_out(command, talk).await {
                    complain(&error);
                }
                tell("\n")?;
            }
            Err(why) => warn(&[why]),
        }
    }
}

/// What hints name on the command line, and what does the same here.
const WORDS: [(&str, &str); 2] = [("--model demo", "/model demo"), ("waystone context branches", "/branches")];

/// Says what failed and what can be typed here about it.
pub(super) fn complain(error: &anyhow::Error) {
    failure::tell(error, |hint| WORDS.iter().fold(hint.to_owned(), |hint, (there, here)| hint.replace(there, here)));
}

pub(super) fn tell(text: &str) -> io::Result<()> {
    let mut target = anstream::stderr();
    target.write_all(text.as_bytes())?;
    target.flush()
}

/// What stands before what is typed.
fn mark(place: Option<&Place>, goes_on: bool) -> String {
    let style = Style::new().fg_color(Some(AnsiColor::Cyan.into())).bold();
    let branch = place.map(|place| place.branch.as_str()).filter(|branch| *branch != MAIN).unwrap_or_default();
    let mark = if goes_on { "." } else { ">" };
    format!("{style}{branch}{mark}{style:#} ")
}

async fn carry_out(command: Command, talk: &mut Talk<'_>) -> anyhow::Result<()> {
    let begin = match command {
        Command::Say(text) => Begin::Say(text),
        Command::Help => return Ok(tell(HELP)?),
        Command::Quit => return Ok(()),
        Command::Model(model) => return use_model(model, talk).await,
        Command::Tools => return list_tools(talk).await,
        command => {
            let Some(place) = talk.place.clone() else {
                return Err(nothing_said().into());
            };
            match carry_out_at(command, talk, place).await? {
                Some(begin) => begin,
                None => return Ok(()),
            }
        }
    };
    match talk.turn(begin).await? {
        Ended::Answered | Ended::Waits => {}
        Ended::Cancelled if talk.answer.is_some() => note("ended; what was written is kept"),
        Ended::Cancelled => {
            // A terminal shows that Ctrl-C was typed.
            tell("\n")?;
            note("ended before anything was written; /retry asks again");
        }
        Ended::Failed(error) => {
            let hint = format!("{}; /retry asks again", error.hint);
            return Err(TurnFailed(TurnError { hint, ..error }).into());
        }
    }
    Ok(())
}

/// Does what is about a conversation that is there. Returns what begins a turn, if one is wanted.
async fn carry_out_at(command: Command, talk: &mut Talk<'_>, place: Place) -> anyhow::Result<Option<Begin>> {
    match command {
        Command::Branch(name) => {
            let newest = talk.find_newest(&place).await?;
            let fork = newest.map_or(Fork::Active, |message| Fork::After(message.id));
            begin_branch(name.clone(), fork, talk, &place).await?;
            note(&format!("on branch {name} now; `/switch {}` goes back", place.branch));
        }
        Command::Switch(name) => {
            let switched = talk.engine.switch_branch(talk.scope, &place.context, &name).await?;
            talk.go_to(&place.context, &switched.active_branch_name)?;
            note(&format!("on branch {name} now"));
        }
        Command::Branches => {
            tell(&branches(&talk.engine.list_branches(talk.scope, &place.context).await?.branches))?;
        }
        Command::Window => {
            let request = FindWindow { next: true, branch: Some(place.branch.clone()) };
            tell(&window::show(&talk.engine.find_window(talk.scope, &place.context, request).await?))?;
        }
        Command::Undo => undo(talk, &place).await?,
        Command::Edit(text) => {
            let said = talk.find_last_said(&place).await?.ok_or_else(nothing_said)?;
            return Ok(Some(Begin::Edit(said.id, text)));
        }
        Command::Retry => {
            // What failed may be on a branch that was left since.
            let newest = talk.find_newest(&place).await?.ok_or_else(nothing_said)?;
            if newest.role == Role::Assistant && newest.message_type != MessageType::ToolCall {
                return Err(answered().into());
            }
            let state = talk.engine.find_turn(talk.scope, &place.context).await?.current_state;
            if state != ContextState::Idle {
                return Ok(Some(Begin::Retry));
            }
            // The turn did not fail, it was ended: the same is said again in the same place.
            let said = talk.find_last_said(&place).await?.ok_or_else(nothing_said)?;
            let text = said.text();
            return Ok(Some(Begin::Edit(said.id, text)));
        }
        Command::Say(_) | Command::Tools | Command::Model(_) | Command::Help | Command::Quit => {}
    }
    Ok(None)
}

/// Shows the tools of this conversation, also before it is begun.
async fn list_tools(talk: &Talk<'_>) -> anyhow::Result<()> {
    let ToolList { tools, warnings } = match &talk.place {
        Some(place) => talk.engine.list_tools(talk.scope, &place.context).await?,
        None => talk.engine.list_tools_for(&talk.new).await,
    };
    warn(&warnings);
    Ok(tell(&tool_table(&tools))?)
}

fn tool_table(tools: &[Tool]) -> String {
    if tools.is_empty() {
        return "No tools. They come with a folder to work in, and from mcpServers in config.json.\n".to_owned();
    }
    let width = tools.iter().map(|tool| tool.name.len()).max().unwrap_or_default();
    let row = |tool: &Tool| {
        let first = tool.description.lines().next().unwrap_or_default();
        // What is left beside the other columns, and what is between them.
        let room = COLUMNS.saturating_sub(width + "reads".len() + 5).max(20);
        vec![tool.name.clone(), if tool.read_only { "reads" } else { "" }.to_owned(), cut(first, room)]
    };
    table(&["TOOL", "", "WHAT IT DOES"], tools.iter().map(row))
}

fn nothing_said() -> Failure {
    Failure {
        code: "MESSAGE_NOT_FOUND",
        message: "nothing was said here yet".to_owned(),
        hint: "say something first".to_owned(),
    }
}

fn answered() -> Failure {
    Failure {
        code: "INVALID_STATE",
        message: "the last message on this branch is answered".to_owned(),
        hint: "/edit TEXT says it anew".to_owned(),
    }
}

/// Begins a branch, and goes on there.
async fn begin_branch(name: BranchName, fork: Fork, talk: &mut Talk<'_>, place: &Place) -> anyhow::Result<()> {
    let (parent_message_id, before_message_id) = match fork {
        Fork::Active => (None, None),
        Fork::After(message) => (Some(message), None),
        Fork::InPlaceOf(message) => (None, Some(message)),
    };
    let request = CreateBranch {
        name: name.clone(),
        parent_message_id,
        before_message_id,
        checkpoint_id: None,
        idempotency_key: None,
    };
    talk.engine.create_branch(talk.scope, &place.context, request).await?;
    let switched = talk.engine.switch_branch(talk.scope, &place.context, &name).await?;
    talk.go_to(&place.context, &switched.active_branch_name)
}

/// Takes the last exchange back: nothing is deleted, and what is said next continues what was before it.
async fn undo(talk: &mut Talk<'_>, place: &Place) -> anyhow::Result<()> {
    let said = talk.find_last_said(place).await?.ok_or_else(nothing_said)?;
    let taken = talk.engine.list_branches(talk.scope, &place.context).await?.branches;
    let mut names = (1..UNDOS_MAX).map(|number| format!("undo-{number}"));
    let free = names.find(|name| taken.iter().all(|branch| branch.name != *name)).unwrap_or_default();
    let name: BranchName = free.parse().map_err(anyhow::Error::msg)?;
    begin_branch(name.clone(), Fork::InPlaceOf(said.id), talk, place).await?;
    note(&format!("took it back, on branch {name} now; `/switch {}` goes back", place.branch));
    Ok(())
}

/// Lets another model answer from now on.
async fn use_model(model: String, talk: &mut Talk<'_>) -> anyhow::Result<()> {
    talk.check_model(Some(&model)).await?;
    match &talk.place {
        Some(place) => {
            let change = UpdateContext { model_id: Some(model.clone()), ..UpdateContext::default() };
            talk.engine.update_context(talk.scope, &place.context, change).await?;
        }
        None => talk.new.model_id = Some(model.clone()),
    }
    note(&format!("{model} answers from now on"));
    Ok(())
}
