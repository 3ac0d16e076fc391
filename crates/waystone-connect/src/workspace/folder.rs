//! The folder that tools are confined to, and the only place that opens it by its path.
//!
//! cap-std opens everything else from there: neither `..` nor a link leads out, whoever changes the folder meanwhile. Links that
//! stay inside are followed to read. Only plain files are opened, never pipes or devices.

use std::borrow::Cow;
use std::io::{self, ErrorKind};
use std::path::{Component, Path, PathBuf};

use cap_fs_ext::{FollowSymlinks, OpenOptionsFollowExt, OpenOptionsSyncExt};
use cap_std::ambient_authority;
use cap_std::fs::{Dir, File, Metadata, OpenOptions};
use waystone_core::prose::steers;

const PATH_BYTES_MAX: usize = 4096;
/// Folders inside of each other.
pub(super) const DEPTH_MAX: usize = 64;

pub(super) struct Folder {
    root: Dir,
    path: PathBuf,
}

impl Folder {
    pub(super) fn open(workspace: &str) -> Result<Self, String> {
        let path = PathBuf::from(workspace);
        if !path.is_absolute() {
            return Err("the workspace is not an absolute path: ask the user for another".to_owned());
        }
        let root = Dir::open_ambient_dir(&path, ambient_authority()).map_err(|error| match error.kind() {
            ErrorKind::NotFound => "the workspace does not exist: ask the user to make it".to_owned(),
            ErrorKind::NotADirectory => "the workspace is not a folder: ask the user for another".to_owned(),
            kind => format!("the workspace cannot be opened ({kind}): ask the user for another"),
        })?;
        Ok(Self { root, path })
    }

    pub(super) fn root(&self) -> &Dir {
        &self.root
    }

    /// `path` from the workspace on, with `/` between names and without `..`; the workspace itself is `.`. What lies at such a path
    /// is confined only when it is opened: a name in it can be a link.
    pub(super) fn relative(&self, path: &str) -> Result<String, String> {
        if path.len() > PATH_BYTES_MAX {
            return Err(format!("the path is longer than {PATH_BYTES_MAX} bytes: give a shorter one"));
        }
        if path.contains('\0') {
            return Err("the path contains a NUL character: give it without".to_owned());
        }
        let outside = || format!("`{}` is outside of the workspace: give a path that is relative to it", shown(path));
        let given = Path::new(path);
        let inner = if given.is_absolute() { self.without_prefix(given).ok_or_else(outside)? } else { given.into() };
        let mut names = Vec::new();
        for component in inner.components() {
            match component {
                Component::CurDir => {}
                Component::Normal(name) => names.push(name.to_string_lossy()),
                Component::ParentDir => drop(names.pop().ok_or_else(outside)?),
                Component::RootDir | Component::Prefix(_) => return Err(outside()),
            }
        }
        match names.len() {
            0 => Ok(".".to_owned()),
            1..=DEPTH_MAX => Ok(names.join("/")),
            _ => Err(format!("the path has more than {DEPTH_MAX} parts: give a shorter one")),
        }
    }

    /// The rest of an absolute path inside: models often give those.
    fn without_prefix<'a>(&self, path: &'a Path) -> Option<Cow<'a, Path>> {
        let inner = path.strip_prefix(&self.path).ok();
        let real = || path.strip_prefix(self.path.canonicalize().ok()?).ok();
        inner.or_else(real).map(Cow::Borrowed)
    }

    pub(super) fn open_file(&self, path: &str) -> Result<File, String> {
        open_file(&self.root, path.as_ref(), FollowSymlinks::Yes).map_err(|error| failure(path, &error))
    }

    pub(super) fn open_dir(&self, path: &str) -> Result<Dir, String> {
        self.root.open_dir(path).map_err(|error| failure(path, &error))
    }
}

/// Opens a plain file to read it, and waits for nobody.
pub(super) fn open_file(dir: &Dir, path: &Path, follow: FollowSymlinks) -> io::Result<File> {
    // What is no file is not opened if that can be seen before: it would act on devices, and on who has the other end of a pipe.
    // What counts is what is seen when it is open.
    check_plain(&if follow == FollowSymlinks::Yes { dir.metadata(path) } else { dir.symlink_metadata(path) }?)?;
    let file = dir.open_with(path, OpenOptions::new().read(true).nonblock(true).follow(follow))?;
    check_plain(&file.metadata()?)?;
    Ok(file)
}

pub(super) fn check_plain(metadata: &Metadata) -> io::Result<()> {
    if metadata.is_file() {
        Ok(())
    } else if metadata.is_dir() {
        Err(ErrorKind::IsADirectory.into())
    } else {
        Err(ErrorKind::Unsupported.into())
    }
}

/// What a model is told of `error` at `path`.
pub(super) fn failure(path: &str, error: &io::Error) -> String {
    let path = shown(path);
    match error.kind() {
        ErrorKind::NotFound => format!("`{path}` does not exist: list_files shows what there is"),
        ErrorKind::IsADirectory => format!("`{path}` is a folder: list_files shows what is in it"),
        ErrorKind::NotADirectory => {
            format!("`{path}` is not a folder, or a part of it is none: list_files shows what there is")
        }
        ErrorKind::Unsupported => format!("`{path}` is neither a file nor a folder: leave it alone"),
        // The system's own refusals have a number; this one is of cap-std.
        ErrorKind::PermissionDenied if error.raw_os_error().is_none() => {
            format!("`{path}` is a link that leads out of the workspace: use files inside of it")
        }
        ErrorKind::PermissionDenied => format!("`{path}` is not open to you: ask the user, or do without it"),
        kind => format!("`{path}` cannot be used: {kind}"),
    }
}

/// A path in an answer: on one line, and nothing in it acts.
pub(super) fn shown(path: &str) -> String {
    let mut shown = String::with_capacity(path.len());
    for c in path.chars() {
        if steers(c) { shown.extend(c.escape_default()) } else { shown.push(c) }
    }
    shown
}
