//! Copies that contradict each other: older databases, foreign files, forks. What either of them holds is never thrown away.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;
use tempfile::TempDir;
use waystone_core::api::{Deletion, FindingKind};
use waystone_core::clock::Clock;
use waystone_testkit::harness::{context_of, copy_dir, private_dir};
use waystone_testkit::{Harness, audit};

fn copy_of(from: &Path) -> TempDir {
    let copy = private_dir();
    copy_dir(from, copy.path());
    copy
}

/// Puts the database of another directory in place of a closed harness's own.
fn put_back(h: &Harness, from: &Path) {
    for name in ["waystone.db", "waystone.db-wal", "waystone.db-shm"] {
        let _ = fs::remove_file(h.data_dir().join(name));
    }
    fs::copy(from.join("waystone.db"), h.data_dir().join("waystone.db")).unwrap();
}

fn file_of(h: &Harness, session: &str) -> PathBuf {
    fs::read_dir(h.data_dir().join("contexts").join(session)).unwrap().next().unwrap().unwrap().path()
}

async fn save_all(h: &Harness, session: &str, steps: std::ops::Range<u64>) -> Vec<String> {
    let mut ids = Vec::new();
    for n in steps {
        ids.push(h.save(session, json!({ "n": n, "in": session })).await.checkpoint_id.to_string());
    }
    ids
}

async fn assert_loads(h: &Harness, session: &str, ids: &[String]) {
    for (n, id) in ids.iter().enumerate() {
        assert_eq!(context_of(&h.load(&id.parse().unwrap()).await), json!({ "n": n, "in": session }), "{id}");
    }
}

#[tokio::test]
async fn a_group_brought_back_takes_no_more_than_its_bound() {
    let mut h = Harness::new();
    let mut ids = save_all(&h, "s", 0..1).await;
    h.close_mirrored().await;
    let older = copy_of(h.data_dir());
    h.restart().await;
    ids.extend(save_all(&h, "s", 1..32).await);
    h.close_mirrored().await;
    put_back(&h, older.path());
    h.repair();
    h.restart().await;
    ids.extend(save_all(&h, "s", 32..63).await);
    h.restart_mirrored().await;
    assert_loads(&h, "s", &ids).await;
    assert_eq!(h.findings().await, []);
    h.check_invariants().await;
}

#[tokio::test]
async fn a_row_is_healed_from_what_has_its_id_whatever_its_key() {
    let mut h = Harness::new();
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for n in 0..4 {
        a.extend(save_all(&h, "a", n..n + 1).await);
        b.extend(save_all(&h, "b", n..n + 1).await);
    }
    h.close_mirrored().await;
    fs::remove_file(h.data_dir().join("waystone.db")).unwrap();
    h.repair();
    h.restart().await;
    // Before the files are written again they name the keys of the database that is gone.
    audit::open(h.data_dir()).execute_batch("UPDATE checkpoint_bytes SET bytes = x'00'").unwrap();
    assert_loads(&h, "a", &a).await;
    assert_loads(&h, "b", &b).await;
}

#[tokio::test]
async fn a_file_of_a_fork_takes_nothing_away() {
    let mut h = Harness::new();
    let mut ids = save_all(&h, "s", 0..2).await;
    h.close_mirrored().await;
    let fork = copy_of(h.data_dir());
    h.restart().await;
    let foreign = save_all(&h, "s", 9..10).await;
    h.close_mirrored().await;
    let foreign_file = fs::read(file_of(&h, "s")).unwrap();
    put_back(&h, fork.path());
    fs::copy(fork.path().join(file_of(&h, "s").strip_prefix(h.data_dir()).unwrap()), file_of(&h, "s")).unwrap();
    h.restart().await;
    ids.extend(save_all(&h, "s", 2..3).await);
    h.restart_mirrored().await;
    fs::write(file_of(&h, "s"), foreign_file).unwrap();
    assert_eq!(h.findings().await, [FindingKind::Orphan]);
    assert_loads(&h, "s", &ids).await;
    // The next save writes the file, and what is foreign stays in it until a repair takes it in.
    ids.extend(save_all(&h, "s", 3..4).await);
    h.restart_mirrored().await;
    assert_eq!(h.findings().await, [FindingKind::Orphan]);
    h.engine.close().await;
    h.repair();
    h.restart().await;
    assert_loads(&h, "s", &ids).await;
    assert_eq!(context_of(&h.load(&foreign[0].parse().unwrap()).await)["n"], 9);
    assert_eq!(h.findings().await, []);
    h.check_invariants().await;
}

#[tokio::test]
async fn what_was_deleted_stays_deleted_when_an_older_database_is_put_back() {
    let mut h = Harness::new();
    let ids = save_all(&h, "s", 0..3).await;
    save_all(&h, "gone", 0..3).await;
    h.close_mirrored().await;
    let older = copy_of(h.data_dir());
    h.restart().await;
    h.engine.delete_checkpoint(&h.scope, &ids[1].parse().unwrap(), Default::default()).await.unwrap();
    h.engine.delete_session(&h.scope, &"gone".parse().unwrap(), Default::default()).await.unwrap();
    h.close_mirrored().await;
    put_back(&h, older.path());
    h.restart().await;
    assert_eq!(h.findings().await, [FindingKind::Orphan; 2]);
    h.engine.close().await;
    h.repair();
    h.restart().await;
    assert_eq!(h.list(json!({ "limit": 100 })).await, [ids[2].clone(), ids[0].clone()]);
    assert_eq!(h.findings().await, []);
    h.check_invariants().await;
}

/// Housekeeping of a start meets what the older database still has, and must not take it for what an import brought back.
#[tokio::test]
async fn what_was_removed_for_good_stays_removed_when_an_older_database_is_put_back() {
    let mut h = Harness::new();
    let ids = save_all(&h, "s", 0..3).await;
    save_all(&h, "gone", 0..3).await;
    h.close_mirrored().await;
    let older = copy_of(h.data_dir());
    h.restart().await;
    let purge = Deletion { purge: true };
    h.engine.delete_checkpoint(&h.scope, &ids[1].parse().unwrap(), purge).await.unwrap();
    h.engine.delete_session(&h.scope, &"gone".parse().unwrap(), purge).await.unwrap();
    h.close_mirrored().await;
    put_back(&h, older.path());
    h.restart_mirrored().await;
    h.engine.back_up(&h.scope, None).await.unwrap();
    h.engine.close().await;
    h.repair();
    h.restart().await;
    assert_eq!(h.list(json!({ "limit": 100 })).await, [ids[2].clone(), ids[0].clone()]);
    h.engine.close().await;
    fs::remove_file(h.data_dir().join("waystone.db")).unwrap();
    assert!(h.repair().backup.is_some());
    h.restart_mirrored().await;
    assert_eq!(h.list(json!({ "limit": 100 })).await, [ids[2].clone(), ids[0].clone()]);
    assert_eq!(h.findings().await, []);
    h.check_invariants().await;
}

/// A deletion that a file tells of may be long ago, where the file is of a fork: nobody could have restored here what goes with it.
#[tokio::test]
async fn what_a_repair_deletes_can_be_restored_as_long_as_anything_else() {
    let mut h = Harness::new();
    let ids = save_all(&h, "s", 0..32).await;
    h.close_mirrored().await;
    let older = copy_of(h.data_dir());
    h.restart().await;
    save_all(&h, "s", 32..33).await;
    h.engine.delete_session(&h.scope, &"s".parse().unwrap(), Default::default()).await.unwrap();
    h.close_mirrored().await;
    put_back(&h, older.path());
    h.clock.advance_ms(8 * 24 * 60 * 60 * 1000);
    h.repair();
    let deleted = "SELECT archived_at_ms FROM session WHERE id = 's'";
    let deleted: i64 = audit::open(h.data_dir()).query_row(deleted, [], |row| row.get(0)).unwrap();
    assert_eq!(deleted, h.clock.now().ms());
    h.restart_mirrored().await;
    h.engine.restore_session(&h.scope, &"s".parse().unwrap()).await.unwrap();
    assert_loads(&h, "s", &ids).await;
    h.check_invariants().await;
}

/// One byte of an id: the row is the same checkpoint, and not a new one.
#[tokio::test]
async fn a_garbled_id_does_not_become_another_checkpoint() {
    let mut h = Harness::new();
    let ids = save_all(&h, "s", 0..5).await;
    h.restart_mirrored().await;
    let garble = "PRAGMA foreign_keys = OFF; UPDATE checkpoint SET id = 'x' || id WHERE key = 2; UPDATE checkpoint SET session = 77 WHERE key = 5";
    audit::open(h.data_dir()).execute_batch(garble).unwrap();
    h.engine.close().await;
    h.repair();
    h.restart().await;
    assert_loads(&h, "s", &ids).await;
    assert_eq!(h.list(json!({ "limit": 100 })).await.len(), 5);
    assert_eq!(context_of(&h.try_load(json!({ "sessionId": "s" })).await.unwrap())["n"], 4);
    h.check_invariants().await;
}

#[tokio::test]
async fn files_that_are_newer_than_the_database_are_left_for_a_repair() {
    let mut h = Harness::new();
    let mut ids = save_all(&h, "s", 0..1).await;
    h.close_mirrored().await;
    let older = copy_of(h.data_dir());
    h.restart().await;
    ids.extend(save_all(&h, "s", 1..6).await);
    h.close_mirrored().await;
    put_back(&h, older.path());
    h.restart().await;
    assert_eq!(h.findings().await, [FindingKind::Orphan]);
    h.engine.close().await;
    h.repair();
    h.restart().await;
    assert_loads(&h, "s", &ids).await;
    assert_eq!(h.findings().await, []);
}

#[tokio::test]
async fn a_database_that_is_only_busy_is_not_replaced() {
    let mut h = Harness::new();
    save_all(&h, "s", 0..3).await;
    h.close_mirrored().await;
    let db = audit::open(h.data_dir());
    db.execute_batch("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE;").unwrap();
    let refused = h.try_repair();
    assert!(refused.is_err() && !h.data_dir().join("damaged").exists(), "{refused:?}");
}

#[tokio::test]
async fn a_damaged_hash_or_column_does_not_reach_the_file() {
    let mut h = Harness::new();
    let mut ids = save_all(&h, "s", 0..3).await;
    h.restart_mirrored().await;
    let garble = "UPDATE checkpoint SET raw_hash = zeroblob(32), metadata = '{\"name\":\"x\"}' WHERE key = 2";
    audit::open(h.data_dir()).execute_batch(garble).unwrap();
    ids.extend(save_all(&h, "s", 3..4).await);
    h.restart_mirrored().await;
    assert_eq!(h.findings().await, [FindingKind::RowHealed]);
    assert_loads(&h, "s", &ids).await;
    assert_eq!(h.load(&ids[1].parse().unwrap()).await.name, None);
    h.check_invariants().await;
}

#[tokio::test]
async fn nothing_is_healed_from_a_database_that_is_damaged_itself() {
    let mut h = Harness::new();
    save_all(&h, "s", 0..3).await;
    h.restart_mirrored().await;
    let file = fs::read(file_of(&h, "s")).unwrap();
    fs::write(file_of(&h, "s"), &file[1..]).unwrap();
    audit::open(h.data_dir())
        .execute_batch("PRAGMA foreign_keys = OFF; UPDATE checkpoint SET session = 77 WHERE key = 1")
        .unwrap();
    assert_eq!(h.findings().await, [FindingKind::Unhealed]);
    assert_eq!(fs::read(file_of(&h, "s")).unwrap(), file[1..]);
}

#[tokio::test]
async fn no_stray_copy_and_no_damaged_file_brings_back_what_was_deleted() {
    let mut h = Harness::new();
    let ids = save_all(&h, "s", 0..3).await;
    save_all(&h, "gone", 0..40).await;
    h.restart_mirrored().await;
    let stray = file_of(&h, "s").with_file_name("copy (1).json.zst");
    fs::copy(file_of(&h, "s"), &stray).unwrap();
    h.engine.delete_checkpoint(&h.scope, &ids[0].parse().unwrap(), Default::default()).await.unwrap();
    h.engine.delete_session(&h.scope, &"gone".parse().unwrap(), Default::default()).await.unwrap();
    h.close_mirrored().await;
    fs::remove_file(h.data_dir().join("waystone.db")).unwrap();
    // Of the deleted session's two files the newer one is damaged.
    let mut files: Vec<_> =
        fs::read_dir(h.data_dir().join("contexts/gone")).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    fs::write(&files[1], b"damaged").unwrap();
    let findings = h.repair().findings;
    assert!(findings.iter().any(|finding| finding.message.contains("not where it belongs")), "{findings:?}");
    h.restart().await;
    assert_eq!(h.list(json!({ "limit": 100 })).await, [ids[2].clone(), ids[1].clone()]);
}

#[tokio::test]
async fn files_of_two_databases_keep_the_order_of_each() {
    let (mut h, mut other) = (Harness::new(), Harness::counting_from(1000));
    save_all(&other, "x", 0..4).await;
    save_all(&h, "y", 0..1).await;
    let z = h.save("z", json!({ "n": 0 })).await.checkpoint_id;
    save_all(&h, "y", 1..6).await;
    h.close_mirrored().await;
    other.close_mirrored().await;
    fs::remove_file(h.data_dir().join("waystone.db")).unwrap();
    // Both numbered their checkpoints from one on.
    copy_dir(&other.data_dir().join("contexts/x"), &h.data_dir().join("contexts/x"));
    h.repair();
    h.restart_mirrored().await;
    for (session, count) in [("x", 4), ("y", 6)] {
        let mut steps = Vec::new();
        for id in h.list(json!({ "sessionId": session, "limit": 100 })).await.iter().rev() {
            steps.push(context_of(&h.load(&id.parse().unwrap()).await)["n"].as_u64().unwrap());
        }
        assert_eq!(steps, (0..count).collect::<Vec<_>>(), "{session}");
    }
    assert_eq!(context_of(&h.load(&z).await), json!({ "n": 0 }));
    assert_eq!(h.findings().await, []);
    h.check_invariants().await;
}

#[tokio::test]
async fn a_row_that_lost_its_group_gets_it_back_and_bad_metadata_stop_nothing() {
    let mut h = Harness::new();
    let mut ids = save_all(&h, "s", 0..3).await;
    h.restart_mirrored().await;
    audit::open(h.data_dir()).execute_batch("UPDATE checkpoint SET group_key = NULL WHERE key = 2").unwrap();
    assert!(h.findings().await.iter().all(|kind| *kind == FindingKind::RowHealed));
    assert_eq!(h.findings().await, []);
    h.check_invariants().await;

    audit::open(h.data_dir()).execute_batch("UPDATE checkpoint SET metadata = 'x' WHERE key = 3").unwrap();
    assert_eq!(h.list(json!({ "limit": 10 })).await.len(), 3);
    ids.extend(save_all(&h, "s", 3..4).await);
    h.restart_mirrored().await;
    assert_eq!(h.findings().await, [FindingKind::RowHealed]);
    assert_loads(&h, "s", &ids).await;
    h.check_invariants().await;
}

#[tokio::test]
async fn a_repair_that_died_at_its_last_step_is_ended_by_the_next() {
    let mut h = Harness::new();
    let ids = save_all(&h, "s", 0..3).await;
    h.engine.close().await;
    let (database, rebuilt) = (h.data_dir().join("waystone.db"), h.data_dir().join("rebuilt.db"));
    // The damaged one is set aside, its log not yet, and no file has what was salvaged.
    fs::rename(&database, &rebuilt).unwrap();
    fs::write(h.data_dir().join("waystone.db-wal"), "of the damaged one").unwrap();
    fs::remove_dir_all(h.data_dir().join("contexts")).unwrap();
    assert!(
        waystone_store::Sqlite::open(h.data_dir(), h.clock.clone(), &waystone_core::Limits::default()).is_err(),
        "a fresh one would hide it"
    );
    h.repair();
    h.restart().await;
    assert_loads(&h, "s", &ids).await;

    // Where the database still is, nothing was set aside, and it may have been written since.
    h.engine.close().await;
    fs::write(&rebuilt, "older").unwrap();
    h.repair();
    assert!(!rebuilt.exists());
    h.restart().await;

    // A start goes on with the database too: what was made grows old, and must not take its place one day.
    h.engine.close().await;
    let begun = h.data_dir().join("rebuild");
    fs::create_dir(&begun).unwrap();
    fs::write(&rebuilt, "older").unwrap();
    h.restart().await;
    assert!(!rebuilt.exists() && !begun.exists());
    assert_loads(&h, "s", &ids).await;
    h.check_invariants().await;
}

#[tokio::test]
async fn a_database_whose_index_of_words_cannot_be_opened_is_replaced() {
    let mut h = Harness::new();
    let ids = save_all(&h, "s", 0..3).await;
    h.close_mirrored().await;
    audit::open(h.data_dir()).execute("UPDATE segment_word_config SET v = 0 WHERE k = 'version'", []).unwrap();
    assert!(h.repair().damage.is_some());
    h.restart().await;
    assert_loads(&h, "s", &ids).await;
    h.check_invariants().await;
}

/// What SQLite says of a number that it does not know is not always that the database is damaged.
#[tokio::test]
async fn a_header_with_any_wrong_number_is_replaced_or_does_no_harm() {
    let mut h = Harness::new();
    let ids = save_all(&h, "s", 0..2).await;
    for offset in [0, 16, 18, 19, 20, 21, 24, 28, 32, 36, 40, 44, 47, 48, 52, 56, 59, 60, 64, 68, 72, 92, 96] {
        h.close_mirrored().await;
        let path = h.data_dir().join("waystone.db");
        let mut bytes = fs::read(&path).unwrap();
        bytes[offset] = 0xa5;
        fs::write(&path, bytes).unwrap();
        h.try_repair().unwrap_or_else(|error| panic!("byte {offset}: {error}"));
        h.restart().await;
        assert_loads(&h, "s", &ids).await;
    }
    h.check_invariants().await;
}

/// A page of which nothing but the head is left gives the same row again and again.
#[tokio::test]
async fn a_database_whose_rows_lead_in_a_circle_is_brought_back() {
    let mut h = Harness::new();
    let mut saved = Vec::new();
    for session in ["a", "b", "c", "d"] {
        saved.push((session, save_all(&h, session, 0..3).await));
    }
    h.close_mirrored().await;
    let path = h.data_dir().join("waystone.db");
    let db = audit::open(h.data_dir());
    let number = |sql: &str| db.query_row(sql, [], |row| row.get::<_, usize>(0)).unwrap();
    let root = number("SELECT rootpage FROM sqlite_schema WHERE name = 'checkpoint_group'");
    let (page, mut bytes) = (number("PRAGMA page_size"), fs::read(&path).unwrap());
    drop(db);
    bytes[(root - 1) * page + 64..root * page].fill(0);
    fs::write(&path, bytes).unwrap();
    h.repair();
    h.restart().await;
    for (session, ids) in saved {
        assert_loads(&h, session, &ids).await;
    }
    h.check_invariants().await;
}
