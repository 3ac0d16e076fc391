//! A database brought back from its mirror files and a backup, or a backup put in its place, by a process that has the directory alone.
//!
//! The new database is made beside the damaged one and takes its place at the end. A crash on the way leaves what was there, or a
//! finished one that the next repair puts in place.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use waystone_core::api::Finding;
use waystone_core::clock::{Clock, Timestamp};

use crate::backup;
use crate::directory::{CONTEXTS, DATABASE, DataDirectory};
use crate::key::bring_to_present;
use crate::lock::take_alone;
use crate::mirror::{self, list_files};
use crate::platform::{create_private_dir, sync_directory};
use crate::sqlite::{Base, Imported, copy_whole, forget_files, import_files, why_unusable, why_unusable_copy};
use crate::{OpenError, Root};

/// What was done.
#[derive(Debug, Default)]
pub struct Repaired {
    /// Why the database was replaced, if it was.
    pub damage: Option<String>,
    /// The backup that it began with, if it did.
    pub backup: Option<PathBuf>,
    /// Where what was there is now.
    pub set_aside: Option<PathBuf>,
    pub findings: Vec<Finding>,
}

/// Brings back what is in mirror files and not in the database; a database that cannot be used is replaced. `progress` is told how
/// much is done, and of how much.
pub fn repair<'a>(
    root: impl Into<Root<'a>>,
    clock: &Arc<dyn Clock>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Repaired, OpenError> {
    let root = root.into();
    let directory = DataDirectory::prepare(root.path)?.unlocked_by(&root)?;
    let _alone = take_alone(&directory)?;
    let now = clock.now();
    let unusable = |error| OpenError::Unusable { path: directory.root().to_owned(), error };
    if directory.rebuilt().exists() {
        finish(&directory, now).map_err(unusable)?;
    }
    check_files(&directory)?;
    let Some(damage) = why_unusable(&directory)? else {
        bring_to_present(&directory, now)?;
        let Imported { findings, emptied } = import_files(&directory, &directory, &Base::Itself, now, progress)?;
        remove_emptied(&emptied).map_err(unusable)?;
        return Ok(Repaired { findings, ..Repaired::default() });
    };
    let fresh = begin(&directory)?;
    let mut make = || {
        let backup = take_backup(&directory, &fresh, now)?;
        let base = Base::Damaged { database: &directory.database(), backup: backup.as_deref() };
        let imported = import_files(&directory, &fresh, &base, now, progress)?;
        end(&directory, &fresh).map_err(unusable)?;
        Ok((backup, imported))
    };
    let (backup, Imported { findings, emptied }) = make().inspect_err(|_| {
        // It takes room, and the next repair begins anew.
        let _ = fs::remove_dir_all(fresh.root());
    })?;
    let set_aside = put_in_place(&directory, now).map_err(unusable)?;
    remove_emptied(&emptied).map_err(unusable)?;
    Ok(Repaired { damage: Some(damage), backup, set_aside, findings })
}

/// What the files tell stands in the database that is in use.
fn remove_emptied(files: &[PathBuf]) -> std::io::Result<()> {
    files.iter().try_for_each(|path| mirror::remove(path))
}

/// Files that were sealed with another key are not passed over: what is made without them would take their place.
fn check_files(directory: &DataDirectory) -> Result<(), OpenError> {
    let files = list_files(directory).0;
    let mut owners =
        files.iter().filter_map(|file| mirror::sealed_by(&directory.root().join(file)).flatten()).peekable();
    let (path, is_any) = (directory.contexts(), owners.peek().is_some());
    match directory.keys().master() {
        None if is_any => Err(OpenError::Sealed { path }),
        // Some may be left under the key before.
        Some(master) if is_any && !owners.any(|owner| owner.id == master.mark().id) => {
            Err(OpenError::OtherKey { path })
        }
        _ => Ok(()),
    }
}

/// Puts a backup in the place of what is there, which is set aside with its files.
pub fn restore_from<'a>(
    root: impl Into<Root<'a>>,
    from: &Path,
    clock: &Arc<dyn Clock>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Repaired, OpenError> {
    let bad = |message: &str| OpenError::Backup { path: from.to_owned(), message: message.to_owned() };
    let source = find_backup(from)?;
    let root = root.into();
    let directory = DataDirectory::prepare(root.path)?.unlocked_by(&root)?;
    if source == directory.database() {
        return Err(bad("it is the data directory itself"));
    }
    let _alone = take_alone(&directory)?;
    let now = clock.now();
    let unusable = |error| OpenError::Unusable { path: directory.root().to_owned(), error };
    let fresh = begin(&directory)?;
    if let Some(damage) = why_unusable_copy(&source, &fresh.database(), directory.keys(), now)? {
        fs::remove_dir_all(fresh.root()).map_err(unusable)?;
        return Err(bad(&damage));
    }
    let base = Base::Backup(&source);
    let Imported { findings, .. } = import_files(&directory, &fresh, &base, now, progress).inspect_err(|_| {
        // What was refused is not left behind.
        let _ = fs::remove_dir_all(fresh.root());
    })?;
    end(&directory, &fresh).map_err(unusable)?;
    // Should it die now, the old database is to know that its files are gone.
    let _ = forget_files(&directory);
    // Files first: with them beside it, a repair would take in what came after the backup.
    set_files_aside(&directory, now).map_err(unusable)?;
    let set_aside = put_in_place(&directory, now).map_err(unusable)?;
    // Otherwise a repair would begin with a copy of what was given up.
    if let Err(error) = copy_whole(&directory, now) {
        tracing::warn!(%error, "what was restored could not be copied");
    }
    Ok(Repaired { backup: Some(source), set_aside, findings, ..Repaired::default() })
}

/// The database of a backup, if there is one in the directory or under the name.
pub fn find_backup(from: &Path) -> Result<PathBuf, OpenError> {
    let no_backup = |message| OpenError::Backup { path: from.to_owned(), message };
    let source = if from.is_dir() { backup::database_in(from) } else { from.to_owned() };
    source.canonicalize().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound if from.is_dir() => no_backup(format!("there is no {DATABASE} in it")),
        _ => no_backup(error.to_string()),
    })
}

/// An empty place in which a database is made.
pub(crate) fn begin(directory: &DataDirectory) -> Result<DataDirectory, OpenError> {
    let unusable = |error| OpenError::Unusable { path: directory.root().to_owned(), error };
    let fresh = directory.rebuild();
    if fresh.root().exists() {
        fs::remove_dir_all(fresh.root()).map_err(unusable)?;
    }
    create_private_dir(fresh.root()).map_err(unusable)?;
    Ok(fresh)
}

/// The database that was made is whole: it is about to take the place of another.
pub(crate) fn end(directory: &DataDirectory, fresh: &DataDirectory) -> std::io::Result<()> {
    check_copy(fresh)?;
    fs::rename(fresh.database(), directory.rebuilt())?;
    fs::remove_dir_all(fresh.root())?;
    sync_directory(directory.root())
}

/// Begins with the newest backup that is whole. Returns which one that is.
fn take_backup(directory: &DataDirectory, fresh: &DataDirectory, at: Timestamp) -> Result<Option<PathBuf>, OpenError> {
    let unusable = |error| OpenError::Unusable { path: directory.backups(), error };
    for path in backup::list(directory, at).map_err(unusable)? {
        let Some(damage) = why_unusable_copy(&backup::database_in(&path), &fresh.database(), directory.keys(), at)?
        else {
            return Ok(Some(path));
        };
        tracing::warn!(path = %path.display(), damage, "a backup cannot be used");
        for file in fresh.database_files() {
            match fs::remove_file(file) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(unusable(error)),
                _ => {}
            }
        }
    }
    Ok(None)
}

/// Moves every mirror file to where it can be looked at. What stands there of what was removed stays.
fn set_files_aside(directory: &DataDirectory, at: Timestamp) -> std::io::Result<()> {
    let entries = match fs::read_dir(directory.contexts()) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    let aside = directory.damaged(at).join(CONTEXTS);
    for entry in entries {
        let path = entry?.path();
        if let Some(name) = path.file_name().filter(|_| path != directory.tombstones()) {
            create_private_dir(&aside)?;
            fs::rename(&path, aside.join(name))?;
        }
    }
    sync_directory(&directory.contexts())
}

/// Takes away what a repair or a restore made that died before the database was touched: this one is used, and what the other holds grows old.
pub(crate) fn clear(directory: &DataDirectory) {
    let cleared = [fs::remove_file(directory.rebuilt()), fs::remove_dir_all(directory.rebuild().root())];
    for error in cleared.into_iter().filter_map(Result::err) {
        if error.kind() != std::io::ErrorKind::NotFound {
            tracing::warn!(%error, "what a repair left could not be taken away");
        }
    }
}

/// Ends what a repair that died had begun. As long as the damaged database is where it was, it may hold more than what was made of it.
pub(crate) fn finish(directory: &DataDirectory, at: Timestamp) -> std::io::Result<()> {
    if directory.database().exists() {
        return fs::remove_file(directory.rebuilt());
    }
    put_in_place(directory, at).map(drop)
}

pub(crate) fn put_in_place(directory: &DataDirectory, at: Timestamp) -> std::io::Result<Option<PathBuf>> {
    let set_aside = set_aside(directory, at)?;
    fs::rename(directory.rebuilt(), directory.database())?;
    sync_directory(directory.root())?;
    Ok(set_aside)
}

/// A database whose log is not folded back into it, or that does not reach the disk, does not take the place of another.
fn check_copy(fresh: &DataDirectory) -> std::io::Result<()> {
    if fresh.write_ahead_log().metadata().is_ok_and(|metadata| metadata.len() > 0) {
        return Err(std::io::Error::other("the rebuilt database is not whole"));
    }
    fs::File::open(fresh.database())?.sync_all()
}

/// Moves a database with its log to where it can be looked at; the database first, so that none is ever without its log.
fn set_aside(directory: &DataDirectory, at: Timestamp) -> std::io::Result<Option<PathBuf>> {
    let folder = directory.damaged(at);
    let mut is_moved = false;
    for path in directory.database_files() {
        if let Some(name) = path.file_name()
            && path.exists()
        {
            create_private_dir(&folder)?;
            fs::rename(&path, folder.join(name))?;
            is_moved = true;
        }
    }
    Ok(is_moved.then_some(folder))
}
