use axum::body::Body;
use axum::http::{HeaderValue, Request, header};
use waystone_testkit::contexts::Random;

use crate::client::{Client, json_of};

const INPUTS: usize = 10_000;
/// Bytes that mean something somewhere.
const ODD: &[u8] = b"{}[]\",:\\/0-eE.%&=\0\x7f\xff\n";

/// Text that is nearly right: a good one with bytes changed, cut, doubled or put in.
fn spoil(random: &mut Random, seeds: &[&str]) -> Vec<u8> {
    let mut bytes = seeds[random.below(seeds.len() as u64) as usize].as_bytes().to_vec();
    for _ in 0..random.below(4) {
        let at = random.below(bytes.len() as u64 + 1) as usize;
        match random.below(5) {
            0 if at < bytes.len() => bytes[at] = random.below(256) as u8,
            1 => bytes.truncate(at),
            2 => bytes.insert(at, ODD[random.below(ODD.len() as u64) as usize]),
            3 => bytes.extend_from_within(at..),
            _ => bytes.extend_from_slice(random.text(8).as_bytes()),
        }
    }
    bytes
}

/// Sends what `request` makes of each spoilt text: no answer is a server error, and every refusal is our error object.
async fn check(seed: u64, seeds: &[&str], request: impl Fn(Vec<u8>) -> Option<Request<Body>>) {
    let client = Client::new();
    let mut random = Random::new(seed);
    let (mut sent, mut good) = (0, 0);
    while sent < INPUTS {
        let Some(request) = request(spoil(&mut random, seeds)) else { continue };
        sent += 1;
        let response = client.send(request).await;
        let status = response.status().as_u16();
        assert!(status < 500, "{status}");
        if status >= 400 {
            let reply = json_of(response).await;
            assert!(reply["error"]["code"].is_string(), "{status}: {reply}");
        } else {
            good += 1;
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
    let post = |body: Vec<u8>| {
        let request = Request::post("/api/checkpoints").header(header::HOST, "localhost");
        request.header(header::CONTENT_TYPE, "application/json").body(Body::from(body)).ok()
    };
    check(1, &seeds, post).await;
}

#[tokio::test]
async fn spoilt_ids_and_cursors_do_no_harm() {
    check(2, &["s", "limit=1", "a.b:c-d", "0019aa"], |id| get(&format!("/api/sessions?projectId={}", escaped(&id))))
        .await;
    check(3, &["ff", "1a", "7fffffffffffffff", "-1"], |id| get(&format!("/api/checkpoints?cursor={}", escaped(&id))))
        .await;
    check(4, &["limit=5", "tags=a&tags=b", "since=2026-01-01", "query=%20x", "offset=1&limit=2"], |query| {
        get(&format!("/api/checkpoints?{}", String::from_utf8(query).ok()?))
    })
    .await;
}

#[tokio::test]
async fn spoilt_event_ids_do_no_harm() {
    check(5, &["0", "1", "17", "4294967296"], |id| {
        let id = HeaderValue::from_bytes(&id).ok()?;
        Request::get("/api/events")
            .header(header::HOST, "localhost")
            .header("Last-Event-ID", id)
            .body(Body::empty())
            .ok()
    })
    .await;
}
