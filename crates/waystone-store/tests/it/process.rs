use std::sync::Arc;

use waystone_core::store::{Scope, Store};
use waystone_store::{OpenError, Sqlite};
use waystone_testkit::clock::ManualClock;
use waystone_testkit::harness::private_dir;

/// Locks belong to open files, so stores of one process keep each other out just as those of several do.
#[test]
fn first_starts_at_once_all_succeed() {
    for _ in 0..10 {
        let root = private_dir();
        let clock = Arc::new(ManualClock::default());
        let stores: Vec<Sqlite> = std::thread::scope(|scope| {
            let start = || Sqlite::open(root.path(), clock.clone()).unwrap();
            let starts: Vec<_> = (0..24).map(|_| scope.spawn(start)).collect();
            starts.into_iter().map(|start| start.join().unwrap()).collect()
        });
        assert_eq!(stores.len(), 24);
    }
}

#[tokio::test]
async fn a_status_names_the_processes_and_forgets_those_that_left() {
    let root = private_dir();
    let clock = Arc::new(ManualClock::default());
    let first = Sqlite::open(root.path(), clock.clone()).unwrap();
    let second = Sqlite::open(root.path(), clock.clone()).unwrap();
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
    let store = Sqlite::open(root.path(), clock.clone()).unwrap();
    let lock = std::fs::File::open(root.path().join("lock")).unwrap();
    drop(store);
    lock.lock().unwrap();
    let refused = Sqlite::open(root.path(), clock).map(drop).unwrap_err();
    assert!(matches!(refused, OpenError::InUse { .. }), "{refused}");
}
