//! The git repository around a directory, read from git's own files: no process is started for it. What cannot be read is no
//! information, never a failure.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use waystone_core::api::Git;

/// Files of one line. Whatever is longer is something else.
const LINE_BYTES_MAX: u64 = 4096;
/// A list of refs longer than this is not looked through.
const PACKED_BYTES_MAX: u64 = 64 * 1024 * 1024;

pub(crate) struct Repository {
    pub(crate) root: PathBuf,
    /// What is this working tree's own: `HEAD`.
    private: PathBuf,
    /// What all working trees share: refs, configuration.
    pub(crate) common: PathBuf,
    /// What the list of packed refs said last: it can be long, and changes rarely.
    packed: Mutex<Option<Packed>>,
}

/// Which file was read, for which ref, and what stood there.
#[derive(PartialEq)]
struct Packed {
    version: (SystemTime, u64),
    name: String,
    head: Option<String>,
}

impl Repository {
    /// The repository that `here` is in.
    pub(crate) fn around(here: &Path) -> Option<Self> {
        let root = here.ancestors().find(|folder| folder.join(".git").exists())?.to_owned();
        let git = root.join(".git");
        // In a worktree and in a submodule `.git` is a file that leads to the directory.
        let link = || Some(root.join(line_of(&git)?.strip_prefix("gitdir:")?.trim()));
        let private = if git.is_dir() { git.clone() } else { link().unwrap_or_else(|| root.clone()) };
        let common = line_of(&private.join("commondir"));
        let common = common.map_or_else(|| private.clone(), |common| private.join(common.trim()));
        Some(Self { root, private, common, packed: Mutex::new(None) })
    }

    /// Where it stands now.
    pub(crate) fn state(&self) -> Option<Git> {
        let head = line_of(&self.private.join("HEAD"))?;
        let Some(name) = head.strip_prefix("ref:").map(str::trim) else { return Git::new(None, Some(head)) };
        // It becomes a path.
        let is_ref = name.starts_with("refs/") && !name.split(['/', '\\']).any(|part| matches!(part, "" | "." | ".."));
        let name = Some(name).filter(|_| is_ref)?;
        let commit = line_of(&self.common.join(name)).or_else(|| self.find_packed(name));
        Git::new(name.strip_prefix("refs/heads/").map(str::to_owned), commit)
    }

    /// The commit of a ref that has no file of its own.
    fn find_packed(&self, name: &str) -> Option<String> {
        let path = self.common.join("packed-refs");
        let metadata = path.metadata().ok()?;
        let version = (metadata.modified().ok()?, metadata.len());
        let mut known = self.packed.lock().unwrap_or_else(PoisonError::into_inner);
        match &*known {
            Some(packed) if packed.version == version && packed.name == name => packed.head.clone(),
            _ => {
                let lines = BufReader::new(File::open(path).ok()?.take(PACKED_BYTES_MAX)).lines().map_while(Result::ok);
                let head =
                    lines.into_iter().find_map(|line| Some(line.strip_suffix(name)?.strip_suffix(' ')?.to_owned()));
                *known = Some(Packed { version, name: name.to_owned(), head: head.clone() });
                head
            }
        }
    }
}

fn line_of(path: &Path) -> Option<String> {
    let mut text = String::new();
    File::open(path).ok()?.take(LINE_BYTES_MAX).read_to_string(&mut text).ok()?;
    Some(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMITS: [&str; 2] = ["0123456789abcdef0123456789abcdef01234567", "89abcdef0123456789abcdef0123456789abcdef"];

    fn write(path: PathBuf, text: &str) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    #[test]
    fn branch_and_commit_are_read_as_they_change() {
        let place = tempfile::tempdir().unwrap();
        let git = place.path().join("app/.git");
        std::fs::create_dir_all(place.path().join("app/src/deep")).unwrap();
        write(git.join("HEAD"), "ref: refs/heads/feat/größe\n");
        let repository = Repository::around(&place.path().join("app/src/deep")).unwrap();
        let check = |branch: Option<&str>, head: Option<&str>| {
            let expected = Git::new(branch.map(str::to_owned), head.map(str::to_owned));
            assert_eq!(repository.state(), expected);
        };
        check(Some("feat/größe"), None);
        write(git.join("refs/heads/feat/größe"), &format!("{}\n", COMMITS[0]));
        check(Some("feat/größe"), Some(COMMITS[0]));
        write(
            git.join("packed-refs"),
            &format!("# pack-refs with: peeled\n{} refs/heads/old\n^{}\n", COMMITS[1], COMMITS[0]),
        );
        write(git.join("HEAD"), "ref: refs/heads/old");
        check(Some("old"), Some(COMMITS[1]));
        write(git.join("packed-refs"), &format!("{} refs/heads/older\n{} refs/heads/old\n", COMMITS[1], COMMITS[0]));
        check(Some("old"), Some(COMMITS[0]));
        write(git.join("HEAD"), COMMITS[1]);
        check(None, Some(COMMITS[1]));
    }

    #[test]
    fn what_is_broken_or_leads_elsewhere_is_no_information() {
        let place = tempfile::tempdir().unwrap();
        let git = place.path().join(".git");
        write(place.path().join("secret"), COMMITS[0]);
        let check = |head: &str| {
            write(git.join("HEAD"), head);
            let state = Repository::around(place.path()).unwrap().state();
            assert!(state.as_ref().is_none_or(|git| git.head.is_none()), "{head:?}: {state:?}");
            state.is_some()
        };
        for head in ["", "ref:", "ref: refs/../../secret", "ref: /etc/passwd", "ref: refs//x", "garbage", "\0\u{ff}"] {
            assert!(!check(head), "{head:?}");
        }
        assert!(check("ref: refs/heads/new"), "a branch without a commit is one");
        std::fs::write(git.join("HEAD"), [0xff; 9000]).unwrap();
        assert_eq!(Repository::around(place.path()).unwrap().state(), None);
        std::fs::remove_file(git.join("HEAD")).unwrap();
        assert_eq!(Repository::around(place.path()).unwrap().state(), None);
        std::fs::remove_dir(&git).unwrap();
        write(git, "no link");
        assert_eq!(Repository::around(place.path()).unwrap().state(), None);
    }

    #[test]
    fn a_worktree_has_a_branch_of_its_own_and_shares_the_commits() {
        let place = tempfile::tempdir().unwrap();
        let git = place.path().join("app/.git");
        write(git.join("HEAD"), "ref: refs/heads/main");
        write(git.join("refs/heads/side"), COMMITS[1]);
        write(git.join("worktrees/side/HEAD"), "ref: refs/heads/side");
        write(git.join("worktrees/side/commondir"), "../..\n");
        write(place.path().join("side/.git"), "gitdir: ../app/.git/worktrees/side\n");
        let repository = Repository::around(&place.path().join("side")).unwrap();
        assert_eq!(repository.state(), Git::new(Some("side".to_owned()), Some(COMMITS[1].to_owned())));
        let common = |repository: &Repository| repository.common.canonicalize().unwrap();
        assert_eq!(common(&repository), common(&Repository::around(&place.path().join("app")).unwrap()));
    }
}
