//! The command line: what a person types, and what is printed. Tables for people, `--json` with the wire's fields.

mod checkpoint;
mod config;
mod doctor;
mod render;
mod serve;
mod session;
mod status;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use clap::{CommandFactory, Parser, Subcommand};
use waystone_core::api::Finding;
use waystone_core::clock::Clock;
use waystone_core::store::Scope;
use waystone_core::{Engine, Error};

use crate::settings::{Flags, Settings};

/// The context engine for LLM agents: keeps what an agent knows and never loses any of it.
///
/// Agents reach it over MCP: add `waystone mcp` to your agent's MCP servers. The other commands let you look at what was
/// saved and save by hand.
#[derive(Debug, Parser)]
#[command(name = "waystone", version, max_term_width = 100)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) settings: Flags,

    /// Print JSON instead of tables
    #[arg(long, global = true)]
    pub(crate) json: bool,

    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve an agent over MCP on standard input and output
    Mcp,
    /// Serve applications over REST and agents over MCP at /mcp
    Serve,
    /// Look at and change sessions: runs of work that own checkpoints
    #[command(subcommand)]
    Session(session::Command),
    /// Look at checkpoints, save and delete them
    #[command(subcommand)]
    Checkpoint(Box<checkpoint::Command>),
    /// Show what is kept, where, and who uses it
    Status,
    /// Check both copies of everything that is kept, and heal each from the other
    Doctor {
        /// First bring back from the files what is missing in the database, or a database that cannot be used; no other process
        /// may have the data directory open
        #[arg(long)]
        repair: bool,
    },
    /// Look at settings
    #[command(subcommand)]
    Config(config::Command),
    /// Print completions for a shell
    Completions { shell: clap_complete::Shell },
    /// Write man pages into a directory
    Man { directory: PathBuf },
}

/// Runs a command that needs no store, if it is one.
pub(crate) fn run_without_store(command: &Command, settings: &Settings, json: bool) -> anyhow::Result<bool> {
    let mut program = Arguments::command();
    match command {
        Command::Config(command) => config::run(command, settings, &render::Out { json })?,
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut program, "waystone", &mut script);
            // Whoever reads only its beginning has had enough.
            let _ = std::io::stdout().write_all(&script);
        }
        Command::Man { directory } => {
            std::fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
            clap_mangen::generate_to(program, directory)
                .with_context(|| format!("cannot write to {}", directory.display()))?;
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// Does what must be done before the store is opened. Returns what it found.
pub(crate) fn prepare(command: &Command, root: &Path, clock: &Arc<dyn Clock>) -> anyhow::Result<Vec<Finding>> {
    match command {
        Command::Doctor { repair: true } => doctor::repair(root, clock),
        _ => Ok(Vec::new()),
    }
}

/// Tells a person something on standard error.
pub(crate) fn warn(warnings: &[String]) {
    for warning in warnings {
        let _ = writeln!(std::io::stderr(), "warning: {}", render::plain(warning));
    }
}

pub(crate) async fn run(
    command: Command,
    engine: &Engine,
    settings: &Settings,
    json: bool,
    findings: Vec<Finding>,
) -> anyhow::Result<()> {
    let (out, scope) = (render::Out { json }, &Scope::local(settings.user.clone()));
    match command {
        Command::Mcp => serve::mcp(engine, settings).await,
        Command::Serve => serve::http(engine, settings).await,
        Command::Session(command) => session::run(command, engine, scope, &out).await,
        Command::Checkpoint(command) => checkpoint::run(*command, engine, scope, &out).await,
        Command::Status => status::run(engine, scope, &out).await,
        Command::Doctor { .. } => doctor::run(engine, scope, &out, findings).await,
        Command::Config(_) | Command::Completions { .. } | Command::Man { .. } => Ok(()),
    }
}

/// Prints why a command failed and what to do, to standard error.
pub(crate) fn report(error: &anyhow::Error, json: bool) {
    let mut stderr = std::io::stderr().lock();
    if json {
        let reply = error.downcast_ref::<Error>().map(|error| serde_json::json!(error.reply()));
        let plain = || serde_json::json!({ "error": { "code": "COMMAND_FAILED", "message": format!("{error:#}") } });
        let _ = writeln!(stderr, "{}", reply.unwrap_or_else(plain));
        return;
    }
    let _ = writeln!(stderr, "error: {}", render::plain(&format!("{error:#}")));
    if let Some(error) = error.downcast_ref::<Error>() {
        let _ = writeln!(stderr, "hint: {}", error.hint());
    }
}

#[cfg(test)]
mod tests {
    use schemars::{JsonSchema, schema_for};
    use waystone_core::api::{ListCheckpoints, ListSessions, LoadCheckpoint, SaveCheckpoint, UpdateSession};

    use super::*;
    use crate::settings::kebab_case;

    /// The arguments of these commands, as they are typed.
    fn arguments_of(commands: &[&str]) -> Vec<String> {
        let named = |arg: &clap::Arg| arg.get_long().unwrap_or(arg.get_id().as_str()).to_owned();
        let of = |path: &&str| {
            let mut command = Arguments::command();
            for name in path.split(' ') {
                command = command.find_subcommand(name).expect(name).clone();
            }
            command.get_arguments().map(named).collect::<Vec<_>>()
        };
        commands.iter().flat_map(of).collect()
    }

    /// A field is an argument of the same name: `agentId` is `--agent`, `idempotencyKey` is `--idempotency-key`.
    fn check<Request: JsonSchema>(commands: &[&str], renamed: &[(&str, &str)]) {
        let (arguments, schema) = (arguments_of(commands), schema_for!(Request));
        let fields = schema.as_value()["properties"].as_object().unwrap();
        assert!(!fields.is_empty());
        for field in fields.keys() {
            let renamed = renamed.iter().find(|(from, _)| from == field).map(|(_, to)| (*to).to_owned());
            let argument = renamed.unwrap_or_else(|| kebab_case(field.strip_suffix("Id").unwrap_or(field)));
            assert!(arguments.contains(&argument), "`{field}` is not `{argument}` of {commands:?}: {arguments:?}");
        }
    }

    #[test]
    fn every_field_of_a_request_is_an_argument() {
        let filters = [("projectId", "in"), ("tags", "tag")];
        check::<SaveCheckpoint>(&["checkpoint save"], &[("projectId", "in"), ("context", "file")]);
        check::<LoadCheckpoint>(&["checkpoint show"], &[("sessionId", "latest")]);
        check::<ListCheckpoints>(&["checkpoint list"], &filters);
        check::<ListSessions>(&["session list"], &filters);
        check::<UpdateSession>(&["session rename", "session tag"], &[]);
    }

    #[test]
    fn the_arguments_do_not_contradict_each_other() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn every_command_takes_every_setting() {
        let parse = |arguments: &[&str]| Arguments::try_parse_from([&["waystone"], arguments].concat());
        for command in [&["session", "list"][..], &["checkpoint", "list", "s"], &["mcp"], &["serve"], &["status"]] {
            for flags in [&["--project", "p"][..], &["--port", "1"], &["--max-checkpoints", "5"], &["--data-dir", "d"]]
            {
                assert!(parse(&[command, flags].concat()).is_ok(), "{command:?} {flags:?}");
                assert!(parse(&[flags, command].concat()).is_ok(), "{flags:?} {command:?}");
            }
        }
        assert!(parse(&["session", "list", "--in", "p", "--project", "q"]).is_ok());
    }
}
