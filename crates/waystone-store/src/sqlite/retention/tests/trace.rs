//! What is left of what was removed, in any file.

use waystone_core::Engine;
use waystone_core::store::Store;
use waystone_testkit::clock::ManualClock;

use super::room::{converse, delete_segment, put};
use super::*;
use crate::{MasterKey, Root, Sqlite};

fn holds(root: &Path, bytes: &[u8]) -> bool {
    fs::read_dir(root).unwrap().any(|entry| {
        let path = entry.unwrap().path();
        if path.is_dir() {
            return holds(&path, bytes);
        }
        // What is moved meanwhile is looked at where it is then.
        fs::read(&path).is_ok_and(|file| file.windows(bytes.len()).any(|window| window == bytes))
    })
}

#[tokio::test]
async fn what_is_removed_while_others_have_the_store_open_stands_in_no_file_when_that_is_said() {
    let mut h = Harness::new();
    save_all(&h, "gone", 0..3).await;
    let stays = h.save("stays", json!({ "note": "zanzibarpassphrase" })).await;
    h.restart_mirrored().await;
    let other = h.second();
    let seen = |engine: &Engine| {
        let (engine, scope) = (engine.clone(), h.scope.clone());
        async move { engine.list_sessions(&scope, ListSessions::default()).await.unwrap().sessions.len() }
    };
    h.save("stays", json!({ "note": "another" })).await;
    h.save("gone", json!({ "note": "quokkapassphrase" })).await;
    assert_eq!(seen(&other).await, 2);
    let told = h.engine.delete_session(&h.scope, &id("gone"), PURGE).await.unwrap().warnings;
    assert!(!is_anywhere(h.data_dir(), "quokkapass"), "not in the log of a store that is open");
    assert_eq!(told.len(), 1, "nothing held it back: {told:?}");
    h.engine.delete_checkpoint(&h.scope, &stays.checkpoint_id, PURGE).await.unwrap();
    assert!(!is_anywhere(h.data_dir(), "zanzibarpass"));
    let context = converse(&h, ["wombatpassphrase"]).await;
    assert_eq!(seen(&other).await, 2);
    h.engine.delete_context(&h.scope, &id(&context), PURGE).await.unwrap();
    assert!(!is_anywhere(h.data_dir(), "wombatpass"), "nor is a message");
    assert_eq!(seen(&other).await, 1);
    other.close().await;
    h.check_invariants().await;
}

#[tokio::test]
async fn the_key_of_a_removed_session_stands_in_no_file_though_others_have_the_store_open() {
    let (root, clock, key) = (private_dir(), Arc::new(ManualClock::default()), MasterKey::new([7; 32], None));
    let open = || {
        let limits = Limits::default();
        let root = Root { path: root.path(), key: Some(&key), seals: true };
        let store: Arc<dyn Store> = Arc::new(Sqlite::open(root, clock.clone(), &limits).unwrap());
        Engine::new(store, clock.clone(), limits, "project".parse().unwrap())
    };
    let (engine, other, scope) = (open(), open(), Scope::local("tester"));
    for session in ["gone", "stays"] {
        let request = serde_json::from_value(json!({ "sessionId": session, "context": { "n": 1 } })).unwrap();
        other.save_checkpoint(&scope, request).await.unwrap();
    }
    let key_of = |session: &str| -> Vec<u8> {
        let sql = "SELECT wrapped_key FROM session WHERE id = ?1";
        audit::open(root.path()).query_row(sql, [session], |row| row.get(0)).unwrap()
    };
    let (gone, stays) = (key_of("gone"), key_of("stays"));
    assert!(holds(root.path(), &gone));
    engine.delete_session(&scope, &id("gone"), PURGE).await.unwrap();
    assert!(!holds(root.path(), &gone) && holds(root.path(), &stays));
    engine.close().await;
    other.close().await;
}

#[tokio::test]
async fn a_reader_that_holds_the_log_is_told_of_and_housekeeping_cuts_it_off_when_it_is_gone() {
    let h = Harness::new();
    let mut keeper = upkeep(&h);
    h.save("gone", json!({ "note": "quokkapassphrase" })).await;
    keeper.wipe_traces().unwrap();
    let reader = audit::open(h.data_dir());
    reader.execute_batch("BEGIN; SELECT count(*) FROM session;").unwrap();
    let told = h.engine.delete_session(&h.scope, &id("gone"), PURGE).await.unwrap().warnings;
    assert!(told.iter().any(|warning| warning.contains("write-ahead log")), "{told:?}");
    keeper.wipe_traces().unwrap();
    assert!(is_anywhere(h.data_dir(), "quokkapass"), "it is still held");
    drop(reader);
    keeper.wipe_traces().unwrap();
    assert!(!is_anywhere(h.data_dir(), "quokkapass"));
    assert_eq!(fs::metadata(h.data_dir().join("waystone.db-wal")).unwrap().len(), 0);
}

#[tokio::test]
async fn segments_that_are_removed_leave_nothing_when_their_grace_is_over() {
    let mut h = Harness::new();
    let mut keeper = upkeep(&h);
    keeper.purge(&|| false).unwrap();
    let gone = put(&h, &format!("quokkapassphrase {}", "and what follows it ".repeat(2000))).await;
    put(&h, &"wombatpassphrase ".repeat(2000)).await;
    h.restart_mirrored().await;
    delete_segment(&h, &gone).await;
    for _ in 0..8 {
        h.clock.advance_ms(DAY_MS);
        keeper.purge(&|| false).unwrap();
    }
    keeper.wipe_traces().unwrap();
    let _ = fs::remove_dir_all(h.data_dir().join("backups"));
    assert!(is_anywhere(h.data_dir(), "wombatpass"));
    assert!(!is_anywhere(h.data_dir(), "quokkapass"), "neither the text nor its words");
    assert!(!is_anywhere(h.data_dir(), "what follows it"));
    h.check_invariants().await;
}

#[tokio::test]
async fn segments_that_are_removed_early_leave_nothing_and_their_operation_says_so() {
    let mut h = Harness::with_limits(Limits { total_bytes_max: 100_000, ..Limits::default() });
    let mut keeper = upkeep(&h);
    keeper.purge(&|| false).unwrap();
    let gone = put(&h, &format!("quokkapassphrase {}", "and what follows it ".repeat(2000))).await;
    put(&h, &"wombatpassphrase ".repeat(3000)).await;
    h.restart_mirrored().await;
    delete_segment(&h, &gone).await;
    keeper.relieve(&|| false).unwrap();
    keeper.wipe_traces().unwrap();
    let _ = fs::remove_dir_all(h.data_dir().join("backups"));
    assert!(is_anywhere(h.data_dir(), "wombatpass"));
    assert!(!is_anywhere(h.data_dir(), "quokkapass") && !is_anywhere(h.data_dir(), "what follows it"));
    let sql = "SELECT payload ->> '$.graceCut' FROM operation WHERE kind = 'segment.purged'";
    let cut: Option<bool> = audit::open(h.data_dir()).query_row(sql, [], |row| row.get(0)).unwrap();
    assert_eq!(cut, Some(true));
    h.check_invariants().await;
}
