//! Commands, from their own help.

use std::path::Path;

use anyhow::Context;
use waystone_testkit::process::command;

use super::prose;

/// What every command takes stands in the introduction of the page once.
const COMMON: [&str; 3] = ["--json", "-h, --help", "-V, --version"];
/// And so does where all settings are.
const COMMON_TAIL: &str = "All settings are flags here too";

pub(super) fn page(binary: &Path, scratch: &Path) -> anyhow::Result<String> {
    let names = help(binary, scratch, &[])?.commands;
    let mut page = String::from("| command | what it does |\n|---|---|\n");
    for name in &names {
        let about = help(binary, scratch, &[name])?.about;
        page += &format!("| [`waystone {name}`](#waystone-{name}) | {} |\n", prose(&about));
    }
    page += "\n";
    for name in &names {
        add(binary, scratch, &[name], &mut page)?;
    }
    Ok(page)
}

fn add(binary: &Path, scratch: &Path, path: &[&str], page: &mut String) -> anyhow::Result<()> {
    let help = help(binary, scratch, path)?;
    let heading = "#".repeat(path.len() + 1);
    *page += &format!("{heading} waystone {}\n\n{}\n\n", path.join(" "), prose(&help.about));
    if help.commands.is_empty() {
        *page += &format!("```text\n{}\n```\n\n", help.body.trim_end());
    }
    if !help.tail.is_empty() {
        *page += &format!("{}\n\n", prose(&help.tail));
    }
    for name in &help.commands {
        add(binary, scratch, &[path, &[name]].concat(), page)?;
    }
    Ok(())
}

#[derive(Debug, Default)]
struct Help {
    about: String,
    commands: Vec<String>,
    /// Usage, arguments, options and settings, but for those that all commands have.
    body: String,
    /// What stands behind the options.
    tail: String,
}

fn help(binary: &Path, scratch: &Path, path: &[&str]) -> anyhow::Result<Help> {
    let mut command = command(binary, scratch);
    let asked = command.args(path).arg("--help").env("COLUMNS", "100").output().context("the binary is not built")?;
    anyhow::ensure!(asked.status.success(), "waystone {} has no help", path.join(" "));
    Ok(read(&String::from_utf8(asked.stdout)?))
}

fn read(text: &str) -> Help {
    let mut help = Help::default();
    let (about, rest) = text.split_once("\nUsage: ").unwrap_or((text, ""));
    help.about = about.trim().to_owned();
    let (usage, rest) = rest.split_once('\n').unwrap_or((rest, ""));
    help.body = format!("Usage: {usage}\n");
    let mut section = "";
    let mut is_common = false;
    let (mut options, mut settings) = (String::new(), String::new());
    for line in rest.lines() {
        if !line.is_empty() && !line.starts_with(' ') {
            section = line;
            if line.starts_with(COMMON_TAIL) {
                continue;
            }
            if !line.ends_with(':') {
                help.tail = format!("{} {line}", help.tail).trim().to_owned();
            } else if line == "Arguments:" {
                help.body += "\nArguments:\n";
            }
            continue;
        }
        match section {
            "Commands:" => help.commands.extend(name(line)),
            "Arguments:" => help.body += &format!("{}\n", line.trim_end()),
            "Options:" => {
                let entry = line.trim_start();
                if entry.starts_with('-') && line.len() - entry.len() < 8 {
                    is_common = COMMON.iter().any(|common| entry.starts_with(common));
                }
                if !is_common {
                    options += &format!("{}\n", line.trim_end());
                }
            }
            "Settings:" => settings += &format!("{}\n", line.trim_end()),
            _ => {}
        }
    }
    if !options.trim().is_empty() {
        help.body = format!("{}\n\nOptions:\n{options}", help.body.trim_end());
    }
    if !settings.is_empty() {
        help.body = format!("{}\n\nSettings:\n{settings}", help.body.trim_end());
    }
    help
}

/// The command that a line of a list begins with.
fn name(line: &str) -> Option<String> {
    let entry = line.strip_prefix("  ")?;
    let name = entry.split(' ').next()?;
    (!name.is_empty() && name != "help").then(|| name.to_owned())
}
