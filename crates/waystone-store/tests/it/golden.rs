//! Data directories that earlier versions have written: all of them open, and are rebuilt from their files.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use waystone_core::clock::Clock;
use waystone_core::store::Scope;
use waystone_core::{Engine, Limits};
use waystone_store::Sqlite;
use waystone_testkit::clock::ManualClock;
use waystone_testkit::harness::private_dir;
use waystone_testkit::{audit, golden};

/// Each directory is one that a released format wrote. They are never rewritten; a new format adds one.
#[tokio::test]
async fn every_golden_directory_opens() {
    let (all, present) = (golden::all(), present_version());
    assert!(!all.is_empty());
    for golden in all {
        let clock = Arc::new(ManualClock::unique());
        let is_older = version(golden.directory.path()) < present;
        let store = Sqlite::open(golden.directory.path(), clock.clone(), &Limits::default()).unwrap();
        let is_copied = golden.directory.path().join("backups").is_dir();
        assert_eq!(is_copied, is_older, "{}: what is migrated is copied first", golden.name);
        let engine = Engine::new(Arc::new(store), clock, Limits::default(), "default".parse().unwrap());
        let contents = golden::contents(&engine).await;
        assert!(golden::contains(&contents, &golden.expected), "{} does not hold what it held", golden.name);

        let request = waystone_testkit::harness::request_of(json!({ "sessionId": "after", "context": { "n": 1 } }));
        engine.save_checkpoint(&Scope::local("tester"), request).await.unwrap();
        engine.close().await;
        assert_eq!(audit::audit(golden.directory.path()), Vec::<String>::new(), "{}", golden.name);
    }
}

/// A repair that meets an older format is a migration too.
#[test]
fn an_older_format_is_copied_before_a_repair_makes_it_the_present_one() {
    let present = present_version();
    for golden in golden::all() {
        let root = golden.directory.path();
        if version(root) < present {
            let clock: Arc<dyn Clock> = Arc::new(ManualClock::unique());
            let repaired = waystone_store::repair(root, &clock, &mut |_, _| {}).unwrap();
            assert_eq!(repaired.damage, None, "{}", golden.name);
            assert!(root.join("backups").is_dir() && version(root) == present, "{}", golden.name);
        }
    }
}

/// Whoever changes the format must add a directory that has it.
#[test]
fn the_newest_golden_directory_has_the_present_format() {
    let newest = golden::all().iter().map(|golden| version(golden.directory.path())).max();
    assert_eq!(newest, Some(present_version()));
}

fn version(root: &Path) -> i64 {
    audit::open(root).pragma_query_value(None, "user_version", |row| row.get(0)).unwrap()
}

fn present_version() -> i64 {
    let fresh = private_dir();
    drop(Sqlite::open(fresh.path(), Arc::new(ManualClock::unique()), &Limits::default()).unwrap());
    version(fresh.path())
}

/// A database that is lost comes back from files that any released format wrote.
#[tokio::test]
async fn every_golden_directory_with_files_is_rebuilt_from_them() {
    let with_files: Vec<_> =
        golden::all().into_iter().filter(|golden| golden.directory.path().join("contexts").is_dir()).collect();
    assert!(!with_files.is_empty());
    for golden in with_files {
        let clock = Arc::new(ManualClock::unique());
        std::fs::remove_file(golden.directory.path().join("waystone.db")).unwrap();
        let shared: Arc<dyn Clock> = clock.clone();
        waystone_store::repair(golden.directory.path(), &shared, &mut |_, _| {}).unwrap();
        let store = Sqlite::open(golden.directory.path(), clock.clone(), &Limits::default()).unwrap();
        let engine = Engine::new(Arc::new(store), clock, Limits::default(), "default".parse().unwrap());
        let expected = only_checkpoints(golden::without_keeping(golden.expected));
        let contents = golden::contents(&engine).await;
        assert!(golden::contains(&contents, &expected), "{} does not hold what it held", golden.name);
        engine.close().await;
    }
}

/// What has a second copy in files: all checkpoints but those that say where a conversation stood.
fn only_checkpoints(contents: Value) -> Value {
    let all = contents.as_array().unwrap();
    let is_conversation = |id: &Value| all.iter().any(|entry| entry["message_pool"].is_object() && entry["id"] == *id);
    let has_copy = |entry: &&Value| entry.get("checkpointId").is_some() && !is_conversation(&entry["sessionId"]);
    all.iter().filter(has_copy).cloned().collect()
}

/// Before there were origins an import left its operation, and nothing else.
#[tokio::test]
async fn what_was_imported_before_there_were_origins_counts_as_imported() {
    let golden = golden::all().into_iter().find(|golden| golden.name == "7-seal").unwrap();
    let made = "
        UPDATE operation SET kind = 'session.imported' WHERE seq = (SELECT saved_seq FROM checkpoint ORDER BY key LIMIT 1);
        UPDATE operation SET kind = 'project.imported'
            WHERE seq = (SELECT min(operation) FROM segment_change WHERE tier IS NULL)";
    audit::open(golden.directory.path()).execute_batch(made).unwrap();
    let clock = Arc::new(ManualClock::unique());
    let store = Sqlite::open(golden.directory.path(), clock.clone(), &Limits::default()).unwrap();
    let engine = Engine::new(Arc::new(store), clock, Limits::default(), "default".parse().unwrap());
    let contents = golden::contents(&engine).await;
    let all = contents.as_array().unwrap();
    let checkpoints: Vec<&Value> = all.iter().filter(|entry| entry.get("checkpointId").is_some()).collect();
    let imported = |entry: &&&Value| entry["origin"] == "import";
    assert_eq!(checkpoints.iter().position(|entry| entry["origin"] == "import"), Some(0), "the first is oldest");
    assert_eq!(checkpoints.iter().filter(imported).count(), 1);
    assert!(checkpoints[1..].iter().all(|entry| entry["origin"] == "agent"));
    let segments: Vec<&Value> = all.iter().flat_map(|entry| entry["segments"].as_array()).flatten().collect();
    let (came, others) = (segments.iter().filter(imported).count(), segments.len());
    assert!(came > 1 && came < others, "{came} of {others}");
    engine.close().await;
}

/// How a conversation begins was not kept before; what is said later is not its beginning.
#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_of_an_older_format_keeps_its_title_when_it_goes_on() {
    let golden = golden::all().into_iter().find(|golden| golden.name == "11-window").unwrap();
    let clock = Arc::new(ManualClock::unique());
    let store = Arc::new(Sqlite::open(golden.directory.path(), clock.clone(), &Limits::default()).unwrap());
    let engine = Engine::new(store, clock, Limits::default(), "default".parse().unwrap());
    let scope = Scope::local("tester");
    let listed = async || engine.list_contexts(&scope, Default::default()).await.unwrap().contexts;
    let before = listed().await.into_iter().find(|context| context.current_state.as_str() == "PermanentFailure");
    let before = before.unwrap();
    let said = serde_json::from_value(json!({ "content": "said later" })).unwrap();
    engine.add_message(&scope, &before.id, said).await.unwrap();
    let after = listed().await.into_iter().find(|context| context.id == before.id).unwrap();
    assert_eq!((after.title, before.title.is_some()), (before.title, true));
    engine.close().await;
}
