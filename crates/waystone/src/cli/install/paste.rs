//! A client whose file is not written: what a person pastes into it, and where it is.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::part::{NAME, Program};
use crate::cli::render::{Out, plain, plain_json};
use crate::settings::place;

/// Where Claude Desktop keeps what a person set, below where programs of this platform do.
const CLAUDE_DESKTOP: &str = "Claude/claude_desktop_config.json";

/// Shows the lines for Claude Desktop. A project has none there.
pub(super) fn show(program: &Program, is_undo: bool, out: &Out) -> anyhow::Result<()> {
    let path: PathBuf = place::config()?.join(CLAUDE_DESKTOP);
    let lines = json!({ "mcpServers": { NAME: server(program) } });
    out.print(&json!({ "client": "claude-desktop", "path": path, "content": lines }), |_| {
        let path = plain(&path.display().to_string());
        if is_undo {
            return format!("Take `{NAME}` out of mcpServers in {path}, and start Claude Desktop anew.");
        }
        let lines = plain_json(&serde_json::to_string_pretty(&lines).unwrap_or_default());
        format!("Paste this into {path}\n(beside what mcpServers has there), and start Claude Desktop anew:\n\n{lines}")
    })
}

/// The server as most clients take it.
fn server(program: &Program) -> Value {
    let mut server = json!({ "command": program.path, "args": ["mcp"] });
    let variables = program.variables();
    if !variables.is_empty() {
        server["env"] = Value::Object(variables);
    }
    server
}
