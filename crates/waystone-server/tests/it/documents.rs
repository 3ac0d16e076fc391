//! Exports and imports over REST, from one server to another.

use axum::body::Body;
use axum::http::{Request, header};
use futures_util::stream;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use waystone_core::Limits;
use waystone_server::http::Guard;
use waystone_testkit::audit;
use waystone_testkit::contexts::Random;
use waystone_testkit::fault::import::valid;

use crate::client::{Client, assert_error, json_of, post};

/// The bytes at a path, or the error that they broke off with.
async fn fetch(c: &Client, path: &str) -> Result<Vec<u8>, String> {
    let request = Request::get(path).header(header::HOST, "localhost").body(Body::empty()).unwrap();
    let response = c.send(request).await;
    assert_eq!(
        (response.status().as_u16(), &response.headers()[header::CONTENT_TYPE]),
        (200, &"application/json".parse().unwrap())
    );
    Ok(response.into_body().collect().await.map_err(|error| error.to_string())?.to_bytes().to_vec())
}

async fn import(c: &Client, document: impl Into<Body>) -> (u16, Value) {
    let response = c.send(post("/api/import", document)).await;
    (response.status().as_u16(), json_of(response).await)
}

#[tokio::test]
async fn a_session_and_a_project_go_from_one_server_to_another() {
    let (c, there) = (Client::new(), Client::new());
    valid::make_session(&c.harness, "s", 40, &mut Random::new(1)).await;
    valid::make_project(&c.harness, "p", 12, &mut Random::new(2)).await;
    let documents = [
        ("/api/sessions/s/export", "sessionId", "s", "checkpointsAdded"),
        ("/api/projects/p/export", "projectId", "p", "segmentsAdded"),
    ];
    for (path, named, id, added) in documents {
        let document = fetch(&c, path).await.unwrap();
        let (status, reply) = import(&there, document.clone()).await;
        assert_eq!((status, &reply["status"], &reply[named]), (201, &json!("IMPORTED"), &json!(id)), "{reply}");
        assert!(reply[added].as_u64().unwrap() > 5, "{reply}");
        assert_eq!(fetch(&there, path).await.unwrap(), document);
        let (status, again) = import(&there, document.clone()).await;
        assert_eq!((status, &again["status"], &again[added]), (200, &json!("UNCHANGED"), &json!(0)), "{again}");
        // In pieces, and without a length.
        let pieces = document.chunks(1000).map(|piece| Ok::<_, std::io::Error>(piece.to_vec())).collect::<Vec<_>>();
        assert_eq!(import(&there, Body::from_stream(stream::iter(pieces))).await.0, 200);
    }
    let (_, events) = there.get("/api/operations?limit=1000").await;
    let kinds: Vec<&Value> =
        events["operations"].as_array().unwrap().iter().map(|operation| &operation["kind"]).collect();
    // An export is recorded as loads.
    let (loads, changes): (Vec<&Value>, Vec<&Value>) =
        kinds.into_iter().partition(|kind| **kind == "checkpoint.loaded");
    assert_eq!(changes, [&json!("project.imported"), &json!("session.imported")]);
    assert!(loads.len() <= 40, "{loads:?}");
    there.harness.check_invariants().await;
}

#[tokio::test]
async fn what_cannot_be_exported_or_imported_is_told() {
    let c = Client::new();
    c.harness.save("s", json!({ "n": 1 })).await;
    assert_error(c.get("/api/sessions/nope/export").await, 404, "SESSION_NOT_FOUND");
    assert_error(c.get("/api/projects/nope/export").await, 404, "NOT_FOUND");
    assert_error(c.get("/api/sessions/s/export?x=1").await, 400, "INVALID_INPUT");
    assert_error(c.call("POST", "/api/import", Some(json!({ "format": "x" }))).await, 400, "INVALID_INPUT");
    let plain = Request::post("/api/import").header(header::HOST, "localhost").body(Body::from("{}")).unwrap();
    assert_eq!(c.send(plain).await.status().as_u16(), 415);
    let mut document: Value = serde_json::from_slice(&fetch(&c, "/api/sessions/s/export").await.unwrap()).unwrap();
    document["session"]["projectId"] = json!("other");
    assert_error(c.call("POST", "/api/import", Some(document)).await, 409, "CONFLICT");
}

#[tokio::test]
async fn a_document_may_be_longer_than_other_bodies_and_no_longer_than_is_set() {
    let limits = Limits { context_bytes_max: 1000, import_bytes_max: 3 * 1024 * 1024, ..Limits::default() };
    let c = Client::with(limits, Guard::default());
    for n in 0..99 {
        c.harness.save("s", json!({ "n": n, "t": "x".repeat(900) })).await;
    }
    let mut document = fetch(&c, "/api/sessions/s/export").await.unwrap();
    document.extend(b" ".repeat(2 * 1024 * 1024));
    assert_eq!(import(&c, document.clone()).await.0, 200);
    document.extend(b" ".repeat(1024 * 1024));
    let (status, reply) = import(&c, document.clone()).await;
    assert_eq!((status, &reply["error"]["code"]), (413, &json!("PAYLOAD_TOO_LARGE")));
    assert!(reply["error"]["hint"].as_str().unwrap().contains("WAYSTONE_MAX_IMPORT_BYTES"), "{reply}");
    let pieces = document.chunks(100_000).map(|piece| Ok::<_, std::io::Error>(piece.to_vec())).collect::<Vec<_>>();
    assert_eq!(import(&c, Body::from_stream(stream::iter(pieces))).await.0, 413);
}

#[tokio::test]
async fn an_export_that_meets_damage_breaks_off() {
    let c = Client::new();
    c.harness.save("s", json!({ "n": 1 })).await;
    let damaged = c.harness.save("s", json!({ "n": 2, "t": "x".repeat(100) })).await;
    c.harness.save("s", json!({ "n": 3 })).await;
    let spoil = "UPDATE checkpoint SET raw_hash = x'0000000000000000000000000000000000000000000000000000000000000000' WHERE id = ?1";
    audit::open(c.harness.data_dir()).execute(spoil, [damaged.checkpoint_id.as_str()]).unwrap();
    let error = fetch(&c, "/api/sessions/s/export").await.unwrap_err();
    assert!(error.contains("is damaged"), "{error}");
}

#[tokio::test]
async fn a_store_that_ends_with_the_process_says_so_of_an_import() {
    let (c, volatile) = (Client::new(), Client::volatile("no disk"));
    c.harness.save("s", json!({ "n": 1 })).await;
    let document = fetch(&c, "/api/sessions/s/export").await.unwrap();
    let (status, reply) = import(&volatile, document).await;
    assert_eq!((status, &reply["status"]), (202, &json!("VOLATILE")));
    assert!(reply["warnings"][0].as_str().unwrap().contains("no disk"), "{reply}");
}
