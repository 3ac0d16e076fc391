//! What install or its undo makes of one file. Planning changes nothing; [`Step::apply`] does.

use std::path::{Path, PathBuf};

use serde::Serialize;
use similar::TextDiff;

use super::client::File;
use super::part::{Part, Program};
use super::{disk, failed};

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Action {
    Unchanged,
    /// There was no file.
    Created,
    /// There was one, and it is another now.
    Changed,
    /// It is again what it was before install.
    Restored,
    /// It is gone, as it was not there before install.
    Removed,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Backup {
    Leave,
    Write,
    Remove,
}

/// One file, before and after.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) file: File,
    pub(super) action: Action,
    before: Option<String>,
    after: Option<String>,
    backup: Backup,
}

impl Step {
    pub(super) fn install(file: File, program: &Program) -> anyhow::Result<Self> {
        let before = disk::read(&file.path)?;
        let (part, text) = (file.part, before.as_deref().unwrap_or_default());
        let wrong = |why: String| failed(&file.path, &why);
        let (content, found) = (part.content(program), part.find(text).map_err(wrong)?);
        if found.as_ref() == Some(&content) {
            return Ok(Self::unchanged(file, before));
        }
        let after = part.add(text, &content).map_err(wrong)?;
        if part.find(&after) != Ok(Some(content)) {
            return Err(wrong("it cannot be added to".to_owned()));
        }
        // A backup is of the file before an earlier install too, if that one kept it or made the file.
        let is_kept = found
            .is_some_and(|found| disk::backup_of(&file.path).exists() || part.add("", &found).as_deref() == Ok(text));
        let (action, backup) = match before {
            None => (Action::Created, Backup::Leave),
            Some(_) if is_kept => (Action::Changed, Backup::Leave),
            Some(_) => (Action::Changed, Backup::Write),
        };
        Ok(Self { file, action, before, after: Some(after), backup })
    }

    /// What install did is found by doing it again: to the backup, or to nothing. Where that does not give the present file
    /// someone has edited it, and only what is ours is taken out.
    pub(super) fn undo(file: File) -> anyhow::Result<Self> {
        let before = disk::read(&file.path)?;
        let (part, text) = (file.part, before.as_deref().unwrap_or_default());
        let wrong = |why: String| failed(&file.path, &why);
        let Some(found) = part.find(text).map_err(wrong)? else { return Ok(Self::unchanged(file, before)) };
        let old = disk::read(&disk::backup_of(&file.path))?;
        // An entry of our name that someone wrote by hand comes back; a hook of ours is ours wherever it stands.
        let may_come_back = |old: &str| part != Part::Hooks || part.find(old) == Ok(None);
        let gives_present = |old: &str| may_come_back(old) && part.add(old, &found).as_deref() == Ok(text);
        let (action, after, backup) = match old {
            Some(old) if gives_present(&old) => (Action::Restored, Some(old), Backup::Remove),
            _ if gives_present("") => (Action::Removed, None, Backup::Leave),
            old => (Action::Changed, Some(part.remove(text, old.as_deref()).map_err(wrong)?), Backup::Leave),
        };
        if action == Action::Changed && !after.as_deref().is_none_or(|after| part.find(after) == Ok(None)) {
            return Err(wrong("it cannot be taken out of it".to_owned()));
        }
        Ok(Self { file, action, before, after, backup })
    }

    fn unchanged(file: File, before: Option<String>) -> Self {
        Self { file, action: Action::Unchanged, after: before.clone(), before, backup: Backup::Leave }
    }

    /// Where the file is kept as it was before install, if it is.
    pub(super) fn backup(&self) -> Option<PathBuf> {
        let path = disk::backup_of(&self.file.path);
        let is_there = self.backup == Backup::Write || (self.backup == Backup::Leave && path.exists());
        (is_there && self.action == Action::Changed).then_some(path)
    }

    pub(super) fn diff(&self) -> String {
        let text = |side: &Option<String>| side.clone().unwrap_or_default().replace("\r\n", "\n");
        let name = |side: &Option<String>| match side {
            Some(_) => self.file.path.display().to_string(),
            None => "(no file)".to_owned(),
        };
        let (before, after) = (text(&self.before), text(&self.after));
        let diff = TextDiff::from_lines(&before, &after);
        diff.unified_diff().header(&name(&self.before), &name(&self.after)).to_string()
    }

    pub(super) fn apply(&self) -> anyhow::Result<()> {
        let path: &Path = &self.file.path;
        // A client may have written it while a person was asked.
        if disk::read(path)? != self.before {
            return Err(failed(path, "it was changed in the meantime"));
        }
        let backup = disk::backup_of(path);
        if let (Backup::Write, Some(before)) = (self.backup, &self.before) {
            disk::write_backup(&backup, before, path)?;
        }
        match (&self.after, self.action) {
            (_, Action::Unchanged) => {}
            (Some(after), _) => disk::write(path, after)?,
            (None, _) => disk::remove(path)?,
        }
        if self.backup == Backup::Remove {
            disk::remove(&backup)?;
        }
        if self.after.is_none() {
            disk::remove_empty_folders(path, &self.file.root);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_while_a_person_was_asked_is_not_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mcp.json");
        let program = Program { path: "/bin/waystone".to_owned(), passed: Vec::new() };
        let file = File { path: path.clone(), part: Part::Server("servers"), root: folder.path().to_owned() };
        let step = Step::install(file, &program).unwrap();
        std::fs::write(&path, "{}").unwrap();
        assert!(step.apply().unwrap_err().to_string().contains("changed in the meantime"));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else was written");
    }
}
