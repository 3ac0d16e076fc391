//! The folder that tools are confined to, and the only place that opens it by its path.
//!
//! cap-std opens everything else from there: neither `..` nor a link leads out, whoever changes the folder meanwhile. Links that
//! stay inside are followed to read: first is found out where they lead, then every folder on the way there is opened by itself, so
//! that none is passed unseen that is [`Private`]. Only plain files are opened, never pipes or devices.

use std::borrow::Cow;
use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::path::{Component, Path, PathBuf};

use cap_fs_ext::{DirExt, FollowSymlinks, OpenOptionsFollowExt, OpenOptionsSyncExt};
use cap_std::ambient_authority;
use cap_std::fs::{Dir, File, Metadata, OpenOptions};
use waystone_core::prose::steers;

use super::Bounds;
use super::private::Private;

const PATH_BYTES_MAX: usize = 4096;
/// Folders inside of each other.
pub(super) const DEPTH_MAX: usize = 64;

pub(super) struct Folder {
    root: Dir,
    path: PathBuf,
    private: Private,
    umask: Option<u32>,
}

impl Folder {
    pub(super) fn open(workspace: &str, bounds: &Bounds) -> Result<Self, String> {
        let path = PathBuf::from(workspace);
        if !path.is_absolute() {
            return Err("the workspace is not an absolute path: ask the user for another".to_owned());
        }
        let root = Dir::open_ambient_dir(&path, ambient_authority()).map_err(|error| match error.kind() {
            ErrorKind::NotFound => "the workspace does not exist: ask the user to make it".to_owned(),
            ErrorKind::NotADirectory => "the workspace is not a folder: ask the user for another".to_owned(),
            kind => format!("the workspace cannot be opened ({kind}): ask the user for another"),
        })?;
        let private = Private::at(&bounds.private);
        if private.is_around(&path) {
            return Err("the workspace is in Waystone's own data directory: ask the user for another".to_owned());
        }
        Ok(Self { root, path, private, umask: bounds.umask })
    }

    pub(super) fn root(&self) -> &Dir {
        &self.root
    }

    pub(super) fn private(&self) -> &Private {
        &self.private
    }

    /// What is taken away from the modes of what is made; None if the process sees to it.
    pub(super) fn umask(&self) -> Option<u32> {
        self.umask
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
        let (dir, name) = self.locate_file(path)?;
        self.open_in(&dir, name.as_ref()).map_err(|error| failure(path, &error))
    }

    /// The folder that the file at `path` is in, and its name there.
    pub(super) fn locate_file(&self, path: &str) -> Result<(Dir, OsString), String> {
        let locate = || {
            check_plain(&self.root.metadata(path)?)?;
            let real = self.root.canonicalize(path)?;
            let (Some(parent), Some(name)) = (real.parent(), real.file_name()) else {
                return Err(ErrorKind::IsADirectory.into());
            };
            Ok((self.enter(parent)?, name.to_owned()))
        };
        locate().map_err(|error| failure(path, &error))
    }

    pub(super) fn open_dir(&self, path: &str) -> Result<Dir, String> {
        let open = || {
            if !self.root.metadata(path)?.is_dir() {
                return Err(ErrorKind::NotADirectory.into());
            }
            self.enter(&self.root.canonicalize(path)?)
        };
        open().map_err(|error| failure(path, &error))
    }

    /// Opens a folder, and each that it is in. `path` is one without links; what has become one since is not followed.
    fn enter(&self, path: &Path) -> io::Result<Dir> {
        let mut dir = self.root.try_clone()?;
        for component in path.components() {
            if let Component::Normal(name) = component {
                dir = dir.open_dir_nofollow(name)?;
                self.check_dir(&dir)?;
            }
        }
        Ok(dir)
    }

    /// Opens a plain file in `dir` to read it, follows no link, and waits for nobody.
    pub(super) fn open_in(&self, dir: &Dir, name: &Path) -> io::Result<File> {
        // What is no file is not opened if that can be seen before: it would act on devices, and on who has the other end of a
        // pipe. What counts is what is seen when it is open.
        check_plain(&dir.symlink_metadata(name)?)?;
        let options = OpenOptions::new().read(true).nonblock(true).follow(FollowSymlinks::No).clone();
        let file = dir.open_with(name, &options)?;
        check_plain(&file.metadata()?)?;
        self.check_file(&file)?;
        Ok(file)
    }

    pub(super) fn check_dir(&self, dir: &Dir) -> io::Result<()> {
        if self.private.is_dir(dir) { Err(private()) } else { Ok(()) }
    }

    pub(super) fn check_file(&self, file: &File) -> io::Result<()> {
        if self.private.is_file(file) { Err(private()) } else { Ok(()) }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("it is Waystone's own")]
struct IsPrivate;

fn private() -> io::Error {
    io::Error::new(ErrorKind::PermissionDenied, IsPrivate)
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
        _ if error.get_ref().is_some_and(|inner| inner.is::<IsPrivate>()) => {
            format!("`{path}` belongs to Waystone's own data, which no tool may use: do without it")
        }
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
