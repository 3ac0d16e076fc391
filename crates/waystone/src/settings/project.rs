//! The project of a working directory.

use std::path::Path;

use anyhow::Context;
use sha2::{Digest, Sha256};
use waystone_core::id::ProjectId;

use crate::git::Repository;

/// `<folder>-<8 hex>` of the git repository around the working directory, else `default`.
pub(super) fn infer(has_place: bool) -> anyhow::Result<ProjectId> {
    if !has_place {
        return "default".parse().map_err(anyhow::Error::msg);
    }
    let here = std::env::current_dir().context("the working directory cannot be read")?;
    let id = Repository::around(&here).map_or_else(|| "default".to_owned(), |repository| project_of(&repository));
    id.parse().map_err(anyhow::Error::msg)
}

/// The project of the git repository around a folder.
pub(crate) fn project_at(folder: &Path) -> Option<ProjectId> {
    project_of(&Repository::around(folder)?).parse().ok()
}

fn project_of(repository: &Repository) -> String {
    let place = || repository.common.canonicalize().unwrap_or_else(|_| repository.root.clone());
    let identity = origin_of(repository).unwrap_or_else(|| place().to_string_lossy().into_owned());
    let digest = hex::encode(Sha256::digest(identity.as_bytes()));
    let folder = repository.root.file_name().map_or_else(|| "root".into(), |name| name.to_string_lossy());
    let allowed = |c: char| if c.is_ascii_alphanumeric() || "_.-".contains(c) { c } else { '-' };
    let folder: String = folder.chars().map(allowed).take(100).collect();
    format!("{folder}-{}", &digest[..8])
}

/// The URL of the remote `origin`.
fn origin_of(repository: &Repository) -> Option<String> {
    let config = std::fs::read_to_string(repository.common.join("config")).ok()?;
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
            project_of(&Repository::around(&root).unwrap())
        };
        let (first, other, plain) =
            (clone("a/my app", Some(config)), clone("b/my app", Some(config)), clone("c", None));
        assert_eq!(first, other);
        assert!(first.starts_with("my-app-") && first.len() == "my-app-".len() + 8, "{first}");
        assert!(plain.starts_with("c-") && !plain.ends_with(&first[7..]), "{plain}");
    }
}
