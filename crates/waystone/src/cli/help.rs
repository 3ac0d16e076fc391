//! What the command line says about itself.

use std::io::Write;
use std::num::{IntErrorKind, ParseIntError};
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory, FromArgMatches};

use super::Arguments;
use crate::settings::{HEADING, hide_in_commands};

const WELCOME: &str = "\
Waystone keeps what an LLM agent knows, and never loses any of it.

Begin with one of these:
  waystone install claude-code  add it to your agent (codex, cursor, vscode)
  waystone serve                serve applications over REST, agents over MCP
  waystone chat                 talk with a model; the built-in one needs no key
  waystone status               show what is kept, where, and who uses it

Nothing has to be set up: all that is kept is in one directory of yours.

All commands and settings:  waystone --help
The help of one command:    waystone checkpoint --help
";

/// Who types `waystone` alone is told what it is, and what to do first.
pub(super) fn welcome() -> ExitCode {
    let _ = std::io::stdout().write_all(WELCOME.as_bytes());
    ExitCode::SUCCESS
}

/// Reads what was typed.
pub(crate) fn parse() -> Result<Arguments, clap::Error> {
    let mut program = hide_in_commands(Arguments::command());
    let typed = program.try_get_matches_from_mut(std::env::args_os());
    let typed = typed.map_err(|error| name_number(name_output(error, &program)))?;
    Arguments::from_arg_matches(&typed).map_err(|error| error.format(&mut program))
}

/// A file behind a command that writes one is mostly where it is to be written.
fn name_output(mut error: clap::Error, program: &Command) -> clap::Error {
    let Some(ContextValue::String(file)) = error.get(ContextKind::InvalidArg) else { return error };
    if error.kind() != ErrorKind::UnknownArgument || file.starts_with('-') {
        return error;
    }
    let typed = std::env::args().skip(1);
    let command = typed.fold(program, |command, word| command.find_subcommand(&word).unwrap_or(command));
    if command.get_arguments().any(|arg| arg.get_id() == "output") {
        let tip = format!("to write to a file, use '--output {file}'").into();
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip]));
    }
    error
}

/// What is no number is said to be that, in the words that settings have for it.
fn name_number(error: clap::Error) -> clap::Error {
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        _ => None,
    };
    let why = std::error::Error::source(&error).and_then(|source| source.downcast_ref::<ParseIntError>());
    let (Some(why), Some(value), Some(arg)) =
        (why, context(ContextKind::InvalidValue), context(ContextKind::InvalidArg))
    else {
        return error;
    };
    let why = match why.kind() {
        IntErrorKind::PosOverflow => "is too large",
        _ => "is not a whole number",
    };
    let message = format!("`{value}` {why}, for '{arg}'\n\nFor more information, try '--help'.\n");
    clap::Error::raw(ErrorKind::ValueValidation, message)
}

/// The program as man pages show it: settings once, in the first page.
pub(super) fn manual() -> Command {
    fn refer(command: Command) -> Command {
        command.after_help("Settings and exit codes are in waystone(1).").mut_subcommands(refer)
    }
    Arguments::command()
        .mut_args(|arg| if arg.get_help_heading() == Some(HEADING) { arg.global(false) } else { arg })
        .override_usage("waystone [OPTIONS] [SETTINGS] <COMMAND>")
        .mut_subcommands(refer)
}
