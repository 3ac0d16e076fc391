//! Data directories as earlier versions wrote them, kept for ever. Each comes with what is in it.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tempfile::TempDir;

use crate::harness::private_dir;

/// A golden directory: a copy that may be opened, and what it must hold, by checkpoint id.
pub struct Golden {
    pub name: String,
    pub directory: TempDir,
    pub expected: Value,
}

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden")
}

/// Every golden directory there is.
pub fn all() -> Vec<Golden> {
    let mut found: Vec<Golden> = fs::read_dir(root()).unwrap().map(|entry| copy_of(&entry.unwrap().path())).collect();
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

fn copy_of(path: &Path) -> Golden {
    let directory = private_dir();
    fs::copy(path.join("waystone.db"), directory.path().join("waystone.db")).unwrap();
    let expected = fs::read(path.join("expected.json")).unwrap();
    Golden {
        name: path.file_name().unwrap().to_string_lossy().into_owned(),
        directory,
        expected: waystone_core::json::parse_trusted(&expected).unwrap(),
    }
}
