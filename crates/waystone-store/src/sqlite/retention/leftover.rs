//! What a removal that broke off left in backups, and what an import that died left among what is said to be removed.
//!
//! The list of what was removed only grows, and nothing can be deleted while someone has the turn to write files. So it is gone through in
//! parts, and only as far as something may have been left since.

use std::collections::{BTreeSet, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};

use super::forget_live;
use crate::backup::{database_in, list, remove_unfinished};
use crate::mirror::tombstone::{self, Removed};
use crate::sqlite::backup::remove_from_all;
use crate::sqlite::error::{DbResult, file_error};
use crate::sqlite::maintenance::Upkeep;
use crate::sqlite::mirror::take_turn;

/// So many are looked for in all backups while others wait.
const IDS_AT_ONCE: usize = 2000;

/// What was gone through, as it was then: files of what was removed, and backups. Who begins to keep house goes through all.
#[derive(Debug, Default)]
pub(crate) struct Cleared {
    files: HashSet<u64>,
    backups: HashSet<u64>,
    /// It goes on where it was over.
    pass: Option<Pass>,
}

/// One way through files of what was removed.
#[derive(Debug, Default)]
struct Pass {
    waiting: Vec<PathBuf>,
    /// Ids of the last file that was read, and that file.
    ids: Vec<String>,
    file: PathBuf,
    /// What is gone through once it is done.
    files: HashSet<u64>,
    backups: Vec<PathBuf>,
}

impl Pass {
    /// What is looked for next, and the files in which it stands; nothing at the end.
    fn next_part(&mut self) -> io::Result<(Removed, BTreeSet<PathBuf>)> {
        let (mut part, mut files) = (Removed::new(), BTreeSet::new());
        while part.len() < IDS_AT_ONCE {
            if self.ids.is_empty() {
                let Some(file) = self.waiting.pop() else { break };
                self.ids = tombstone::read_files([&file])?.into_iter().collect();
                self.file = file;
            }
            let from = self.ids.len().saturating_sub(IDS_AT_ONCE - part.len());
            part.extend(self.ids.drain(from..));
            files.insert(self.file.clone());
        }
        Ok((part, files))
    }
}

/// A file as it is, told from what it was before or will be.
fn state_of(path: &Path) -> u64 {
    let mut hasher = DefaultHasher::new();
    let metadata = path.metadata().ok();
    (path, metadata.as_ref().map(std::fs::Metadata::len), metadata.and_then(|metadata| metadata.modified().ok()))
        .hash(&mut hasher);
    hasher.finish()
}

impl Upkeep {
    /// Removes from backups what was removed and still stands in them, and forgets of what is there again that it was removed. False if it
    /// `is_over` before that: then it goes on.
    pub(super) fn clear_leftovers(&mut self, is_over: &dyn Fn() -> bool) -> DbResult<bool> {
        let mut pass = match self.cleared.pass.take() {
            Some(pass) => pass,
            None => self.begin_pass()?,
        };
        let tombstones = self.directory.tombstones();
        loop {
            if is_over() {
                self.cleared.pass = Some(pass);
                return Ok(false);
            }
            let (part, files) = pass.next_part().map_err(|error| file_error(&tombstones, &error))?;
            if part.is_empty() {
                break;
            }
            self.clear_part(&part, &files)?;
        }
        // What was not finished is gone through once more.
        if self.traces.in_backups.is_empty() {
            let backups = pass.backups.iter().map(|backup| state_of(&database_in(backup))).collect();
            self.cleared = Cleared { files: pass.files, backups, pass: None };
        }
        Ok(true)
    }

    fn begin_pass(&mut self) -> DbResult<Pass> {
        let (directory, now) = (self.directory.clone(), self.clock.now());
        let of_backups = |error: io::Error| file_error(&directory.backups(), &error);
        {
            let _turn = take_turn(&directory)?;
            self.traces.in_backups = remove_unfinished(&directory).map_err(of_backups)?.into_iter().collect();
        }
        let backups = list(&directory, now).map_err(of_backups)?;
        let is_any_new = backups.iter().any(|backup| !self.cleared.backups.contains(&state_of(&database_in(backup))));
        let mut pass = Pass { backups, ..Pass::default() };
        for file in tombstone::list_files(&directory).map_err(|error| file_error(&directory.tombstones(), &error))? {
            let state = state_of(&file);
            pass.files.insert(state);
            if is_any_new || !self.cleared.files.contains(&state) {
                pass.waiting.push(file);
            }
        }
        Ok(pass)
    }

    fn clear_part(&mut self, part: &Removed, files: &BTreeSet<PathBuf>) -> DbResult<()> {
        let directory = self.directory.clone();
        let _turn = take_turn(&directory)?;
        // Some may have been brought back before it was our turn.
        let still = tombstone::read_files(files).map_err(|error| file_error(&directory.tombstones(), &error))?;
        let mut removed: Removed = part.intersection(&still).cloned().collect();
        forget_live(&directory, self.db()?, &mut removed)?;
        let now = self.clock.now();
        self.traces.in_backups.extend(remove_from_all(&directory, &removed, now)?);
        Ok(())
    }
}
