//! Files of clients on the disk. A file is replaced whole or not at all, keeps its mode, and stays a link if it was one.

use std::ffi::OsString;
use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use waystone_store::sync_directory;

use super::failed;

/// A file over this size is no configuration.
const BYTES_MAX: u64 = 64 << 20;

/// The text of a file, if it exists.
pub(super) fn read(path: &Path) -> anyhow::Result<Option<String>> {
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == ErrorKind::NotFound && !path.is_symlink() => return Ok(None),
        Err(error) => return Err(failed(path, &format!("it cannot be read: {error}"))),
    };
    if !metadata.is_file() {
        return Err(failed(path, "it is not a file"));
    }
    if metadata.len() > BYTES_MAX {
        return Err(failed(path, "it is too large for a configuration"));
    }
    let bytes = fs::read(path).map_err(|error| failed(path, &format!("it cannot be read: {error}")))?;
    String::from_utf8(bytes).map(Some).map_err(|_| failed(path, "it is not UTF-8"))
}

/// Writes a file, with the mode of the one it takes the place of. Where it is a link, what it leads to is written.
pub(super) fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    let target = if path.is_symlink() { fs::canonicalize(path) } else { Ok(path.to_owned()) };
    target
        .map_err(anyhow::Error::from)
        .and_then(|target| replace(&target, text, &target))
        .with_context(|| format!("cannot write {}", path.display()))
}

/// Writes a backup, with the mode of the file that it is of. A link of its name is none of ours: whoever made it chose what would be
/// overwritten.
pub(super) fn write_backup(path: &Path, text: &str, of: &Path) -> anyhow::Result<()> {
    if path.is_symlink() {
        return Err(failed(path, "it is a link, and the backup would be written to what it leads to"));
    }
    replace(path, text, of).with_context(|| format!("cannot write {}", path.display()))
}

fn replace(target: &Path, text: &str, like: &Path) -> anyhow::Result<()> {
    let folder = target.parent().context("it is in no directory")?;
    fs::create_dir_all(folder)?;
    let mut builder = tempfile::Builder::new();
    builder.prefix(".waystone-");
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let mut new = builder.tempfile_in(folder)?;
    if let Ok(old) = fs::metadata(like) {
        new.as_file().set_permissions(old.permissions())?;
    }
    new.write_all(text.as_bytes())?;
    new.as_file().sync_all()?;
    new.persist(target)?;
    Ok(sync_directory(folder)?)
}

pub(super) fn remove(path: &Path) -> anyhow::Result<()> {
    fs::remove_file(path).with_context(|| format!("cannot remove {}", path.display()))
}

/// Removes the folders of `path` below `root`, as long as they are empty.
pub(super) fn remove_empty_folders(path: &Path, root: &Path) {
    let folders = path.ancestors().skip(1).take_while(|folder| *folder != root && folder.starts_with(root));
    for folder in folders {
        if fs::remove_dir(folder).is_err() {
            return;
        }
    }
}

/// Where a file is kept as it was.
pub(super) fn backup_of(path: &Path) -> PathBuf {
    let mut name = path.file_name().map_or_else(OsString::new, ToOwned::to_owned);
    name.push(".waystone-backup");
    path.with_file_name(name)
}
