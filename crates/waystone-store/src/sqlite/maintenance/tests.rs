use serde_json::json;
use waystone_core::canon::Hash;
use waystone_core::store::TranscriptEnd;
use waystone_core::transcript::{Captured, Said, Turn};
use waystone_testkit::contexts::Random;
use waystone_testkit::harness::private_dir;
use waystone_testkit::{Harness, audit};

use super::*;

fn upkeep(h: &Harness) -> Upkeep {
    Upkeep::new(DataDirectory::prepare(h.data_dir()).unwrap(), h.clock.clone(), h.limits.clone()).unwrap()
}

/// Forgets what is over. It takes two starts to believe that days have passed.
fn expire(h: &Harness) {
    upkeep(h).expire().unwrap();
    upkeep(h).expire().unwrap();
}

fn log_bytes(h: &Harness) -> u64 {
    h.data_dir().join("waystone.db-wal").metadata().map_or(0, |metadata| metadata.len())
}

/// A log that is due, and the turn to keep house. It is taken before there is a store, which would take it for its
/// life.
async fn grown_log() -> (Harness, Upkeep, File) {
    let root = private_dir();
    let directory = DataDirectory::prepare(root.path()).unwrap();
    let turn = open_private_file(&directory.maintenance_lock()).unwrap();
    turn.lock().unwrap();
    let h = Harness::on(root);
    let upkeep = upkeep(&h);
    let mut random = Random::new(1);
    for n in 0..12 {
        h.save("s", json!({ "n": n, "text": random.text(500_000) })).await;
    }
    assert!(log_bytes(&h) > PASSIVE_BYTES);
    (h, upkeep, turn)
}

#[tokio::test]
async fn a_log_that_has_grown_is_folded_back_and_starts_over() {
    let (h, mut upkeep, _turn) = grown_log().await;
    let size = || log_bytes(&h);
    upkeep.checkpoint_log().unwrap();
    assert!(upkeep.copied_version.is_some());
    h.save("s", json!({ "n": 12 })).await;
    assert!(size() <= PASSIVE_BYTES, "the log starts over and is cut back: {}", size());
    h.check_invariants().await;
}

#[tokio::test]
async fn a_log_is_folded_back_while_there_is_room_for_it() {
    let (h, mut upkeep, _turn) = grown_log().await;
    let size = || log_bytes(&h);
    let (grown, directory) = (size(), upkeep.directory.clone());
    make_room(&directory, upkeep.db().unwrap(), || 2 * grown).unwrap();
    assert_eq!(size(), grown, "there is room enough");
    make_room(&directory, upkeep.db().unwrap(), || 2 * grown - 1).unwrap();
    assert_eq!(size(), 0);
    h.check_invariants().await;
}

#[tokio::test]
async fn what_was_kept_for_a_while_is_forgotten_when_its_time_is_over() {
    let h = Harness::new();
    for n in 0..30 {
        h.try_save(json!({ "sessionId": "s", "context": { "n": n }, "idempotencyKey": format!("k{n}") }))
            .await
            .unwrap();
        h.clock.advance_ms(EVENT_LIFE_MS / 10);
    }
    expire(&h);
    let db = audit::open(h.data_dir());
    let count =
        |table: &str| -> u64 { db.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap() };
    assert_eq!((count("event"), count("idempotency_key"), count("operation")), (10, 1, 30));
    h.check_invariants().await;
}

#[tokio::test]
async fn a_context_that_came_with_a_view_is_kept_for_its_time_from_its_last_use_on() {
    let h = Harness::new();
    let view = async |text: &str| {
        let context = json!({ "text": text.repeat(500) });
        let request = serde_json::from_value(json!({ "context": context, "targetTokens": 20 })).unwrap();
        h.engine.compress_context(&h.scope, request).await.unwrap().next.unwrap().arguments["handle"].clone()
    };
    let expand = async |handle: &serde_json::Value| {
        expire(&h);
        let request = serde_json::from_value(json!({ "handle": handle })).unwrap();
        h.engine.expand_handle(&h.scope, request).await.map(|_| ()).map_err(|error| error.code())
    };
    let size = async || h.engine.status(&h.scope).await.unwrap().total_size_bytes;
    let (once, again) = (view("once is enough ").await, view("and again ").await);
    let both = size().await;
    h.clock.advance_ms(CONTEXT_LIFE_MS);
    assert_eq!((expand(&once).await, expand(&again).await), (Ok(()), Ok(())), "seven days are not over");
    assert_eq!(view("and again ").await, again);
    h.clock.advance_ms(1);
    assert_eq!((expand(&once).await, expand(&again).await), (Err("HANDLE_NOT_FOUND"), Ok(())));
    assert!((1..both).contains(&size().await), "what is gone does not count any more");
    h.clock.advance_ms(CONTEXT_LIFE_MS);
    assert_eq!((expand(&again).await, size().await), (Err("HANDLE_NOT_FOUND"), 0));
    h.check_invariants().await;
}

#[tokio::test]
async fn nothing_is_forgotten_because_of_a_clock_that_jumped_until_another_start_sees_the_same() {
    let h = Harness::new();
    upkeep(&h).purge(&|| false).unwrap();
    h.try_save(json!({ "sessionId": "s", "context": { "n": 0 }, "idempotencyKey": "k" })).await.unwrap();
    let view = json!({ "context": { "text": "a long text ".repeat(500) }, "targetTokens": 20 });
    h.engine.compress_context(&h.scope, serde_json::from_value(view).unwrap()).await.unwrap();
    let left = || -> (u64, u64, u64) {
        let sql = "SELECT (SELECT count(*) FROM idempotency_key), (SELECT count(*) FROM given_context),
                          (SELECT count(*) FROM event)";
        audit::open(h.data_dir()).query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap()
    };
    h.clock.advance_ms(60 * DAY_MS);
    let mut doubting = upkeep(&h);
    doubting.expire().unwrap();
    doubting.expire().unwrap();
    assert_eq!(left(), (1, 1, 1), "one start alone does not believe it");
    // What someone asks for is done by a start that was there before.
    Upkeep::on_demand(doubting.directory.clone(), h.clock.clone(), h.limits.clone()).unwrap().free_disk(0).unwrap();
    assert_eq!(left(), (1, 1, 1));
    doubting.expire().unwrap();
    assert_eq!(left(), (1, 1, 1), "and confirms nothing");
    upkeep(&h).expire().unwrap();
    assert_eq!(left(), (0, 0, 0), "a second start sees the same");
    h.check_invariants().await;
}

#[tokio::test]
async fn more_contexts_than_are_removed_at_once_are_forgotten_too() {
    let h = Harness::new();
    for n in 0..=EXPIRE_CONTEXTS {
        let context = json!({ "text": format!("{n} ").repeat(50) });
        let request = serde_json::from_value(json!({ "context": context, "targetTokens": 5 })).unwrap();
        h.engine.compress_context(&h.scope, request).await.unwrap();
    }
    h.clock.advance_ms(CONTEXT_LIFE_MS + 1);
    expire(&h);
    assert_eq!(h.engine.status(&h.scope).await.unwrap().total_size_bytes, 0);
    h.check_invariants().await;
}

/// Behind an event that stays all stay: who reads on from the one before would not be told that it missed some.
#[tokio::test]
async fn events_are_forgotten_from_the_old_end_only() {
    let h = Harness::new();
    for (n, later_ms) in [(0, -890), (1, 10), (2, 881), (3, EVENT_LIFE_MS - 400)] {
        h.save("s", json!({ "n": n })).await;
        h.clock.advance_ms(later_ms);
    }
    let left = || -> Vec<i64> {
        expire(&h);
        let db = audit::open(h.data_dir());
        let mut statement = db.prepare("SELECT seq FROM event ORDER BY seq").unwrap();
        statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    };
    assert_eq!(left(), [1, 2, 3, 4], "the first is young, though the next two say that they are old");
    h.clock.advance_ms(400);
    assert_eq!(left(), [4]);
    let (page, older) = (h.engine.list_events(&h.scope, Some(3)).await, h.engine.list_events(&h.scope, Some(1)).await);
    assert_eq!((page.unwrap().is_gap, older.unwrap().is_gap), (false, true));
}

#[tokio::test]
async fn an_event_from_the_future_keeps_no_other_from_being_forgotten() {
    let h = Harness::new();
    for n in 0..4 {
        h.save("s", json!({ "n": n })).await;
    }
    let db = audit::open(h.data_dir());
    db.execute("UPDATE event SET at_ms = at_ms + ?1 WHERE seq = 2", params![1000 * DAY_MS]).unwrap();
    h.clock.advance_ms(EVENT_LIFE_MS + 1);
    h.save("s", json!({ "n": 4 })).await;
    expire(&h);
    let left: String = db.query_row("SELECT group_concat(seq) FROM event", [], |row| row.get(0)).unwrap();
    assert_eq!(left, "5");
}

#[tokio::test]
async fn more_events_than_are_removed_at_once_are_forgotten_too() {
    let h = Harness::new();
    h.save("s", json!({ "n": 0 })).await;
    let db = audit::open(h.data_dir());
    let young = h.clock.now().ms();
    let add = "WITH RECURSIVE n (n) AS (SELECT 2 UNION ALL SELECT n + 1 FROM n WHERE n < ?1)
         INSERT INTO event (space, seq, at_ms, kind, payload)
         SELECT 1, n, iif(n < ?1 - 1, 0, ?2), 'x', '{}' FROM n";
    let last = 2 * EXPIRE_ROWS as i64 + 300;
    db.execute("UPDATE event SET at_ms = 0", []).unwrap();
    db.execute(add, params![last, young]).unwrap();
    db.execute("UPDATE space SET event_seq = ?1", params![last]).unwrap();
    expire(&h);
    let left: (i64, i64) =
        db.query_row("SELECT min(seq), max(seq) FROM event", [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    assert_eq!(left, (last - 1, last));
}

#[tokio::test]
async fn what_was_captured_with_an_estimate_of_its_tokens_is_counted_later() {
    let h = Harness::new();
    let turn = |n: usize| Turn {
        name: format!("turn {n}"),
        at: None,
        said: Said::Request(format!("Request number {n}: {}", "words ".repeat(n))),
    };
    let part = Captured {
        client: "claude-code",
        session: "s".parse().unwrap(),
        path: "t.jsonl".to_owned(),
        place: String::new(),
        turns: (0..250).map(turn).collect(),
        end: TranscriptEnd { at: 1, hash: Hash::of(b"x") },
    };
    assert_eq!(h.engine.capture_transcript(&h.scope, part).await.unwrap(), 250);
    let tokens = || -> (u64, u64, u64) {
        audit::open(h.data_dir())
            .query_row(
                "SELECT count(*) FILTER (WHERE counted_at_ms IS NULL), sum(tokens), (SELECT sum(tokens) FROM usage) FROM segment",
                [],
                |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
            )
            .unwrap()
    };
    let (estimated, before, sum) = tokens();
    assert_eq!((estimated, before), (250, sum));
    upkeep(&h).count_tokens(|| false).unwrap();
    let (estimated, after, sum) = tokens();
    assert_eq!((estimated, after), (0, sum));
    let texts = (0..250).map(|n| turn(n).text());
    assert_eq!(after, texts.map(|text| waystone_core::tokens::count(&text) as u64).sum::<u64>());
    h.check_invariants().await;
}

#[tokio::test]
async fn housekeeping_does_not_wait_for_ever_for_its_turn() {
    let h = Harness::new();
    let mut upkeep = upkeep(&h);
    let other = open_private_file(&upkeep.directory.write_lock()).unwrap();
    other.lock().unwrap();
    upkeep.expire().unwrap();
    assert!(upkeep.locked(|_| Ok(())).unwrap().is_none());
}
