//! Which files each client reads, and what of ours goes into them: all that is known of clients, in one table.

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use serde::Serialize;

use super::part::Part;
use crate::settings::place;

#[derive(Debug, Clone, Copy, PartialEq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Client {
    ClaudeCode,
    Codex,
    Cursor,
    Vscode,
    // Whose file is not written.
    ClaudeDesktop,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Scope {
    User,
    Project,
}

/// What a path of the table is relative to.
#[derive(Debug, Clone, Copy)]
enum Folder {
    Home,
    /// The folder that the client's own variable names, else one in the home directory.
    Own(&'static str, &'static str),
    /// Where programs of this platform keep what a person set.
    Config,
    Working,
}

use Client::{ClaudeCode, ClaudeDesktop, Codex, Cursor, Vscode};
use Folder::{Config, Home, Own, Working};
use Scope::{Project, User};

const TABLE: [(Client, Scope, Folder, &str, Part); 12] = [
    (ClaudeCode, User, Own("CLAUDE_CONFIG_DIR", ""), ".claude.json", Part::Server("mcpServers")),
    (ClaudeCode, User, Own("CLAUDE_CONFIG_DIR", ".claude"), "settings.json", Part::Hooks),
    (ClaudeCode, Project, Working, ".mcp.json", Part::Server("mcpServers")),
    (ClaudeCode, Project, Working, ".claude/settings.json", Part::Hooks),
    // Codex reads hooks from config.toml too, and warns when a folder has them in both.
    (Codex, User, Own("CODEX_HOME", ".codex"), "config.toml", Part::Table),
    (Codex, User, Own("CODEX_HOME", ".codex"), "hooks.json", Part::Hooks),
    (Codex, Project, Working, ".codex/config.toml", Part::Table),
    (Codex, Project, Working, ".codex/hooks.json", Part::Hooks),
    (Cursor, User, Home, ".cursor/mcp.json", Part::Server("mcpServers")),
    (Cursor, Project, Working, ".cursor/mcp.json", Part::Server("mcpServers")),
    (Vscode, User, Config, "Code/User/mcp.json", Part::Server("servers")),
    (Vscode, Project, Working, ".vscode/mcp.json", Part::Server("servers")),
];

/// A file of a client.
#[derive(Debug)]
pub(super) struct File {
    pub(super) path: PathBuf,
    pub(super) part: Part,
    /// Folders below this one are the client's: they are made for the file, and go with it when they are empty.
    pub(super) root: PathBuf,
}

impl Client {
    pub(super) fn files(self, scope: Scope) -> anyhow::Result<Vec<File>> {
        let rows = TABLE.iter().filter(|row| (row.0, row.1) == (self, scope));
        rows.map(|(_, _, folder, path, part)| folder.file(path, *part)).collect()
    }

    /// What a person has to do before it works.
    pub(super) fn next_step(self, scope: Scope) -> &'static str {
        match (self, scope) {
            (ClaudeCode, User) => "Start Claude Code anew.",
            (ClaudeCode, Project) => "Start Claude Code anew in this directory; it asks whether it may use the server.",
            (Codex, User) => "Start Codex anew and trust the hooks with /hooks: it runs none before.",
            (Codex, Project) => {
                "Start Codex anew in this directory, let it trust the project, and trust the hooks with /hooks: it runs none before."
            }
            (Cursor, _) => "Start Cursor anew and switch the server on under MCP.",
            (ClaudeDesktop, _) => "Start Claude Desktop anew.",
            (Vscode, _) => "Start the server from the list of MCP servers in VS Code.",
        }
    }
}

impl Folder {
    fn file(self, path: &str, part: Part) -> anyhow::Result<File> {
        let root = match self {
            Working => std::env::current_dir()?,
            Config => return in_config(&place::config()?, path, part),
            Home => place::home()?,
            Own(variable, folder) => match place::named_by(variable) {
                Some(folder) => folder,
                None => {
                    let home = place::home()?;
                    return Ok(File { path: home.join(folder).join(path), part, root: home });
                }
            },
        };
        Ok(File { path: root.join(path), part, root })
    }
}

fn in_config(config: &Path, path: &str, part: Part) -> anyhow::Result<File> {
    let home = place::home()?;
    let root = if config.starts_with(&home) { home } else { config.to_owned() };
    Ok(File { path: config.join(path), part, root })
}
