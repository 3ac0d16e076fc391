//! Why a command failed: one message, one hint and one exit code, for people or as the error object of the other faces.

use std::fmt;
use std::io::Write;
use std::process::ExitCode;

use clap::CommandFactory;
use clap::builder::styling::{AnsiColor, Style};
use serde_json::json;
use waystone_core::Error;
use waystone_core::api::{ErrorBody, ErrorReply, TurnError};
use waystone_core::error::CORRECT_IT;
use waystone_store::OpenError;

use super::Arguments;
use super::hint::with_details;
use super::render::{line, plain_json};
use super::wrap::wrap;
use crate::platform::terminal_columns;

pub(crate) const EXIT_CODES: &str = "Exit codes: 0 done, 1 the request failed, was declined when it asked, or the doctor found damage, 2 an argument, a setting or a file that was given is \
wrong, 3 the data directory cannot be used.";

/// A failure that only the command line has.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: &'static str,
    pub(crate) message: String,
    pub(crate) hint: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

/// Someone was asked and said no: nothing failed, and what was wanted is not done.
#[derive(Debug)]
pub(crate) struct Declined(pub(crate) String);

impl fmt::Display for Declined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Declined {}

/// A turn of a conversation that failed.
#[derive(Debug)]
pub(crate) struct TurnFailed(pub(crate) TurnError);

impl fmt::Display for TurnFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl std::error::Error for TurnFailed {}

fn reply(code: &str, message: String, hint: &str) -> ErrorReply {
    ErrorReply { error: ErrorBody { code: code.to_owned(), message, details: json!({}), hint: hint.to_owned() } }
}

fn reply_to(error: &anyhow::Error) -> ErrorReply {
    if let Some(error) = error.downcast_ref::<Error>() {
        return error.reply();
    }
    if let Some(Failure { code, message, hint }) = error.downcast_ref() {
        return reply(code, message.clone(), hint);
    }
    if let Some(Declined(message)) = error.downcast_ref() {
        return reply("CANCELLED", message.clone(), "answer y, or use --yes");
    }
    if let Some(TurnFailed(TurnError { code, message, hint })) = error.downcast_ref() {
        return reply(code, message.clone(), hint);
    }
    let message = format!("{error:#}");
    match error.downcast_ref::<OpenError>() {
        Some(error) => reply("STORAGE_UNAVAILABLE", message, &error.hint()),
        None => reply("COMMAND_FAILED", message, "see logs/waystone.log in the data directory"),
    }
}

/// As it is told on the command line.
fn reply_in_commands(error: &anyhow::Error) -> ErrorReply {
    let mut reply = reply_to(error);
    reply.error.hint = with_details(&reply.error.hint, &reply.error.details);
    reply
}

/// The same to a person, who has no contract that fixes a message.
fn reply_to_person(error: &anyhow::Error) -> ErrorReply {
    let mut reply = reply_in_commands(error);
    if let Some(Error::ContextNotFound(id)) = error.downcast_ref() {
        reply.error.message = format!("there is no conversation `{id}`");
    }
    reply
}

/// The same where someone types lines to a program, which has other words for what is to be done.
pub(crate) fn tell(error: &anyhow::Error, words: impl Fn(&str) -> String) {
    let mut reply = reply_to_person(error);
    reply.error.hint = words(&reply.error.hint);
    print(&reply, false);
}

/// Prints why a command failed and what to do, to standard error.
pub(crate) fn report(error: &anyhow::Error, as_json: bool, is_doctor: bool) -> ExitCode {
    if let (Some(Declined(message)), false) = (error.downcast_ref(), as_json) {
        let _ = writeln!(std::io::stderr(), "{}", sentence(message));
        return ExitCode::from(1);
    }
    let code = print(&if as_json { reply_in_commands(error) } else { reply_to_person(error) }, as_json);
    match error.downcast_ref() {
        // To find that is what the doctor is for.
        Some(OpenError::Database { .. } | OpenError::Lost { .. }) if is_doctor => ExitCode::from(1),
        _ => code,
    }
}

/// What stands alone on a line, of words that mostly stand behind others.
fn sentence(words: &str) -> String {
    let mut chars = words.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).chain(['.']).collect()).unwrap_or_default()
}

fn print(reply: &ErrorReply, as_json: bool) -> ExitCode {
    let error = &reply.error;
    if as_json {
        let _ = writeln!(std::io::stderr(), "{}", plain_json(&json!(reply).to_string()));
    } else {
        say(AnsiColor::Red, "error", &error.message);
        if error.hint != CORRECT_IT {
            say(AnsiColor::Cyan, "hint", &error.hint);
        }
    }
    ExitCode::from(match error.code.as_str() {
        "INVALID_INPUT" => 2,
        "STORAGE_UNAVAILABLE" => 3,
        _ => 1,
    })
}

/// Prints a sentence that says what it is, in colour on a terminal that wants it.
pub(super) fn say(color: AnsiColor, what: &str, text: &str) {
    let style = Style::new().fg_color(Some(color.into())).bold();
    let text = wrap(&line(text), what.len() + 2, terminal_columns(std::io::stderr()));
    let _ = writeln!(anstream::stderr(), "{style}{what}:{style:#} {text}");
}

/// Prints what is wrong with the arguments, or the help that was asked for.
pub(crate) fn refuse(error: &clap::Error) -> ExitCode {
    if std::env::args_os().len() <= 1 {
        return super::help::welcome();
    }
    let as_json =
        std::env::args_os().skip(1).take_while(|argument| argument != "--").any(|argument| argument == "--json");
    if !as_json || !error.use_stderr() || is_hook() {
        let _ = error.print();
        return match error.use_stderr() {
            true => ExitCode::from(if is_hook() { 1 } else { 2 }),
            false => ExitCode::SUCCESS,
        };
    }
    let text = error.to_string();
    let said = text.split("\n\nUsage:").next().unwrap_or_default();
    let said = said.split("\n\nFor more").next().unwrap_or_default();
    let said = said.strip_prefix("error: ").unwrap_or(said);
    let message = said.split_whitespace().collect::<Vec<_>>().join(" ");
    print(&reply("INVALID_INPUT", message, "see --help of the command"), true)
}

/// A client takes a hook that ends with 2 for one that wants to stop its agent.
fn is_hook() -> bool {
    let names: Vec<String> =
        Arguments::command().get_subcommands().map(|command| command.get_name().to_owned()).collect();
    let mut arguments = std::env::args().skip(1);
    arguments.find(|argument| names.contains(argument)).is_some_and(|name| name == "hook")
}
