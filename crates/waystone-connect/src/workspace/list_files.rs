//! `list_files`: what is in a folder.

use serde_json::json;
use waystone_core::api::Tool;

use super::argument::Arguments;
use super::folder::{Folder, shown};
use super::report::{Flow, Report, bytes};
use super::walk::{Entry, Glob, Walk};
use super::{Patience, schema};

const ENTRIES_MAX: usize = 1_000;

pub(super) fn tool() -> Tool {
    Tool {
        name: "list_files".to_owned(),
        description: format!(
            "Lists a folder of the workspace, sorted: folders end in `/`, files have their size. Without `glob` only what is \
             directly in it; with `glob` all that match, at any depth. At most {ENTRIES_MAX} entries; `.git` is left out."
        ),
        input_schema: schema(
            json!({
                "path": { "type": "string", "description": "The folder, relative to the workspace. Default: the workspace." },
                "glob": { "type": "string", "description": format!("A pattern {}.", Glob::DESCRIPTION) },
            }),
            &[],
        ),
        read_only: true,
        idempotent: true,
    }
}

pub(super) fn run(folder: &Folder, arguments: &Arguments<'_>, patience: &Patience) -> Result<String, String> {
    let path = folder.relative(arguments.text("path")?.unwrap_or("."))?;
    let glob = arguments.text("glob")?.map(Glob::new).transpose()?;
    let dir = folder.open_dir(&path)?;
    let mut report = Report::new(ENTRIES_MAX);
    let mut walk = Walk::new(folder, patience, glob.is_some());
    let flow = walk.through(&dir, &mut |_, entry| {
        if glob.as_ref().is_some_and(|glob| !glob.is_match(entry)) {
            return Flow::Continue(());
        }
        report.push(&line(&path, entry))
    });
    let nothing = if glob.is_some() { "[nothing matches]" } else { "[the folder is empty]" };
    Ok(report.end(nothing, flow, &[("folders that cannot be read", walk.closed_folders)]))
}

fn line(folder: &str, entry: &Entry) -> String {
    let path = shown(&entry.path_from(folder));
    let kind = entry.metadata.file_type();
    if kind.is_dir() {
        path
    } else if kind.is_file() {
        format!("{path} ({})", bytes(entry.metadata.len()))
    } else if kind.is_symlink() {
        format!("{path} (link)")
    } else {
        format!("{path} (special)")
    }
}
