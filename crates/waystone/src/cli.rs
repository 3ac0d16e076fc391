//! The command line: what a person types, and what is printed. Tables for people, `--json` with the wire's fields.

mod checkpoint;
mod render;
mod serve;
mod session;
mod status;

use std::io::Write;

use clap::{Parser, Subcommand};
use waystone_core::store::Scope;
use waystone_core::{Engine, Error};

use crate::settings::{SettingArguments, Settings};

/// The context engine for LLM agents: keeps what an agent knows and never loses any of it.
///
/// Agents reach it over MCP: add `waystone mcp` to your agent's MCP servers. The other commands let you look at what was
/// saved and save by hand.
#[derive(Debug, Parser)]
#[command(name = "waystone", version, max_term_width = 100)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) settings: SettingArguments,

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
    Serve(serve::Address),
    /// Look at and change sessions: runs of work that own checkpoints
    #[command(subcommand)]
    Session(session::Command),
    /// Look at checkpoints, save and delete them
    #[command(subcommand)]
    Checkpoint(checkpoint::Command),
    /// Show what is kept, where, and who uses it
    Status,
}

pub(crate) async fn run(command: Command, engine: &Engine, settings: &Settings, json: bool) -> anyhow::Result<()> {
    let (out, scope) = (render::Out { json }, &Scope::local(settings.user.clone()));
    match command {
        Command::Mcp => serve::mcp(engine, settings).await,
        Command::Serve(address) => serve::http(engine, settings, &address).await,
        Command::Session(command) => session::run(command, engine, scope, &out).await,
        Command::Checkpoint(command) => checkpoint::run(command, engine, scope, &out).await,
        Command::Status => status::run(engine, scope, &out).await,
    }
}

/// Prints why a command failed and what to do, to standard error.
pub(crate) fn report(error: &anyhow::Error, json: bool) {
    let mut stderr = std::io::stderr().lock();
    if let (true, Some(error)) = (json, error.downcast_ref::<Error>()) {
        let _ = writeln!(stderr, "{}", serde_json::json!(error.reply()));
        return;
    }
    let _ = writeln!(stderr, "error: {}", render::plain(&format!("{error:#}")));
    if let Some(error) = error.downcast_ref::<Error>() {
        let _ = writeln!(stderr, "hint: {}", error.hint());
    }
}
