mod copies;
mod damage;
mod room;
mod trace;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use waystone_core::api::{CleanUp, CleanedUp, Deletion, ListSessions};
use waystone_core::clock::Clock;
use waystone_core::error::Conflict;
use waystone_core::id::{CheckpointId, SessionId};
use waystone_core::{Error, Limits};
use waystone_testkit::contexts::Random;
use waystone_testkit::harness::{context_of, private_dir};
use waystone_testkit::{Harness, audit};

use super::*;
use crate::directory::DataDirectory;
use crate::sqlite::Keys;
use crate::sqlite::connection::open_writer;

const PURGE: Deletion = Deletion { purge: true };
const DAY_MS: i64 = 24 * 60 * 60 * 1000;
const HOUR_MS: i64 = 60 * 60 * 1000;

fn upkeep(h: &Harness) -> Upkeep {
    Upkeep::new(DataDirectory::prepare(h.data_dir()).unwrap(), h.clock.clone(), h.limits.clone()).unwrap()
}

/// A harness that does not keep house beside the test, for as long as the file lives.
fn without_house() -> (Harness, fs::File) {
    let root = private_dir();
    let directory = DataDirectory::prepare(root.path()).unwrap();
    let turn = crate::platform::open_private_file(&directory.maintenance_lock()).unwrap();
    turn.lock().unwrap();
    (Harness::on(root), turn)
}

fn id<T: std::str::FromStr<Err = String>>(text: &str) -> T {
    text.parse().unwrap()
}

async fn save_all(h: &Harness, session: &str, steps: std::ops::Range<u64>) -> Vec<CheckpointId> {
    let mut ids = Vec::new();
    for n in steps {
        ids.push(h.save(session, context(session, n)).await.checkpoint_id);
    }
    ids
}

fn context(session: &str, n: u64) -> Value {
    json!({ "n": n, "secret": format!("{session} keeps {n} to itself"), "same": "what does not change ".repeat(20) })
}

async fn sessions(h: &Harness, deleted: bool) -> Vec<String> {
    let page = h.engine.list_sessions(&h.scope, ListSessions { deleted, ..Default::default() }).await.unwrap();
    let mut ids: Vec<String> = page.sessions.iter().map(|session| session.id.to_string()).collect();
    ids.sort();
    ids
}

/// Whether any file holds these bytes, as they are or compressed in a mirror.
fn is_anywhere(root: &Path, text: &str) -> bool {
    fs::read_dir(root).unwrap().any(|entry| {
        let path = entry.unwrap().path();
        if path.is_dir() {
            return is_anywhere(&path, text);
        }
        let found = |bytes: &[u8]| bytes.windows(text.len()).any(|window| window == text.as_bytes());
        let bytes = fs::read(&path).unwrap();
        let mirrored = crate::mirror::decode(&bytes, &Keys::default()).is_ok_and(|group| {
            group.checkpoints.iter().any(|saved| saved.text.as_ref().is_some_and(|text| found(text)))
        });
        found(&bytes) || mirrored
    })
}

/// Takes the database away and makes it anew from the files.
async fn rebuild(h: &mut Harness) {
    h.close_mirrored().await;
    for name in ["waystone.db", "waystone.db-wal", "waystone.db-shm"] {
        let _ = fs::remove_file(h.data_dir().join(name));
    }
    h.repair();
    h.restart().await;
}

#[tokio::test]
async fn a_deleted_session_comes_back_with_all_that_it_had() {
    let mut h = Harness::new();
    let ids = save_all(&h, "s", 0..40).await;
    h.engine.delete_session(&h.scope, &id("s"), Deletion::default()).await.unwrap();
    assert_eq!((sessions(&h, false).await, sessions(&h, true).await), (vec![], vec!["s".to_owned()]));
    let restored = h.engine.restore_session(&h.scope, &id("s")).await.unwrap();
    assert_eq!((restored.checkpoint_count, sessions(&h, true).await), (40, vec![]));
    for (n, id) in ids.iter().enumerate() {
        assert_eq!(context_of(&h.load(id).await), context("s", n as u64));
    }
    h.save("s", json!({ "goes": "on" })).await;
    h.check_invariants().await;
    let again = h.engine.restore_session(&h.scope, &id("s")).await.unwrap_err();
    assert_eq!(again.to_string(), "session `s` is not deleted: there is nothing to restore");
    let again = h.engine.restore_checkpoint(&h.scope, &ids[0]).await.unwrap_err();
    assert_eq!(again.code(), "CONFLICT", "{again}");
    let none = h.engine.restore_session(&h.scope, &id("none")).await.unwrap_err();
    assert_eq!(none, Error::SessionNotFound(id("none")));
    rebuild(&mut h).await;
    assert_eq!(sessions(&h, false).await, ["s"]);
}

#[tokio::test]
async fn a_deleted_or_pruned_checkpoint_is_listed_again() {
    let h = Harness::with_limits(Limits { checkpoints_max: 3, ..Limits::default() });
    let ids = save_all(&h, "s", 0..4).await;
    h.engine.delete_checkpoint(&h.scope, &ids[3], Deletion::default()).await.unwrap();
    assert_eq!(h.list(json!({})).await, [ids[2].as_str(), ids[1].as_str()]);
    h.engine.restore_checkpoint(&h.scope, &ids[3]).await.unwrap();
    h.engine.restore_checkpoint(&h.scope, &ids[0]).await.unwrap();
    let all: Vec<&str> = ids.iter().rev().map(|id| id.as_str()).collect();
    assert_eq!(h.list(json!({})).await, all);
    assert_eq!(
        h.try_load(json!({ "sessionId": "s" })).await.unwrap().checkpoint.checkpoint_id,
        ids[3],
        "it is the newest again"
    );
    h.check_invariants().await;
    let there = h.engine.restore_checkpoint(&h.scope, &ids[3]).await.unwrap_err();
    assert_eq!(there, Error::Conflict(Conflict::NotDeleted { what: "checkpoint", id: ids[3].to_string() }));
    h.engine.delete_session(&h.scope, &id("s"), Deletion::default()).await.unwrap();
    let refused = h.engine.restore_checkpoint(&h.scope, &ids[3]).await.unwrap_err();
    assert_eq!(refused, Error::Conflict(Conflict::SessionDeleted(id("s"))));
}

#[tokio::test]
async fn a_session_that_is_removed_leaves_nothing_and_its_id_can_be_used_again() {
    let mut h = Harness::new();
    save_all(&h, "gone", 0..40).await;
    save_all(&h, "stays", 0..2).await;
    h.save("gone", json!({ "note": "zanzibarpassphrase" })).await;
    let change = serde_json::from_value(json!({ "name": "codename bluebird" })).unwrap();
    h.engine.update_session(&h.scope, &id("gone"), change).await.unwrap();
    h.restart_mirrored().await;
    let size = h.engine.status(&h.scope).await.unwrap().total_size_bytes;
    let removed = h.engine.delete_session(&h.scope, &id("gone"), PURGE).await.unwrap();
    assert_eq!((removed.checkpoint_count, removed.kept_until), (41, None));
    assert!(removed.warnings[0].contains("out of reach"));
    assert!(h.engine.status(&h.scope).await.unwrap().total_size_bytes < size);
    assert!(!h.data_dir().join("contexts/gone").exists());
    assert_eq!(sessions(&h, true).await, Vec::<String>::new());
    for gone in [
        h.engine.restore_session(&h.scope, &id("gone")).await.map(drop),
        h.engine.delete_session(&h.scope, &id("gone"), PURGE).await.map(drop),
    ] {
        assert_eq!(gone.unwrap_err(), Error::SessionNotFound(id("gone")));
    }
    h.check_invariants().await;
    h.restart_mirrored().await;
    assert!(is_anywhere(h.data_dir(), "stays keeps 1"), "the search finds what is there");
    assert!(!is_anywhere(h.data_dir(), "gone keeps"), "not in the database, its log or a file");
    assert!(!is_anywhere(h.data_dir(), "codename bluebird"));
    assert!(!is_anywhere(h.data_dir(), "zanzibarpass"), "nor in what is searched");

    let ids = save_all(&h, "gone", 0..2).await;
    rebuild(&mut h).await;
    assert_eq!(sessions(&h, false).await, ["gone", "stays"]);
    assert_eq!(h.list(json!({ "sessionId": "gone" })).await, [ids[1].as_str(), ids[0].as_str()]);
    h.check_invariants().await;
}

#[tokio::test]
async fn what_depends_on_a_removed_checkpoint_is_packed_anew() {
    let mut h = Harness::new();
    let ids = save_all(&h, "s", 0..10).await;
    h.restart_mirrored().await;
    for n in [0, 3, 4, 9] {
        h.engine.delete_checkpoint(&h.scope, &ids[n], PURGE).await.unwrap();
    }
    assert!(h.engine.delete_checkpoint(&h.scope, &ids[3], PURGE).await.is_err());
    let check = async |h: &Harness| {
        for n in [1, 2, 5, 6, 7, 8] {
            assert_eq!(context_of(&h.load(&ids[n]).await), context("s", n as u64), "{n}");
        }
        for n in [0, 3, 4, 9] {
            assert_eq!(h.try_load(json!({ "checkpointId": ids[n] })).await.unwrap_err().code(), "CHECKPOINT_NOT_FOUND");
        }
        assert_eq!(h.try_load(json!({ "sessionId": "s" })).await.unwrap().checkpoint.checkpoint_id, ids[8]);
        assert_eq!(h.findings().await, []);
        h.check_invariants().await;
    };
    check(&h).await;
    h.restart_mirrored().await;
    assert!(is_anywhere(h.data_dir(), "s keeps 5") && !is_anywhere(h.data_dir(), "s keeps 3"));
    rebuild(&mut h).await;
    check(&h).await;
}

#[tokio::test]
async fn an_older_file_or_database_brings_nothing_back_that_was_removed() {
    let mut h = Harness::new();
    let ids = save_all(&h, "s", 0..5).await;
    save_all(&h, "gone", 0..2).await;
    h.close_mirrored().await;
    let older = private_dir();
    waystone_testkit::harness::copy_dir(h.data_dir(), older.path());
    h.restart().await;
    h.engine.delete_checkpoint(&h.scope, &ids[2], PURGE).await.unwrap();
    h.engine.delete_session(&h.scope, &id("gone"), PURGE).await.unwrap();
    h.close_mirrored().await;
    for name in ["waystone.db-wal", "waystone.db-shm"] {
        let _ = fs::remove_file(h.data_dir().join(name));
    }
    waystone_testkit::harness::copy_dir(&older.path().join("contexts"), &h.data_dir().join("contexts"));
    fs::copy(older.path().join("waystone.db"), h.data_dir().join("waystone.db")).unwrap();
    h.repair();
    h.restart_mirrored().await;
    assert_eq!(h.try_load(json!({ "checkpointId": ids[2] })).await.unwrap_err().code(), "CHECKPOINT_NOT_FOUND");
    assert_eq!(h.list(json!({})).await.len(), 4);
    h.check_invariants().await;
}

#[tokio::test]
async fn a_removal_that_broke_off_is_ended_by_whoever_keeps_house_next() {
    let mut h = Harness::new();
    save_all(&h, "s", 0..3).await;
    h.restart_mirrored().await;
    h.engine.delete_session(&h.scope, &id("s"), Deletion::default()).await.unwrap();
    let scope = h.scope.clone();
    let doomed = find_doomed(&audit::open(h.data_dir()), Archived::Session(&scope, "s")).unwrap().unwrap();
    let db = open_writer(&h.data_dir().join("waystone.db"), &Arc::default()).unwrap();
    db.pragma_update(None, "foreign_keys", true).unwrap();
    let directory = DataDirectory::prepare(h.data_dir()).unwrap();
    tombstone::add(&directory, "s", doomed.ids.iter().map(String::as_str)).unwrap();
    remove_doomed(&db, &scope, &doomed, false, Timestamp::from_ms(1)).unwrap();
    drop(db);
    assert!(h.data_dir().join("contexts/s").exists(), "it died before its file was looked at");
    assert!(matches!(h.engine.restore_session(&h.scope, &id("s")).await, Err(Error::SessionNotFound(_))));
    h.restart_mirrored().await;
    assert!(!h.data_dir().join("contexts/s").exists());
    let left: u64 = audit::open(h.data_dir()).query_row("SELECT count(*) FROM session", [], |row| row.get(0)).unwrap();
    assert_eq!(left, 0);
    h.check_invariants().await;
}

#[tokio::test]
async fn what_is_restored_after_a_removal_that_did_not_begin_survives_a_rebuild() {
    let mut h = Harness::new();
    let ids = save_all(&h, "s", 0..3).await;
    h.engine.delete_checkpoint(&h.scope, &ids[1], Deletion::default()).await.unwrap();
    let directory = DataDirectory::prepare(h.data_dir()).unwrap();
    tombstone::add(&directory, "s", [ids[1].as_str()]).unwrap();
    h.engine.restore_checkpoint(&h.scope, &ids[1]).await.unwrap();
    rebuild(&mut h).await;
    assert_eq!(h.list(json!({})).await.len(), 3);
}

/// How often this process has the file open by which the turn is taken.
#[cfg(target_os = "linux")]
fn turns_open(directory: &DataDirectory) -> usize {
    let path = directory.mirror_lock().canonicalize().unwrap();
    let links = fs::read_dir("/proc/self/fd").unwrap();
    links.filter(|link| fs::read_link(link.as_ref().unwrap().path()).is_ok_and(|to| to == path)).count()
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn who_brings_back_what_is_being_removed_leaves_it_removed() {
    let h = Harness::new();
    let ids = save_all(&h, "s", 0..3).await;
    h.engine.delete_checkpoint(&h.scope, &ids[1], Deletion::default()).await.unwrap();
    let directory = DataDirectory::prepare(h.data_dir()).unwrap();
    let turn = mirror::take_turn(&directory).unwrap();
    let (engine, scope, wanted) = (h.engine.clone(), h.scope.clone(), ids[1].clone());
    let restoring = tokio::spawn(async move { engine.restore_checkpoint(&scope, &wanted).await });
    while turns_open(&directory) < 2 {
        tokio::task::yield_now().await;
    }
    tombstone::add(&directory, "s", [ids[1].as_str()]).unwrap();
    let gone = format!("PRAGMA foreign_keys = OFF; DELETE FROM checkpoint WHERE id = '{}'", ids[1]);
    audit::open(h.data_dir()).execute_batch(&gone).unwrap();
    drop(turn);
    assert!(matches!(restoring.await.unwrap(), Err(Error::CheckpointNotFound(_))));
    assert!(tombstone::read_all(&directory).unwrap().contains(ids[1].as_str()));
}

/// An import takes tombstones away when its rows are there; it may die in between.
#[tokio::test]
async fn what_an_import_brought_back_is_not_taken_for_removed_though_it_died() {
    let mut h = Harness::new();
    let ids = save_all(&h, "s", 0..3).await;
    let document = h.export_session("s").await.unwrap();
    h.engine.delete_session(&h.scope, &id("s"), PURGE).await.unwrap();
    h.import(document).await.unwrap();
    let directory = DataDirectory::prepare(h.data_dir()).unwrap();
    tombstone::add(&directory, "s", ids.iter().map(|id| id.as_str())).unwrap();
    h.engine.delete_checkpoint(&h.scope, &ids[0], Deletion::default()).await.unwrap();
    upkeep(&h).remove_expired(Timestamp::from_ms(0), &|| false).unwrap();
    let left: Vec<String> = tombstone::read_all(&directory).unwrap().into_iter().collect();
    assert_eq!(left, [ids[0].as_str()], "what is deleted may be one whose removal broke off");
    rebuild(&mut h).await;
    assert_eq!(h.list(json!({})).await.len(), 2);
}

/// Neither a backup nor a repair takes what is there for removed, whether or not house was kept since.
#[tokio::test]
async fn a_backup_and_a_repair_keep_what_an_import_brought_back_that_died() {
    let mut h = Harness::new();
    let ids = save_all(&h, "s", 0..3).await;
    let document = h.export_session("s").await.unwrap();
    let directory = DataDirectory::prepare(h.data_dir()).unwrap();
    for is_repaired in [false, true] {
        h.engine.delete_session(&h.scope, &id("s"), PURGE).await.unwrap();
        h.import(document.clone()).await.unwrap();
        h.close_mirrored().await;
        tombstone::add(&directory, "s", ids.iter().map(|id| id.as_str())).unwrap();
        match is_repaired {
            true => drop(h.repair()),
            false => {
                let copied = backup::copy_whole(&directory, h.clock.now()).unwrap();
                assert_eq!(copied.checkpoints, 3);
                let copy = open_writer(&Path::new(&copied.path).join("waystone.db"), directory.keys()).unwrap();
                let kept: i64 = copy.query_row("SELECT count(*) FROM checkpoint", [], |row| row.get(0)).unwrap();
                assert_eq!(kept, 3);
            }
        }
        h.restart().await;
        assert_eq!(h.list(json!({})).await.len(), 3);
        assert!(tombstone::read_all(&directory).unwrap().is_empty());
        h.check_invariants().await;
    }
}

/// A group is named after its first checkpoint, and so is its file.
#[tokio::test]
async fn a_first_checkpoint_that_is_removed_and_imported_again_gets_a_file_of_its_own() {
    let mut h = Harness::new();
    let ids = save_all(&h, "s", 0..3).await;
    let document = h.export_session("s").await.unwrap();
    h.engine.delete_checkpoint(&h.scope, &ids[0], PURGE).await.unwrap();
    h.import(document).await.unwrap();
    h.restart_mirrored().await;
    let files = fs::read_dir(h.data_dir().join("contexts/s")).unwrap().count();
    assert_eq!((files, h.findings().await), (2, Vec::new()));
    rebuild(&mut h).await;
    assert_eq!(h.list(json!({})).await.len(), 3);
    h.check_invariants().await;
}

/// SQLite looks whether something refers to what is removed, by an index or by all rows.
#[tokio::test]
async fn what_removes_a_checkpoint_reads_no_other_rows_of_the_table() {
    let h = Harness::new();
    save_all(&h, "s", 0..2).await;
    let db = audit::open(h.data_dir());
    db.pragma_update(None, "foreign_keys", true).unwrap();
    let mut program = db.prepare("EXPLAIN DELETE FROM checkpoint WHERE key = 1").unwrap();
    let steps = program.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap().map(Result::unwrap);
    // What other statements it runs begins with number 0 again.
    let own = steps.zip(0..).take_while(|((number, _), at): &((i64, String), i64)| number == at);
    let steps: Vec<String> = own.map(|((_, step), _)| step).collect();
    assert!(steps.iter().any(|step| step == "Delete"));
    assert!(!steps.iter().any(|step| step == "Rewind"), "a walk over all rows begins with it");
}

async fn clean(h: &Harness, request: Value) -> CleanedUp {
    let request: CleanUp = serde_json::from_value(request).unwrap();
    h.engine.clean_up(&h.scope, request, |_, _| {}).await.unwrap()
}

#[tokio::test]
async fn a_cleanup_takes_what_is_selected_and_nothing_else() {
    let mut h = Harness::new();
    for n in 0..6 {
        h.clock.advance_ms(DAY_MS);
        h.save("a", json!({ "n": n })).await;
        if n == 1 {
            h.try_save(json!({ "sessionId": "a", "context": { "named": n }, "metadata": { "name": "milestone" } }))
                .await
                .unwrap();
        }
    }
    h.save("b", json!({ "n": 0 })).await;
    let would = clean(&h, json!({ "olderThan": "2d", "dryRun": true })).await;
    assert_eq!((would.checkpoints, would.sessions, would.dry_run), (3, 0, true));
    assert_eq!(h.list(json!({ "limit": 100 })).await.len(), 8, "nothing happened");
    assert_eq!(clean(&h, json!({ "olderThan": "2d", "keepLast": 4 })).await.checkpoints, 2);
    assert_eq!(clean(&h, json!({ "olderThan": "2d", "sessionId": "b" })).await.checkpoints, 0);
    assert_eq!(clean(&h, json!({ "keepLast": 1 })).await.checkpoints, 3);
    assert_eq!(clean(&h, json!({ "keepLast": 0, "olderThan": "0s" })).await.checkpoints, 0, "the newest stays");
    assert_eq!(h.list(json!({ "sessionId": "a" })).await.len(), 2);
    let missing = h.engine.clean_up(&h.scope, serde_json::from_value(json!({ "sessionId": "x" })).unwrap(), |_, _| {});
    assert_eq!(missing.await.unwrap_err().code(), "SESSION_NOT_FOUND");
    h.clock.advance_ms(31 * DAY_MS);
    h.save("b", json!({ "n": 1 })).await;
    let idle = clean(&h, json!({})).await;
    assert_eq!((idle.sessions, idle.checkpoints), (1, 2));
    assert_eq!((sessions(&h, false).await, sessions(&h, true).await), (vec!["b".to_owned()], vec!["a".to_owned()]));
    h.check_invariants().await;
    rebuild(&mut h).await;
    assert_eq!(sessions(&h, false).await, ["b"]);
}

#[tokio::test]
async fn sessions_that_no_one_uses_are_deleted_and_after_their_grace_removed() {
    let h = Harness::new();
    let mut keeper = upkeep(&h);
    keeper.purge(&|| false).unwrap();
    save_all(&h, "idle", 0..2).await;
    save_all(&h, "loaded", 0..2).await;
    let saved = save_all(&h, "saved", 0..2).await;
    for day in 1..=29 {
        h.clock.advance_ms(DAY_MS);
        if day == 20 {
            h.try_load(json!({ "sessionId": "loaded" })).await.unwrap();
            h.save("saved", json!({ "n": 3 })).await;
        }
        keeper.purge(&|| false).unwrap();
    }
    assert_eq!(sessions(&h, false).await, ["idle", "loaded", "saved"]);
    h.clock.advance_ms(DAY_MS);
    keeper.purge(&|| false).unwrap();
    h.clock.advance_ms(1);
    keeper.purge(&|| false).unwrap();
    assert_eq!(
        (sessions(&h, false).await, sessions(&h, true).await.len()),
        (vec!["loaded".to_owned(), "saved".to_owned()], 1)
    );
    for _ in 0..7 {
        h.clock.advance_ms(DAY_MS);
        keeper.purge(&|| false).unwrap();
    }
    assert_eq!(sessions(&h, true).await, ["idle"], "the seventh day is not over");
    h.clock.advance_ms(1);
    keeper.purge(&|| false).unwrap();
    assert_eq!(sessions(&h, true).await, Vec::<String>::new());
    assert_eq!(context_of(&h.load(&saved[0]).await), context("saved", 0));
    h.check_invariants().await;
}

#[tokio::test]
async fn nothing_goes_because_of_a_clock_that_is_wrong() {
    let h = Harness::new();
    upkeep(&h).purge(&|| false).unwrap();
    save_all(&h, "s", 0..2).await;
    h.clock.advance_ms(-10 * DAY_MS);
    upkeep(&h).purge(&|| false).unwrap();
    h.save("s", json!({ "n": 9 })).await;
    h.clock.advance_ms(60 * DAY_MS);
    let mut doubting = upkeep(&h);
    doubting.purge(&|| false).unwrap();
    doubting.purge(&|| false).unwrap();
    assert_eq!(sessions(&h, false).await, ["s"], "one start alone does not believe it");
    h.clock.advance_ms(-50 * DAY_MS);
    upkeep(&h).purge(&|| false).unwrap();
    h.clock.advance_ms(50 * DAY_MS);
    upkeep(&h).purge(&|| false).unwrap();
    assert_eq!(sessions(&h, false).await, ["s"], "the clock was right in between, so the doubt begins anew");
    upkeep(&h).purge(&|| false).unwrap();
    assert_eq!(sessions(&h, false).await, Vec::<String>::new(), "a second start sees the same");
    h.engine.restore_session(&h.scope, &id("s")).await.unwrap();
    h.check_invariants().await;
}

#[tokio::test]
async fn a_session_that_was_saved_while_the_clock_was_behind_is_not_idle_when_it_is_right_again() {
    let h = Harness::with_limits(Limits { total_bytes_max: 1000, ..Limits::default() });
    upkeep(&h).purge(&|| false).unwrap();
    h.clock.advance_ms(-20 * HOUR_MS);
    let digits: String = (0..400).map(|n: u64| format!("{:016x}", n.wrapping_mul(0x9E37_79B9_7F4A_7C15))).collect();
    let kept = h.save("new", json!({ "n": &digits[..1900] })).await;
    assert!((900..1000).contains(&kept.size_bytes), "{}", kept.size_bytes);
    h.clock.advance_ms(20 * HOUR_MS);
    upkeep(&h).relieve(&|| false).unwrap();
    assert_eq!(sessions(&h, false).await, ["new"], "it was saved a moment ago");
    h.clock.advance_ms(2 * HOUR_MS);
    upkeep(&h).relieve(&|| false).unwrap();
    assert_eq!(sessions(&h, false).await, Vec::<String>::new(), "it is nearly all there is");
}

#[tokio::test]
async fn pruned_checkpoints_go_with_their_whole_group_when_its_grace_is_over() {
    let h = Harness::with_limits(Limits { checkpoints_max: 40, retention_days: 0, ..Limits::default() });
    let mut keeper = upkeep(&h);
    keeper.purge(&|| false).unwrap();
    let ids = save_all(&h, "s", 0..71).await;
    let count = || -> u64 {
        audit::open(h.data_dir()).query_row("SELECT count(*) FROM checkpoint", [], |row| row.get(0)).unwrap()
    };
    for _ in 0..8 {
        h.clock.advance_ms(DAY_MS);
        keeper.purge(&|| false).unwrap();
    }
    assert_eq!(count(), 71, "31 are archived, and the first group has one more");
    h.save("s", json!({ "n": 71 })).await;
    for _ in 0..8 {
        h.clock.advance_ms(DAY_MS);
        keeper.purge(&|| false).unwrap();
    }
    assert_eq!(count(), 40);
    assert_eq!(context_of(&h.load(&ids[32]).await), context("s", 32));
    assert_eq!(h.findings().await, [], "what continued the removed ones says so in its file too");
    h.check_invariants().await;
}

/// What a model of the store knows of a checkpoint.
struct Known {
    session: SessionId,
    context: Value,
}

#[tokio::test]
async fn sums_and_copies_hold_after_any_sequence_of_changes() {
    for seed in 0..6 {
        let mut random = Random::new(seed);
        let limits = Limits { checkpoints_max: 12, total_bytes_max: 60_000, ..Limits::default() };
        let mut h = Harness::with_limits(limits);
        let mut keeper = upkeep(&h);
        keeper.purge(&|| false).unwrap();
        let mut known: BTreeMap<String, Known> = BTreeMap::new();
        for step in 0..120 {
            let session = format!("s{}", random.below(4));
            let any = known.keys().nth(random.below(known.len().max(1) as u64) as usize).map(|text| id(text));
            match random.below(12) {
                0 => drop(h.engine.delete_session(&h.scope, &id(&session), Deletion::default()).await),
                1 => drop(h.engine.restore_session(&h.scope, &id(&session)).await),
                2 => drop(h.engine.delete_session(&h.scope, &id(&session), PURGE).await),
                3 | 4 => {
                    let how = Deletion { purge: random.below(2) == 0 };
                    if let Some(any) = &any {
                        let _ = h.engine.delete_checkpoint(&h.scope, any, how).await;
                    }
                }
                5 => {
                    if let Some(any) = &any {
                        let _ = h.engine.restore_checkpoint(&h.scope, any).await;
                    }
                }
                6 => drop(clean(&h, json!({ "keepLast": random.below(6) })).await),
                7 => {
                    h.clock.advance_ms(20 * HOUR_MS);
                    keeper.purge(&|| false).unwrap();
                    keeper.relieve(&|| false).unwrap();
                }
                _ => {
                    let context = json!({ "step": step, "text": random.text(300), "same": "again ".repeat(50) });
                    let request = json!({ "sessionId": session, "context": context });
                    if let Ok(saved) = h.try_save(request).await {
                        known.insert(saved.checkpoint_id.to_string(), Known { session: saved.session_id, context });
                    }
                }
            }
            let problems = audit::audit(h.data_dir());
            assert_eq!(problems, Vec::<String>::new(), "seed {seed}, step {step}");
        }
        // What housekeeping would do by itself at some time is done now: the list is to stay as it is.
        keeper.purge(&|| false).unwrap();
        keeper.relieve(&|| false).unwrap();
        let listed = h.list(json!({ "limit": 1000 })).await;
        let check = async |h: &Harness| {
            for text in &listed {
                let (found, loaded) = (&known[text], h.load(&id(text)).await);
                assert_eq!(
                    (&context_of(&loaded), &loaded.checkpoint.session_id),
                    (&found.context, &found.session),
                    "seed {seed}"
                );
            }
            assert_eq!(h.check_copies().await.findings, [], "seed {seed}");
        };
        check(&h).await;
        rebuild(&mut h).await;
        assert_eq!(h.list(json!({ "limit": 1000 })).await, listed, "seed {seed}: a rebuilt store lists the same");
        check(&h).await;
        h.check_invariants().await;
    }
}

#[tokio::test]
async fn a_large_session_is_removed_in_parts() {
    let h = Harness::new();
    for n in 0..4 {
        let mut random = Random::new(n);
        h.save("large", json!({ "text": random.text(3_000_000) })).await;
    }
    save_all(&h, "small", 0..2).await;
    let removed = h.engine.delete_session(&h.scope, &id("large"), PURGE).await.unwrap();
    assert_eq!(removed.checkpoint_count, 4);
    let parts: u64 = audit::open(h.data_dir())
        .query_row("SELECT count(*) FROM operation WHERE kind LIKE '%.purged'", [], |row| row.get(0))
        .unwrap();
    assert!(parts > 1, "others get their turn in between");
    assert_eq!(sessions(&h, false).await, ["small"]);
    h.check_invariants().await;
}

#[tokio::test]
async fn a_session_whose_files_are_not_gone_yet_holds_up_no_other() {
    let h = Harness::new();
    let mut keeper = upkeep(&h);
    keeper.purge(&|| false).unwrap();
    for session in ["first", "second"] {
        save_all(&h, session, 0..2).await;
        h.engine.delete_session(&h.scope, &id(session), Deletion::default()).await.unwrap();
        h.clock.advance_ms(1000);
    }
    let db = open_writer(&h.data_dir().join("waystone.db"), &Arc::default()).unwrap();
    db.pragma_update(None, "foreign_keys", true).unwrap();
    let scope = h.scope.clone();
    let doomed = find_doomed(&db, Archived::Session(&scope, "first")).unwrap().unwrap();
    remove_doomed(&db, &scope, &doomed, false, Timestamp::from_ms(1)).unwrap();
    let end = Timestamp::from_ms(i64::MAX);
    let first = list_first(&db, end, &PassedOver::default().as_json(), 10).unwrap();
    let next = find_doomed(&db, Archived::First(&first[0], end)).unwrap();
    assert_eq!(next.map(|next| next.session_id), Some("second".to_owned()));
}

#[tokio::test]
async fn what_is_deleted_while_the_clock_is_set_back_keeps_its_grace() {
    let h = Harness::new();
    let mut keeper = upkeep(&h);
    save_all(&h, "s", 0..3).await;
    let ids = save_all(&h, "t", 0..3).await;
    let segment = room::put(&h, "a note of the project").await;
    let snapshot = json!({ "project_id": "project", "task_id": "task" });
    let current = serde_json::from_value(snapshot.clone()).unwrap();
    h.engine.set_current_task(&h.scope, current).await.unwrap();
    room::put(&h, "a note of the task").await;
    h.engine.create_snapshot(&h.scope, serde_json::from_value(snapshot).unwrap()).await.unwrap();
    let undo = || serde_json::from_value(json!({ "project_id": "project" })).unwrap();
    keeper.purge(&|| false).unwrap();
    h.clock.advance_ms(-20 * DAY_MS);
    h.engine.delete_session(&h.scope, &id("s"), Deletion::default()).await.unwrap();
    h.engine.delete_checkpoint(&h.scope, &ids[0], Deletion::default()).await.unwrap();
    h.engine.undo_operation(&h.scope, undo()).await.unwrap();
    room::delete_segment(&h, &segment).await;
    h.clock.advance_ms(20 * DAY_MS);
    keeper.purge(&|| false).unwrap();
    h.engine.restore_session(&h.scope, &id("s")).await.unwrap();
    h.engine.restore_checkpoint(&h.scope, &ids[0]).await.unwrap();
    let left = "SELECT (SELECT count(*) FROM segment WHERE tier = 'archive'), (SELECT count(*) FROM snapshot)";
    let left: (u64, u64) = audit::open(h.data_dir()).query_row(left, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    assert_eq!(left, (1, 1), "the segment and the snapshot");
    h.check_invariants().await;
}

/// Files are written in between: whoever saves meanwhile is not to wait for that.
#[tokio::test]
async fn what_takes_long_to_remove_is_broken_off_and_goes_on_in_the_next_round() {
    let (h, _turn) = without_house();
    let mut keeper = upkeep(&h);
    for n in 0..6 {
        save_all(&h, &format!("s{n}"), 0..2).await;
        h.engine.delete_session(&h.scope, &id(&format!("s{n}")), Deletion::default()).await.unwrap();
    }
    h.engine.back_up(&h.scope, None).await.unwrap();
    for _ in 0..8 {
        keeper.expire().unwrap();
        h.clock.advance_ms(DAY_MS);
    }
    let (left, mut rounds) = (async || sessions(&h, true).await.len(), 0);
    loop {
        let asked = std::cell::Cell::new(0);
        let is_over = || asked.replace(asked.get() + 1) >= 6;
        let before = left().await;
        let is_done = keeper.purge(&is_over).unwrap();
        rounds += 1;
        assert!(left().await + 3 >= before, "{rounds}: it is broken off");
        if is_done {
            break;
        }
        assert!(rounds < 20, "it comes to an end");
    }
    assert_eq!(left().await, 0);
    assert!(rounds > 2, "{rounds}");
}
