//! Readers that come and go: each goes on where it was, under the same ids.

use axum::body::Body;
use axum::http::{Request, header};
use serde_json::{Value, json};
use waystone_server::http::{Guard, Http};
use waystone_testkit::Harness;
use waystone_testkit::model::Reply;

use super::{Event, Talk, chat_of, outline, take, text, until_state};
use crate::client::Client;
use crate::events::Subscriber;

/// What is told after each event in turn is what was told the first time.
async fn replays_exactly(client: &Client, context: &str, told: &[Event]) {
    let path = format!("/api/contexts/{context}/events");
    for (at, (id, ..)) in told.iter().enumerate().take(told.len() - 1) {
        let mut again = Subscriber::new(client, &path, Some(id)).await;
        let rest = take(&mut again, told.len() - at - 1).await;
        assert_eq!(rest, told[at + 1..], "after {id}");
    }
}

#[tokio::test]
async fn after_each_event_exactly_the_rest_is_told_again_under_the_same_ids() {
    let talk = Talk::new().await;
    talk.fake.then(Reply::chunks(["one ", "two ", "three"])).then(Reply::text("no").status(401));
    let context = talk.create().await;
    let mut events = talk.follow(&context).await;
    talk.say(&context, "count").await;
    let mut told = until_state(&mut events, "Idle").await;
    talk.say(&context, "again").await;
    told.extend(until_state(&mut events, "PermanentFailure").await);
    replays_exactly(&talk.client, &context, &told).await;

    let mut readers = Vec::new();
    for (id, ..) in &told {
        readers.push((id, talk.follow_after(&context, Some(id)).await));
    }
    talk.ask(&context, "more").await;
    let more = until_state(&mut events, "Idle").await;
    for (at, (id, mut reader)) in readers.into_iter().enumerate() {
        let skipped = take(&mut reader, told.len() - at - 1).await;
        assert_eq!(skipped, told[at + 1..], "after {id}");
        assert_eq!(until_state(&mut reader, "Idle").await, more, "and then what is new, after {id}");
    }
}

#[tokio::test]
async fn whoever_came_before_the_first_event_is_told_all_of_them() {
    let talk = Talk::new().await;
    talk.fake.then(Reply::text("one"));
    let context = talk.create().await;
    let mut early = talk.follow_after(&context, Some("junk")).await;
    let (id, kind, _) = take(&mut early, 1).await.remove(0);
    assert_eq!(kind, "Resync");
    let mut events = talk.follow(&context).await;
    talk.say(&context, "count").await;
    let told = until_state(&mut events, "Idle").await;
    let mut again = talk.follow_after(&context, Some(&id)).await;
    assert_eq!(take(&mut again, told.len()).await, told);
}

#[tokio::test]
async fn a_log_that_another_process_wrote_is_replayed_under_the_same_ids() {
    let mut talk = Talk::new().await;
    talk.fake.then(Reply::chunks((0..150).map(|n| format!("{n} "))));
    let context = talk.create().await;
    let mut events = talk.follow(&context).await;
    talk.say(&context, "count").await;
    let told = until_state(&mut events, "Idle").await;
    assert_eq!(told.len(), 156);
    talk.restart().await;
    replays_exactly(&talk.client, &context, &told).await;
}

/// The log may be ahead of what is told in this process, or behind.
#[tokio::test]
async fn a_reader_that_is_there_from_the_start_is_told_everything_once() {
    let talk = Talk::new().await;
    for _ in 0..60 {
        let context = talk.create().await;
        let mut events = talk.follow(&context).await;
        talk.say(&context, "go").await;
        let told = until_state(&mut events, "Idle").await;
        let expected = [
            "ProcessingUserMessage",
            "AwaitingLLMResponse",
            "StreamingLLMResponse",
            "\"go\"",
            "ProcessingLLMResponse",
            "= go",
            "Idle",
        ];
        assert_eq!(outline(&told), expected);
    }
}

#[tokio::test]
async fn a_reader_of_a_turn_that_another_process_runs_is_told_everything_once() {
    let talk = Talk::new().await;
    let other = talk.client.harness.second().with_chat(chat_of(Some(talk.fake.base_url())));
    let other = Client {
        router: Http::new(other, "tester", talk.client.stop.subscribe()).router(Guard::default()),
        harness: Harness::new(),
        stop: talk.client.stop.clone(),
    };
    for _ in 0..5 {
        talk.fake.then(Reply::text("gone over").gated());
        let context = talk.create().await;
        let mut events = talk.follow(&context).await;
        let path = format!("/api/contexts/{context}/messages");
        assert_eq!(other.call("POST", &path, Some(json!({ "content": "go" }))).await.0, 201);
        let mut told = take(&mut events, 2).await;
        talk.fake.release(2);
        told.extend(until_state(&mut events, "Idle").await);
        let expected = [
            "ProcessingUserMessage",
            "AwaitingLLMResponse",
            "StreamingLLMResponse",
            "\"gone \"",
            "\"over\"",
            "ProcessingLLMResponse",
            "= gone over",
            "Idle",
        ];
        assert_eq!(outline(&told), expected);
        replays_exactly(&talk.client, &context, &told).await;
        replays_exactly(&other, &context, &told).await;
    }
}

/// What was streamed and is not in the log yet is told from memory.
#[tokio::test]
async fn in_the_middle_of_an_answer_too() {
    let talk = Talk::new().await;
    talk.fake.then(Reply::chunks(["one ", "two ", "three"]).gated());
    let context = talk.create().await;
    let mut events = talk.follow(&context).await;
    talk.say(&context, "count").await;
    talk.fake.release(2);
    let mut told = take(&mut events, 5).await;
    replays_exactly(&talk.client, &context, &told).await;
    talk.fake.release(1);
    told.extend(until_state(&mut events, "Idle").await);
    replays_exactly(&talk.client, &context, &told).await;
}

#[tokio::test]
async fn a_new_reader_is_told_what_happens_from_then_on() {
    let talk = Talk::new().await;
    let context = talk.create().await;
    talk.ask(&context, "before").await;
    let mut events = talk.follow(&context).await;
    talk.say(&context, "after").await;
    assert_eq!(outline(&until_state(&mut events, "Idle").await)[0], "ProcessingUserMessage");
}

#[tokio::test]
async fn a_dropped_connection_is_not_a_cancel() {
    let talk = Talk::new().await;
    talk.fake.then(Reply::chunks(["one ", "two ", "three"]).gated());
    let context = talk.create().await;
    let mut events = talk.follow(&context).await;
    talk.say(&context, "count").await;
    talk.fake.release(1);
    let told = take(&mut events, 4).await;
    drop(events);
    talk.fake.release(2);
    let mut events = talk.follow_after(&context, Some(&told[3].0)).await;
    let rest = until_state(&mut events, "Idle").await;
    assert_eq!(outline(&rest), ["\"two \"", "\"three\"", "ProcessingLLMResponse", "= one two three", "Idle"]);
    assert_eq!(talk.fake.requests().len(), 1);
}

/// No one read while the model failed and began anew; who comes back must hear of both.
#[tokio::test]
async fn a_reader_that_was_away_while_an_answer_broke_off_hears_of_everything_in_between() {
    let talk = Talk::new().await;
    talk.fake.then(Reply::chunks(["one ", "two "]).gated().cut_after(2)).then(Reply::chunks(["a ", "b"]).gated());
    let context = talk.create().await;
    let mut events = talk.follow(&context).await;
    talk.say(&context, "go").await;
    talk.fake.release(1);
    let told = take(&mut events, 4).await;
    assert_eq!(outline(&told)[3], "\"one \"");
    drop(events);
    talk.fake.release(1);
    while talk.state(&context).await != "TransientFailure" {
        tokio::task::yield_now().await;
    }
    talk.pass_back_off().await;
    talk.fake.asked(2).await;
    talk.fake.release(1);
    while talk.state(&context).await != "StreamingLLMResponse" {
        tokio::task::yield_now().await;
    }
    // The first word of the second attempt is told a moment after its state is.
    talk.client.harness.clock.wait_for_sleeper().await;
    let mut events = talk.follow_after(&context, Some(&told[3].0)).await;
    talk.fake.release(1);
    let rest = until_state(&mut events, "Idle").await;
    let expected = [
        "\"two \"",
        "TransientFailure",
        "AwaitingLLMResponse",
        "StreamingLLMResponse",
        "\"a \"",
        "\"b\"",
        "ProcessingLLMResponse",
        "= a b",
        "Idle",
    ];
    assert_eq!(outline(&rest), expected);
}

fn resync(context: &str, message: Value, content: &str, sequence: u64, state: &str) -> Value {
    json!({
        "context_id": context, "current_state": state, "message_id": message, "content": content, "sequence": sequence,
        "attempt": 1, "is_complete": state == "Idle",
    })
}

#[tokio::test]
async fn after_an_unknown_id_the_stored_text_is_told_and_then_what_is_new() {
    let talk = Talk::new().await;
    talk.fake.then(Reply::chunks(["one ", "two"]));
    let (context, other) = (talk.create().await, talk.create().await);
    let mut events = talk.follow(&other).await;
    talk.say(&other, "elsewhere").await;
    talk.fake.asked(1).await;
    let elsewhere = until_state(&mut events, "Idle").await.pop().unwrap().0;
    talk.fake.then(Reply::chunks(["one ", "two"]));
    let mut events = talk.follow(&context).await;
    talk.say(&context, "count").await;
    let told = until_state(&mut events, "Idle").await;
    let (run, _) = told[0].0.rsplit_once('-').unwrap();
    let beyond = format!("{run}-99");
    let mut readers = Vec::new();
    for id in ["nonsense", "none-1", "-", "7", &beyond, &elsewhere, &format!("{run}-0")] {
        let mut reader = talk.follow_after(&context, Some(id)).await;
        let (place, kind, data) = reader.next().await.unwrap();
        let expected = resync(&context, told[3].2["message_id"].clone(), "one two", 2, "Idle");
        assert_eq!((kind.as_str(), &data), ("Resync", &expected), "{id}");
        assert_eq!(place, told.last().unwrap().0, "who comes back with it goes on there");
        readers.push(reader);
    }
    talk.say(&context, "more").await;
    let more = until_state(&mut events, "Idle").await;
    for mut reader in readers {
        assert_eq!(until_state(&mut reader, "Idle").await, more);
    }
}

#[tokio::test]
async fn an_unknown_id_in_the_middle_of_an_answer_gets_what_is_stored_and_all_that_follows() {
    let talk = Talk::new().await;
    talk.fake.then(Reply::chunks(["one ", "two ", "three"]).gated());
    let context = talk.create().await;
    let mut events = talk.follow(&context).await;
    talk.say(&context, "count").await;
    talk.fake.release(2);
    let told = take(&mut events, 5).await;
    let mut reader = talk.follow_after(&context, Some("unknown-1")).await;
    let (_, kind, data) = reader.next().await.unwrap();
    let expected = resync(&context, told[3].2["message_id"].clone(), "", 0, "StreamingLLMResponse");
    assert_eq!((kind.as_str(), &data), ("Resync", &expected), "nothing is written before 100 ms have passed");
    talk.fake.release(1);
    let rest = until_state(&mut reader, "Idle").await;
    let expected = ["\"one \"", "\"two \"", "\"three\"", "ProcessingLLMResponse", "= one two three", "Idle"];
    assert_eq!(outline(&rest), expected);
}

#[tokio::test]
async fn an_id_in_a_context_where_nothing_was_said_gets_an_empty_resync() {
    let talk = Talk::new().await;
    let context = talk.create().await;
    let mut reader = talk.follow_after(&context, Some("x-1")).await;
    let (_, kind, data) = reader.next().await.unwrap();
    let expected = json!({
        "context_id": context, "current_state": "Idle", "content": "", "sequence": 0, "attempt": 1, "is_complete": false,
    });
    assert_eq!((kind.as_str(), data), ("Resync", expected));
    talk.ask(&context, "hello").await;
    assert_eq!(outline(&until_state(&mut reader, "Idle").await)[0], "ProcessingUserMessage");
}

#[tokio::test]
async fn a_strange_last_event_id_is_no_server_error() {
    let talk = Talk::new().await;
    let context = talk.create().await;
    talk.ask(&context, "hello").await;
    let long = "x".repeat(10_000);
    let ids: [&[u8]; 8] = [
        b"x-18446744073709551615",
        b"x-9223372036854775808",
        b"x--1",
        b"x-+1",
        b"%00-1",
        "ü-1".as_bytes(),
        b"'; DROP TABLE event; ---1",
        long.as_bytes(),
    ];
    for id in ids {
        let request = Request::get(format!("/api/contexts/{context}/events")).header(header::HOST, "localhost");
        let response = talk.client.send(request.header("Last-Event-ID", id).body(Body::empty()).unwrap()).await;
        assert!(response.status().as_u16() < 500, "{}: {}", String::from_utf8_lossy(id), response.status());
    }
    let known = format!("/api/contexts/{context}/events");
    let mut reader = Subscriber::new(&talk.client, &known, Some("")).await;
    talk.ask(&context, "again").await;
    assert_eq!(text(&reader.next().await.unwrap().2["new_state"]), "ProcessingUserMessage", "an empty id is none");
}

#[tokio::test]
async fn a_reader_of_a_conversation_ends_when_the_server_ends() {
    let talk = Talk::new().await;
    let context = talk.create().await;
    let mut events = talk.follow(&context).await;
    talk.client.stop.send(true).unwrap();
    assert_eq!(events.next().await, None);
}

/// The stream of all changes has rows of conversations too; what is called the same there has the same fields.
#[tokio::test]
async fn among_all_changes_events_of_conversations_have_the_contracts_fields() {
    let talk = Talk::new().await;
    talk.fake.then(Reply::chunks(["one ", "two"]));
    let context = talk.create().await;
    talk.ask(&context, "count").await;
    let mut all = Subscriber::new(&talk.client, "/api/events?after=0", None).await;
    loop {
        let (_, kind, change) = all.next().await.unwrap();
        let fields = match kind.as_str() {
            "StateChanged" => &["context_id", "new_state", "timestamp"][..],
            "ContentDelta" => &["context_id", "message_id", "delta", "sequence"][..],
            "MessageCompleted" => &["context_id", "message_id", "final_content"][..],
            _ => &[][..],
        };
        for field in fields {
            assert!(!change["data"][field].is_null(), "{kind} has no {field}: {change}");
        }
        if change["data"]["new_state"] == "Idle" {
            return;
        }
    }
}
