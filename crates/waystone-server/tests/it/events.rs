//! `/api/events`: every change, in order and once, also to who comes back.

use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, header};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use waystone_testkit::audit;

use crate::client::{Client, assert_error, json_of};

/// A subscriber that reads one event at a time.
pub(crate) struct Subscriber {
    body: Body,
    text: String,
}

impl Subscriber {
    pub(crate) async fn new(client: &Client, path: &str, last_event_id: Option<&str>) -> Self {
        let mut request = Request::get(path).header(header::HOST, "localhost");
        if let Some(id) = last_event_id {
            request = request.header("Last-Event-ID", id);
        }
        let response = client.send(request.body(Body::empty()).unwrap()).await;
        assert_eq!(
            (response.status().as_u16(), &response.headers()[header::CONTENT_TYPE]),
            (200, &"text/event-stream".parse().unwrap())
        );
        Self { body: response.into_body(), text: String::new() }
    }

    /// The next event's id, name and data; `None` when the stream ended.
    pub(crate) async fn next(&mut self) -> Option<(String, String, Value)> {
        while !self.text.contains("\n\n") {
            let frame =
                tokio::time::timeout(Duration::from_secs(10), self.body.frame()).await.expect("an event in time")?;
            self.text.push_str(std::str::from_utf8(&frame.unwrap().into_data().unwrap()).unwrap());
        }
        let (event, rest) =
            self.text.split_once("\n\n").map(|(event, rest)| (event.to_owned(), rest.to_owned())).unwrap();
        self.text = rest;
        let field =
            |name: &str| event.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim().to_owned();
        Some((field("id:"), field("event:"), serde_json::from_str(&field("data:")).unwrap()))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_of_any_process_are_told_in_order_and_can_be_replayed() {
    let c = Client::new();
    c.harness.save("a", json!({ "n": 1 })).await;
    let mut live = Subscriber::new(&c, "/api/events", None).await;
    let other = c.harness.second();
    let request = waystone_testkit::harness::request_of(json!({ "sessionId": "a", "context": { "n": 2 } }));
    let saved = other.save_checkpoint(&c.harness.scope, request).await.unwrap();
    c.call("PATCH", "/api/sessions/a", Some(json!({ "name": "x" }))).await;

    let (id, kind, data) = live.next().await.unwrap();
    assert_eq!(
        (id.as_str(), kind.as_str(), &data["data"]["checkpointId"]),
        ("2", "checkpoint.saved", &json!(saved.checkpoint_id))
    );
    let second = live.next().await.unwrap();
    assert_eq!((second.0.as_str(), second.1.as_str()), ("3", "session.updated"));

    let mut replay = Subscriber::new(&c, "/api/events?after=9", Some("1")).await;
    assert_eq!(replay.next().await.unwrap(), (id, kind, data));
    assert_eq!(replay.next().await.unwrap(), second);
    other.close().await;
}

/// More than are read at once, by two who write at the same time.
#[tokio::test(flavor = "multi_thread")]
async fn many_events_of_two_writers_are_told_once_each_and_in_order() {
    const WRITERS: usize = 40;
    const CHANGES: usize = 14;
    let c = Client::new();
    c.harness.save("a", json!({ "n": 1 })).await;
    let mut live = Subscriber::new(&c, "/api/events", None).await;
    let engines = [c.harness.engine.clone(), c.harness.second()];
    let writers = (0..2 * WRITERS).map(|writer| {
        let (engine, scope) = (engines[writer % 2].clone(), c.harness.scope.clone());
        tokio::spawn(async move {
            for change in 0..CHANGES {
                let rename = serde_json::from_value(json!({ "name": format!("{writer}-{change}") })).unwrap();
                engine.update_session(&scope, &"a".parse().unwrap(), rename).await.unwrap();
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    let count = 1 + 2 * WRITERS * CHANGES;
    assert!(count > 1000, "more than two pages");
    let mut told = Vec::new();
    for expected in 2..=count {
        let event = live.next().await.unwrap();
        assert_eq!(event.0, expected.to_string());
        told.push(event);
    }
    let mut replay = Subscriber::new(&c, "/api/events?after=0", None).await;
    assert_eq!(replay.next().await.unwrap().0, "1");
    for event in told {
        assert_eq!(replay.next().await.unwrap(), event);
    }
    engines[1].close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscriber_that_missed_events_is_told_to_read_anew() {
    let c = Client::new();
    for n in 0..5 {
        c.harness.save("a", json!({ "n": n })).await;
    }
    audit::open(c.harness.data_dir()).execute("DELETE FROM event WHERE seq <= 3", []).unwrap();
    let mut expired = Subscriber::new(&c, "/api/events?after=1", None).await;
    let (id, kind, data) = expired.next().await.unwrap();
    assert_eq!((id.as_str(), kind.as_str(), &data["newest"]), ("3", "resync", &json!(5)));
    assert_eq!(expired.next().await.unwrap().0, "4");

    let mut foreign = Subscriber::new(&c, "/api/events", Some("999")).await;
    let (id, kind, _) = foreign.next().await.unwrap();
    assert_eq!((id.as_str(), kind.as_str()), ("5", "resync"));
    c.harness.save("a", json!({ "n": 6 })).await;
    assert_eq!(foreign.next().await.unwrap().0, "6");
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_store_that_ends_with_the_process_a_stream_says_so_first() {
    let c = Client::volatile("the disk\nis gone");
    c.harness.save("a", json!({ "n": 1 })).await;
    let mut live = Subscriber::new(&c, "/api/events?after=0", None).await;
    let (id, kind, data) = live.next().await.unwrap();
    assert_eq!((id.as_str(), kind.as_str()), ("", "warning"), "it has no id to come back with");
    assert!(data["warnings"][0].as_str().unwrap().contains("the disk\nis gone"), "{data}");
    assert_eq!(live.next().await.unwrap().0, "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_ends_when_the_server_ends() {
    let c = Client::new();
    let mut live = Subscriber::new(&c, "/api/events", None).await;
    c.stop.send(true).unwrap();
    assert_eq!(live.next().await, None);
}

#[tokio::test]
async fn an_id_that_is_no_number_is_refused() {
    let c = Client::new();
    for id in ["x", "-1", "1.5", "99999999999999999999"] {
        let request = Request::get("/api/events").header(header::HOST, "localhost").header("Last-Event-ID", id);
        let response = c.send(request.body(Body::empty()).unwrap()).await;
        assert_error((response.status(), json_of(response).await), 400, "INVALID_INPUT");
    }
    assert_error(c.get("/api/events?after=-1").await, 400, "INVALID_INPUT");
}
