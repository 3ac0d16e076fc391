//! A store under another master key, or sealed for the first time, by a process that has the directory alone.
//!
//! Both end alike: when the database is as it is to be, a backup is made of it, and only then what the new key does not open is removed, the
//! other backups and the mirror files, which housekeeping writes again. Whoever dies on the way finishes by doing it once more.

use std::fs;
use std::io;
use std::path::PathBuf;
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
    let now = clock.now();
    bring_to_present(&directory, now)?;
    if !directory.keys().is_sealed() {
        return Err(OpenError::NotSealed { path: directory.database() }.into());
    }
    migration::unlock(&Source::Beside(directory.clone()))?;
    let new = make()?;
    wrap_anew(&directory, &new, now).map_err(|error| failed(&directory, &error))?;
    let mut rekeyed = settle(&directory.with_key(&new), now)?;
    // What only the old key opens is no one's to remove but its owner's.
    rekeyed.left.extend(Some(directory.damaged_folder()).filter(|folder| folder.exists()));
    Ok((new, rekeyed))
}

/// Seals a plain store: every value is sealed in a copy, which then takes its place. `progress` is told how much is done, and of how much.
pub fn encrypt_store(
    root: Root<'_>,
    key: &MasterKey,
    clock: &Arc<dyn Clock>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Rekeyed, OpenError> {
    let directory = DataDirectory::find(root.path)?;
    let _alone = take_alone(&directory)?;
    let now = clock.now();
    let unusable = |error| OpenError::Unusable { path: directory.root().to_owned(), error };
    if directory.rebuilt().exists() {
        finish(&directory, now).map_err(unusable)?;
    }
    match find_mark(&directory) {
        None => return Err(OpenError::Nothing { path: directory.root().to_owned() }),
        // All but the end was done, or all.
        Some(Some(mark)) if mark.id == key.mark().id => {
            let sealed = directory.with_key(key);
            bring_to_present(&sealed, now)?;
            return settle_plain(&sealed, now);
        }
        Some(Some(_)) => return Err(OpenError::OtherKey { path: directory.database() }),
        Some(None) => {}
    }
    bring_to_present(&directory, now)?;
    if let Some(message) = why_unusable(&directory)? {
        return Err(OpenError::Database { path: directory.database(), message });
    }
    let fresh = begin(&directory)?;
    make_sealed(&directory, &fresh, key, now, progress).inspect_err(|_| {
        // A plain copy is not left behind.
        let _ = fs::remove_dir_all(fresh.root());
    })?;
    end(&directory, &fresh).map_err(unusable)?;
    put_in_place(&directory, now).map_err(unusable)?;
    settle_plain(&directory.with_key(key), now)
}

fn make_sealed(
    directory: &DataDirectory,
    fresh: &DataDirectory,
    key: &MasterKey,
    now: Timestamp,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(), OpenError> {
    if let Some(damage) = why_unusable_copy(&directory.database(), &fresh.database(), directory.keys(), now)? {
        return Err(failed(directory, &damage));
    }
    let fresh = fresh.with_key(key);
    seal_all(&fresh, now, progress).map_err(|error| failed(directory, &error))?;
    why_unusable(&fresh)?.map_or(Ok(()), |damage| Err(failed(directory, &damage)))
}

/// The same for what was plain: what was set aside goes too, and with it the database that was replaced.
fn settle_plain(directory: &DataDirectory, now: Timestamp) -> Result<Rekeyed, OpenError> {
    let mut rekeyed = settle(directory, now)?;
    let aside = directory.damaged_folder();
    if aside.exists() {
        fs::remove_dir_all(&aside).map_err(|error| OpenError::Unusable { path: aside.clone(), error })?;
        rekeyed.removed.push(aside);
    }
    Ok(rekeyed)
}

fn bring_to_present(directory: &DataDirectory, now: Timestamp) -> Result<(), OpenError> {
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

/// Makes a backup, and then removes what the key does not open.
fn settle(directory: &DataDirectory, now: Timestamp) -> Result<Rekeyed, OpenError> {
    let unusable = |error| OpenError::Unusable { path: directory.root().to_owned(), error };
    migration::unlock(&Source::Beside(directory.clone()))?;
    copy_whole(directory, now).map_err(|error| failed(directory, &error))?;
    let removed = remove_others(directory, now).map_err(unusable)?;
    let exports = directory.root().join("exports");
    let has_exports = exports.read_dir().is_ok_and(|mut entries| entries.next().is_some());
    Ok(Rekeyed { removed, left: has_exports.then_some(exports).into_iter().collect() })
}

fn remove_others(directory: &DataDirectory, now: Timestamp) -> io::Result<Vec<PathBuf>> {
    let own = directory.keys().master().map(|key| key.mark().id);
    let mut removed = Vec::new();
    for backup in backup::list(directory, now)? {
        if find_mark(&directory.in_backup(&backup)).flatten().map(|mark| mark.id) != own {
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
