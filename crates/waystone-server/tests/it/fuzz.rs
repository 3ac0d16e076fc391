//! Spoilt bodies, ids, cursors and messages: each is answered, and none does harm.

use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, Method, Request, header};
use serde_json::{Value, json};
use waystone_testkit::contexts::Random;

use crate::client::{Client, json_of};

const INPUTS: usize = 10_000;
/// Bytes that mean something somewhere.
const ODD: &[u8] = b"{}[]\",:\\/0-eE.%&=\0\x7f\xff\n";
/// Values of a type that was not asked for, and keys that may come twice.
const VALUES: [&str; 9] = ["null", "true", "-1", "1e999", "\"\"", "[]", "{}", "[[[1]]]", "{\"a\":1,\"a\":2}"];
const KEYS: [&str; 7] = ["x", "id", "method", "params", "name", "context", "_meta"];

fn any<'a, T: ?Sized>(random: &mut Random, of: &[&'a T]) -> &'a T {
    of[random.below(of.len() as u64) as usize]
}

/// Text that is nearly right: a good one with bytes changed, cut, doubled or put in, values of other types, nested or in a list.
fn spoil(random: &mut Random, seeds: &[&str]) -> Vec<u8> {
    let mut bytes = any(random, seeds).as_bytes().to_vec();
    for _ in 0..random.below(4) {
        let at = random.below(bytes.len() as u64 + 1) as usize;
        match random.below(8) {
            0 if at < bytes.len() => bytes[at] = random.below(256) as u8,
            1 => bytes.truncate(at),
            2 => bytes.insert(at, ODD[random.below(ODD.len() as u64) as usize]),
            3 => bytes.extend_from_within(at..),
            4 => {
                let value = format!("{},\"{}\":", any(random, &VALUES), any(random, &KEYS));
                let after_key = bytes[at..].iter().position(|byte| *byte == b':').map_or(at, |colon| at + colon + 1);
                bytes.splice(after_key..after_key, value.into_bytes());
            }
            5 => bytes = [b"[", &bytes[..], b",", &bytes, b"]"].concat(),
            6 => {
                let depth = random.below(300) as usize;
                bytes.splice(at..at, "[".repeat(depth).into_bytes());
                bytes.extend("]".repeat(depth).into_bytes());
            }
            _ => bytes.extend_from_slice(random.text(8).as_bytes()),
        }
    }
    bytes
}

/// The statuses that the OpenAPI document gives for a request; a path that is not in it is not found.
fn documented(openapi: &Value, method: &Method, path: &str) -> Vec<u16> {
    let fits = |template: &str| {
        let (parts, template): (Vec<_>, Vec<_>) = (path.split('/').collect(), template.split('/').collect());
        let same = |(part, template): (&&str, &&str)| part == template || template.starts_with('{');
        parts.len() == template.len() && !path.ends_with('/') && parts.iter().zip(&template).all(same)
    };
    let Some((_, route)) = openapi["paths"].as_object().unwrap().iter().find(|(template, _)| fits(template)) else {
        return vec![404];
    };
    match route[method.as_str().to_lowercase()]["responses"].as_object() {
        Some(responses) => responses.keys().map(|status| status.parse().unwrap()).collect(),
        None => vec![405],
    }
}

/// Sends what `request` makes of each spoilt text: each is answered, with a status that is documented and is no server error,
/// and a refusal over REST is our error object.
async fn check(seed: u64, seeds: &[&str], request: impl Fn(&mut Random, Vec<u8>) -> Option<Request<Body>>) {
    let client = Client::new();
    let openapi = client.get("/api/openapi.json").await.1;
    let mut random = Random::new(seed);
    let (mut sent, mut good) = (0, 0);
    while sent < INPUTS {
        let spoilt = spoil(&mut random, seeds);
        let Some(request) = request(&mut random, spoilt.clone()) else { continue };
        sent += 1;
        let case = format!("{} {} of {:?}", request.method(), request.uri(), String::from_utf8_lossy(&spoilt));
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let response = tokio::time::timeout(Duration::from_secs(60), client.send(request)).await.expect(&case);
        let status = response.status().as_u16();
        let case = format!("{case}: {status}");
        good += usize::from(status < 400);
        match path.as_str() {
            "/mcp" if status == 202 => {}
            "/mcp" => {
                assert!([200, 400, 404].contains(&status), "{case}");
                assert_eq!(json_of(response).await["jsonrpc"], "2.0", "{case}");
            }
            _ => {
                assert!(status < 500 && documented(&openapi, &method, &path).contains(&status), "{case}");
                assert!(status < 400 || json_of(response).await["error"]["code"].is_string(), "{case}");
            }
        }
    }
    assert!(good > 0 && good < INPUTS, "{good} of {INPUTS} were good");
    client.harness.check_invariants().await;
    assert!(peak_memory_mb() < 256, "{} MB", peak_memory_mb());
}

/// The most memory that this process, and so this test, has had.
fn peak_memory_mb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    peak.split_whitespace().next().unwrap().parse::<u64>().unwrap() / 1024
}

fn get(path: &str) -> Option<Request<Body>> {
    Request::get(path).header(header::HOST, "localhost").body(Body::empty()).ok()
}

/// A request with a JSON body.
fn send(method: &str, path: &str, body: impl Into<Body>) -> Option<Request<Body>> {
    let request = Request::builder().method(method).uri(path).header(header::HOST, "localhost");
    request.header(header::CONTENT_TYPE, "application/json").body(body.into()).ok()
}

fn escaped(bytes: &[u8]) -> String {
    bytes
        .iter()
        .map(|byte| if byte.is_ascii_alphanumeric() { (*byte as char).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

#[tokio::test]
async fn spoilt_bodies_do_no_harm() {
    let seeds = [
        r#"{"context":{"a":[1,2.5,-0.0,"x",null,true]},"sessionId":"s"}"#,
        r#"{"context":{"n":18446744073709551615},"metadata":{"name":"x","tags":["a"]},"force":true}"#,
        r#"{"context":{"s":"\u00e9\ud83d\ude00\\"},"idempotencyKey":"k","expectedCheckpointId":"c"}"#,
    ];
    check(1, &seeds, |_, body| send("POST", "/api/checkpoints", body)).await;
}

#[tokio::test]
async fn spoilt_ids_and_cursors_do_no_harm() {
    check(2, &["s", "limit=1", "a.b:c-d", "0019aa"], |_, id| get(&format!("/api/sessions?projectId={}", escaped(&id))))
        .await;
    check(3, &["ff", "1a", "7fffffffffffffff", "-1"], |_, id| {
        get(&format!("/api/checkpoints?cursor={}", escaped(&id)))
    })
    .await;
    check(4, &["limit=5", "tags=a&tags=b", "since=2026-01-01", "query=%20x", "offset=1&limit=2"], |_, query| {
        get(&format!("/api/checkpoints?{}", String::from_utf8(query).ok()?))
    })
    .await;
}

#[tokio::test]
async fn spoilt_event_ids_do_no_harm() {
    check(5, &["0", "1", "17", "4294967296"], |_, id| {
        let id = HeaderValue::from_bytes(&id).ok()?;
        Request::get("/api/events")
            .header(header::HOST, "localhost")
            .header("Last-Event-ID", id)
            .body(Body::empty())
            .ok()
    })
    .await;
}

#[tokio::test]
async fn spoilt_ids_in_paths_do_no_harm() {
    let long = "x".repeat(129);
    let seeds =
        ["s", "a.b:c-d", ".", "..", "%2e%2E", "%2F", "a/../b", "%00", "%zz", "%ff", "\u{e9}\u{202e}", "", &long];
    check(6, &seeds, |random, id| {
        let id = if random.below(2) == 0 { escaped(&id) } else { String::from_utf8(id).ok()? };
        let (noun, rest) =
            (any(random, &["sessions", "checkpoints"]), any(random, &["", "", "/checkpoints", "/latest"]));
        let method = any(random, &["GET", "PATCH", "DELETE", "POST"]);
        let body = if method == "POST" { json!({ "context": {} }) } else { json!({ "name": "x" }) };
        send(method, &format!("/api/{noun}/{id}{rest}"), body.to_string())
    })
    .await;
}

#[tokio::test]
async fn spoilt_messages_of_mcp_do_no_harm() {
    let client = r#""protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}"#;
    let save = r#""name":"workflow_checkpoint_save","arguments":{"sessionId":"s","context":{"a":[1,"x",null]}}"#;
    let meta = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",
        "io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}"#;
    let message =
        |method: &str, params: &str| format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{{params}}}}}"#);
    let older = [message("initialize", client), message("tools/list", ""), message("tools/call", save)];
    let newer = [message("tools/call", &format!("{save},{meta}")), message("server/discover", meta)];
    for (seed, revision, messages) in [(7, "2025-11-25", &older[..]), (8, "2026-07-28", &newer)] {
        let seeds: Vec<&str> = messages.iter().map(String::as_str).collect();
        check(seed, &seeds, |_, body| {
            let is_discovery = String::from_utf8_lossy(&body).contains("server/discover");
            let mut request = send("POST", "/mcp", body)?;
            for (name, value) in [
                ("accept", "application/json, text/event-stream"),
                ("mcp-protocol-version", revision),
                ("mcp-method", if is_discovery { "server/discover" } else { "tools/call" }),
                ("mcp-name", "workflow_checkpoint_save"),
            ] {
                request.headers_mut().insert(name, HeaderValue::from_static(value));
            }
            Some(request)
        })
        .await;
    }
}
