//! What conversations and summaries have of the world around: models, system prompts in files, projects of folders.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use waystone_connect::workspace::Bounds;
use waystone_connect::{AllTools, Providers};
use waystone_core::id::WorkflowId;
use waystone_core::{Chat, Summaries};
use waystone_store::open_prompt;

use crate::settings::{Settings, project_at};

/// A longer system prompt is not read.
const PROMPT_BYTES_MAX: u64 = 256 * 1024;

/// `bounds` are those of tools that work in a folder.
pub(crate) fn chat(settings: &Settings, mut bounds: Bounds) -> Chat {
    bounds.private.extend(settings.values["keyFile"].as_str().map(PathBuf::from));
    let root = settings.data_dir.clone();
    let is_project_given = settings.origins.contains_key("project");
    Chat {
        model: Arc::new(Providers::new(settings.providers())),
        model_id: settings.text("model").to_owned(),
        prompt: Arc::new(move |id| read_prompt(&root, id)),
        project_of: Arc::new(move |path| project_at(Path::new(path)).filter(|_| !is_project_given)),
        tools: Arc::new(AllTools { servers: settings.servers(), bounds }),
        policy: settings.tool_policy(),
        saves_turns: settings.is_on("checkpointAutoSave"),
    }
}

/// Who writes summaries, in every process that is told to have some written.
pub(crate) fn summaries(settings: &Settings) -> Summaries {
    let model_id = settings.values["compressionModel"].as_str().map(str::to_owned);
    let is_default = settings.text("contextCompression") == "advanced";
    match model_id {
        None => Summaries { is_default, ..Summaries::default() },
        Some(_) => Summaries { model: Arc::new(Providers::new(settings.providers())), model_id, is_default },
    }
}

fn read_prompt(root: &Path, id: &str) -> Option<String> {
    // An id is no path.
    id.parse::<WorkflowId>().ok()?;
    let (file, mut text) = (open_prompt(root, id).ok()?, String::new());
    let length = file.take(PROMPT_BYTES_MAX + 1).read_to_string(&mut text).ok()?;
    let text = text.trim_end();
    (length as u64 <= PROMPT_BYTES_MAX && !text.is_empty()).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_are_files_of_their_own_folder_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let prompts = folder.path().join("prompts");
        std::fs::create_dir(&prompts).unwrap();
        std::fs::write(prompts.join("custom.md"), "Be brief.\n").unwrap();
        std::fs::write(prompts.join("empty.md"), "\n").unwrap();
        std::fs::write(folder.path().join("secret.md"), "no").unwrap();
        std::os::unix::fs::symlink(folder.path().join("secret.md"), prompts.join("link.md")).unwrap();
        std::fs::write(prompts.join("long.md"), "x".repeat(256 * 1024 + 1)).unwrap();
        let read = |id: &str| read_prompt(folder.path(), id);
        let check = |id: &str, found: Option<&str>| assert_eq!(read(id).as_deref(), found, "{id}");
        check("custom", Some("Be brief."));
        for id in ["empty", "link", "long", "missing", "../secret", "a/b", ""] {
            check(id, None);
        }
        let other = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(&prompts, other.path().join("prompts")).unwrap();
        assert_eq!(read_prompt(other.path(), "custom"), None, "the folder is a link");
    }
}
