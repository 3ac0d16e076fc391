//! A database brought back from its mirror files, by a process that has the directory alone.
//!
//! The new database is made beside the damaged one and takes its place at the end. A crash on the way leaves what was there, or a
//! finished one that the next repair puts in place.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use waystone_core::api::Finding;
use waystone_core::clock::{Clock, Timestamp};

use crate::OpenError;
use crate::directory::DataDirectory;
use crate::lock::take_alone;
use crate::platform::{create_private_dir, sync_directory};
use crate::sqlite::{import_files, why_unusable};

/// What was done.
#[derive(Debug)]
pub struct Repaired {
    /// Why the database was replaced, if it was.
    pub damage: Option<String>,
    /// Where the damaged one is now.
    pub set_aside: Option<PathBuf>,
    pub findings: Vec<Finding>,
}

/// Brings back what is in mirror files and not in the database; a database that cannot be used is replaced. `progress` is told how
/// much is done, and of how much.
pub fn repair(root: &Path, clock: &Arc<dyn Clock>, progress: &mut dyn FnMut(u64, u64)) -> Result<Repaired, OpenError> {
    let directory = DataDirectory::prepare(root)?;
    let _alone = take_alone(&directory)?;
    let now = clock.now();
    let unusable = |error| OpenError::Unusable { path: directory.root().to_owned(), error };
    if directory.rebuilt().exists() {
        finish(&directory, now).map_err(unusable)?;
    }
    let Some(damage) = why_unusable(&directory)? else {
        let findings = import_files(&directory, &directory.database(), None, now, progress)?;
        return Ok(Repaired { damage: None, set_aside: None, findings });
    };
    let fresh = directory.rebuild();
    if fresh.root().exists() {
        fs::remove_dir_all(fresh.root()).map_err(unusable)?;
    }
    create_private_dir(fresh.root()).map_err(unusable)?;
    let findings = import_files(&directory, &fresh.database(), Some(&directory.database()), now, progress)?;
    check_copy(&fresh).map_err(unusable)?;
    fs::rename(fresh.database(), directory.rebuilt()).map_err(unusable)?;
    fs::remove_dir_all(fresh.root()).map_err(unusable)?;
    sync_directory(directory.root()).map_err(unusable)?;
    let set_aside = put_in_place(&directory, now).map_err(unusable)?;
    Ok(Repaired { damage: Some(damage), set_aside, findings })
}

/// Ends what a repair that died had begun. As long as the damaged database is where it was, it may hold more than what was made of it.
fn finish(directory: &DataDirectory, at: Timestamp) -> std::io::Result<()> {
    if directory.database().exists() {
        return fs::remove_file(directory.rebuilt());
    }
    put_in_place(directory, at).map(drop)
}

fn put_in_place(directory: &DataDirectory, at: Timestamp) -> std::io::Result<Option<PathBuf>> {
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
