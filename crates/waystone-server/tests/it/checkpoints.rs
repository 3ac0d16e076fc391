//! `/api/checkpoints`: saved, loaded, listed and deleted over REST, and what is refused.

use axum::body::Body;
use axum::http::{Request, header};
use serde_json::{Value, json};
use waystone_core::Limits;
use waystone_server::http::{Guard, operations};

use crate::client::{Client, assert_error, json_of};

#[tokio::test]
async fn a_context_is_saved_loaded_listed_and_deleted() {
    let c = Client::new();
    let body = json!({ "context": { "z": 1.0, "a": u64::MAX }, "metadata": { "name": "n", "tags": ["t", "u"] } });
    let (status, saved) = c.call("POST", "/api/checkpoints", Some(body.clone())).await;
    assert_eq!((status.as_u16(), &saved["status"]), (201, &json!("SAVED")));
    let (session, id) = (saved["sessionId"].as_str().unwrap(), saved["checkpointId"].as_str().unwrap());

    let (status, again) = c.call("POST", &format!("/api/sessions/{session}/checkpoints"), Some(body)).await;
    assert_eq!((status.as_u16(), &again["status"]), (200, &json!("SKIPPED_UNCHANGED")));

    let (status, loaded) = c.get(&format!("/api/checkpoints/{id}")).await;
    assert_eq!(status, 200);
    assert_eq!(loaded["context"].to_string(), r#"{"z":1.0,"a":18446744073709551615}"#);
    assert_eq!((&loaded["id"], &loaded["checkpointId"]), (&json!(id), &json!(id)));
    assert_eq!((&loaded["name"], &loaded["tags"]), (&json!("n"), &json!(["t", "u"])));
    assert_eq!((&loaded["sizeBytes"], &loaded["blobPath"]), (&loaded["contextSizeBytes"], &json!(null)));
    assert_eq!(c.get(&format!("/api/sessions/{session}/latest")).await.1, loaded);

    for path in ["/api/checkpoints?tags=t&tags=u&limit=5", &format!("/api/sessions/{session}/checkpoints?query=N")] {
        assert_eq!(c.get(path).await.1["checkpoints"][0]["checkpointId"], id, "{path}");
    }
    assert_eq!(c.call("DELETE", &format!("/api/checkpoints/{id}"), None).await.0, 200);
    assert_eq!(c.get("/api/checkpoints").await.1["total"], 0);
    assert_eq!(c.get(&format!("/api/checkpoints/{id}")).await.1["archived"], true);
    assert_error(c.call("DELETE", &format!("/api/checkpoints/{id}"), None).await, 404, "CHECKPOINT_NOT_FOUND");
    c.harness.check_invariants().await;
}

#[tokio::test]
async fn a_retry_by_header_gives_the_first_answer() {
    let c = Client::new();
    let send = async |key: &str, body: Value| {
        let request =
            Request::post("/api/checkpoints").header(header::HOST, "localhost").header("Idempotency-Key", key);
        let request = request.header(header::CONTENT_TYPE, "application/json").body(Body::from(body.to_string()));
        let response = c.send(request.unwrap()).await;
        (response.status(), json_of(response).await)
    };
    let first = send("k", json!({ "context": {} })).await;
    assert_eq!(send("k", json!({ "context": {} })).await, first);
    assert_error(send("k", json!({ "context": { "n": 1 } })).await, 409, "CONFLICT");
    assert_error(send("k", json!({ "context": {}, "idempotencyKey": "other" })).await, 400, "INVALID_INPUT");
    assert_error(send("a b", json!({ "context": {} })).await, 400, "INVALID_INPUT");
}

#[tokio::test]
async fn bad_input_gets_its_code() {
    let c = Client::with(Limits { context_bytes_max: 1000, ..Limits::default() }, Guard::default());
    let post = async |content_type: &str, body: Vec<u8>| {
        let request = Request::post("/api/checkpoints")
            .header(header::HOST, "localhost")
            .header(header::CONTENT_TYPE, content_type);
        let response = c.send(request.body(Body::from(body)).unwrap()).await;
        (response.status(), json_of(response).await)
    };
    let json = "application/json; charset=utf-8";
    for body in [
        "",
        "{",
        "[]",
        "null",
        r#"{"context":[]}"#,
        r#"{"context":{},"x":1}"#,
        r#"{"context":{"a":1,"a":2}}"#,
        r#"{"context":{"n":18446744073709551616}}"#,
        r#"{"context":{"n":1e999}}"#,
        r#"{"context":{"s":"\ud800"}}"#,
        r#"{"context":{},"sessionId":"a/b"}"#,
        r#"{"context":{},"force":"yes"}"#,
        r#"{"context":{}} x"#,
    ] {
        assert_error(post(json, body.into()).await, 400, "INVALID_INPUT");
    }
    assert_error(post(json, b"{\"context\":{\"a\":\"\xff\"}}".to_vec()).await, 400, "INVALID_INPUT");
    let deep = format!(r#"{{"context":{}1{}}}"#, r#"{"k":"#.repeat(129), "}".repeat(129));
    assert_error(post(json, deep.into()).await, 400, "INVALID_INPUT");
    assert_error(post("text/plain", b"{\"context\":{}}".to_vec()).await, 415, "UNSUPPORTED_MEDIA_TYPE");
    let large = format!(r#"{{"context":{{"t":"{}"}}}}"#, "x".repeat(2000));
    assert_error(post(json, large.into()).await, 413, "PAYLOAD_TOO_LARGE");
    let huge = format!(r#"{{"context":{{"t":"{}"}}}}"#, "x".repeat(2_000_000));
    assert_error(post(json, huge.into()).await, 413, "PAYLOAD_TOO_LARGE");

    assert_error(c.get("/api/checkpoints/a%2Fb").await, 400, "INVALID_INPUT");
    assert_error(c.get("/api/checkpoints/%ff").await, 400, "INVALID_INPUT");
    assert_error(c.get("/api/checkpoints?query=%ff").await, 400, "INVALID_INPUT");
    assert_error(c.get("/api/checkpoints?limit=0").await, 400, "INVALID_INPUT");
    assert_error(c.get("/api/checkpoints?limit=x").await, 400, "INVALID_INPUT");
    assert_error(c.get("/api/checkpoints?unknown=1").await, 400, "INVALID_INPUT");
    assert_error(c.get("/api/sessions/a/checkpoints?sessionId=b").await, 400, "INVALID_INPUT");
    assert_error(c.get("/api/sessions/a/checkpoints").await, 404, "SESSION_NOT_FOUND");
    assert_error(c.get("/api/checkpoints/nope").await, 404, "CHECKPOINT_NOT_FOUND");
    assert_error(c.get("/nope").await, 404, "NOT_FOUND");
    assert_error(c.call("PUT", "/api/sessions", None).await, 405, "METHOD_NOT_ALLOWED");
    assert_eq!(c.harness.list(json!({ "limit": 10 })).await.len(), 0);
}

/// `serde_json` takes such a key for an instruction when it reads a value, and would put another value in its place.
#[tokio::test]
async fn a_key_that_means_something_to_a_library_is_kept_like_any_other() {
    let c = Client::new();
    let odd = json!({ "$serde_json::private::RawValue": "[1,2]" });
    let body = json!({ "sessionId": "s", "context": { "x": odd }, "metadata": { "y": odd } });
    let (status, _) = c.call("POST", "/api/checkpoints", Some(body)).await;
    assert_eq!(status.as_u16(), 201);
    for path in ["/api/sessions/s/latest", "/api/checkpoints?query=1,2"] {
        let response = c.send(Request::get(path).header("host", "localhost").body(Body::empty()).unwrap()).await;
        let text = axum::body::to_bytes(response.into_body(), 1_000_000).await.unwrap();
        let text = String::from_utf8(text.to_vec()).unwrap();
        assert!(text.contains(r#""$serde_json::private::RawValue":"[1,2]""#), "{text}");
    }
    let checkup = c.harness.engine.check_copies(&c.harness.scope, |_, _| {}).await.unwrap();
    assert!(checkup.sound, "{checkup:?}");
}

#[tokio::test]
async fn what_has_no_bound_of_its_own_is_given_one() {
    let c = Client::new();
    let deep = (0..40).fold(json!({}), |inner, _| json!({ "k": inner }));
    let save = |metadata: Value| json!({ "context": {}, "metadata": metadata });
    assert_error(c.call("POST", "/api/checkpoints", Some(save(deep))).await, 400, "INVALID_INPUT");
    let words = "w+".repeat(40);
    assert_error(c.get(&format!("/api/checkpoints?query={words}")).await, 400, "INVALID_INPUT");
    assert_error(c.get(&format!("/api/checkpoints?query={}", "w".repeat(8193))).await, 400, "INVALID_INPUT");
    let tags = "tags=a&".repeat(65);
    assert_error(c.get(&format!("/api/checkpoints?{tags}")).await, 400, "INVALID_INPUT");
    let (_, reply) = c.call("POST", "/api/checkpoints", Some(json!({ "context": {}, "a".repeat(100_000): 1 }))).await;
    assert!(reply["error"]["message"].as_str().unwrap().len() < 1000, "what was sent is not sent back whole");
}

#[tokio::test]
async fn on_a_store_that_ends_with_the_process_every_reply_says_so() {
    let c = Client::volatile("the disk is gone");
    let (status, saved) = c.call("POST", "/api/checkpoints", Some(json!({ "sessionId": "s", "context": {} }))).await;
    assert_eq!((status.as_u16(), &saved["status"]), (202, &json!("VOLATILE")));
    let id = format!("/api/checkpoints/{}", saved["checkpointId"].as_str().unwrap());
    let calls = [
        ("GET", "/healthz", None),
        ("GET", "/readyz", None),
        ("GET", "/api/status", None),
        ("GET", "/api/checkpoints", None),
        ("GET", id.as_str(), None),
        ("GET", "/api/sessions", None),
        ("GET", "/api/sessions/s", None),
        ("GET", "/api/sessions/s/latest", None),
        ("PATCH", "/api/sessions/s", Some(json!({ "name": "n" }))),
        ("DELETE", id.as_str(), None),
        ("DELETE", "/api/sessions/s", None),
    ];
    for (method, path, body) in calls {
        let (status, reply) = c.call(method, path, body).await;
        assert_eq!(status.as_u16(), 200, "{method} {path}");
        assert!(reply["warnings"][0].as_str().unwrap().contains("the disk is gone"), "{method} {path}: {reply}");
    }
}

#[tokio::test]
async fn a_body_is_refused_where_none_is_taken() {
    let c = Client::new();
    c.harness.save("s", json!({ "n": 1 })).await;
    let (status, reply) = c.call("DELETE", "/api/sessions/s", Some(json!({ "purge": true }))).await;
    assert_error((status, reply.clone()), 400, "INVALID_INPUT");
    assert_eq!(reply["error"]["message"], "unknown field `purge`: this request takes no body");
    for body in [json!([]), json!("text"), json!("x".repeat(100_000))] {
        assert_error(c.call("DELETE", "/api/sessions/s", Some(body)).await, 400, "INVALID_INPUT");
    }
    let parts = [" ".repeat(70_000), json!({ "purge": true }).to_string()];
    let parts = parts.into_iter().map(Ok::<_, std::io::Error>);
    let request = Request::delete("/api/sessions/s")
        .header(header::HOST, "localhost")
        .header(header::CONTENT_TYPE, "application/json");
    let request = request.body(Body::from_stream(futures_util::stream::iter(parts))).unwrap();
    assert_eq!(c.send(request).await.status(), 400, "a field behind many spaces is seen too");
    assert_eq!(c.get("/api/sessions/s").await.0, 200, "nothing was deleted");
    for body in [None, Some(json!(null)), Some(json!({}))] {
        assert_eq!(c.call("GET", "/api/sessions/s", body.clone()).await.0, 200, "{body:?}");
    }
}

#[tokio::test]
async fn a_query_is_refused_by_the_name_of_its_field_on_every_route() {
    let c = Client::new();
    c.harness.save("s", json!({ "n": 1 })).await;
    let message = async |method: &str, path: &str| {
        let body = matches!(method, "POST" | "PATCH" | "PUT").then(|| json!({}));
        let (status, reply) = c.call(method, path, body).await;
        let code = match path {
            path if path.starts_with("/api/projects") => "INVALID_PARAMETER",
            path if path.starts_with("/api/contexts") => "VALIDATION_ERROR",
            _ => "INVALID_INPUT",
        };
        assert_error((status, reply.clone()), 400, code);
        reply["error"]["message"].as_str().unwrap().to_owned()
    };
    for (method, path, _) in operations() {
        let path = path.replace("{sessionId}", "s").replace("{checkpointId}", "c").replace("{project_id}", "p");
        let path = path.replace("{context_id}", "c").replace("{message_id}", "m").replace("{branch_name}", "b");
        let path = path.replace("{a}", "a").replace("{b}", "b");
        let refusal = message(method.as_str(), &format!("{path}?shred=true")).await;
        assert!(refusal.starts_with("unknown field `shred`"), "{method} {path}: {refusal}");
    }
    assert_eq!(c.get("/api/sessions/s?").await.0, 200, "nothing was deleted, and a query without fields is none");
    let check = async |query: &str, expected: &str| {
        let refusal = message("GET", &format!("/api/checkpoints?{query}")).await;
        assert!(refusal.starts_with(expected), "{query}: {refusal}");
    };
    check("limit=abc", "limit: ").await;
    check("sessionId=a%2Fb", "sessionId: ").await;
    check("since=yesterday", "since: ").await;
}
