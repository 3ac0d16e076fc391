//! Mirror files on the disk: found, read, and replaced whole.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use waystone_core::api::{Finding, FindingKind};

use super::name::SUFFIX;
use super::{DamagedFile, Group, decode};
use crate::directory::DataDirectory;
use crate::platform::{self, create_private_dir, create_private_file, planted, sync_directory};
use crate::sqlite::Keys;

pub(crate) fn read_file(path: &Path, keys: &Keys) -> io::Result<Result<Group, DamagedFile>> {
    Ok(decode(&platform::read_file(path)?, keys))
}

/// Fails where a link leads somewhere else.
fn check_folder(folder: &Path) -> io::Result<()> {
    match folder.symlink_metadata()? {
        metadata if metadata.is_symlink() => Err(planted(metadata.file_type(), "a directory")),
        _ => Ok(()),
    }
}

/// Every mirror file, from the data directory, in order, and what could not be looked into.
pub(crate) fn list_files(directory: &DataDirectory) -> (Vec<PathBuf>, Vec<Finding>) {
    let (mut files, mut unread) = (Vec::new(), Vec::new());
    let mut entries = |folder: &Path| -> Vec<PathBuf> {
        let listed = check_folder(folder)
            .and_then(|()| fs::read_dir(folder))
            .and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect());
        listed.unwrap_or_else(|error: io::Error| {
            if error.kind() != io::ErrorKind::NotFound && error.kind() != io::ErrorKind::NotADirectory {
                let (subject, message) = (folder.display().to_string(), format!("cannot be looked into: {error}"));
                unread.push(Finding { kind: FindingKind::Unhealed, subject, message });
            }
            Vec::new()
        })
    };
    for folder in entries(&directory.contexts()) {
        let is_mirror = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().ends_with(SUFFIX));
        files.extend(entries(&folder).into_iter().filter(is_mirror));
    }
    let relative = |path: PathBuf| path.strip_prefix(directory.root()).map(Path::to_owned).unwrap_or(path);
    let mut files: Vec<PathBuf> = files.into_iter().map(relative).collect();
    files.sort();
    (files, unread)
}

/// Gives a file a second name. It goes by the first until another takes its place.
pub(crate) fn keep_aside(path: &Path, aside: &Path) -> io::Result<()> {
    create_private_dir(aside.parent().unwrap_or(aside))?;
    match fs::hard_link(path, aside) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(_) => fs::copy(path, aside).map(drop),
        Ok(()) => Ok(()),
    }
}

/// Removes a file, with what was to take its place when a process died, and its folder with the last one.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    for path in [path, &fresh(path)] {
        match fs::remove_file(path) {
            // Someone removed it before, and perhaps could not make sure that it stays removed.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            removed => removed?,
        }
    }
    let Some(folder) = path.parent() else { return Ok(()) };
    // So may it be with its folder.
    let is_gone = |synced: &io::Result<()>| matches!(synced, Err(error) if error.kind() == io::ErrorKind::NotFound);
    let synced = sync_directory(folder);
    if is_gone(&synced) {
        let synced = folder.parent().map_or(Ok(()), sync_directory);
        return if is_gone(&synced) { Ok(()) } else { synced };
    }
    synced?;
    // Only an empty one goes.
    if fs::remove_dir(folder).is_ok() { folder.parent().map_or(Ok(()), sync_directory) } else { Ok(()) }
}

/// What a file is written as before it takes its place.
fn fresh(path: &Path) -> PathBuf {
    path.with_extension("new")
}

/// Writes a whole file in place of the one before: it is there as it was or as it is now, whatever happens.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().ok_or_else(|| io::Error::other("it has no folder"))?;
    let is_new = !folder.exists();
    create_private_dir(folder)?;
    if is_new {
        folder.ancestors().skip(1).take(2).try_for_each(sync_directory)?;
    }
    let fresh = fresh(path);
    // What an earlier attempt left is not written to again: a file whose sync failed once is not to be trusted.
    match fs::remove_file(&fresh) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let written =
        write_synced(&fresh, bytes).and_then(|()| fs::rename(&fresh, path)).and_then(|()| sync_directory(folder));
    if written.is_err() {
        let _ = fs::remove_file(&fresh);
    }
    written
}

fn write_synced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = create_private_file(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}
