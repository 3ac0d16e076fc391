//! Figures of what is kept, and of calls in all processes.

use std::time::Duration;

use serde_json::{Value, json};
use waystone_core::api::{Class, Stats};
use waystone_testkit::Harness;

async fn stats(h: &Harness) -> Stats {
    h.engine.stats(&h.scope).await.unwrap()
}

#[tokio::test]
async fn what_is_kept_is_counted_archived_or_not() {
    let h = Harness::new();
    let empty = stats(&h).await;
    assert_eq!((empty.session_count, empty.checkpoint_count, empty.ratio, empty.quota_used_bytes), (0, 0, 0.0, 0));
    assert_eq!((empty.calls.len(), empty.views.len(), empty.classified_session_count), (0, 0, Some(0)));

    let context = json!({ "goal": "mend it", "notes": "a line of a note\n".repeat(200), "n": 0 });
    let first = h.save("a", context.clone()).await;
    h.save("a", json!({ "goal": "mend it", "n": 1 })).await;
    h.save("b", json!({ "goal": "paint it" })).await;
    h.save("c", json!({ "goal": "gone" })).await;
    h.engine.delete_checkpoint(&h.scope, &first.checkpoint_id, Default::default()).await.unwrap();
    h.engine.delete_session(&h.scope, &"c".parse().unwrap(), Default::default()).await.unwrap();
    let put = json!({ "texts": ["one", "two"] });
    h.engine.put_segments(&h.scope, serde_json::from_value(put).unwrap()).await.unwrap();

    let found = stats(&h).await;
    assert_eq!((found.session_count, found.archived_session_count), (2, 1));
    assert_eq!((found.checkpoint_count, found.archived_checkpoint_count), (2, 2));
    let texts = [context.to_string(), r#"{"goal":"mend it","n":1}"#.to_owned(), r#"{"goal":"paint it"}"#.to_owned()];
    let raw: usize = texts.iter().map(String::len).sum::<usize>() + r#"{"goal":"gone"}"#.len();
    assert_eq!(found.raw_bytes, raw as u64);
    assert!(found.ratio > 1.0 && (found.ratio - raw as f64 / found.stored_bytes as f64).abs() < 1e-9);
    assert_eq!(found.quota_used_bytes, found.stored_bytes + "onetwo".len() as u64);
    assert_eq!(found.tiers.iter().map(|tier| tier.segment_count).collect::<Vec<_>>(), [2, 0, 0]);
    assert_eq!(found.largest_sessions.iter().map(|one| one.session_id.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(found.classified_session_count, Some(2));
    let critical = found.classes.iter().find(|one| one.class == Class::Critical).unwrap().tokens;
    let all: u64 = found.classes.iter().map(|one| one.tokens).sum();
    assert!(critical > 5 && critical < all, "{:?}", found.classes);
}

#[tokio::test]
async fn what_was_measured_outlives_the_process_and_is_of_all_processes() {
    let mut h = Harness::new();
    h.save("a", json!({ "goal": "mend it", "notes": "a line of a note\n".repeat(200) })).await;
    let view = |request: Value| h.engine.compress_context(&h.scope, serde_json::from_value(request).unwrap());
    for tokens in [100, 200, 300] {
        view(json!({ "sessionId": "a", "targetTokens": tokens })).await.unwrap();
    }
    let other = h.second();
    for (engine, ms) in [(&h.engine, 2), (&h.engine, 2), (&other, 300)] {
        engine.note_call(&h.scope, "some_tool", Duration::from_millis(ms));
    }
    other.close().await;
    let check = |found: Stats| {
        assert_eq!((found.views.len(), found.views[0].name.as_str(), found.views[0].count), (1, "compress", 3));
        assert!((60.0..95.0).contains(&found.views[0].median_percent_saved), "{:?}", found.views);
        let call = &found.calls[0];
        assert_eq!((call.name.as_str(), call.count, call.total_ms), ("some_tool", 3, 304.0));
        assert!((call.p50_ms / 2.0 - 1.0).abs() < 0.2 && (call.p95_ms / 300.0 - 1.0).abs() < 0.2, "{call:?}");
    };
    check(stats(&h).await);
    h.restart().await;
    check(stats(&h).await);
    let before = stats(&h).await.operation_count;
    h.engine.note_call(&h.scope, "other_tool", Duration::from_millis(1));
    h.restart().await;
    assert_eq!(stats(&h).await.operation_count, before, "a measurement is no operation");
}
