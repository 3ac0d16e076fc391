//! Limits that something comes near to: whoever adds to what is kept is told, whichever way it comes in.

use serde_json::{Value, json};
use waystone_core::Limits;
use waystone_testkit::Harness;
use waystone_testkit::contexts::Random;

use crate::conversation::Talk;

const TOTAL: &str = "the store has";
const SESSION: &str = "the session has";

/// A harness in which so much may be kept.
fn harness(total_bytes_max: u64) -> Harness {
    Harness::with_limits(Limits { total_bytes_max, ..Limits::default() })
}

fn is_told(warnings: &[String], what: &str) -> bool {
    warnings.iter().any(|warning| warning.starts_with(what))
}

fn random(length: usize) -> String {
    Random::new(7).text(length)
}

/// How much is kept.
async fn used(h: &Harness) -> u64 {
    h.engine.status(&h.scope).await.unwrap().total_size_bytes
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_nearly_fills_the_store_is_told_of() {
    let mut t = Talk::new().await;
    let id = t.begin().await;
    t.h.limits = Limits { total_bytes_max: used(&t.h).await + 20_000, ..Limits::default() };
    t.restart().await;
    assert_eq!(t.say(&id, "small").await.warnings, Vec::<String>::new());
    let warnings = t.try_say(&id, json!({ "content": random(18_000) })).await.unwrap().warnings;
    assert!(is_told(&warnings, TOTAL), "{warnings:?}");
    let warnings = t.create(json!({})).await.warnings;
    assert!(is_told(&warnings, TOTAL), "{warnings:?}");
}

#[tokio::test]
async fn a_context_that_is_kept_for_its_view_is_told_of_when_it_nearly_fills_the_store() {
    let h = harness(3000);
    let compress = async |context: Value| {
        let request = serde_json::from_value(json!({ "context": context, "targetTokens": 50 })).unwrap();
        h.engine.compress_context(&h.scope, request).await.unwrap().warnings
    };
    let told = compress(json!({ "text": random(1000) })).await;
    assert!(!is_told(&told, TOTAL), "{told:?}");
    let told = compress(json!({ "text": random(2600) })).await;
    assert!(is_told(&told, TOTAL), "{} bytes: {told:?}", used(&h).await);
}

#[tokio::test]
async fn an_import_that_nearly_fills_its_session_or_the_store_is_told_of() {
    let h = Harness::new();
    h.save("s", json!({ "text": random(5000) })).await;
    let session = (h.export_session("s").await.unwrap(), used(&h).await);
    let put = json!({ "project_id": "p", "text": random(5000) });
    h.engine.put_segments(&h.scope, serde_json::from_value(put).unwrap()).await.unwrap();
    let project = (h.export_project("p").await.unwrap(), used(&h).await - session.1);
    for (document, size) in [&session, &project] {
        for (percent, told) in [(70, false), (85, true)] {
            let warnings = harness(size * 100 / percent).import(document.clone()).await.unwrap().warnings;
            assert_eq!(is_told(&warnings, TOTAL), told, "{percent} %: {warnings:?}");
        }
    }
    let there = Harness::with_limits(Limits { session_bytes_max: session.1 * 100 / 85, ..Limits::default() });
    let warnings = there.import(session.0.clone()).await.unwrap().warnings;
    assert!(is_told(&warnings, SESSION), "{warnings:?}");
    let again = there.import(session.0).await.unwrap().warnings;
    assert_eq!(again, Vec::<String>::new(), "nothing was added");
}
