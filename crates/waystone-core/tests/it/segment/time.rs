//! When a message says it was said.

use serde_json::{Value, json};
use waystone_core::api::ImportStatus;
use waystone_testkit::Harness;

use super::{add, find, put, usage, working_set};

/// The clock stands at the beginning of 2026.
const WRONG: [(&str, &str); 4] = [
    ("2026-01-02T00:00:00.001Z", "more than a day from now"),
    ("9999-12-31T23:59:59Z", "more than a day from now"),
    ("0001-01-01T00:00:00Z", "before 1970"),
    ("1969-12-31T23:59:59Z", "before 1970"),
];
const RIGHT: [&str; 3] = ["2026-01-02T00:00:00Z", "1970-01-01T00:00:00Z", "2024-05-06T07:08:09+02:00"];

fn said(text: &str, at: &str) -> Value {
    json!({ "content": text, "timestamp": at })
}

#[tokio::test]
async fn a_time_that_an_import_refuses_is_refused_by_a_put() {
    let h = Harness::new();
    for (at, words) in WRONG {
        let request = json!({ "messages": [said("first", "2025-01-01"), said("second", at)] });
        let refused = put(&h, request).await.unwrap_err();
        assert_eq!(refused.code(), "INVALID_INPUT");
        let message = refused.to_string();
        assert!(message.starts_with("messages/1/timestamp: ") && message.contains(words), "{message}");
    }
    assert_eq!(working_set(&h, json!({})).await.unwrap().segment_count, 0, "all or nothing");
    for at in RIGHT {
        add(&h, json!({ "messages": [said(at, at)] })).await;
    }
    let document = h.export_project("p").await.unwrap();
    let other = Harness::new();
    assert_eq!(other.import(document).await.unwrap().status, ImportStatus::Imported);
}

#[tokio::test]
async fn a_described_time_that_cannot_be_is_passed_over_and_told_of() {
    let h = Harness::new();
    let messages: Vec<Value> =
        WRONG.iter().map(|(at, _)| *at).chain(RIGHT).map(|at| said(at, at)).chain([said("no time", "?")]).collect();
    let reply = usage(&h, json!({ "context_descriptors": { "recent_messages": messages } })).await.unwrap();
    let told =
        "4 of the described messages have a time before 1970 or more than a day from now: they count as said now";
    assert_eq!(reply.warnings, [told]);
    for segment in working_set(&h, json!({})).await.unwrap().segments {
        let is_wrong = WRONG.iter().any(|(at, _)| *at == segment.text) || segment.text == "no time";
        assert_eq!(segment.created_at.to_string() == "2026-01-01T00:00:00.000Z", is_wrong, "{}", segment.text);
        assert_eq!(find(&h, segment.segment_id.as_str()).await.unwrap(), segment);
    }
    let ages = reply.usage_metrics;
    assert_eq!((ages.newest_segment_age_hours, ages.oldest_segment_age_hours), (0.0, 490_896.0));
    let other = Harness::new();
    let document = h.export_project("p").await.unwrap();
    assert_eq!(other.import(document).await.unwrap().status, ImportStatus::Imported);
}
