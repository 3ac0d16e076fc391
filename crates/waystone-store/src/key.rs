//! A store under another master key, or sealed for the first time, by a process that has the directory alone.
//!
//! Both end alike: when the database is as it is to be, a backup is made of it, and only then what the new key does not open is removed, the
//! other backups and the mirror files, which housekeeping writes again. Who dies on the way
//! has a store under one key or the other, and ends it by doing it once more, after a rotation with the new key.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use waystone_core::clock::{Clock, Timestamp};

use crate::backup;
use crate::directory::DataDirectory;
use crate::lock::take_alone;
use crate::mirror::{self, list_files, sealed_by};
use crate::repair::{begin, end, finish, put_in_place};
use crate::seal::MasterKey;
use crate::sqlite::{Source, copy_whole, find_mark, migration, seal_all, why_unusable, why_unusable_copy, wrap_anew};
use crate::{OpenError, Root};

/// What was done.
#[derive(Debug, Default)]
pub struct Rekeyed {
    /// What was under another key or none, and is gone.
    pub removed: Vec<PathBuf>,
    /// What is still so, and a person's to remove.
    pub left: Vec<PathBuf>,
}

/// Wraps all keys of a sealed store by another master key, which is made when nothing else is in the way. What they seal stays as it is.
pub fn rotate_key<E: From<OpenError>>(
    root: Root<'_>,
    make: impl FnOnce() -> Result<MasterKey, E>,
    clock: &Arc<dyn Clock>,
) -> Result<(MasterKey, Rekeyed), E> {
    let directory = DataDirectory::find(root.path)?.unlocked_by(&root)?;
    let _alone = take_alone(&directory)?;
    if !directory.keys().is_sealed() {
        return Err(OpenError::NotSealed { path: directory.database() }.into());
    }
    bring_to_present(&directory, clock.now())?;
    migration::unlock(&Source::Beside(directory.clone()))?;
    let new = make()?;
    wrap_anew(&directory, &new, clock.now()).map_err(|error| failed(&directory, &error))?;
    let mut rekeyed = settle(&directory.with_key(&new), clock)?;
    // What only the old key opens is no one's to remove but its owner's.
    rekeyed.left.extend(Some(directory.damaged_folder()).filter(|folder| folder.exists()));
    Ok((new, rekeyed))
}

/// Seals a plain store with the key that is made when nothing else is in the way: every value is sealed in a copy, which then takes its
/// place. `progress` is told how much is done, and of how much.
pub fn encrypt_store<E: From<OpenError>>(
    root: Root<'_>,
    make: impl FnOnce() -> Result<MasterKey, E>,
    clock: &Arc<dyn Clock>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(MasterKey, Rekeyed), E> {
    let directory = DataDirectory::find(root.path)?;
    let _alone = take_alone(&directory)?;
    let unusable = |error| OpenError::Unusable { path: directory.root().to_owned(), error };
    if directory.rebuilt().exists() {
        finish(&directory, clock.now()).map_err(unusable)?;
    }
    let Some(mark) = find_mark(&directory) else {
        return Err(OpenError::Empty { path: directory.root().to_owned() }.into());
    };
    let key = make()?;
    let sealed = directory.with_key(&key);
    match mark {
        // All but the end was done, or all.
        Some(mark) if mark.id == key.mark().id => bring_to_present(&sealed, clock.now())?,
        Some(_) => return Err(OpenError::OtherKey { path: directory.database() }.into()),
        None => {
            bring_to_present(&directory, clock.now())?;
            let fresh = begin(&directory)?;
            make_sealed(&directory, &fresh, &key, clock.now(), progress).inspect_err(|_| {
                // A plain copy is not left behind.
                let _ = fs::remove_dir_all(fresh.root());
            })?;
            end(&directory, &fresh).map_err(unusable)?;
            put_in_place(&directory, clock.now()).map_err(unusable)?;
        }
    }
    let mut rekeyed = settle(&sealed, clock)?;
    let unsettled = |error: io::Error| unsettled(&sealed, &error);
    rekeyed.removed.extend(remove_plain(&sealed).map_err(unsettled)?);
    let exports = directory.root().join("exports");
    let has_exports = exports.read_dir().is_ok_and(|mut entries| entries.next().is_some());
    rekeyed.left.extend(has_exports.then_some(exports));
    Ok((key, rekeyed))
}

fn make_sealed(
    directory: &DataDirectory,
    fresh: &DataDirectory,
    key: &MasterKey,
    now: Timestamp,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(), OpenError> {
    if let Some(message) = why_unusable(directory)? {
        return Err(OpenError::Database { path: directory.database(), message });
    }
    if let Some(damage) = why_unusable_copy(&directory.database(), &fresh.database(), directory.keys(), now)? {
        return Err(failed(directory, &damage));
    }
    let fresh = fresh.with_key(key);
    seal_all(&fresh, now, progress).map_err(|error| failed(directory, &error))?;
    why_unusable(&fresh)?.map_or(Ok(()), |damage| Err(failed(directory, &damage)))
}

/// An older format is copied before it becomes the present one.
pub(crate) fn bring_to_present(directory: &DataDirectory, now: Timestamp) -> Result<(), OpenError> {
    match migration::is_current(directory)? {
        true => Ok(()),
        false => migration::run(directory, now),
    }
}

fn failed(directory: &DataDirectory, error: &dyn std::fmt::Display) -> OpenError {
    let path = directory.database();
    match migration::has_room(&path) {
        true => OpenError::Rekey { path, message: error.to_string() },
        false => OpenError::Full { path },
    }
}

fn unsettled(directory: &DataDirectory, error: &dyn std::fmt::Display) -> OpenError {
    OpenError::Unsettled { path: directory.root().to_owned(), message: error.to_string() }
}

/// Makes a backup, and then removes backups and files that the key does not open.
fn settle(directory: &DataDirectory, clock: &Arc<dyn Clock>) -> Result<Rekeyed, OpenError> {
    migration::unlock(&Source::Beside(directory.clone()))?;
    // One may have been made in the same moment, before the schema was changed.
    let mut now = clock.now();
    while directory.backup(now).exists() {
        now = Timestamp::from_ms(now.ms() + 1);
    }
    copy_whole(directory, now).map_err(|error| unsettled(directory, &error))?;
    let removed = remove_others(directory, now).map_err(|error| unsettled(directory, &error))?;
    Ok(Rekeyed { removed, left: foreign_backups(directory, now) })
}

/// Whether what is in a folder is under another key than this directory, or under none.
fn is_foreign(directory: &DataDirectory, folder: &Path) -> bool {
    let own = directory.keys().master().map(|key| key.mark().id);
    find_mark(&directory.in_backup(folder)).flatten().map(|mark| mark.id) != own
}

/// What a person has put beside the backups.
fn foreign_backups(directory: &DataDirectory, now: Timestamp) -> Vec<PathBuf> {
    let ours = backup::list(directory, now).unwrap_or_default();
    let entries = directory.backups().read_dir().into_iter().flatten().flatten().map(|entry| entry.path());
    entries.filter(|path| !ours.contains(path) && is_foreign(directory, path)).collect()
}

/// Removes what is plain of what was set aside, with it the database that was replaced, and the logs, which may name paths.
fn remove_plain(directory: &DataDirectory) -> io::Result<Vec<PathBuf>> {
    let mut plain: Vec<PathBuf> = directory.damaged_folder().read_dir().map_or_else(
        |_| Vec::new(),
        |entries| entries.flatten().map(|entry| entry.path()).filter(|path| has_plain(directory, path)).collect(),
    );
    plain.extend([directory.rebuild().root().to_owned(), directory.root().join("logs")]);
    plain.retain(|path| path.exists());
    plain.iter().try_for_each(fs::remove_dir_all)?;
    Ok(plain)
}

fn has_plain(directory: &DataDirectory, folder: &Path) -> bool {
    let aside = directory.in_backup(folder);
    let has_file = || list_files(&aside).0.iter().any(|file| sealed_by(&folder.join(file)) == Some(None));
    find_mark(&aside) == Some(None) || has_file()
}

fn remove_others(directory: &DataDirectory, now: Timestamp) -> io::Result<Vec<PathBuf>> {
    let own = directory.keys().master().map(|key| key.mark().id);
    let mut removed = Vec::new();
    for backup in backup::list(directory, now)? {
        if is_foreign(directory, &backup) {
            fs::remove_dir_all(&backup)?;
            removed.push(backup);
        }
    }
    for file in list_files(directory).0 {
        let path = directory.root().join(file);
        if sealed_by(&path).flatten().map(|mark| mark.id) != own {
            mirror::remove(&path)?;
            removed.push(path);
        }
    }
    Ok(removed)
}
