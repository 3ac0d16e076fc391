//! The data directory: what is private, and what is refused untouched.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use rusqlite::config::DbConfig;
use waystone_store::{OpenError, Sqlite};
use waystone_testkit::audit;
use waystone_testkit::clock::ManualClock;
use waystone_testkit::harness::private_dir;

fn open(path: &Path) -> Result<Sqlite, OpenError> {
    Sqlite::open(path, Arc::new(ManualClock::default()), &waystone_core::Limits::default())
}

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o777
}

#[test]
fn a_directory_open_to_others_is_refused() {
    let parent = private_dir();
    let root = parent.path().join("data");
    fs::create_dir(&root).unwrap();
    fs::set_permissions(&root, fs::Permissions::from_mode(0o755)).unwrap();
    drop(open(&root).unwrap());
    assert_eq!(mode(&root), 0o700, "an empty one of ours is closed");

    fs::set_permissions(&root, fs::Permissions::from_mode(0o750)).unwrap();
    assert!(matches!(open(&root), Err(OpenError::OpenToOthers { mode: 0o750, .. })));
    assert_eq!(mode(&root), 0o750, "one with something in it is left as it is");
}

#[test]
fn everything_made_is_private() {
    let parent = private_dir();
    let root = parent.path().join("deep").join("data");
    let store = open(&root).unwrap();
    let mut seen = 0;
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        assert_eq!(mode(&folder), 0o700, "{}", folder.display());
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            seen += 1;
            if path.is_dir() {
                folders.push(path);
            } else {
                assert_eq!(mode(&path), 0o600, "{}", path.display());
            }
        }
    }
    assert!(seen >= 6, "only {seen} files");
    drop(store);
}

#[test]
fn a_newer_database_is_refused_untouched() {
    let root = private_dir();
    drop(open(root.path()).unwrap());
    // As a crash leaves it: what is newest stands in the write-ahead log only.
    let db = audit::open(root.path());
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).unwrap();
    db.pragma_update(None, "user_version", 99).unwrap();
    drop(db);
    let files = ["waystone.db", "waystone.db-wal"].map(|name| root.path().join(name));
    let before = files.each_ref().map(|file| fs::read(file).unwrap());
    assert!(matches!(open(root.path()), Err(OpenError::Newer { found: 99, .. })));
    assert_eq!(files.each_ref().map(|file| fs::read(file).unwrap()), before);
}

#[test]
fn a_file_that_is_no_database_is_refused_untouched() {
    let root = private_dir();
    fs::write(
        root.path().join("waystone.db"),
        "this is not a database, and it is long enough to be looked at".repeat(20),
    )
    .unwrap();
    let before = fs::read(root.path().join("waystone.db")).unwrap();
    let refused = open(root.path()).map(drop).unwrap_err();
    assert!(matches!(refused, OpenError::Database { .. }), "{refused}");
    assert_eq!(fs::read(root.path().join("waystone.db")).unwrap(), before);
}

#[test]
fn a_path_that_cannot_be_a_directory_is_named() {
    let root = private_dir();
    fs::write(root.path().join("file"), "").unwrap();
    let error = open(&root.path().join("file")).map(drop).unwrap_err();
    assert!(error.to_string().contains(&root.path().join("file").display().to_string()), "{error}");
    assert!(error.hint().contains("--data-dir"), "{}", error.hint());
}
