//! Room that is made when the quota or the disk is nearly used up.

use std::sync::atomic::{AtomicBool, Ordering};

use rusqlite::ffi;
use rusqlite::functions::FunctionFlags;
use waystone_core::retention::Selection;
use waystone_core::store::{RetentionStore, Store, TaskStore};

use super::*;
use crate::Sqlite;

/// Saves sessions of some bytes each that do not compress.
pub(super) async fn fill(h: &Harness, sessions: std::ops::Range<u64>) {
    for n in sessions {
        let mut random = Random::new(n);
        h.save(&format!("s{n:02}"), json!({ "text": random.text(20_000) })).await;
        h.clock.advance_ms(1000);
    }
}

/// Puts a text into the project. Returns the id of its segment.
pub(super) async fn put(h: &Harness, text: &str) -> String {
    let request = serde_json::from_value(json!({ "text": text })).unwrap();
    let put = h.engine.put_segments(&h.scope, request).await.unwrap();
    put.segment_ids[0].to_string()
}

pub(super) async fn delete_segment(h: &Harness, id: &str) {
    let request = json!({ "project_id": "project", "segment_ids": [id], "action": "delete", "confirm": true });
    h.engine.prune_segments(&h.scope, serde_json::from_value(request).unwrap()).await.unwrap();
}

/// A conversation of these messages.
pub(super) async fn converse(h: &Harness, messages: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    let context = h.engine.create_context(&h.scope, serde_json::from_value(json!({})).unwrap()).await.unwrap().id;
    for message in messages {
        let segment = put(h, message.as_ref()).await;
        let sql = "UPDATE segment SET conversation = (SELECT key FROM session WHERE id = ?1) WHERE id = ?2";
        audit::open(h.data_dir()).execute(sql, [context.as_str(), &segment]).unwrap();
    }
    context.to_string()
}

/// Texts of some bytes each, no two of them the same.
fn texts(seeds: std::ops::Range<u64>) -> impl Iterator<Item = String> {
    seeds.map(|seed| Random::new(seed).text(20_000))
}

async fn used(h: &Harness) -> u64 {
    h.engine.status(&h.scope).await.unwrap().total_size_bytes
}

#[tokio::test]
async fn conversations_that_no_one_uses_make_room_with_their_messages_the_oldest_first() {
    let h = Harness::with_limits(Limits { total_bytes_max: 200_000, ..Limits::default() });
    let mut keeper = upkeep(&h);
    keeper.purge(&|| false).unwrap();
    let mut conversations = Vec::new();
    for n in 0..3 {
        conversations.push(converse(&h, texts(3 * n..3 * n + 3)).await);
        h.clock.advance_ms(HOUR_MS / 2);
    }
    conversations.push(converse(&h, texts(9..10)).await);
    assert!(used(&h).await > 190_000);
    h.clock.advance_ms(HOUR_MS / 4);
    keeper.relieve(&|| false).unwrap();
    let left = sessions(&h, false).await;
    assert_eq!(left.len(), 3, "{left:?}");
    assert!(!left.contains(&conversations[0]));
    assert!((100_000..150_000).contains(&used(&h).await));
    h.check_invariants().await;
}

#[tokio::test]
async fn a_cleanup_counts_the_messages_of_conversations() {
    let h = Harness::new();
    let first = converse(&h, texts(0..3)).await;
    h.clock.advance_ms(31 * DAY_MS);
    let would = clean(&h, json!({ "dryRun": true })).await;
    assert_eq!((would.cleaned[0].session_id.as_str(), would.sessions), (first.as_str(), 1));
    assert_eq!(would.size_bytes, used(&h).await);
}

#[tokio::test]
async fn what_can_go_goes_though_it_does_not_suffice() {
    let h = Harness::with_limits(Limits { total_bytes_max: 200_000, ..Limits::default() });
    let mut keeper = upkeep(&h);
    keeper.purge(&|| false).unwrap();
    for text in texts(0..9) {
        put(&h, &text).await;
    }
    save_all(&h, "idle", 0..3).await;
    h.clock.advance_ms(2 * HOUR_MS);
    save_all(&h, "saved", 0..3).await;
    assert!(used(&h).await > 180_000);
    keeper.relieve(&|| false).unwrap();
    assert_eq!((sessions(&h, false).await, sessions(&h, true).await), (vec!["saved".to_owned()], vec![]));
    assert!(used(&h).await > 180_000, "segments stay");
    h.check_invariants().await;
}

#[tokio::test]
async fn what_was_deleted_first_goes_first_whatever_it_is() {
    let h = Harness::new();
    let segments = [put(&h, "the first text").await, put(&h, "the second text").await];
    save_all(&h, "pruned", 0..33).await;
    save_all(&h, "session", 0..2).await;
    let checkpoints = save_all(&h, "parts", 0..3).await;
    let pass = || h.clock.advance_ms(1000);
    delete_segment(&h, &segments[0]).await;
    pass();
    h.engine.delete_checkpoint(&h.scope, &checkpoints[0], Deletion::default()).await.unwrap();
    pass();
    clean(&h, json!({ "keepLast": 0, "olderThan": "0s", "sessionId": "pruned" })).await;
    pass();
    h.engine.delete_session(&h.scope, &id("session"), Deletion::default()).await.unwrap();
    pass();
    delete_segment(&h, &segments[1]).await;
    pass();
    h.engine.delete_checkpoint(&h.scope, &checkpoints[1], Deletion::default()).await.unwrap();
    upkeep(&h).free_disk(u64::MAX).unwrap();
    let db = audit::open(h.data_dir());
    let sql = "SELECT coalesce(payload ->> '$.sessionId', payload ->> '$.segment_ids[0]') FROM operation
               WHERE kind LIKE '%.purged' ORDER BY seq";
    let mut statement = db.prepare(sql).unwrap();
    let gone: Vec<String> = statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    assert_eq!(gone, [&segments[0], "parts", "pruned", "session", &segments[1], "parts"]);
    h.check_invariants().await;
}

#[tokio::test]
async fn a_store_that_is_nearly_full_gives_up_what_was_deleted_and_then_what_was_not_used_for_longest() {
    let first = Harness::new();
    fill(&first, 0..1).await;
    let one = first.engine.status(&first.scope).await.unwrap().total_size_bytes;
    let h = Harness::with_limits(Limits { total_bytes_max: 20 * one, ..Limits::default() });
    let mut keeper = upkeep(&h);
    keeper.purge(&|| false).unwrap();
    fill(&h, 0..16).await;
    let warned = h.save("s16", json!({ "text": Random::new(16).text(20_000) })).await.warnings;
    assert!(warned.iter().any(|warning| warning.contains("WAYSTONE_MAX_TOTAL_BYTES")), "{warned:?}");
    keeper.relieve(&|| false).unwrap();
    assert_eq!(sessions(&h, false).await.len(), 17, "up to 90 % nothing goes");
    for deleted in ["s05", "s03"] {
        h.engine.delete_session(&h.scope, &id(deleted), Deletion::default()).await.unwrap();
        h.clock.advance_ms(1000);
    }
    fill(&h, 17..19).await;
    keeper.relieve(&|| false).unwrap();
    assert_eq!((sessions(&h, false).await.len(), sessions(&h, true).await), (17, vec![]), "the deleted ones go first");
    fill(&h, 19..21).await;
    keeper.relieve(&|| false).unwrap();
    assert_eq!(sessions(&h, false).await.len(), 19, "every session was saved within the last hour");
    h.clock.advance_ms(HOUR_MS);
    h.save("s00", json!({ "n": "in use" })).await;
    keeper.relieve(&|| false).unwrap();
    let left = sessions(&h, false).await;
    assert!(left.contains(&"s00".to_owned()) && !left.contains(&"s01".to_owned()), "{left:?}");
    let used = h.engine.status(&h.scope).await.unwrap().total_size_bytes;
    assert!(used <= 17 * one && used > 15 * one, "{used} of {}", 20 * one);
    let cut: u64 = audit::open(h.data_dir())
        .query_row(
            "SELECT count(*) FROM operation WHERE kind = 'session.purged' AND payload ->> '$.graceCut'",
            [],
            |row| row.get(0),
        )
        .unwrap();
    assert!(cut >= 4, "every removal is an operation that says so");
    h.check_invariants().await;
}

#[tokio::test]
async fn a_full_disk_gives_back_what_was_deleted_and_nothing_that_is_live() {
    let h = Harness::new();
    fill(&h, 0..3).await;
    h.engine.delete_session(&h.scope, &id("s01"), Deletion::default()).await.unwrap();
    let mut keeper = upkeep(&h);
    keeper.keep_reserve().unwrap();
    let reserve = h.data_dir().join("reserve");
    assert!(reserve.metadata().unwrap().len() > 0);
    keeper.free_disk(u64::MAX).unwrap();
    assert_eq!((sessions(&h, false).await.len(), sessions(&h, true).await.len()), (2, 0));
    assert!(reserve.exists(), "it is set aside again");
    h.check_invariants().await;
}

/// The next operation that this connection records finds no room, when it is told so.
fn fill_once(db: &Connection, is_full: &Arc<AtomicBool>) -> DbResult<()> {
    let is_full = Arc::clone(is_full);
    db.create_scalar_function("check_room", 0, FunctionFlags::SQLITE_UTF8, move |_| {
        match is_full.swap(false, Ordering::SeqCst) {
            true => Err(rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_FULL), None)),
            false => Ok(0),
        }
    })?;
    Ok(db.execute_batch("CREATE TEMP TRIGGER room BEFORE INSERT ON operation BEGIN SELECT check_room(); END")?)
}

#[tokio::test]
async fn on_a_full_disk_what_is_there_can_be_deleted_brought_back_and_removed() {
    let h = Harness::new();
    let ids = save_all(&h, "s", 0..5).await;
    save_all(&h, "t", 0..2).await;
    let task = serde_json::from_value(json!({ "project_id": "project", "task_id": "task" })).unwrap();
    h.engine.set_current_task(&h.scope, task).await.unwrap();
    upkeep(&h).keep_reserve().unwrap();
    let store = Sqlite::open(h.data_dir(), h.clock.clone(), &h.limits).unwrap();
    let (is_full, scope, at) = (Arc::new(AtomicBool::new(false)), &h.scope, h.clock.now());
    let filled = Arc::clone(&is_full);
    store.writer.write(move |db| fill_once(db, &filled)).await.unwrap();
    let is_done = |what: &str| {
        assert!(!is_full.load(Ordering::SeqCst), "{what}: the disk was full");
        assert!(h.data_dir().join("reserve").exists(), "{what}: it is set aside again");
    };
    let fill = || is_full.store(true, Ordering::SeqCst);
    fill();
    store.archive_checkpoint(scope, &ids[0], at).await.unwrap();
    is_done("a deletion of a checkpoint");
    fill();
    store.restore_checkpoint(scope, &ids[0], at).await.unwrap();
    is_done("what brings it back");
    fill();
    store.archive_session(scope, &id("t"), at).await.unwrap();
    is_done("a deletion of a session");
    fill();
    let selection = Selection { older_than: None, keep_last: Some(3), idle_since: at, session: Some(id("s")) };
    let cleaned = store.clean_session(scope, &id("s"), &selection, at).await.unwrap();
    assert_eq!(cleaned.map(|cleaned| cleaned.checkpoints), Some(2));
    is_done("a cleanup");
    fill();
    store.add_snapshot(scope, &id("project"), None, id("snapshot"), None, at).await.unwrap();
    is_done("a snapshot");

    let mut keeper = upkeep(&h);
    fill_once(keeper.db().unwrap(), &is_full).unwrap();
    fill();
    let removed = keeper.remove(scope, Archived::Session(scope, "t"), false, at).unwrap();
    assert_eq!(removed, Some(2));
    is_done("what removes it for good");
    h.check_invariants().await;
}

#[tokio::test]
async fn what_makes_room_has_what_is_set_aside_for_a_full_disk_while_it_is_done() {
    let h = Harness::new();
    h.save("s", json!({})).await;
    let mut keeper = upkeep(&h);
    keeper.keep_reserve().unwrap();
    let reserve = h.data_dir().join("reserve");
    let mut seen = Vec::new();
    let done = keeper.with_reserve(|_| {
        seen.push(reserve.exists());
        let full = std::io::Error::from(std::io::ErrorKind::StorageFull);
        if reserve.exists() { Err(file_error(&reserve, &full)) } else { Ok(()) }
    });
    assert!(done.is_ok());
    assert_eq!((seen, reserve.exists()), (vec![true, false], true));
}
