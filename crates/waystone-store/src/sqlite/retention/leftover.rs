//! What a removal that broke off left in backups, and what an import that died left among what is said to be removed.
//!
//! The list of what was removed only grows, and nothing can be deleted while someone has the turn to write files. So it is gone through in
//! parts, and only as far as something may have been left since.

use std::collections::{BTreeSet, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::mem::take;
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
    /// Removes from backups what was removed and still stands in them, and forgets of what is there again that it was removed, until it
    /// `is_over`.
    pub(super) fn clear_leftovers(&mut self, is_over: &dyn Fn() -> bool) -> DbResult<()> {
        let (directory, now) = (self.directory.clone(), self.clock.now());
        let of_backups = |error: std::io::Error| file_error(&directory.backups(), &error);
        let of_files = |error: std::io::Error| file_error(&directory.tombstones(), &error);
        {
            let _turn = take_turn(&directory)?;
            self.traces.in_backups = remove_unfinished(&directory).map_err(of_backups)?.into_iter().collect();
        }
        let backups: Vec<PathBuf> = list(&directory, now).map_err(of_backups)?;
        let is_any_new = backups.iter().any(|backup| !self.cleared.backups.contains(&state_of(&database_in(backup))));
        let files = tombstone::list_files(&directory).map_err(of_files)?;
        let states: Vec<u64> = files.iter().map(|file| state_of(file)).collect();
        let (mut part, mut of_part) = (Removed::new(), BTreeSet::new());
        for (file, state) in files.iter().zip(&states) {
            if !is_any_new && self.cleared.files.contains(state) {
                continue;
            }
            for id in tombstone::read_files([file]).map_err(of_files)? {
                part.insert(id);
                of_part.insert(file.clone());
                if part.len() >= IDS_AT_ONCE {
                    if is_over() {
                        return Ok(());
                    }
                    self.clear_part(&take(&mut part), &take(&mut of_part))?;
                }
            }
        }
        if is_over() {
            return Ok(());
        }
        self.clear_part(&part, &of_part)?;
        // What was not finished is gone through once more.
        if self.traces.in_backups.is_empty() {
            let backups = backups.iter().map(|backup| state_of(&database_in(backup))).collect();
            self.cleared = Cleared { files: states.into_iter().collect(), backups };
        }
        Ok(())
    }

    fn clear_part(&mut self, part: &Removed, files: &BTreeSet<PathBuf>) -> DbResult<()> {
        if part.is_empty() {
            return Ok(());
        }
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
