//! `waystone install`: our server and hooks in the files of a client, and out of them again.
//!
//! All files are planned before the first is written, so that one that cannot be edited leaves all of them as they are. Which
//! files they are is in [`client`], what goes into them in [`part`], what becomes of each in [`plan`].

mod client;
mod disk;
mod hook;
mod json;
mod layout;
mod part;
mod paste;
mod plan;
mod scope;
mod table;

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use serde::Serialize;
use serde_json::Value;

use super::diff::show_lines;
use super::failure::Failure;
use super::render::{Out, ask, plain};
use crate::settings::{DATA_DIR, SETTINGS, Settings};
use client::{Client, Scope};
use part::{Passed, Program};
use plan::{Action, Step};

/// What an agent must know to open the same data directory.
const PASSED: [&str; 3] = [DATA_DIR, "encryption", "keyFile"];

#[derive(Debug, Args)]
#[command(
    after_help = "Before a file is changed its diff is shown, and it is kept as it was beside it, under its name with \
.waystone-backup. A data directory that is given with --data-dir or WAYSTONE_DATA_DIR is passed on to the agent, and so are \
encryption and the path of a key, but no passphrase."
)]
pub(crate) struct Install {
    /// The agent to add it to
    client: Client,
    #[command(flatten)]
    scope: scope::Asked,
    /// Take it out again: files that were not edited since are put back as they were
    #[arg(long)]
    undo: bool,
    /// Show what would change, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Reply {
    client: Client,
    scope: Scope,
    /// Whether files were changed, and not only looked at.
    applied: bool,
    files: Vec<Outcome>,
    /// What a person has to do before it works.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_step: Option<&'static str>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Outcome {
    path: PathBuf,
    action: Action,
    /// Where the file is as it was before.
    backup: Option<PathBuf>,
    diff: String,
}

pub(super) fn run(install: &Install, settings: &Settings, out: &Out) -> anyhow::Result<()> {
    let scope = install.scope.0;
    if install.client == Client::ClaudeDesktop {
        return paste::show(&program(settings)?, install.undo, out);
    }
    let files = install.client.files(scope)?.into_iter();
    let steps: Vec<Step> = match install.undo {
        true => files.map(Step::undo).collect::<anyhow::Result<_>>()?,
        false => {
            let program = program(settings)?;
            files.map(|file| Step::install(file, &program)).collect::<anyhow::Result<_>>()?
        }
    };
    let changes = steps.iter().any(|step| step.action != Action::Unchanged);
    let is_applied = changes && !install.dry_run;
    if is_applied {
        if !install.yes {
            show(&steps, out)?;
            let (question, what) = match install.undo {
                true => ("Take it out?", "waystone is taken out"),
                false => ("Make these changes?", "waystone is installed"),
            };
            ask(question, what, "nothing was changed")?;
        }
        apply(&steps)?;
    }
    let outcomes = steps.iter().map(|step| Outcome {
        path: step.file.path.clone(),
        action: step.action,
        backup: step.backup(),
        diff: step.diff(),
    });
    let next_step = (is_applied && !install.undo).then(|| install.client.next_step(scope));
    let reply = Reply { client: install.client, scope, applied: is_applied, files: outcomes.collect(), next_step };
    out.print(&reply, |reply| told(reply, install))
}

/// The running program, as clients are to start it.
fn program(settings: &Settings) -> anyhow::Result<Program> {
    let text =
        |path: &Path| path.to_str().map(str::to_owned).with_context(|| format!("{} is not text", path.display()));
    let path = text(&std::env::current_exe().context("the path of this program is not known")?)?;
    if !hook::has_our_name(&path) {
        let message = format!("{path} is not called waystone, and its hooks would not be known again by --undo");
        return Err(Failure { code: "INVALID_INPUT", message, hint: "give it its name back".to_owned() }.into());
    }
    let mut passed = Vec::new();
    for setting in SETTINGS.iter().filter(|setting| PASSED.contains(&setting.key)) {
        let value = match &settings.values[setting.key] {
            Value::String(path) if settings.origins.contains_key(setting.key) => {
                Some(text(&std::path::absolute(path)?)?)
            }
            Value::Bool(true) => None,
            _ => continue,
        };
        passed.push(Passed { variable: setting.variable, flag: setting.flag(), value });
    }
    if settings.passphrase.is_some() {
        super::warn(&[
            "the passphrase is not written to a file: the agent must have WAYSTONE_PASSPHRASE itself".to_owned()
        ]);
    }
    Ok(Program { path, passed })
}

fn apply(steps: &[Step]) -> anyhow::Result<()> {
    for (index, step) in steps.iter().enumerate() {
        let Err(error) = step.apply() else { continue };
        let done: Vec<String> = steps[..index].iter().map(|step| step.file.path.display().to_string()).collect();
        let done = if done.is_empty() { String::new() } else { format!("; done before that: {}", done.join(", ")) };
        let message = format!("{error:#}{done}");
        let hint = "set that right and run the same command again".to_owned();
        return Err(Failure { code: "COMMAND_FAILED", message, hint }.into());
    }
    Ok(())
}

/// Shows diffs to a person who is asked. A program that reads JSON is not asked and finds them in the reply.
fn show(steps: &[Step], out: &Out) -> anyhow::Result<()> {
    let diffs: String = steps.iter().map(|step| show_lines(&step.diff())).collect();
    match out.json {
        true if std::io::stdin().is_terminal() => write!(anstream::stderr(), "{diffs}")?,
        true => {}
        false => write!(anstream::stdout(), "{diffs}")?,
    }
    Ok(())
}

fn told(reply: &Reply, install: &Install) -> String {
    let is_unchanged = reply.files.iter().all(|file| file.action == Action::Unchanged);
    let mut text = String::new();
    if !is_unchanged && (install.dry_run || install.yes) {
        text.extend(reply.files.iter().map(|file| show_lines(&file.diff)));
    }
    if is_unchanged {
        text += if install.undo { "Waystone is not installed.\n" } else { "Waystone is already installed.\n" };
    } else if !reply.applied {
        return text + "Nothing was changed.";
    }
    text.extend(reply.files.iter().map(|file| line_of(file, install.undo) + "\n"));
    text + reply.next_step.unwrap_or_default()
}

fn line_of(file: &Outcome, is_undo: bool) -> String {
    let path = plain(&file.path.display().to_string());
    let backup = file.backup.as_ref().map(|backup| plain(&backup.display().to_string()));
    match (file.action, is_undo, backup) {
        (Action::Unchanged, false, _) => format!("{path} has it already"),
        (Action::Unchanged, true, _) => format!("{path} does not have it"),
        (Action::Created, ..) => format!("made {path}"),
        (Action::Restored, ..) => format!("put back {path} as it was"),
        (Action::Removed, ..) => format!("removed {path}, which had nothing else in it"),
        (Action::Changed, false, Some(backup)) => format!("added to {path}; as it was: {backup}"),
        (Action::Changed, false, None) => format!("added to {path}"),
        (Action::Changed, true, Some(backup)) => {
            format!("taken out of {path}, which was edited since; before that it was: {backup}")
        }
        (Action::Changed, true, None) => format!("taken out of {path}"),
    }
}

/// A file of a client with which nothing can be done.
fn failed(path: &Path, why: &str) -> anyhow::Error {
    let message = format!("{}: {why}", path.display());
    Failure { code: "INVALID_INPUT", message, hint: "nothing was changed in it; mend it and try again".to_owned() }
        .into()
}
