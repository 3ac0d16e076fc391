//! `write_file`: makes or replaces a file.
//!
//! The text goes into a file of another name in the same folder, is made durable, and takes the place of the old one in one step:
//! readers see one or the other. No link is followed, at no part of the path, and git's own files are left alone. What is made has
//! the mode that the person's own programs would give it.

use std::io::{self, ErrorKind, Write};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

use cap_fs_ext::{DirExt, FollowSymlinks, OpenOptionsFollowExt, OpenOptionsSyncExt};
use cap_std::fs::{Dir, File, OpenOptions, Permissions};
use serde_json::json;
use waystone_core::api::Tool;

use super::argument::Arguments;
use super::folder::{Folder, check_plain, failure, shown};
use super::report::bytes;
use super::{Patience, schema};

const CONTENT_BYTES_MAX: usize = 10 * 1024 * 1024;
/// Names for a new file that others may have left behind.
const NAMES_MAX: usize = 100;

pub(super) fn tool() -> Tool {
    Tool {
        name: "write_file".to_owned(),
        description: format!(
            "Makes or replaces a file of the workspace, with the folders it is in. At most {} MiB; not through links, and not \
             in `.git`.",
            CONTENT_BYTES_MAX >> 20
        ),
        input_schema: schema(
            json!({
                "path": { "type": "string", "description": "The file, relative to the workspace." },
                "content": { "type": "string", "description": "The whole text of the file." },
            }),
            &["path", "content"],
        ),
        read_only: false,
        // Someone may have written in between.
        idempotent: false,
    }
}

pub(super) fn run(folder: &Folder, arguments: &Arguments<'_>, patience: &Patience) -> Result<String, String> {
    let given = arguments.required_text("path")?;
    let content = arguments.required_text("content")?;
    let path = folder.relative(given)?;
    if path == "." || given.ends_with(['/', std::path::MAIN_SEPARATOR]) {
        return Err(format!("`{}` is a folder: add the name of the file", shown(&path)));
    }
    if content.len() > CONTENT_BYTES_MAX {
        return Err(format!("`content` is longer than {} MiB: write less", CONTENT_BYTES_MAX >> 20));
    }
    if path.split('/').any(is_git) {
        return Err("git's own files are not written: ask the user to run git".to_owned());
    }
    let (folders, name) = path.rsplit_once('/').unwrap_or(("", &path));
    let mut parent = folder.root().try_clone().map_err(|error| failure(&path, &error))?;
    for name in folders.split('/').filter(|name| !name.is_empty()) {
        parent = enter(folder, &parent, name).map_err(|error| refusal(&parent, name, &path, &error))?;
    }
    let old = permissions(folder, &parent, name).map_err(|error| refusal(&parent, name, &path, &error))?;
    let is_new = old.is_none();
    let permissions = old.or_else(|| usual(0o666, folder.umask()));
    replace(&parent, name, content, permissions, patience).map_err(|error| failure(&path, &error))?;
    let done = if is_new { "made" } else { "replaced" };
    Ok(format!("{done} `{}`: {}", shown(&path), bytes(content.len() as u64)))
}

/// Whether a file system could take `name` for git's folder: some do not tell cases apart, or drop what is at the end.
fn is_git(name: &str) -> bool {
    let name = name.split(':').next().unwrap_or(name).trim_end_matches(['.', ' ']);
    name.eq_ignore_ascii_case(".git") || name.eq_ignore_ascii_case("git~1")
}

/// Opens a folder, and makes it first if there is none.
fn enter(folder: &Folder, dir: &Dir, name: &str) -> io::Result<Dir> {
    let opened = match dir.open_dir_nofollow(name) {
        Err(error) if error.kind() == ErrorKind::NotFound => make(folder, dir, name)?,
        opened => opened?,
    };
    folder.check_dir(&opened)?;
    Ok(opened)
}

fn make(folder: &Folder, dir: &Dir, name: &str) -> io::Result<Dir> {
    match dir.create_dir(name) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::AlreadyExists => return dir.open_dir_nofollow(name),
        Err(error) => return Err(error),
    }
    let made = dir.open_dir_nofollow(name)?;
    if let Some(permissions) = usual(0o777, folder.umask()) {
        made.set_permissions(".", permissions)?;
    }
    sync(dir)?;
    Ok(made)
}

/// What a file or folder gets that is made with `mode`; None if the process gives it that already.
#[cfg(unix)]
fn usual(mode: u32, umask: Option<u32>) -> Option<Permissions> {
    use cap_std::fs::PermissionsExt;
    umask.map(|umask| Permissions::from_mode(mode & !umask))
}

#[cfg(not(unix))]
fn usual(_: u32, _: Option<u32>) -> Option<Permissions> {
    None
}

/// Those of the file that is there, if it may be written. To take its place nobody would have to ask it.
fn permissions(folder: &Folder, dir: &Dir, name: &str) -> io::Result<Option<Permissions>> {
    match dir.symlink_metadata(name) {
        Ok(metadata) => check_plain(&metadata)?,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    }
    let file = dir.open_with(name, OpenOptions::new().write(true).nonblock(true).follow(FollowSymlinks::No))?;
    let metadata = file.metadata()?;
    check_plain(&metadata)?;
    folder.check_file(&file)?;
    Ok(Some(without_set_id(metadata.permissions())))
}

/// A program that runs as its owner no longer does when someone else has written it.
fn without_set_id(permissions: Permissions) -> Permissions {
    #[cfg(unix)]
    let permissions = {
        use cap_std::fs::PermissionsExt;
        Permissions::from_mode(permissions.mode() & 0o777)
    };
    permissions
}

fn replace(
    dir: &Dir,
    name: &str,
    content: &str,
    permissions: Option<Permissions>,
    patience: &Patience,
) -> io::Result<()> {
    let (file, temporary) = create(dir)?;
    let written = fill(file, content, permissions).and_then(|()| {
        if patience.is_over() {
            return Err(ErrorKind::TimedOut.into());
        }
        dir.rename(&temporary, dir, name)
    });
    if written.is_err() {
        // It can only be left behind.
        let _ = dir.remove_file(&temporary);
    }
    written?;
    sync(dir)
}

/// A new file under a name that nobody has.
fn create(dir: &Dir) -> io::Result<(File, String)> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    for _ in 0..NAMES_MAX {
        let name = format!(".waystone-{}-{}.tmp", process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        match dir.open_with(&name, OpenOptions::new().write(true).create_new(true)) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            opened => return Ok((opened?, name)),
        }
    }
    Err(ErrorKind::AlreadyExists.into())
}

fn fill(mut file: File, content: &str, permissions: Option<Permissions>) -> io::Result<()> {
    file.write_all(content.as_bytes())?;
    if let Some(permissions) = permissions {
        file.set_permissions(permissions)?;
    }
    file.sync_all()
}

/// Makes the names in a folder durable. Windows does so on its own.
fn sync(dir: &Dir) -> io::Result<()> {
    if cfg!(unix) { dir.open(".")?.sync_all() } else { Ok(()) }
}

/// Why `path` is not written, where `name` in `dir` is in the way.
fn refusal(dir: &Dir, name: &str, path: &str, error: &io::Error) -> String {
    match dir.symlink_metadata(name) {
        Ok(metadata) if metadata.is_symlink() => {
            format!(
                "`{}` goes through a link, `{}`: write where it leads to, if that is in the workspace",
                shown(path),
                shown(name)
            )
        }
        _ => failure(path, error),
    }
}
