//! The command line: what a person types, and what is printed. Tables for people, `--json` with the wire's fields.

mod age;
mod audit;
mod backup;
mod chat;
mod checkpoint;
mod config;
mod context;
mod diff;
mod doctor;
mod document;
mod failure;
mod file;
mod handle;
mod help;
mod hint;
pub(crate) mod hook;
mod install;
mod key;
mod model;
mod operation;
mod render;
mod resume;
mod retention;
mod search;
mod segment;
mod serve;
mod session;
mod stats;
mod status;
mod task;
mod view;
mod wrap;

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use clap::builder::styling::AnsiColor;
use clap::{CommandFactory, Parser, Subcommand};
use waystone_core::api::Finding;
use waystone_core::clock::Clock;
use waystone_core::store::Scope;
use waystone_core::{Engine, Error};
use waystone_store::{MasterKey, Root, find_key_mark, find_key_mark_of_backup};

use self::hint::in_commands;
use crate::settings::{Flags, Settings};
pub(crate) use failure::{Failure, refuse, report};
pub(crate) use help::parse;

/// The context engine for LLM agents: keeps what an agent knows and never loses any of it.
///
/// Agents reach it over MCP: `waystone install` adds it to yours. The other commands let you look at what was saved and save by
/// hand.
#[derive(Debug, Parser)]
#[command(name = "waystone", version, max_term_width = 100, after_help = failure::EXIT_CODES)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) settings: Flags,

    /// Print JSON instead of tables, and errors as JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,

    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    #[command(flatten)]
    OnStore(OnStore),
    #[command(flatten)]
    Plain(Plain),
}

/// Commands that need a store.
#[derive(Debug, Subcommand)]
pub(crate) enum OnStore {
    /// Serve an agent over MCP on standard input and output
    Mcp,
    /// Serve applications over REST and agents over MCP at /mcp
    #[command(after_help = "It listens on http://127.0.0.1:3000; `--host` and `--port` change that.")]
    Serve,
    /// Look at and change sessions: runs of work that own checkpoints
    #[command(subcommand)]
    Session(session::Command),
    /// Look at checkpoints, save and delete them
    #[command(subcommand)]
    Checkpoint(Box<checkpoint::Command>),
    /// Keep texts, and decide which are in the window
    #[command(subcommand)]
    Segment(Box<segment::Command>),
    /// Search everything by words and by meaning: segments, and what sessions last saved
    Search(search::Search),
    /// Find the session to go on with, by project, git branch, words and last use
    Resume(resume::Resume),
    /// Talk with a model, on a terminal or with one message; what is said is kept
    #[command(after_help = chat::AFTER_HELP)]
    Chat(chat::Chat),
    /// Look at conversations: what was said, their branches, what fills the window; compare and merge branches, export, delete
    #[command(subcommand)]
    Context(context::Command),
    /// Show the models that conversations can name, and what each needs
    Models,
    /// Group segments by tasks, and capture them in snapshots
    #[command(subcommand)]
    Task(task::Command),
    /// Take back what was done to segments and tasks
    Undo(operation::Undo),
    /// Print the original behind a handle, as views, windows and segments give them
    Expand(handle::Expand),
    /// Capture transcripts, run by clients as `install` sets them up
    Hook(hook::Hook),
    /// Delete what is old: sessions not used for a while, or checkpoints by age and number
    #[command(
        after_help = "A session's newest checkpoint and those with a name, a tag or a branch are kept. What is deleted can be restored for 7 days."
    )]
    Cleanup(retention::CleanUpArguments),
    /// Copy all that is kept, while others go on
    Backup(backup::Backup),
    /// Put a backup in the place of all that is kept; no other process may have the data directory open
    RestoreFrom(backup::RestoreFrom),
    /// Look at the record of all that was done and loaded, and verify it
    #[command(subcommand)]
    Audit(audit::Command),
    /// Make, change and write down the key by which what is kept is sealed
    #[command(subcommand)]
    Key(key::Command),
    /// Show what is kept, where, and who uses it
    Status,
    /// Show figures: sizes, tokens, the largest sessions, what views saved, how long calls took
    Stats,
    /// Check both copies of everything that is kept, and heal each from the other
    Doctor(doctor::Doctor),
}

/// Commands that need none.
#[derive(Debug, Subcommand)]
pub(crate) enum Plain {
    /// Add Waystone to an agent: its MCP server, and for Claude Code and Codex its hooks
    Install(install::Install),
    /// Look at settings
    #[command(subcommand)]
    Config(config::Command),
    /// Print completions for a shell
    Completions { shell: clap_complete::Shell },
    /// Write man pages into a directory
    Man { directory: PathBuf },
}

pub(crate) fn run_plain(command: &Plain, settings: &Settings, json: bool) -> anyhow::Result<()> {
    match command {
        Plain::Install(command) => install::run(command, settings, &render::Out { json }),
        Plain::Config(command) => config::run(command, settings, &render::Out { json }),
        Plain::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut Arguments::command(), "waystone", &mut script);
            // Whoever reads only its beginning has had enough.
            let _ = std::io::stdout().write_all(&script);
            Ok(())
        }
        Plain::Man { directory } => {
            std::fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
            clap_mangen::generate_to(help::manual(), directory)
                .with_context(|| format!("cannot write to {}", directory.display()))?;
            let first = directory.join("waystone.1");
            render::Out { json }.print(&serde_json::json!({ "directory": directory }), |_| {
                format!("wrote {} and a page for each command", render::plain(&first.display().to_string()))
            })
        }
    }
}

/// What a command did for which no store is opened, though it is one of those that have one.
pub(crate) fn run_without_store(command: &OnStore, settings: &Settings, json: bool) -> Option<anyhow::Result<()>> {
    let out = render::Out { json };
    match command {
        OnStore::Audit(command) => command.exported().map(|(verify, file)| audit::run_on_file(verify, file, &out)),
        OnStore::Key(command) if !command.is_change() => Some(key::run(command, settings, &out)),
        _ => None,
    }
}

/// What is known when the store is opened.
pub(crate) struct Prepared {
    /// What opens it, if it is sealed.
    pub(crate) key: Option<MasterKey>,
    pub(crate) findings: Vec<Finding>,
}

/// Does what must be done before the store is opened.
pub(crate) async fn prepare(
    command: &OnStore,
    settings: &Settings,
    clock: &Arc<dyn Clock>,
) -> anyhow::Result<Prepared> {
    let is_alone = matches!(command, OnStore::Doctor(_) | OnStore::RestoreFrom(_) | OnStore::Key(_));
    if is_alone && settings.is_on("readOnly") {
        return Err(Error::ReadOnly.into());
    }
    if let OnStore::Key(command) = command {
        return Ok(Prepared { key: key::change(command, settings, clock).await?, findings: Vec::new() });
    }
    let replaced = match command {
        OnStore::Doctor(doctor) => doctor.repair,
        OnStore::RestoreFrom(_) => true,
        _ => false,
    };
    if !replaced {
        return Ok(Prepared { key: crate::key::find_set(settings)?, findings: Vec::new() });
    }
    let mark = find_key_mark(&settings.data_dir);
    // What is put in the place of nothing is sealed as it was.
    let mark = match command {
        OnStore::RestoreFrom(command) => mark.or_else(|| find_key_mark_of_backup(&command.directory)),
        _ => mark,
    };
    let key = crate::key::find_for(settings, mark)?;
    let seals = settings.is_on("encryption") || mark.flatten().is_some();
    let root = Root { path: &settings.data_dir, key: key.as_ref(), seals };
    let findings = match command {
        OnStore::RestoreFrom(command) => backup::restore(command, root, clock)?,
        _ => doctor::repair(root, clock)?,
    };
    Ok(Prepared { key, findings })
}

/// Tells a person something on standard error.
pub(crate) fn warn(warnings: &[String]) {
    for warning in warnings {
        failure::say(AnsiColor::Yellow, "warning", &in_commands(warning));
    }
}

/// Tells a person on standard error what was done on the way.
pub(crate) fn note(what: &str) {
    failure::say(AnsiColor::Green, "note", what);
}

pub(crate) async fn run(
    command: OnStore,
    engine: &Engine,
    settings: &Settings,
    json: bool,
    findings: Vec<Finding>,
) -> anyhow::Result<()> {
    let (out, scope) = (render::Out { json }, &Scope::local(&settings.user).for_person());
    match command {
        OnStore::Mcp => serve::mcp(engine, settings).await,
        OnStore::Serve => serve::http(engine, settings).await,
        OnStore::Session(command) => session::run(command, engine, scope, &out, settings).await,
        OnStore::Checkpoint(command) => checkpoint::run(*command, engine, scope, &out, settings.given_project()).await,
        OnStore::Segment(command) => segment::run(*command, engine, scope, &out, settings).await,
        OnStore::Search(search) => search::run(search, engine, scope, &out, settings.given_project()).await,
        OnStore::Resume(resume) => resume::run(resume, engine, scope, &out).await,
        OnStore::Chat(chat) => chat::run(chat, engine, scope, &out, settings).await,
        OnStore::Context(command) => context::run(command, engine, scope, &out, settings).await,
        OnStore::Models => model::run(engine, &out).await,
        OnStore::Task(command) => task::run(command, engine, scope, &out, settings.project.clone()).await,
        OnStore::Undo(undo) => operation::run(undo, engine, scope, &out, settings.project.clone()).await,
        OnStore::Expand(expand) => handle::run(expand, engine, scope, &out).await,
        OnStore::Hook(hook) => hook::run(hook, engine, scope).await,
        OnStore::Cleanup(arguments) => retention::run(arguments, engine, scope, &out).await,
        OnStore::Backup(backup) => backup::run(backup, engine, scope, &out, settings).await,
        // What was put in place is looked at; housekeeping writes its files anew.
        OnStore::RestoreFrom(_) | OnStore::Key(_) => {
            doctor::run(doctor::Doctor::default(), engine, scope, &out, findings).await
        }
        OnStore::Audit(command) => audit::run(command, engine, scope, &out, &settings.data_dir).await,
        OnStore::Status => status::run(engine, scope, &out).await,
        OnStore::Stats => stats::run(engine, scope, &out).await,
        OnStore::Doctor(doctor) => doctor::run(doctor, engine, scope, &out, findings).await,
    }
}

#[cfg(test)]
mod tests {
    use schemars::{JsonSchema, schema_for};
    use waystone_core::api::{
        AnalyzeGarbage, AnalyzeUsage, CleanUp, CompressContext, CreateSnapshot, Deletion, DiffBranches, ExpandHandle,
        ListAudit, ListCheckpoints, ListContexts, ListMessages, ListSegments, ListSessions, LoadCheckpoint,
        MarkCritical, PinSegments, PrioritizeContext, PruneSegments, PutSegments, RestoreSnapshot, ResumeSessions,
        RetrieveStashed, SaveCheckpoint, SearchAll, SearchStashed, SegmentFilters, SetCurrentTask, StashSegments,
        UndoOperation, UpdateSession,
    };

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
            // Settings are arguments of every command.
            command.get_arguments().chain(Arguments::command().get_arguments()).map(named).collect::<Vec<_>>()
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
            let plain = field.strip_suffix("Id").or(field.strip_suffix("_id")).unwrap_or(field);
            let argument = renamed.unwrap_or_else(|| kebab_case(plain).replace('_', "-"));
            assert!(arguments.contains(&argument), "`{field}` is not `{argument}` of {commands:?}: {arguments:?}");
        }
    }

    #[test]
    fn every_field_of_a_request_is_an_argument() {
        let filters = [("tags", "tag")];
        let save = [("context", "file"), ("contextRules", "rules")];
        check::<SaveCheckpoint>(&["checkpoint save"], &save);
        check::<LoadCheckpoint>(&["checkpoint show"], &[("sessionId", "latest")]);
        let view =
            [("context", "file"), ("sessionId", "latest"), ("targetTokens", "tokens"), ("tokenBudget", "tokens")];
        check::<CompressContext>(&["checkpoint view"], &view);
        check::<PrioritizeContext>(&["checkpoint view"], &view);
        check::<MarkCritical>(&["session mark"], &[("contextKey", "key")]);
        check::<ExpandHandle>(&["expand"], &[]);
        check::<ListCheckpoints>(&["checkpoint list"], &filters);
        check::<ListSessions>(&["session list"], &filters);
        check::<CleanUp>(&["cleanup"], &[]);
        check::<Deletion>(&["session delete"], &[]);
        check::<Deletion>(&["checkpoint delete"], &[]);
        check::<UpdateSession>(&["session rename", "session tag"], &[]);
        // A person puts texts; messages are what a program has.
        let put = [("project_id", "project"), ("text", "texts"), ("messages", "texts"), ("tags", "tag")];
        check::<PutSegments>(&["segment put"], &put);
        let stash = [("project_id", "project"), ("filters", "created-after")];
        check::<StashSegments>(&["segment stash"], &stash);
        check::<SearchStashed>(&["segment search"], &stash);
        check::<SearchAll>(&["search"], &[]);
        check::<ResumeSessions>(&["resume"], &[]);
        check::<RetrieveStashed>(&["segment retrieve"], &stash);
        check::<SegmentFilters>(&["segment search"], &[("tags", "tag")]);
        check::<ListSegments>(&["segment list"], &[("project_id", "project")]);
        // What a platform describes only a platform knows.
        let analyze = [
            ("project_id", "project"),
            ("context_descriptors", "task"),
            ("token_limit", "limit"),
            ("target_tokens", "target"),
        ];
        check::<AnalyzeUsage>(&["segment usage"], &analyze);
        check::<AnalyzeGarbage>(&["segment gc"], &analyze);
        let ids = [("project_id", "project"), ("segment_ids", "segments"), ("confirm", "yes")];
        check::<PruneSegments>(&["segment prune"], &ids);
        check::<PinSegments>(&["segment pin"], &ids);
        check::<SetCurrentTask>(&["task use"], &ids);
        check::<CreateSnapshot>(&["task snapshot"], &ids);
        check::<RestoreSnapshot>(&["task restore"], &ids);
        check::<UndoOperation>(&["undo"], &ids);
        check::<ListAudit>(&["audit list"], &[]);
        check::<ListContexts>(&["context list"], &[]);
        // A person looks at a branch, and has no ids of messages.
        check::<ListMessages>(&["context show"], &[("ids", "branch")]);
        check::<DiffBranches>(&["context diff"], &[]);
        check::<Deletion>(&["context delete"], &[]);
    }

    #[test]
    fn the_arguments_do_not_contradict_each_other() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn every_command_takes_every_setting() {
        let parse = |arguments: &[&str]| Arguments::try_parse_from([&["waystone"], arguments].concat());
        for command in [&["session", "list"][..], &["checkpoint", "list", "s"], &["mcp"], &["serve"], &["status"]] {
            for flags in [
                &["--project", "p"][..],
                &["--in", "p"],
                &["--port", "1"],
                &["--max-checkpoints", "5"],
                &["--data-dir", "d"],
            ] {
                assert!(parse(&[command, flags].concat()).is_ok(), "{command:?} {flags:?}");
                assert!(parse(&[flags, command].concat()).is_ok(), "{flags:?} {command:?}");
            }
        }
    }
}
