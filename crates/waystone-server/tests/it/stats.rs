//! `/api/stats` and `/metrics`

use std::collections::{BTreeMap, BTreeSet};

use axum::body::Body;
use axum::http::{Request, header};
use http_body_util::BodyExt;
use serde_json::json;

use crate::client::{Client, post};

/// The samples of a page by name and labels, checked against its HELP and TYPE lines.
fn parse(page: &str) -> BTreeMap<String, f64> {
    let (mut samples, mut typed, mut helped) = (BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            assert!(helped.insert(rest.split_once(' ').unwrap().0), "{line}");
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(["gauge", "counter", "summary"].contains(&kind) && typed.insert(name), "{line}");
        } else {
            let (sample, value) = line.rsplit_once(' ').unwrap();
            let name = sample.split('{').next().unwrap();
            assert!(
                name.starts_with("waystone_") && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'),
                "{line}"
            );
            let family = name.strip_suffix("_sum").or(name.strip_suffix("_count")).unwrap_or(name);
            assert!(typed.contains(family) && helped.contains(family), "{line}");
            assert!(sample.ends_with('}') == sample.contains('{'), "{line}");
            assert!(samples.insert(sample.to_owned(), value.parse().unwrap()).is_none(), "{line}");
        }
    }
    samples
}

#[tokio::test]
async fn figures_are_there_for_people_and_for_prometheus() {
    let c = Client::new();
    c.harness.save("a", json!({ "n": 1 })).await;
    let save = json!({ "name": "workflow_checkpoint_save", "arguments": { "sessionId": "b", "context": { "n": 1 } } });
    let message = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": save });
    assert_eq!(c.send(post("/mcp", message.to_string())).await.status(), 200);
    for id in ["a", "b", "nope"] {
        c.get(&format!("/api/sessions/{id}")).await;
    }
    let (status, stats) = c.get("/api/stats").await;
    assert_eq!((status.as_u16(), &stats["sessionCount"], &stats["checkpointCount"]), (200, &json!(2), &json!(2)));
    let calls: BTreeMap<&str, u64> = stats["calls"]
        .as_array()
        .unwrap()
        .iter()
        .map(|call| (call["name"].as_str().unwrap(), call["count"].as_u64().unwrap()))
        .collect();
    assert_eq!(calls, [("GET /api/sessions/{sessionId}", 3), ("workflow_checkpoint_save", 1)].into());

    let request = Request::get("/metrics").header(header::HOST, "localhost").body(Body::empty()).unwrap();
    let response = c.send(request).await;
    assert_eq!(response.headers()[header::CONTENT_TYPE], "text/plain; version=0.0.4; charset=utf-8");
    let page = response.into_body().collect().await.unwrap().to_bytes();
    let samples = parse(std::str::from_utf8(&page).unwrap());
    assert_eq!(samples["waystone_sessions"], 2.0);
    assert_eq!(samples["waystone_operations_total"], 2.0);
    assert_eq!(samples[r#"waystone_segments{tier="stashed"}"#], 0.0);
    let call = r#"call="GET /api/sessions/{sessionId}""#;
    assert_eq!(samples[&format!("waystone_call_duration_seconds_count{{{call}}}")], 3.0);
    let quantile = |q: &str| samples[&format!("waystone_call_duration_seconds{{{call},quantile=\"{q}\"}}")];
    assert!(quantile("0.5") > 0.0 && quantile("0.5") <= quantile("0.95"));
    let request = Request::get("/metrics").header(header::HOST, "evil.example").body(Body::empty()).unwrap();
    assert_eq!(c.send(request).await.status(), 403);
}
