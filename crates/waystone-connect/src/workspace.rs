//! Tools that work in a folder: they read, list, search and write its files, and reach nothing outside of it.
//!
//! A call opens the folder anew, and everything else is opened from there ([`folder`]): where a path leads is found out while it
//! is opened and not before, so nothing can be put in its place in between. Whatever is read, walked or written has a bound. A
//! failure is an answer too: it tells the model what to do instead, and nothing of what lies outside.
//!
//! What is Waystone's own is kept from them also where it lies in the folder ([`private`]).
//!
//! Each tool has a file of its name. What they are given is checked in [`argument`]; those that look at many files go through
//! them with [`walk`] and answer in lines of a [`report`].

mod argument;
mod folder;
mod list_files;
mod private;
mod read_file;
mod report;
mod search_files;
mod walk;
mod write_file;

use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use waystone_core::api::Tool;
use waystone_core::prose::quoted;
use waystone_core::tools::ToolOutput;

use argument::Arguments;
use folder::Folder;

/// How long a call may look around. Less than any caller waits.
const CALL_MAX: Duration = Duration::from_secs(10);

/// `Ok` and `Err` are both for the model.
type Run = fn(&Folder, &Arguments<'_>, &Patience) -> Result<String, String>;

const TOOLS: [(fn() -> Tool, Run); 4] = [
    (read_file::tool, read_file::run),
    (list_files::tool, list_files::run),
    (search_files::tool, search_files::run),
    (write_file::tool, write_file::run),
];

/// What holds in every folder.
#[derive(Debug, Clone, Default)]
pub struct Bounds {
    /// Files and folders that no tool touches, with all that is in them: Waystone's own.
    pub private: Vec<PathBuf>,
    /// What the person who started us takes away from the modes of new files, if the process takes away something else.
    pub umask: Option<u32>,
}

/// The tools of a conversation that works in a folder.
pub fn tools() -> Vec<Tool> {
    TOOLS.iter().map(|(tool, _)| tool()).collect()
}

/// Whether `tool` is one of them.
pub fn has(tool: &str) -> bool {
    find(tool).is_some()
}

/// Runs one in the folder. If it is dropped, what it began ends soon; a file is then written whole or not at all.
pub async fn call(bounds: &Bounds, workspace: &str, tool: &str, arguments: &Map<String, Value>) -> ToolOutput {
    let Some((tool, run)) = find(tool) else {
        return ToolOutput::error(format!("there is no tool {}", quoted(tool)));
    };
    let (bounds, workspace, arguments) = (bounds.clone(), workspace.to_owned(), arguments.clone());
    let asker = Arc::new(());
    let patience = Patience { until: Instant::now() + CALL_MAX, asker: Arc::downgrade(&asker) };
    let called = tokio::task::spawn_blocking(move || {
        let arguments = Arguments::new(&tool, &arguments)?;
        run(&Folder::open(&workspace, &bounds)?, &arguments, &patience)
    });
    match called.await {
        Ok(Ok(text)) => ToolOutput::text(text),
        Ok(Err(text)) => ToolOutput::error(text),
        Err(_) => ToolOutput::error("the tool broke off: try it once more"),
    }
}

fn find(tool: &str) -> Option<(Tool, Run)> {
    TOOLS.iter().map(|(tool, run)| (tool(), *run)).find(|(found, _)| found.name == tool)
}

/// JSON schema of arguments.
fn schema(properties: Value, required: &[&str]) -> Map<String, Value> {
    Map::from_iter([
        ("type".to_owned(), "object".into()),
        ("properties".to_owned(), properties),
        ("required".to_owned(), json!(required)),
        ("additionalProperties".to_owned(), false.into()),
    ])
}

/// How long a call may go on: until its time is up, or nobody waits for it any more.
struct Patience {
    until: Instant,
    asker: Weak<()>,
}

impl Patience {
    fn is_over(&self) -> bool {
        self.asker.strong_count() == 0 || Instant::now() >= self.until
    }
}
