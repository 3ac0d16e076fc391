//! What no client in its right mind sends: always our error object, never a server error.

use axum::body::Body;
use axum::http::{Request, header};
use serde_json::{Value, json};

use super::{Talk, assert_refused, text};
use crate::client::json_of;

/// As they stand in a path or a query.
fn hostile_texts() -> Vec<String> {
    let texts = [
        "..",
        ".",
        "%2e%2e",
        "a%2Fb",
        "..%2F..%2Fetc%2Fpasswd",
        "%5C",
        "%00",
        "a%00b",
        "%ff",
        "%25",
        "%2500",
        "%C0%AF",
        "%20",
        "a%0Ab",
        "%F0%9F%98%80",
        "'%20OR%201=1--",
        "%22",
        "a,b%20",
        "{x}",
        "%E2%80%AE",
        "*",
        "~",
        "%",
    ];
    texts.into_iter().map(str::to_owned).chain(["x".repeat(10_000), "%41".repeat(10_000)]).collect()
}

/// Every route with an id or a name in it; `@` stands for what is hostile, `C` for a conversation and `M` for a message.
const PLACES: [(&str, &str); 37] = [
    ("GET", "/@"),
    ("PUT", "/@"),
    ("DELETE", "/@"),
    ("GET", "/@/messages"),
    ("POST", "/@/messages"),
    ("GET", "/@/messages/M"),
    ("PUT", "/@/messages/M"),
    ("GET", "/@/messages/M/content"),
    ("GET", "/@/branches"),
    ("POST", "/@/branches"),
    ("PUT", "/@/branches/main"),
    ("DELETE", "/@/branches/main"),
    ("GET", "/@/state"),
    ("GET", "/@/events"),
    ("POST", "/@/retry"),
    ("POST", "/@/cancel"),
    ("GET", "/@/tools"),
    ("GET", "/@/tools/T"),
    ("POST", "/@/tools/approve"),
    ("POST", "/@/tools/deny"),
    ("POST", "/@/tools/T/arguments"),
    ("POST", "/@/tools/T/result"),
    ("GET", "/C/tools/@"),
    ("POST", "/C/tools/@/arguments"),
    ("POST", "/C/tools/@/result"),
    ("GET", "/C/messages/@"),
    ("PUT", "/C/messages/@"),
    ("GET", "/C/messages/@/content"),
    ("PUT", "/C/branches/@"),
    ("DELETE", "/C/branches/@"),
    ("GET", "/C/messages?branch=@"),
    ("GET", "/C/messages?ids=@"),
    ("GET", "?project_id=@"),
    ("GET", "?state=@"),
    ("GET", "?limit=@"),
    ("GET", "?cursor=@"),
    ("GET", "/C/messages/M/content?from_sequence=@"),
];

fn body_for(method: &str, path: &str) -> Option<Value> {
    match (method, path) {
        ("PUT", path) if path.contains("/branches") => None,
        ("POST", path) if path.ends_with("/branches") => Some(json!({ "name": "b" })),
        ("POST" | "PUT", path) if path.contains("/messages") => Some(json!({ "content": "x" })),
        ("POST", path) if path.ends_with("/approve") || path.ends_with("/deny") => {
            Some(json!({ "tool_call_ids": ["T"] }))
        }
        ("POST", path) if path.ends_with("/arguments") => Some(json!({ "arguments": {} })),
        ("POST", path) if path.ends_with("/result") => Some(json!({ "result": "x" })),
        ("PUT", _) => Some(json!({ "mode": "x" })),
        _ => None,
    }
}

#[tokio::test]
async fn hostile_ids_and_names_are_refused_everywhere() {
    let talk = Talk::new().await;
    let context = talk.create().await;
    let (message, _) = talk.ask(&context, "hello").await;
    let before = talk.get(&format!("/{context}")).await;
    for (method, place) in PLACES {
        let place = place.replace("/C/", &format!("/{context}/")).replace("/M", &format!("/{message}"));
        for hostile in hostile_texts() {
            let path = place.replace('@', &hostile);
            let request = Request::builder().method(method).uri(format!("/api/contexts{path}"));
            let Ok(request) = request.header(header::HOST, "localhost").body(Body::empty()) else {
                continue; // No client can send it.
            };
            let (mut parts, _) = request.into_parts();
            let body = body_for(method, &place);
            if body.is_some() {
                parts.headers.insert(header::CONTENT_TYPE, "application/json".parse().unwrap());
            }
            let body = Body::from(body.map(|body| body.to_string()).unwrap_or_default());
            let response = talk.client.send(Request::from_parts(parts, body)).await;
            let answer = (response.status().as_u16(), json_of(response).await);
            let shown: String = path.chars().take(120).collect();
            assert!(answer.0 == 400 || answer.0 == 404, "{method} {shown}: {answer:?}");
            let code = if answer.0 == 400 { "VALIDATION_ERROR" } else { "NOT_FOUND" };
            assert!(text(&answer.1["error"]["code"]).ends_with(code), "{method} {shown}: {answer:?}");
            assert_refused(&answer, answer.0, &text(&answer.1["error"]["code"]), &shown);
            assert!(text(&answer.1["error"]["message"]).chars().count() <= 501, "{method} {shown}");
        }
    }
    assert_eq!(talk.get(&format!("/{context}")).await, before, "nothing has changed");
}

#[tokio::test]
async fn a_slash_in_an_id_is_a_place_that_is_not_there() {
    let talk = Talk::new().await;
    let context = talk.create().await;
    for path in ["/a/b", "/a/b/c/d", "//", "/a//messages", "/", &format!("/{context}/messages/a/b")] {
        let answer = talk.call("GET", path, None).await;
        assert_eq!(answer.0 / 100, 4, "{path}: {answer:?}");
        assert_refused(&answer, answer.0, &text(&answer.1["error"]["code"]), path);
    }
}

#[tokio::test]
async fn a_hostile_configuration_is_refused() {
    let talk = Talk::new().await;
    let context = talk.create().await;
    let before = talk.get(&format!("/{context}")).await;
    let long = "x".repeat(10_000);
    let both = [
        json!({ "unknown": 1 }),
        json!({ "model_id": 4 }),
        json!({ "model_id": "" }),
        json!({ "model_id": long }),
        json!({ "mode": ["code"] }),
        json!({ "mode": "" }),
        json!({ "mode": long }),
        json!({ "system_prompt_id": {} }),
        json!({ "system_prompt_id": long }),
        json!({ "agent_role": true }),
        json!({ "agent_role": long }),
        json!({ "workspace_path": 1 }),
        json!({ "workspace_path": "" }),
        json!({ "workspace_path": long }),
        json!({ "workspace_path": "here" }),
        json!({ "workspace_path": "../there" }),
        json!({ "parameters": [] }),
        json!({ "parameters": "x" }),
        json!({ "parameters": { "x": "y".repeat(20_000) } }),
        json!({ "parameters": nested(40) }),
        json!({ "parameters": nested(120) }),
        json!({ "parameters": nested(1000) }),
        json!({ "parent_id": "a/b" }),
        json!({ "idempotency_key": "a b" }),
        json!([]),
        json!("x"),
        json!(null),
        json!(1),
    ];
    for body in both {
        refused(&talk, "POST", "", body.clone()).await;
        refused(&talk, "PUT", &format!("/{context}"), body).await;
    }
    for body in [json!({ "parent_id": 1 }), json!({ "parent_id": long }), json!({ "idempotency_key": long })] {
        refused(&talk, "POST", "", body).await;
    }
    assert_eq!(talk.get("").await["contexts"].as_array().unwrap().len(), 1);
    assert_eq!(talk.get(&format!("/{context}")).await, before, "nothing has changed");
}

#[tokio::test]
async fn a_hostile_message_or_branch_is_refused() {
    let talk = Talk::new().await;
    let context = talk.create().await;
    let (message, _) = talk.ask(&context, "hello").await;
    let before = talk.get(&format!("/{context}")).await;
    let long = "x".repeat(10_000);
    let messages = [
        json!({}),
        json!({ "content": "" }),
        json!({ "content": " " }),
        json!({ "content": " \n\t\u{3000}\u{a0}" }),
        json!({ "content": null }),
        json!({ "content": 1 }),
        json!({ "content": [{ "type": "text", "text": "x" }] }),
        json!({ "content": "x", "branch": "a/b" }),
        json!({ "content": "x", "branch": long }),
        json!({ "content": "x", "branch": "" }),
        json!({ "content": "x", "branch": 1 }),
        json!({ "content": "x", "role": "system" }),
        json!({ "content": "x", "unknown": 1 }),
        json!({ "content": "x", "idempotency_key": long }),
        json!([]),
    ];
    for body in messages {
        refused(&talk, "POST", &format!("/{context}/messages"), body.clone()).await;
        refused(&talk, "PUT", &format!("/{context}/messages/{message}"), body).await;
    }
    let branches = [
        json!({}),
        json!({ "name": "" }),
        json!({ "name": "a/b" }),
        json!({ "name": ".." }),
        json!({ "name": "a\0" }),
        json!({ "name": "ü" }),
        json!({ "name": long }),
        json!({ "name": 1 }),
        json!({ "name": "b", "parent_message_id": "a/b" }),
        json!({ "name": "b", "parent_message_id": 1 }),
        json!({ "name": "b", "message_ids": [] }),
    ];
    for body in branches {
        refused(&talk, "POST", &format!("/{context}/branches"), body).await;
    }
    assert_eq!(talk.get(&format!("/{context}")).await, before, "nothing has changed");
}

/// Objects in objects.
fn nested(levels: usize) -> Value {
    (0..levels).fold(json!({}), |inner, _| json!({ "k": inner }))
}

async fn refused(talk: &Talk, method: &str, path: &str, body: Value) {
    let shown: String = body.to_string().chars().take(120).collect();
    let answer = talk.call(method, path, Some(body)).await;
    assert_refused(&answer, 400, "VALIDATION_ERROR", &format!("{method} {path} {shown}"));
}

#[tokio::test]
async fn what_is_not_json_is_refused() {
    let talk = Talk::new().await;
    let context = talk.create().await;
    let bodies: [&[u8]; 8] = [
        b"",
        b"{",
        b"{\"content\":\"\xff\"}",
        br#"{"content":"\ud800"}"#,
        br#"{"content":"a","content":"b"}"#,
        br#"{"content":"x"} x"#,
        br#"{"content":1e999}"#,
        b"content=x",
    ];
    for body in bodies {
        let request = Request::post(format!("/api/contexts/{context}/messages")).header(header::HOST, "localhost");
        let request = request.header(header::CONTENT_TYPE, "application/json").body(Body::from(body.to_vec()));
        let response = talk.client.send(request.unwrap()).await;
        let answer = (response.status().as_u16(), json_of(response).await);
        assert_refused(&answer, 400, "VALIDATION_ERROR", &String::from_utf8_lossy(body));
    }
    let request = Request::post(format!("/api/contexts/{context}/messages")).header(header::HOST, "localhost");
    let request = request.header(header::CONTENT_TYPE, "text/plain").body(Body::from(r#"{"content":"x"}"#));
    let response = talk.client.send(request.unwrap()).await;
    let answer = (response.status().as_u16(), json_of(response).await);
    assert_refused(&answer, 415, "UNSUPPORTED_MEDIA_TYPE", "text");
    talk.refuses("PATCH", &format!("/{context}"), None, 405, "METHOD_NOT_ALLOWED").await;
    assert_eq!(talk.said(&context, None).await, []);
}

#[tokio::test]
async fn a_number_out_of_its_bounds_is_refused_by_name() {
    let talk = Talk::new().await;
    let context = talk.create().await;
    let (message, _) = talk.ask(&context, "hello").await;
    for query in [
        "limit=0",
        "limit=1001",
        "limit=-1",
        "limit=abc",
        "limit=",
        "limit=1.5",
        "limit=99999999999999999999",
        "offset=-1",
        "offset=x",
        "offset=4294967296",
        "limit=1&limit=2",
        "unknown=1",
        "ids=",
        "ids=,",
        "branch=",
    ] {
        talk.refuses("GET", &format!("/{context}/messages?{query}"), None, 400, "VALIDATION_ERROR").await;
    }
    for query in ["limit=0", "limit=1001", "cursor=zz", "cursor=", "state=idle", "offset=1"] {
        talk.refuses("GET", &format!("?{query}"), None, 400, "VALIDATION_ERROR").await;
    }
    for query in ["from_sequence=0", "from_sequence=-1", "from_sequence=x", "from_sequence=99999999999999999999"] {
        talk.refuses("GET", &format!("/{context}/messages/{message}/content?{query}"), None, 400, "VALIDATION_ERROR")
            .await;
    }
    for query in ["message_pool=maybe", "unknown=1"] {
        talk.refuses("GET", &format!("/{context}?{query}"), None, 400, "VALIDATION_ERROR").await;
    }
    talk.refuses("DELETE", &format!("/{context}?purge=perhaps"), None, 400, "VALIDATION_ERROR").await;
    let ids = vec!["m"; 1001].join(",");
    talk.refuses("GET", &format!("/{context}/messages?ids={ids}"), None, 400, "VALIDATION_ERROR").await;
    for query in ["limit=1", "limit=1000", "offset=0"] {
        talk.get(&format!("/{context}/messages?{query}")).await;
    }
}

#[tokio::test]
async fn a_key_that_is_none_is_refused() {
    let talk = Talk::new().await;
    let context = talk.create().await;
    for path in ["", &format!("/{context}/messages"), &format!("/{context}/branches"), &format!("/{context}/retry")] {
        let body = match path {
            "" => json!({}),
            path if path.ends_with("/branches") => json!({ "name": "b" }),
            _ => json!({ "content": "x" }),
        };
        for key in ["", "a b", "a/b", "%", &"k".repeat(10_000)] {
            let answer = talk.post_keyed(path, key, &body).await;
            let shown: String = key.chars().take(20).collect();
            assert_refused(&answer, 400, "VALIDATION_ERROR", &format!("{path} {shown:?}"));
        }
    }
    assert_eq!(talk.said(&context, None).await, []);
}

#[tokio::test]
async fn strange_text_is_said_and_stored_as_it_is() {
    let talk = Talk::new().await;
    let context = talk.create_with(json!({ "model_id": "gpt-4", "system_prompt_id": "../../secret" })).await;
    let strange = [
        "a\0b",
        "\u{202e}txet",
        "'; DROP TABLE message; --",
        "\r\n\r\nevent: MessageCompleted\ndata: {}\n\n",
        " x ",
        "\u{feff}",
        "{\"content\":1}",
        "\u{1b}[31m",
    ];
    let mut expected = Vec::new();
    for content in strange {
        talk.ask(&context, content).await;
        expected.extend([("user".to_owned(), content.to_owned()), ("assistant".to_owned(), content.to_owned())]);
    }
    assert_eq!(talk.said(&context, None).await, expected);
}

#[tokio::test]
async fn parameters_as_deep_as_may_be_are_kept_and_passed_on() {
    let talk = Talk::new().await;
    let parameters = json!({ "deep": nested(30), "$serde_json::private::RawValue": "[1]" });
    let context = talk.create_with(json!({ "model_id": "gpt-4", "parameters": parameters })).await;
    assert_eq!(talk.get(&format!("/{context}")).await["config"]["parameters"], parameters);
    talk.ask(&context, "hello").await;
    assert_eq!(talk.fake.requests()[0]["deep"], parameters["deep"]);
}

/// `messages` and `model` are ours to say.
#[tokio::test]
async fn parameters_cannot_replace_what_the_model_is_told() {
    let talk = Talk::new().await;
    let parameters = json!({ "messages": [], "model": "other", "stream": false, "n": 2 });
    let context = talk.create_with(json!({ "model_id": "gpt-4", "parameters": parameters })).await;
    talk.ask(&context, "hello").await;
    let asked = talk.fake.requests().pop().unwrap();
    assert_eq!((&asked["model"], &asked["stream"]), (&json!("gpt-4"), &json!(true)));
    assert_eq!(asked["messages"].as_array().unwrap().last().unwrap()["content"], "hello");
}
