//! What no tool may touch though it lies in the folder, such as Waystone's own data.
//!
//! It is known by what the file system calls it and not by its path: links, other mounts and other spellings lead to the same.

use std::io;
use std::path::{Path, PathBuf};

use cap_fs_ext::MetadataExt;
use cap_std::ambient_authority;
use cap_std::fs::{Dir, File, Metadata};

/// Device and number of a file or folder.
type Identity = (u64, u64);

pub(super) struct Private(Vec<Identity>);

impl Private {
    /// What is not there cannot be met.
    pub(super) fn at(paths: &[PathBuf]) -> Self {
        Self(paths.iter().filter_map(|path| identity_at(path).ok()).collect())
    }

    /// Whether it is what is open as `dir`.
    pub(super) fn is_dir(&self, dir: &Dir) -> bool {
        dir.dir_metadata().is_ok_and(|metadata| self.0.contains(&identity(&metadata)))
    }

    /// Whether it is what is open as `file`.
    pub(super) fn is_file(&self, file: &File) -> bool {
        file.metadata().is_ok_and(|metadata| self.0.contains(&identity(&metadata)))
    }

    /// Whether `folder` is in it, or is it.
    pub(super) fn is_around(&self, folder: &Path) -> bool {
        let Ok(real) = folder.canonicalize() else { return false };
        real.ancestors().any(|folder| identity_at(folder).is_ok_and(|identity| self.0.contains(&identity)))
    }
}

/// Only what is open has an identity on every system.
fn identity_at(path: &Path) -> io::Result<Identity> {
    if path.metadata()?.is_dir() {
        Dir::open_ambient_dir(path, ambient_authority())?.dir_metadata().map(|metadata| identity(&metadata))
    } else {
        File::open_ambient(path, ambient_authority())?.metadata().map(|metadata| identity(&metadata))
    }
}

fn identity(metadata: &Metadata) -> Identity {
    (metadata.dev(), metadata.ino())
}
