//! Processes that open one data directory at once.

use std::path::Path;
use std::sync::{Arc, Barrier};

use waystone_core::store::{Scope, Store};
use waystone_core::{Engine, Limits};
use waystone_store::{OpenError, Sqlite};
use waystone_testkit::clock::ManualClock;
use waystone_testkit::harness::private_dir;
use waystone_testkit::{audit, golden};

/// 24 stores on one directory, started at the same moment. Locks belong to open files, so stores of one process keep
/// each other out just as those of several do.
fn start_at_once(root: &Path) -> Vec<Sqlite> {
    let (clock, gate) = (Arc::new(ManualClock::unique()), Barrier::new(24));
    std::thread::scope(|scope| {
        let start = || {
            gate.wait();
            Sqlite::open(root, clock.clone(), &Limits::default()).unwrap()
        };
        let starts: Vec<_> = (0..24).map(|_| scope.spawn(start)).collect();
        starts.into_iter().map(|start| start.join().unwrap()).collect()
    })
}

/// Panics unless the schema is there once.
fn assert_made_once(root: &Path) {
    assert_eq!(audit::audit(root), Vec::<String>::new());
    let db = audit::open(root);
    let count =
        |table: &str| -> u64 { db.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap() };
    assert_eq!((count("space"), count("chain")), (1, 1));
}

#[test]
fn first_starts_at_once_all_succeed() {
    for _ in 0..10 {
        let root = private_dir();
        let stores = start_at_once(root.path());
        assert_made_once(root.path());
        drop(stores);
    }
}

#[tokio::test]
async fn starts_at_once_on_an_older_format_change_it_once() {
    let golden = golden::all().remove(0);
    let root = golden.directory.path();
    let before = audit::open(root).pragma_query_value(None, "user_version", |row| row.get::<_, i64>(0)).unwrap();
    let stores = start_at_once(root);
    let after = audit::open(root).pragma_query_value(None, "user_version", |row| row.get::<_, i64>(0)).unwrap();
    assert!(before < after, "{} has the present format", golden.name);
    assert_made_once(root);
    drop(stores);
    let clock = Arc::new(ManualClock::unique());
    let store = Arc::new(Sqlite::open(root, clock.clone(), &Limits::default()).unwrap());
    let engine = Engine::new(store, clock, Limits::default(), "default".parse().unwrap());
    let (contents, expected) = (golden::contents(&engine).await, golden::without_keeping(golden.expected));
    assert!(golden::contains(&contents, &expected), "it does not hold what it held");
    engine.close().await;
}

#[tokio::test]
async fn a_status_names_the_processes_and_forgets_those_that_left() {
    let root = private_dir();
    let clock = Arc::new(ManualClock::default());
    let first = Sqlite::open(root.path(), clock.clone(), &Limits::default()).unwrap();
    let second = Sqlite::open(root.path(), clock.clone(), &Limits::default()).unwrap();
    let processes = async || first.status(&Scope::local("tester")).await.unwrap().processes;
    assert_eq!(processes().await, [std::process::id(); 2]);
    second.close().await;
    std::fs::write(root.path().join("run").join("999999-dead.lock"), "").unwrap();
    assert_eq!(processes().await, [std::process::id()]);
}

#[test]
fn a_directory_held_exclusively_is_refused() {
    let root = private_dir();
    let clock = Arc::new(ManualClock::default());
    let store = Sqlite::open(root.path(), clock.clone(), &Limits::default()).unwrap();
    let lock = std::fs::File::open(root.path().join("lock")).unwrap();
    drop(store);
    lock.lock().unwrap();
    let refused = Sqlite::open(root.path(), clock, &Limits::default()).map(drop).unwrap_err();
    assert!(matches!(refused, OpenError::InUse { .. }), "{refused}");
}
