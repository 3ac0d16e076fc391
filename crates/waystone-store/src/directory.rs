//! The data directory: what is where, and whether it is safe to use.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use waystone_core::clock::Timestamp;

use crate::platform::{self, Access};
use crate::seal::MasterKey;
use crate::sqlite::{Keys, find_mark};
use crate::{OpenError, Root};

pub(crate) const DATABASE: &str = "waystone.db";
/// The folder of mirror files.
pub(crate) const CONTEXTS: &str = "contexts";

const LOGS: &str = "logs";
/// The folder of system prompts, which a person writes.
const PROMPTS: &str = "prompts";
/// Where it stands what was removed for good.
pub(crate) const TOMBSTONES: &str = "contexts/.deleted";

/// What is ours in a data directory, where it is there.
const OURS: [&str; 22] = [
    DATABASE,
    "waystone.db-wal",
    "waystone.db-shm",
    "waystone.db-journal",
    "lock",
    "write.lock",
    "mirror.lock",
    "maintenance.lock",
    "reserve",
    "rebuilt.db",
    "config.json",
    CONTEXTS,
    TOMBSTONES,
    "backups",
    "exports",
    "logs",
    "logs/waystone.log",
    "logs/waystone.log.1",
    "run",
    "damaged",
    "rebuild",
    PROMPTS,
];

/// A directory that is ours, private and local, and the keys of what is sealed in it.
#[derive(Debug, Clone)]
pub(crate) struct DataDirectory {
    root: PathBuf,
    keys: Arc<Keys>,
}

impl DataDirectory {
    /// Makes the directory if it is missing, and refuses one that others own or can read. An empty one of ours is closed
    /// to others; one that holds something is left as it is, since someone may have opened it on purpose.
    pub(crate) fn prepare(root: &Path) -> Result<Self, OpenError> {
        let unusable = |error| OpenError::Unusable { path: root.to_owned(), error };
        platform::create_dir(root).map_err(unusable)?;
        let is_empty = root.read_dir().map_err(unusable)?.next().is_none();
        if is_empty && matches!(platform::access(root).map_err(unusable)?, Access::OpenToOthers { .. }) {
            platform::make_private(root).map_err(unusable)?;
        }
        let directory = Self::find(root)?;
        platform::create_private_dir(&directory.run()).map_err(unusable)?;
        Ok(directory)
    }

    /// The same of one that is there, without making or changing anything.
    pub(crate) fn find(root: &Path) -> Result<Self, OpenError> {
        let unusable = |error| OpenError::Unusable { path: root.to_owned(), error };
        match platform::access(root).map_err(unusable)? {
            Access::Private => {}
            Access::ForeignOwner => return Err(OpenError::ForeignOwner { path: root.to_owned() }),
            Access::OpenToOthers { mode } => return Err(OpenError::OpenToOthers { path: root.to_owned(), mode }),
        }
        if let Some(kind) = platform::network_file_system(root).map_err(unusable)? {
            return Err(OpenError::NetworkFileSystem { path: root.to_owned(), kind });
        }
        let directory = Self { root: root.canonicalize().map_err(unusable)?, keys: Arc::default() };
        directory.check_contents()?;
        Ok(directory)
    }

    /// Refuses a directory in which someone has put something else in the place of what is ours: a link would be followed to where it leads.
    fn check_contents(&self) -> Result<(), OpenError> {
        for name in OURS {
            let path = self.root.join(name);
            let Ok(metadata) = path.symlink_metadata() else { continue };
            if !metadata.is_dir() && !metadata.is_file() {
                let error = platform::planted(metadata.file_type(), "something of ours");
                return Err(OpenError::Planted { path, error });
            }
        }
        Ok(())
    }

    /// The same, with the key if there is one. That one is missing shows when the database is opened.
    pub(crate) fn with_key_of(self, root: &Root<'_>) -> Result<Self, OpenError> {
        match (root.key, root.seals) {
            (None, false) => Ok(self),
            _ => self.unlocked_by(root),
        }
    }

    /// The same with the key, if what is there is sealed, or is to be. A key that is missing is an error; one that is not needed is not used.
    pub(crate) fn unlocked_by(self, root: &Root<'_>) -> Result<Self, OpenError> {
        let path = self.root.clone();
        let is_sealed = find_mark(&self).map(|mark| mark.is_some());
        let key = match (is_sealed, root.key, root.seals) {
            (Some(true), Some(key), _) | (None, Some(key), true) => Some(key.clone()),
            // What it was cannot be read any more; with a key it is sealed from now on.
            (None, Some(key), false) if self.database().metadata().is_ok_and(|metadata| metadata.len() > 0) => {
                Some(key.clone())
            }
            (Some(true) | None, None, true) | (Some(true), None, false) => return Err(OpenError::Sealed { path }),
            (Some(false), _, true) => return Err(OpenError::NotSealed { path }),
            (Some(false) | None, _, false) => None,
        };
        Ok(Self { keys: Arc::new(Keys::new(key)), ..self })
    }

    /// The same directory under another key.
    pub(crate) fn with_key(&self, key: &MasterKey) -> Self {
        Self { root: self.root.clone(), keys: Arc::new(Keys::new(Some(key.clone()))) }
    }

    pub(crate) fn keys(&self) -> &Arc<Keys> {
        &self.keys
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.root.join(DATABASE)
    }

    pub(crate) fn write_ahead_log(&self) -> PathBuf {
        self.root.join("waystone.db-wal")
    }

    /// All that makes up a database: itself first, then its log and the log's index.
    pub(crate) fn database_files(&self) -> [PathBuf; 3] {
        [self.database(), self.write_ahead_log(), self.root.join("waystone.db-shm")]
    }

    pub(crate) fn lock(&self) -> PathBuf {
        self.root.join("lock")
    }

    pub(crate) fn write_lock(&self) -> PathBuf {
        self.root.join("write.lock")
    }

    /// Held by whoever writes a mirror file.
    pub(crate) fn mirror_lock(&self) -> PathBuf {
        self.root.join("mirror.lock")
    }

    pub(crate) fn maintenance_lock(&self) -> PathBuf {
        self.root.join("maintenance.lock")
    }

    /// Where mirror files are, in a folder for each session.
    pub(crate) fn contexts(&self) -> PathBuf {
        self.root.join(CONTEXTS)
    }

    /// Where copies of the database are that are made by themselves.
    pub(crate) fn backups(&self) -> PathBuf {
        self.root.join("backups")
    }

    /// Where a copy is that was made at that time. Their names are in the order of their times.
    pub(crate) fn backup(&self, at: Timestamp) -> PathBuf {
        self.backups().join(name_of(at))
    }

    /// The folder of such a copy, as a place where a database is.
    pub(crate) fn in_backup(&self, backup: &Path) -> Self {
        Self { root: backup.to_owned(), keys: Arc::clone(&self.keys) }
    }

    /// Whether a folder is named as such a copy is.
    pub(crate) fn is_backup(&self, path: &Path) -> bool {
        let form = name_of(Timestamp::from_ms(0));
        let is_same = |(a, b): (char, char)| a == b || a.is_ascii_digit() && b.is_ascii_digit();
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.len() == form.len() && name.chars().zip(form.chars()).all(is_same))
    }

    /// Room that is set aside for when there is none.
    pub(crate) fn reserve(&self) -> PathBuf {
        self.root.join("reserve")
    }

    /// Where it stands what was removed for good.
    pub(crate) fn tombstones(&self) -> PathBuf {
        self.root.join(TOMBSTONES)
    }

    /// Where damaged files are kept that were set aside at that time.
    pub(crate) fn damaged(&self, at: Timestamp) -> PathBuf {
        self.damaged_folder().join(name_of(at))
    }

    pub(crate) fn damaged_folder(&self) -> PathBuf {
        self.root.join("damaged")
    }

    /// Where a database is made anew, with its log beside it.
    pub(crate) fn rebuild(&self) -> Self {
        Self { root: self.root.join("rebuild"), keys: Arc::clone(&self.keys) }
    }

    /// Where a database is that was made anew and is about to take the place of a damaged one.
    pub(crate) fn rebuilt(&self) -> PathBuf {
        self.root.join("rebuilt.db")
    }

    /// Whether there are files or backups from which a database could be brought back.
    pub(crate) fn has_copies(&self) -> bool {
        [self.contexts(), self.backups()].iter().any(|folder| match folder.read_dir() {
            Ok(mut entries) => entries.next().is_some(),
            // What cannot be looked into is not empty for all we know.
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        })
    }

    pub(crate) fn run(&self) -> PathBuf {
        self.root.join("run")
    }
}

fn name_of(at: Timestamp) -> String {
    at.to_string().chars().filter(|c| c.is_ascii_alphanumeric()).collect()
}

/// The folder in a data directory where exports go unless a file is named, made if it is missing.
pub fn make_exports(root: &Path) -> io::Result<PathBuf> {
    let folder = root.join("exports");
    platform::create_private_dir(&folder)?;
    Ok(folder)
}

/// Opens a system prompt of a data directory. It is a file in its own folder: neither of them may be a link to elsewhere.
pub fn open_prompt(root: &Path, id: &str) -> io::Result<File> {
    let folder = root.join(PROMPTS);
    let metadata = folder.symlink_metadata()?;
    match metadata.is_dir() {
        true => platform::open_file(&folder.join(format!("{id}.md"))),
        false => Err(platform::planted(metadata.file_type(), "a directory")),
    }
}

/// A log over this size is set aside, and the one set aside before is replaced.
const LOG_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Opens the log file of a data directory for appending.
pub fn open_log(root: &Path) -> io::Result<File> {
    let folder = root.join(LOGS);
    platform::create_private_dir(&folder)?;
    let path = folder.join("waystone.log");
    if path.metadata().is_ok_and(|metadata| metadata.len() > LOG_BYTES_MAX) {
        // Another process may do the same at the same moment; then it is done.
        let _ = std::fs::rename(&path, folder.join("waystone.log.1"));
    }
    platform::append_private_file(&path)
}
