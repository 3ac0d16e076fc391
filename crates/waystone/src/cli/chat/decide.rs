//! What has to be decided before a turn goes on: calls of tools, asked about one after the other.

use clap::builder::styling::{AnsiColor, Style};
use serde_json::{Map, Value};
use waystone_core::api::{DecideTools, EditArguments, ToolCall};
use waystone_core::id::SessionId;

use super::prompt::{read_line, tell};
use super::screen::call_line;
use super::talk::Talk;
use crate::cli::render::{line, plain_text};
use crate::cli::warn;

const HELP: &str = "\
y    run it
n    do not run it, and tell the model
n …  the same, and tell it why
e …  run it with other arguments, given as JSON
s    show the arguments in full
q    end the turn
";

/// What someone answered.
#[derive(Debug, PartialEq)]
enum Choice {
    Run,
    Deny(Option<String>),
    Edit(Map<String, Value>),
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
        ("e" | "edit", false) => match serde_json::from_str(rest) {
            Ok(arguments) => Ok(Choice::Edit(arguments)),
            Err(error) => Err(format!("these are no arguments: {error}")),
        },
        ("s" | "show", true) => Ok(Choice::Show),
        ("q" | "quit", true) => Ok(Choice::End),
        _ => Err(HELP.trim_end().to_owned()),
    }
}

/// Asks about every call that waits. Ctrl-C and the end of the input end the turn.
pub(super) async fn decide(talk: &mut Talk<'_>, context: &SessionId) -> anyhow::Result<()> {
    while let Some(call) = find_pending(talk, context).await? {
        if !ask(talk, context, call).await? {
            talk.engine.cancel_turn(talk.scope, context, None).await?;
            return Ok(());
        }
    }
    Ok(())
}

/// The first call that waits, in the order in which they were made.
async fn find_pending(talk: &Talk<'_>, context: &SessionId) -> anyhow::Result<Option<ToolCall>> {
    let turn = talk.engine.find_turn(talk.scope, context).await?;
    Ok(turn.pending_tool_calls.into_iter().next())
}

/// Asks about one call until it is decided. Whether the turn goes on.
async fn ask(talk: &mut Talk<'_>, context: &SessionId, call: ToolCall) -> anyhow::Result<bool> {
    let style = Style::new().fg_color(Some(AnsiColor::Yellow.into())).bold();
    let again =
        if call.started_at.is_some() { " again (it was begun before, and how it ended is not known)" } else { "" };
    let what = line(&call_line(&call.tool_name, &call.arguments));
    tell(&format!("{style}run{again}?{style:#} {what}\n"))?;
    loop {
        tell(&format!("{style}[y/n/e/s/q]{style:#} "))?;
        let typed = tokio::select! {
            typed = tokio::task::spawn_blocking(read_line) => typed??,
            () = talk.interrupts.next() => None,
        };
        let Some(typed) = typed else { return Ok(false) };
        let done = match parse(&typed) {
            Ok(Choice::Run) => talk.engine.approve_tools(talk.scope, context, of(&call, None)).await.map(drop),
            Ok(Choice::Deny(why)) => talk.engine.deny_tools(talk.scope, context, of(&call, why)).await.map(drop),
            Ok(Choice::Edit(arguments)) => {
                let request = EditArguments { arguments };
                let edited = talk.engine.edit_arguments(talk.scope, context, &call.id, request, None).await;
                match edited {
                    Ok(edited) => talk.engine.approve_tools(talk.scope, context, of(&edited, None)).await.map(drop),
                    Err(error) => Err(error),
                }
            }
            Ok(Choice::Show) => {
                let shown = serde_json::to_string_pretty(&call.arguments)?;
                tell(&format!("{}\n", plain_text(&shown)))?;
                continue;
            }
            Ok(Choice::End) => return Ok(false),
            Err(help) => {
                tell(&format!("{help}\n"))?;
                continue;
            }
        };
        if let Err(error) = done {
            // Someone else may have decided; what is still open is asked next.
            warn(&[error.to_string()]);
        }
        return Ok(true);
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
        check("s", Choice::Show);
        check("q", Choice::End);
        for typed in ["", "yy", "y please", "e", "e [1]", "maybe"] {
            assert!(parse(typed).is_err(), "{typed:?}");
        }
    }
}
