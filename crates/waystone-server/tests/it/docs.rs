//! `/docs`, and that replies are taken for what they are.

use axum::body::Body;
use axum::http::{Request, header};
use http_body_util::BodyExt;

use crate::client::Client;

/// A browser that is led to a reply shows text in it as text.
#[tokio::test]
async fn no_reply_is_taken_for_another_kind_than_it_is_sent_as() {
    let client = Client::new();
    client.harness.save("s", serde_json::json!({ "page": "<script>alert(1)</script>" })).await;
    for (path, host) in [
        ("/api/sessions/s/export", "localhost"),
        ("/api/sessions", "localhost"),
        ("/docs", "localhost"),
        ("/nowhere", "localhost"),
        ("/docs", "evil.example"),
    ] {
        let request = Request::get(path).header(header::HOST, host).body(Body::empty()).unwrap();
        let response = client.send(request).await;
        assert_eq!(response.headers()[header::X_CONTENT_TYPE_OPTIONS], "nosniff", "{path} {host}");
        let kind = response.headers()[header::CONTENT_TYPE].to_str().unwrap();
        assert_eq!(
            kind.starts_with("application/json"),
            path != "/docs" || host != "localhost",
            "{path} {host}: {kind}"
        );
    }
}

#[tokio::test]
async fn whoever_looks_for_a_page_is_shown_the_way() {
    let client = Client::new();
    for path in ["/", "/api"] {
        let request = Request::get(path).header(header::HOST, "localhost").body(Body::empty()).unwrap();
        let response = client.send(request).await;
        assert_eq!(
            (response.status().as_u16(), &response.headers()[header::LOCATION]),
            (307, &"/docs".parse().unwrap())
        );
    }
    let request = Request::get("/docs").header(header::HOST, "localhost").body(Body::empty()).unwrap();
    let page = client.send(request).await.into_body().collect().await.unwrap().to_bytes();
    let page = std::str::from_utf8(&page).unwrap();
    for text in [
        "<code>Idempotency-Key</code>",
        "<code>Last-Event-ID</code>",
        "<td><code>sessionId</code><td>string or null<td>optional",
        "<td><code>limit</code><td>integer<td>optional",
        "Errors: 400, 403, 404, 405, 409, 413, 415, 500, 503",
    ] {
        assert!(page.contains(text), "{text}");
    }
    assert!(!page.contains("</code><td><td>"), "every field has a type");
}
