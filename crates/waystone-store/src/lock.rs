//! Which process may do what. All locks are the kernel's, so they vanish with their holder, however it dies.

use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::OpenError;
use crate::directory::DataDirectory;
use crate::platform::{open_file, open_private_file};

/// How long a start waits for another process to finish what it does exclusively.
const WAIT_MAX: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(5);

/// Held by every process for its life: `lock` shared, and a file of its own in `run/` that tells others who is alive.
#[derive(Debug)]
pub(crate) struct Presence {
    _shared: Option<File>,
    own: Option<(PathBuf, File)>,
}

impl Presence {
    /// Joins the processes that use the directory. `prepare` runs while this process has it alone, and only when
    /// `is_prepared` says no: of many first starts one prepares, and the others find it done while they wait to be alone.
    pub(crate) fn enter(
        directory: &DataDirectory,
        id: &str,
        is_prepared: impl Fn() -> Result<bool, OpenError>,
        prepare: impl Fn() -> Result<(), OpenError>,
    ) -> Result<Self, OpenError> {
        let unusable = |error| OpenError::Unusable { path: directory.root().to_owned(), error };
        let file = open_private_file(&directory.lock()).map_err(unusable)?;
        let started = Instant::now();
        loop {
            if is_taken(file.try_lock_shared()).map_err(unusable)? {
                if is_prepared()? {
                    break;
                }
                file.unlock().map_err(unusable)?;
                if is_taken(file.try_lock()).map_err(unusable)? {
                    if !is_prepared()? {
                        prepare()?;
                    }
                    file.unlock().map_err(unusable)?;
                    continue;
                }
            }
            if started.elapsed() > WAIT_MAX {
                return Err(OpenError::InUse { path: directory.root().to_owned(), pids: processes(directory) });
            }
            std::thread::sleep(POLL);
        }
        let own = claim(directory, id).map_err(unusable)?;
        Ok(Self { _shared: Some(file), own: Some(own) })
    }

    /// Joins them without making anything that is not there. Where the lock is missing or nothing can be written, no one can have the
    /// directory alone either.
    pub(crate) fn enter_reading(directory: &DataDirectory, id: &str) -> Result<Self, OpenError> {
        let unusable = |error| OpenError::Unusable { path: directory.root().to_owned(), error };
        let file = match open_file(&directory.lock()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            file => Some(file.map_err(unusable)?),
        };
        if let Some(file) = &file
            && !lock_within(|| file.try_lock_shared(), WAIT_MAX).map_err(unusable)?
        {
            return Err(OpenError::InUse { path: directory.root().to_owned(), pids: processes(directory) });
        }
        Ok(Self { _shared: file, own: claim(directory, id).ok() })
    }
}

impl Presence {
    /// The name of this process's file, by which others see whether it is alive; empty if it has none.
    pub(crate) fn name(&self) -> String {
        let stem = self.own.as_ref().and_then(|(path, _)| path.file_stem());
        stem.map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    }
}

/// Whether the process whose file has that name is alive.
pub(crate) fn is_present(directory: &DataDirectory, name: &str) -> bool {
    !name.is_empty() && is_alive(&directory.run().join(format!("{name}.lock")))
}

/// Takes the directory for this process alone, or names those that use it.
pub(crate) fn take_alone(directory: &DataDirectory) -> Result<File, OpenError> {
    let unusable = |error| OpenError::Unusable { path: directory.root().to_owned(), error };
    let file = open_private_file(&directory.lock()).map_err(unusable)?;
    match lock_within(|| file.try_lock(), WAIT_MAX).map_err(unusable)? {
        true => Ok(file),
        false => Err(OpenError::InUse { path: directory.root().to_owned(), pids: processes(directory) }),
    }
}

/// Whether a lock was taken before the time was over.
pub(crate) fn lock_within(try_lock: impl Fn() -> Result<(), TryLockError>, wait: Duration) -> io::Result<bool> {
    let started = Instant::now();
    while !is_taken(try_lock())? {
        if started.elapsed() > wait {
            return Ok(false);
        }
        std::thread::sleep(POLL);
    }
    Ok(true)
}

impl Drop for Presence {
    fn drop(&mut self) {
        if let Some((path, _)) = &self.own {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Whether a lock was taken, or is another's.
pub(crate) fn is_taken(tried: Result<(), TryLockError>) -> io::Result<bool> {
    match tried {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Makes `run/<pid>-<id>.lock`, locked before it has that name: no one can take it for a dead process's.
fn claim(directory: &DataDirectory, id: &str) -> io::Result<(PathBuf, File)> {
    let name = format!("{}-{id}", std::process::id());
    let fresh = directory.run().join(format!("{name}.new"));
    let path = directory.run().join(format!("{name}.lock"));
    let file = open_private_file(&fresh)?;
    file.lock()?;
    std::fs::rename(&fresh, &path)?;
    Ok((path, file))
}

/// The processes that have the directory open. Files of dead ones are removed on the way.
pub(crate) fn processes(directory: &DataDirectory) -> Vec<u32> {
    let mut pids = Vec::new();
    for entry in std::fs::read_dir(directory.run()).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|extension| extension == "lock") {
            match is_alive(&path) {
                true => pids.extend(pid_of(&path)),
                false => drop(std::fs::remove_file(&path)),
            }
        }
    }
    pids.sort_unstable();
    pids
}

fn is_alive(path: &Path) -> bool {
    match open_file(path) {
        Ok(file) => file.try_lock_shared().is_err(),
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    }
}

fn pid_of(path: &Path) -> Option<u32> {
    path.file_name()?.to_str()?.split_once('-')?.0.parse().ok()
}
