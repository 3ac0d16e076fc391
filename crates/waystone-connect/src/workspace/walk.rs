//! A way through a folder and what is in it, in the order of paths. Links are seen and not followed, `.git` and what is private are
//! passed over.

use std::ffi::OsString;
use std::ops::ControlFlow;

use cap_fs_ext::DirExt;
use cap_std::fs::{Dir, Metadata};
use globset::{GlobBuilder, GlobSet};

use super::Patience;
use super::folder::{DEPTH_MAX, Folder};
use super::report::Flow;

const ENTRIES_MAX: usize = 100_000;
const GLOB_BYTES_MAX: usize = 1024;

pub(super) struct Walk<'a> {
    folder: &'a Folder,
    patience: &'a Patience,
    /// Whether folders are entered.
    is_deep: bool,
    entries: usize,
    /// Folders that cannot be read, or are too far down.
    pub(super) closed_folders: usize,
}

pub(super) struct Entry {
    pub(super) name: OsString,
    /// From where the walk began on; that of a folder ends in `/`.
    pub(super) path: String,
    pub(super) metadata: Metadata,
}

impl Entry {
    /// From the workspace on, if the walk began in `folder`.
    pub(super) fn path_from(&self, folder: &str) -> String {
        if folder == "." { self.path.clone() } else { format!("{folder}/{}", self.path) }
    }
}

impl<'a> Walk<'a> {
    pub(super) fn new(folder: &'a Folder, patience: &'a Patience, is_deep: bool) -> Self {
        Self { folder, patience, is_deep, entries: 0, closed_folders: 0 }
    }

    /// Shows everything in `dir` to `visit`, with the folder it is in.
    pub(super) fn through(&mut self, dir: &Dir, visit: &mut dyn FnMut(&Dir, &Entry) -> Flow) -> Flow {
        self.enter(dir, "", 1, visit)
    }

    fn enter(&mut self, dir: &Dir, path: &str, depth: usize, visit: &mut dyn FnMut(&Dir, &Entry) -> Flow) -> Flow {
        let mut entries = Vec::new();
        let flow = self.read(dir, path, &mut entries);
        // A folder sorts as the beginning of the paths in it.
        entries.sort_unstable_by(|one: &Entry, other| one.path.cmp(&other.path));
        for entry in entries {
            self.check_patience()?;
            let inner = entry.metadata.is_dir().then(|| dir.open_dir_nofollow(&entry.name).ok());
            if matches!(&inner, Some(Some(inner)) if self.folder.private().is_dir(inner)) {
                continue;
            }
            visit(dir, &entry)?;
            match inner {
                Some(Some(inner)) if self.is_deep && depth < DEPTH_MAX => {
                    self.enter(&inner, &entry.path, depth + 1, visit)?;
                }
                Some(_) if self.is_deep => self.closed_folders += 1,
                _ => {}
            }
        }
        flow
    }

    fn read(&mut self, dir: &Dir, path: &str, entries: &mut Vec<Entry>) -> Flow {
        let Ok(names) = dir.entries() else {
            self.closed_folders += 1;
            return Flow::Continue(());
        };
        for entry in names {
            self.check_patience()?;
            // What is gone by now is passed over.
            let Some((name, metadata)) = entry.ok().and_then(|entry| Some((entry.file_name(), entry.metadata().ok()?)))
            else {
                continue;
            };
            if name == ".git" {
                continue;
            }
            if self.entries == ENTRIES_MAX {
                return ControlFlow::Break("there are too many files to look at");
            }
            self.entries += 1;
            let end = if metadata.is_dir() { "/" } else { "" };
            entries.push(Entry { path: format!("{path}{}{end}", name.to_string_lossy()), name, metadata });
        }
        Flow::Continue(())
    }

    fn check_patience(&self) -> Flow {
        if self.patience.is_over() { Flow::Break("it takes too long") } else { Flow::Continue(()) }
    }
}

/// A glob as models are told of it.
pub(super) struct Glob {
    globs: GlobSet,
    /// It has no `/` but at its end, and is about names at any depth.
    is_of_names: bool,
    /// It ends in `/`.
    is_of_folders: bool,
}

impl Glob {
    pub(super) const DESCRIPTION: &'static str =
        "such as `*.rs` (names at any depth) or `src/**/*.{ts,tsx}` (from `path` on)";

    pub(super) fn new(glob: &str) -> Result<Self, String> {
        let expected = || format!("`glob` must be a pattern {}", Self::DESCRIPTION);
        if glob.len() > GLOB_BYTES_MAX {
            return Err(format!("{} of at most {GLOB_BYTES_MAX} bytes", expected()));
        }
        let pattern = glob.trim_start_matches("./").trim_end_matches('/');
        // A set of one: alone it would panic where it is nested too deep.
        let built = GlobBuilder::new(pattern).literal_separator(true).build().and_then(|glob| GlobSet::new([glob]));
        let globs = built.map_err(|_| expected())?;
        Ok(Self { globs, is_of_names: !pattern.contains('/'), is_of_folders: glob.ends_with('/') })
    }

    pub(super) fn is_match(&self, entry: &Entry) -> bool {
        if self.is_of_folders && !entry.metadata.is_dir() {
            return false;
        }
        let path = entry.path.trim_end_matches('/');
        self.globs.is_match(if self.is_of_names { path.rsplit('/').next().unwrap_or(path) } else { path })
    }
}
