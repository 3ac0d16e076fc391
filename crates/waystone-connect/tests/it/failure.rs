//! What goes wrong, and what people are told.

use std::net::TcpListener;
use std::time::Duration;

use serde_json::json;
use waystone_core::model::{Chunk, Model, ModelError};
use waystone_testkit::model::{FakeModel, Reply};

use crate::ask::{KEY, ask, call, providers, refusal, text, texts};

fn check(error: &ModelError, code: &str, is_recoverable: bool) {
    assert_eq!((error.error.code.as_str(), error.is_recoverable), (code, is_recoverable), "{error:?}");
    assert!(!format!("{error:?}").contains(KEY), "{error:?}");
}

#[tokio::test]
async fn a_status_says_what_went_wrong_and_whether_to_try_again() {
    let fake = FakeModel::start().await;
    let statuses = [
        (301, "MODEL_REFUSED", false),
        (400, "MODEL_REFUSED", false),
        (401, "MODEL_UNAUTHORIZED", false),
        (403, "MODEL_UNAUTHORIZED", false),
        (404, "MODEL_NOT_FOUND", false),
        (408, "MODEL_FAILED", true),
        (409, "MODEL_FAILED", true),
        (413, "MODEL_REFUSED", false),
        (422, "MODEL_REFUSED", false),
        (429, "MODEL_OVERLOADED", true),
        (500, "MODEL_FAILED", true),
        (503, "MODEL_FAILED", true),
        (529, "MODEL_FAILED", true),
    ];
    for (status, code, is_recoverable) in statuses {
        fake.then(Reply::text("just no").status(status));
        let error = refusal(&fake).await;
        check(&error, code, is_recoverable);
        let host = fake.base_url().trim_start_matches("http://").trim_end_matches("/v1/").to_owned();
        assert_eq!(error.error.message, format!("{host} answered {status}: just no"));
        assert_eq!(error.error.hint.contains("OPENAI_API_KEY"), code == "MODEL_UNAUTHORIZED");
    }
}

#[tokio::test]
async fn a_provider_may_say_how_long_to_wait() {
    let fake = FakeModel::start().await;
    let seconds = |seconds: f64| Some(Duration::from_secs_f64(seconds));
    let values = [
        ("7", seconds(7.0)),
        (" 0.5 ", seconds(0.5)),
        ("0", seconds(0.0)),
        ("-1", None),
        ("inf", None),
        ("1e300", None),
        ("Wed, 21 Oct 2026 07:28:00 GMT", None),
    ];
    for (value, expected) in values {
        fake.then(Reply::text("slow down").status(429).retry_after(value));
        assert_eq!(refusal(&fake).await.retry_after, expected, "{value}");
    }
    fake.then(Reply::text("slow down").status(429));
    assert_eq!(refusal(&fake).await.retry_after, None);
}

#[tokio::test]
async fn the_providers_words_are_one_short_line_without_the_key() {
    let fake = FakeModel::start().await;
    let said = async |reply: Reply| {
        fake.then(reply.status(401));
        let error = refusal(&fake).await;
        check(&error, "MODEL_UNAUTHORIZED", false);
        error.error.message.split_once("answered 401").unwrap().1.to_owned()
    };
    assert_eq!(said(Reply::text(&format!("bad key {KEY}!\u{1b}[31m\nreally"))).await, ": bad key [key]! [31m really");
    assert_eq!(said(Reply::text(&"ä".repeat(300))).await, format!(": {}", "ä".repeat(300)));
    assert_eq!(said(Reply::text(&"ä".repeat(301))).await, format!(": {}…", "ä".repeat(300)));
    assert_eq!(said(Reply::text(&"ä".repeat(1_000_000))).await.chars().count(), 303);
    let across = format!("{}{KEY}", "x".repeat(290));
    assert_eq!(said(Reply::text(&across)).await, format!(": {}[key]", "x".repeat(290)));
    assert_eq!(said(Reply::text("")).await, "");

    let said_as = async |kind: &str, body: &str| said(Reply::chunks([body]).content_type(kind)).await;
    assert_eq!(said_as("application/json", r#"{"error":"plain"}"#).await, ": plain");
    assert_eq!(said_as("application/json", r#"[{"error":{"message":"listed"}}]"#).await, ": listed");
    assert_eq!(said_as("application/json", r#"{"detail":"not here"}"#).await, ": not here");
    assert_eq!(said_as("application/json", r#"{"other":1}"#).await, "");
    assert_eq!(said_as("text/plain", &format!("no: {KEY}")).await, ": no: [key]");
    assert_eq!(said_as("text/html", "\n<html>not for people</html>").await, "");
    assert_eq!(
        said_as("application/json", &format!(r#"{{"error":{{"message":"Bearer {KEY}"#)).await,
        ": {\"error\":{\"message\":\"Bearer [key]"
    );
}

#[tokio::test]
async fn a_server_that_cannot_be_reached_may_be_later() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let providers = providers(Some(KEY), Some(&format!("http://user:password@127.0.0.1:{port}/v1")));
    let error = providers.call(call("gpt-4", "hi")).await.err().unwrap();
    check(&error, "MODEL_UNREACHABLE", true);
    assert!(error.error.message.starts_with(&format!("127.0.0.1:{port} cannot be reached: ")), "{error:?}");

    let fake = FakeModel::start().await;
    fake.then(Reply::text("never").cut());
    check(&refusal(&fake).await, "MODEL_UNREACHABLE", true);
}

#[tokio::test]
async fn an_answer_that_is_cut_is_never_taken_for_a_whole_one() {
    let fake = FakeModel::start().await;
    let words = ["one ", "two ", "three"];
    for count in 0..=words.len() {
        fake.then(Reply::chunks(words).cut_after(count).split_bytes(7));
        let (chunks, error) = ask(&fake).await;
        assert_eq!(chunks, texts(words)[..count]);
        check(&error.unwrap(), "MODEL_INTERRUPTED", true);
    }
}

#[tokio::test]
async fn a_stream_that_ends_without_a_sign_of_its_end_was_cut() {
    let said = r#"{"choices":[{"index":0,"delta":{"content":"half"},"finish_reason":null}]}"#;
    let fake = FakeModel::start().await;
    fake.then(Reply::events([said]));
    let (chunks, error) = ask(&fake).await;
    assert_eq!(chunks, texts(["half"]));
    check(&error.unwrap(), "MODEL_INTERRUPTED", true);

    fake.then(Reply::events([] as [&str; 0]));
    check(&ask(&fake).await.1.unwrap(), "MODEL_INTERRUPTED", true);

    fake.then(Reply::events([said, "{\"choices\":[{", "[DONE]"]));
    let (chunks, error) = ask(&fake).await;
    assert_eq!(chunks, texts(["half"]));
    check(&error.unwrap(), "MODEL_INTERRUPTED", true);
}

#[tokio::test]
async fn an_error_in_the_stream_ends_it() {
    let fake = FakeModel::start().await;
    let errors = [
        (json!({ "message": format!("died of {KEY}") }), "MODEL_INTERRUPTED", true),
        (json!({ "message": "died", "type": "server_error", "code": "server_error" }), "MODEL_INTERRUPTED", true),
        (json!({ "message": "died", "code": 502 }), "MODEL_FAILED", true),
        (json!({ "message": "died", "code": 429 }), "MODEL_OVERLOADED", true),
        (json!({ "message": "died", "code": 400 }), "MODEL_REFUSED", false),
        (json!({ "message": "died", "type": "invalid_request_error", "code": "context" }), "MODEL_REFUSED", false),
        (json!("died"), "MODEL_INTERRUPTED", true),
        (json!({}), "MODEL_INTERRUPTED", true),
    ];
    for (error, code, is_recoverable) in errors {
        let said = r#"{"choices":[{"delta":{"content":"half"}}]}"#.to_owned();
        fake.then(Reply::events([said, json!({ "error": error }).to_string(), "[DONE]".to_owned()]));
        let (chunks, error) = ask(&fake).await;
        assert_eq!(text(&chunks), "half");
        check(&error.unwrap(), code, is_recoverable);
    }
    fake.then(Reply::events([r#"{"choices":[{"finish_reason":"error"}]}"#, "[DONE]"]));
    check(&ask(&fake).await.1.unwrap(), "MODEL_INTERRUPTED", true);
}

#[tokio::test]
async fn a_page_or_a_document_is_no_answer() {
    let fake = FakeModel::start().await;
    for kind in ["text/html; charset=utf-8", "application/json"] {
        fake.then(Reply::text("<html>").content_type(kind));
        let error = refusal(&fake).await;
        check(&error, "MODEL_REFUSED", false);
        assert!(error.error.hint.contains("OPENAI_BASE_URL"));
    }
}

#[tokio::test]
async fn an_event_without_end_is_given_up() {
    let fake = FakeModel::start().await;
    fake.then(Reply::events(["x".repeat(5 * 1024 * 1024)]).split_bytes(1024 * 1024));
    let (chunks, error) = ask(&fake).await;
    assert_eq!(chunks, [] as [Chunk; 0]);
    check(&error.unwrap(), "MODEL_INTERRUPTED", true);
}
