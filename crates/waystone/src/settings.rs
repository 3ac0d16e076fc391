//! What is set by flags and the environment, and what is inferred when nothing is set. The only place that reads the
//! environment.

use std::num::NonZeroU64;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use sha2::{Digest, Sha256};
use waystone_core::Limits;
use waystone_core::id::ProjectId;

#[derive(Debug, Args)]
pub(crate) struct SettingArguments {
    /// Where everything is kept [default: the platform's data directory, such as ~/.local/share/waystone]
    #[arg(long, global = true, env = "WAYSTONE_DATA_DIR", value_name = "DIR", alias = "storage-path")]
    data_dir: Option<PathBuf>,

    /// The project of what is saved; inferred from the git repository of the working directory when left out
    #[arg(long, global = true, env = "WAYSTONE_PROJECT", value_name = "ID")]
    project: Option<ProjectId>,

    /// How many checkpoints a session keeps before the oldest without name, tag or branch is archived [default: 100]
    #[arg(long, global = true, env = "WAYSTONE_MAX_CHECKPOINTS", value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    max_checkpoints: Option<u64>,

    /// Origins of web pages that may call besides our own, such as https://app.example
    #[arg(long, global = true, env = "WAYSTONE_ALLOWED_ORIGINS", value_name = "ORIGIN", value_delimiter = ',')]
    allowed_origins: Vec<String>,
}

#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) data_dir: PathBuf,
    pub(crate) project: ProjectId,
    pub(crate) limits: Limits,
    /// Who acts when no agent gives its name.
    pub(crate) user: String,
    /// Web pages besides our own that may call.
    pub(crate) allowed_origins: Vec<String>,
}

impl Settings {
    /// `has_place` says that the working directory means something: a server's does not.
    pub(crate) fn load(arguments: &SettingArguments, has_place: bool) -> anyhow::Result<Self> {
        let aliased = ["WORKRAIL_DATA_DIR", "WORKRAIL_STORAGE_PATH"].into_iter().find_map(variable).map(PathBuf::from);
        let data_dir = arguments.data_dir.clone().or(aliased).map_or_else(default_data_dir, Ok)?;
        let project = arguments.project.clone().map_or_else(|| infer_project(has_place), Ok)?;
        let mut limits = Limits::default();
        let aliased = variable("WORKRAIL_MAX_CHECKPOINTS").map(|text| text.parse::<NonZeroU64>()).transpose();
        let aliased = aliased.context("WORKRAIL_MAX_CHECKPOINTS must be a number from 1 on")?.map(NonZeroU64::get);
        limits.checkpoints_max = arguments.max_checkpoints.or(aliased).unwrap_or(limits.checkpoints_max);
        let user = ["USER", "USERNAME"].into_iter().find_map(variable).unwrap_or_else(|| "user".to_owned());
        Ok(Self { data_dir, project, limits, user, allowed_origins: arguments.allowed_origins.clone() })
    }
}

#[expect(clippy::disallowed_methods, reason = "this is the one home of the environment")]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn default_data_dir() -> anyhow::Result<PathBuf> {
    let base = directories::BaseDirs::new().context("there is no home directory; set WAYSTONE_DATA_DIR")?;
    Ok(base.data_dir().join("waystone"))
}

/// `<folder>-<8 hex>` of the git repository around the working directory, else `default`.
fn infer_project(has_place: bool) -> anyhow::Result<ProjectId> {
    let here = std::env::current_dir().context("the working directory cannot be read")?;
    let root = here.ancestors().filter(|_| has_place).find(|folder| folder.join(".git").exists());
    let id = root.map_or_else(|| "default".to_owned(), project_of);
    id.parse().map_err(anyhow::Error::msg)
}

fn project_of(root: &Path) -> String {
    let place = || git_directory(root).and_then(|git| git.canonicalize().ok()).unwrap_or_else(|| root.to_owned());
    let identity = origin_of(root).unwrap_or_else(|| place().to_string_lossy().into_owned());
    let digest = hex::encode(Sha256::digest(identity.as_bytes()));
    let folder = root.file_name().map_or_else(|| "root".into(), |name| name.to_string_lossy());
    let allowed = |c: char| if c.is_ascii_alphanumeric() || "_.-".contains(c) { c } else { '-' };
    let folder: String = folder.chars().map(allowed).take(100).collect();
    format!("{folder}-{}", &digest[..8])
}

/// The directory with git's own files. In a worktree `.git` is a file that leads to it.
fn git_directory(root: &Path) -> Option<PathBuf> {
    let git = root.join(".git");
    if git.is_dir() {
        return Some(git);
    }
    let link = std::fs::read_to_string(git).ok()?;
    let private = root.join(link.strip_prefix("gitdir:")?.trim());
    match std::fs::read_to_string(private.join("commondir")) {
        Ok(common) => Some(private.join(common.trim())),
        Err(_) => Some(private),
    }
}

/// The URL of the remote `origin`, read from git's own file: no process is started for it.
fn origin_of(root: &Path) -> Option<String> {
    let config = std::fs::read_to_string(git_directory(root)?.join("config")).ok()?;
    let section = config.split("[remote \"origin\"]").nth(1)?;
    let section = section.split("\n[").next()?;
    section
        .lines()
        .find_map(|line| Some(line.trim().strip_prefix("url")?.trim_start().strip_prefix('=')?.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_project_is_named_by_folder_and_origin_wherever_it_is_cloned() {
        let parent = tempfile::tempdir().unwrap();
        let config = "[core]\n\tbare = false\n[remote \"origin\"]\n\turl = git@host:team/app.git\n\tfetch = x\n[branch \"main\"]\n";
        let clone = |name: &str, config: Option<&str>| {
            let root = parent.path().join(name);
            std::fs::create_dir_all(root.join(".git")).unwrap();
            if let Some(config) = config {
                std::fs::write(root.join(".git/config"), config).unwrap();
            }
            project_of(&root)
        };
        let (first, other, plain) =
            (clone("a/my app", Some(config)), clone("b/my app", Some(config)), clone("c", None));
        assert_eq!(first, other);
        assert!(first.starts_with("my-app-") && first.len() == "my-app-".len() + 8, "{first}");
        assert!(plain.starts_with("c-") && !plain.ends_with(&first[7..]), "{plain}");
    }
}
