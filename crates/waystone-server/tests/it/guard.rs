//! Who may call: foreign hosts and origins get in nowhere, over every route there is.

use axum::body::Body;
use axum::http::{Request, StatusCode, header};
use waystone_core::Limits;
use waystone_server::http::{Guard, operations};

use crate::client::Client;

const HOSTS: [(&str, bool); 8] = [
    ("localhost", true),
    ("localhost:3000", true),
    ("127.0.0.1:3000", true),
    ("[::1]:3000", true),
    ("evil.example", false),
    ("localhost.evil.example:3000", false),
    ("192.168.0.1:3000", false),
    ("", false),
];

/// `None` is no header; `true` is let in when the host is `localhost:3000`.
const ORIGINS: [(Option<&str>, bool); 9] = [
    (None, true),
    (Some("http://localhost:3000"), true),
    (Some("null"), false),
    (Some("https://evil.example"), false),
    (Some("http://localhost:3001"), false),
    (Some("https://localhost:3000"), false),
    (Some("http://localhost:3000.evil.example"), false),
    (Some("file://"), false),
    (Some(""), false),
];

const METHODS: [&str; 8] = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD", "PURGE"];

/// Every path there is, some that are not, and MCP's.
fn paths() -> Vec<String> {
    let mut paths: Vec<String> = operations()
        .iter()
        .map(|(_, path, _)| path.replace("{sessionId}", "s").replace("{checkpointId}", "c"))
        .collect();
    paths.extend(["/mcp", "/mcp/x", "/", "/nope", "/api", "/api/nope/%2e%2e", "/docs/x", "//"].map(str::to_owned));
    paths.sort();
    paths.dedup();
    paths
}

#[tokio::test]
async fn no_foreign_host_or_origin_gets_in_anywhere() {
    let client = Client::new();
    let (mut refused, mut admitted) = (0, 0);
    for path in paths() {
        for method in METHODS {
            for (host, good_host) in HOSTS {
                for (origin, good_origin) in ORIGINS {
                    let mut request = Request::builder().method(method).uri(&path);
                    if !host.is_empty() {
                        request = request.header(header::HOST, host);
                    }
                    if let Some(origin) = origin {
                        request = request.header(header::ORIGIN, origin);
                    }
                    // A stream of events goes on for ever; that it begins is enough.
                    let response = client.send(request.body(Body::empty()).unwrap()).await;
                    let own_page = origin.is_some_and(|origin| origin.strip_prefix("http://") == Some(host));
                    let good = good_host && (origin.is_none() || own_page) && good_origin;
                    let case = format!("{method} {path} Host {host:?} Origin {origin:?}");
                    assert_eq!(response.status() != StatusCode::FORBIDDEN, good, "{case}");
                    let cors = response.headers().keys().any(|name| name.as_str().starts_with("access-control-"));
                    assert!(!cors, "{case}");
                    refused += usize::from(!good);
                    admitted += usize::from(good);
                }
            }
        }
    }
    assert!(refused > 5_000 && admitted > 500, "{refused} refused, {admitted} admitted");
}

#[tokio::test]
async fn a_second_host_or_origin_and_a_foreign_request_line_do_not_get_in() {
    let client = Client::new();
    let status = async |uri: &str, hosts: &[&str], origins: &[&str]| {
        let mut request = Request::get(uri).body(Body::empty()).unwrap();
        for (name, values) in [(header::HOST, hosts), (header::ORIGIN, origins)] {
            values.iter().for_each(|value| _ = request.headers_mut().append(&name, value.parse().unwrap()));
        }
        client.send(request).await.status().as_u16()
    };
    let (ours, page) = ("localhost:3000", "http://localhost:3000");
    assert_eq!(status("/api/sessions", &[ours], &[page]).await, 200);
    assert_eq!(status("http://localhost:3000/api/sessions", &[ours], &[]).await, 200);
    assert_eq!(status("http://evil.example/api/sessions", &[ours], &[]).await, 403);
    assert_eq!(status("http://evil.example/mcp", &[ours], &[page]).await, 403);
    assert_eq!(status("/api/sessions", &[ours, ours], &[]).await, 403);
    assert_eq!(status("/api/sessions", &[ours, "evil.example"], &[]).await, 403);
    assert_eq!(status("/api/sessions", &[ours], &[page, page]).await, 403);
    assert_eq!(status("/api/sessions", &[ours], &[page, "https://evil.example"]).await, 403);
}

#[tokio::test]
async fn a_foreign_request_is_refused_before_its_body_is_read() {
    let client = Client::new();
    let endless = futures_util::stream::pending::<Result<axum::body::Bytes, std::io::Error>>();
    let request = Request::post("/api/checkpoints")
        .header(header::HOST, "evil.example")
        .header(header::CONTENT_TYPE, "application/json")
        .body(Body::from_stream(endless))
        .unwrap();
    assert_eq!(client.send(request).await.status(), StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn an_origin_that_is_allowed_by_name_gets_cors_headers_and_no_other_does() {
    let guard = Guard { allowed_origins: vec!["https://app.example".to_owned()], ..Guard::default() };
    let client = Client::with(Limits::default(), guard);
    let send = async |method: &str, origin: &str| {
        let request = Request::builder().method(method).uri("/api/sessions").header(header::HOST, "localhost:3000");
        let request = request.header(header::ORIGIN, origin).header(header::ACCESS_CONTROL_REQUEST_METHOD, "POST");
        let response = client.send(request.body(Body::empty()).unwrap()).await;
        let allowed =
            response.headers().get(header::ACCESS_CONTROL_ALLOW_ORIGIN).map(|value| value.to_str().unwrap().to_owned());
        (response.status().as_u16(), allowed)
    };
    let app = "https://app.example";
    assert_eq!(send("GET", app).await, (200, Some(app.to_owned())));
    assert_eq!(send("OPTIONS", app).await, (204, Some(app.to_owned())));
    assert_eq!(send("GET", "https://app.example.evil").await, (403, None));
    assert_eq!(send("OPTIONS", "https://other.example").await, (403, None));
}
