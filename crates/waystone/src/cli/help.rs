//! What the command line says about itself.

use std::io::Write;
use std::process::ExitCode;

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
