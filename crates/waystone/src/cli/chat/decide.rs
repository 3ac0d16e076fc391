//! What has to be decided before a turn goes on: calls of tools, asked about one after the other.

use clap::builder::styling::{AnsiColor, Color, Style};
use serde_json::{Map, Value};
use waystone_core::api::{ApprovalStatus, DecideTools, EditArguments, ToolCall};
use waystone_core::id::{SessionId, ToolCallId};

use super::answer::cancel;
use super::call::{shown_in_full, shown_in_short};
use super::prompt::tell;
use super::talk::Talk;
use crate::cli::render::{line, plain_json};
use crate::cli::{note, warn};

const HELP: &str = "\
y    run it
n    do not run it, and tell the model
n …  the same, and tell it why
e    run it with other arguments, which are asked for
e …  the same, with these, given as JSON
s    show the arguments in full
q    end the turn
";

const STYLE: Style = Style::new().fg_color(Some(Color::Ansi(AnsiColor::Yellow))).bold();

/// What someone answered.
#[derive(Debug, PartialEq)]
enum Choice {
    Run,
    Deny(Option<String>),
    Edit(Map<String, Value>),
    EditAsked,
    Show,
    End,
}

fn parse(typed: &str) -> Result<Choice, String> {
    let typed = typed.trim();
    let (name, rest) = typed.split_once(char::is_whitespace).unwrap_or((typed, ""));
    let rest = rest.trim();
    match (name.to_ascii_lowercase().as_str(), rest.is_empty()) {
        ("y" | "yes", true) => Ok(Choice::Run),
        ("n" | "no", true) => Ok(Choice::Deny(None)),
        ("n" | "no", false) => Ok(Choice::Deny(Some(rest.to_owned()))),
        ("e" | "edit", true) => Ok(Choice::EditAsked),
        ("e" | "edit", false) => parse_arguments(rest).map(Choice::Edit),
        ("s" | "show", true) => Ok(Choice::Show),
        ("q" | "quit", true) => Ok(Choice::End),
        _ => Err(HELP.trim_end().to_owned()),
    }
}

fn parse_arguments(typed: &str) -> Result<Map<String, Value>, String> {
    serde_json::from_str(typed).map_err(|error| format!("these are no arguments: {error}"))
}

/// Asks about every call that waits. Whether the turn goes on: Ctrl-C and the end of the input end it.
pub(super) async fn decide(talk: &mut Talk<'_>, context: &SessionId) -> anyhow::Result<bool> {
    let mut decided: Vec<ToolCallId> = Vec::new();
    while let Some(call) = find_pending(talk, context).await? {
        decided.push(call.id.clone());
        if !ask(talk, context, call).await? {
            // One that others have decided about goes on.
            let is_ended = cancel(talk.engine, talk.scope, context, &mut talk.interrupts).await?;
            // Calls run when all of them are decided.
            for id in decided.iter().filter(|_| is_ended) {
                let call = talk.engine.find_tool_call(talk.scope, context, id).await?;
                if call.approval_status == ApprovalStatus::Approved {
                    note(&format!("{} was approved, and was not run", line(&call.tool_name)));
                }
            }
            return Ok(!is_ended);
        }
    }
    Ok(true)
}

/// The first call that waits, in the order in which they were made.
async fn find_pending(talk: &Talk<'_>, context: &SessionId) -> anyhow::Result<Option<ToolCall>> {
    // Nobody is asked about what has waited too long.
    if talk.engine.expire_tools_of(talk.scope, context).await? {
        warn(&["nobody decided in time".to_owned()]);
    }
    let turn = talk.engine.find_turn(talk.scope, context).await?;
    Ok(turn.pending_tool_calls.into_iter().next())
}

/// Asks about one call until it is decided. Whether the turn goes on.
async fn ask(talk: &mut Talk<'_>, context: &SessionId, call: ToolCall) -> anyhow::Result<bool> {
    let again = if call.started_at.is_some() { " again" } else { "" };
    tell(&format!("{STYLE}run {}{again}?{STYLE:#}\n{}", line(&call.tool_name), shown_in_short(&call.arguments)))?;
    if call.started_at.is_some() {
        tell("It was begun before, and how it ended is not known.\n")?;
    }
    loop {
        let choice = match choose(talk, &call).await? {
            Ok(Choice::Show) => {
                tell(&shown_in_full(&call.arguments))?;
                continue;
            }
            Ok(Choice::End) => return Ok(false),
            // They stay as they are.
            Ok(Choice::EditAsked) => continue,
            Ok(choice) => choice,
            Err(help) => {
                tell(&format!("{help}\n"))?;
                continue;
            }
        };
        if let Err(error) = carry_out(choice, talk, context, &call).await {
            // Someone else may have decided; what is still open is asked next.
            warn(&[error.to_string()]);
        }
        return Ok(true);
    }
}

/// What someone wants, with the arguments that it takes.
async fn choose(talk: &mut Talk<'_>, call: &ToolCall) -> anyhow::Result<Result<Choice, String>> {
    let Some(typed) = answer(talk, "[y,n,e,s,q,?]").await? else { return Ok(Ok(Choice::End)) };
    match parse(&typed) {
        Ok(Choice::EditAsked) => {
            tell(&format!("{}\n", plain_json(&call.arguments.to_string())))?;
            let Some(typed) = answer(talk, "other arguments, or nothing to keep them:").await? else {
                return Ok(Ok(Choice::End));
            };
            Ok(match typed.trim() {
                "" => Ok(Choice::EditAsked),
                typed => parse_arguments(typed).map(Choice::Edit),
            })
        }
        choice => Ok(choice),
    }
}

/// What is typed when this is asked; `None` if someone has had enough.
async fn answer(talk: &mut Talk<'_>, question: &str) -> anyhow::Result<Option<String>> {
    talk.input.ask_now(&format!("{STYLE}{question}{STYLE:#} "), &mut talk.interrupts).await
}

async fn carry_out(choice: Choice, talk: &Talk<'_>, context: &SessionId, call: &ToolCall) -> waystone_core::Result<()> {
    let (engine, scope) = (talk.engine, talk.scope);
    match choice {
        Choice::Run => engine.approve_tools(scope, context, of(call, None)).await.map(drop),
        Choice::Deny(why) => engine.deny_tools(scope, context, of(call, why)).await.map(drop),
        Choice::Edit(arguments) => {
            let request = EditArguments { arguments };
            let edited = engine.edit_arguments(scope, context, &call.id, request, None).await?;
            engine.approve_tools(scope, context, of(&edited, None)).await.map(drop)
        }
        Choice::EditAsked | Choice::Show | Choice::End => Ok(()),
    }
}

/// Exactly what was looked at.
fn of(call: &ToolCall, reason: Option<String>) -> DecideTools {
    DecideTools {
        tool_call_ids: vec![call.id.clone()],
        hashes: [(call.id.to_string(), call.hash.clone())].into(),
        reason,
        idempotency_key: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_meant_runs_a_tool() {
        let check = |typed: &str, choice: Choice| assert_eq!(parse(typed), Ok(choice), "{typed:?}");
        check("y", Choice::Run);
        check(" YES ", Choice::Run);
        check("n", Choice::Deny(None));
        check("no not there", Choice::Deny(Some("not there".to_owned())));
        check("e {\"path\": \"a\"}", Choice::Edit(Map::from_iter([("path".to_owned(), "a".into())])));
        check("e", Choice::EditAsked);
        check("s", Choice::Show);
        check("q", Choice::End);
        for typed in ["", "yy", "y please", "e [1]", "maybe"] {
            assert!(parse(typed).is_err(), "{typed:?}");
        }
    }
}
