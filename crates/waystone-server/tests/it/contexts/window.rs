//! What the model is told fits, and can be looked at.

mod long;
mod sent;
mod strict;

use serde_json::{Value, json};
use waystone_testkit::model::Reply;

use super::{Event, Talk, assert_refused, text, until_state};

/// All events of a turn, those that tell of windows too.
async fn told_in_turn(talk: &Talk, context: &str, content: &str) -> Vec<Event> {
    let mut events = talk.follow(context).await;
    talk.say(context, content).await;
    let mut told: Vec<Event> = Vec::new();
    while told.last().is_none_or(|(_, _, data)| data["new_state"] != "Idle") {
        told.push(events.next().await.unwrap());
    }
    told
}

fn spans<'a>(window: &'a Value, kind: &str) -> Vec<&'a Value> {
    window["spans"].as_array().unwrap().iter().filter(|span| span["kind"] == kind).collect()
}

fn total(window: &Value) -> u64 {
    window["spans"].as_array().unwrap().iter().map(|span| span["tokens"].as_u64().unwrap()).sum()
}

#[tokio::test]
async fn before_the_model_is_asked_it_is_told_what_it_will_be_told() {
    let talk = Talk::new().await;
    talk.fake.then(Reply::text("hello"));
    let context = talk.create().await;
    let told = told_in_turn(&talk, &context, "hi").await;
    let kinds: Vec<&str> = told.iter().map(|(_, kind, _)| kind.as_str()).collect();
    assert_eq!(kinds[..4], ["StateChanged", "StateChanged", "WindowAssembled", "StateChanged"]);
    let window = &told[2].2;
    assert_eq!((&window["context_id"], &window["branch"]), (&json!(context), &json!("main")));
    assert_eq!((&window["limit"], &window["left_out"], &window["cached_tokens"]), (&json!(8192), &json!(0), &json!(0)));
    assert_eq!(window["changes"], json!(["first"]));
    let kept = talk.get(&format!("/{context}/window")).await;
    assert_eq!((&kept["tokens"], &kept["limit"]), (&window["tokens"], &window["limit"]));
    assert!(kept["assembled_at"].is_string());
}

#[tokio::test]
async fn a_window_says_what_is_in_it_and_why() {
    let talk = Talk::new().await;
    talk.fake.then(Reply::text("one")).then(Reply::text("two"));
    let context = talk.create().await;
    let (first, answer) = talk.ask(&context, "first question").await;
    let (second, _) = talk.ask(&context, "second question").await;
    let window = talk.get(&format!("/{context}/window")).await;
    let shown: Vec<(&str, Option<&str>, &str, &str)> = window["spans"]
        .as_array()
        .unwrap()
        .iter()
        .map(|span| {
            let part = |name: &str| span[name].as_str();
            (part("kind").unwrap(), part("message_id"), part("class").unwrap(), part("reason").unwrap())
        })
        .collect();
    let expected = [
        ("system_prompt", None, "CRITICAL", "always"),
        ("user", Some(first.as_str()), "USEFUL", "fits"),
        ("assistant", Some(answer.as_str()), "USEFUL", "fits"),
        ("user", Some(second.as_str()), "CRITICAL", "last_request"),
    ];
    assert_eq!(shown, expected);
    assert_eq!(window["tokens"], total(&window));
    let cached: Vec<bool> =
        window["spans"].as_array().unwrap().iter().map(|span| span["cached"].as_bool().unwrap()).collect();
    assert_eq!(cached, [true, true, false, false], "the answer was not sent before");
    assert_eq!(window["left_out"], json!([]));
    let next = talk.get(&format!("/{context}/window?next=true")).await;
    assert_eq!(next["spans"].as_array().unwrap().len(), 5, "the second answer is in the next one");
    assert!(next.get("assembled_at").is_none());
}

#[tokio::test]
async fn a_conversation_that_was_never_asked_has_no_window_but_a_next_one() {
    let talk = Talk::new().await;
    let context = talk.create().await;
    talk.refuses("GET", &format!("/{context}/window"), None, 404, "NOT_FOUND").await;
    let next = talk.get(&format!("/{context}/window?next=true")).await;
    assert_eq!(spans(&next, "system_prompt").len(), 1);
    talk.refuses("GET", &format!("/{context}/window?branch=none"), None, 404, "BRANCH_NOT_FOUND").await;
    talk.refuses("GET", &format!("/{context}/window?later=true"), None, 400, "VALIDATION_ERROR").await;
}

#[tokio::test]
async fn what_no_longer_fits_is_left_out_and_the_rest_is_sent_as_before() {
    let talk = Talk::new().await;
    let context = talk.create().await;
    let long = |n: usize| format!("question {n}: {}", "some words about it ".repeat(60));
    let mut prefixes = 0;
    for n in 0..60 {
        talk.fake.then(Reply::text(&format!("answer {n}: {}", "more words on that ".repeat(60))));
        talk.ask(&context, &long(n)).await;
    }
    let asked = talk.fake.requests();
    assert_eq!(asked.len(), 60);
    for pair in asked.windows(2) {
        let (before, now) = (pair[0]["messages"].as_array().unwrap(), pair[1]["messages"].as_array().unwrap());
        prefixes += usize::from(now.starts_with(before));
        assert_eq!(now.last().unwrap()["role"], "user");
    }
    assert!(prefixes >= 45, "only {prefixes} of 59 calls began as the one before");
    let window = talk.get(&format!("/{context}/window")).await;
    assert!(window["tokens"].as_u64() <= window["budget"].as_u64());
    assert_eq!(spans(&window, "digest").len(), 1);
    let left_out = window["left_out"].as_array().unwrap();
    assert!(left_out.len() > 60, "{}", left_out.len());
    let names: Vec<&Value> =
        asked[59]["tools"].as_array().unwrap().iter().map(|tool| &tool["function"]["name"]).collect();
    assert_eq!(names, ["context_search_stashed", "context_expand"]);
    // Each is there, whole, behind its handle.
    for message in left_out {
        let handle = text(&message["handle"]);
        let (status, reply) = talk.client.get(&format!("/api/handles/{handle}")).await;
        assert_eq!(status, 200, "{reply}");
    }
}

#[tokio::test]
async fn the_model_gets_back_exactly_what_was_left_out() {
    let talk = Talk::new().await;
    let context = talk.create().await;
    let secret = format!("the word is heliotrope; {}", "and so on, ".repeat(100));
    let (first, _) = talk.ask(&context, &secret).await;
    for n in 0..40 {
        talk.fake.then(Reply::text(&format!("answer {n}: {}", "more words on that ".repeat(60))));
        talk.ask(&context, &format!("question {n}")).await;
    }
    let window = talk.get(&format!("/{context}/window")).await;
    assert!(window["left_out"].as_array().unwrap().iter().any(|left| left["message_id"] == first));
    talk.fake.then(Reply::calls([("context_search_stashed", json!({ "query": "heliotrope" }))]));
    talk.fake.then(Reply::calls([("context_expand", json!({ "handle": format!("ws:segment:{first}") }))]));
    talk.fake.then(Reply::text("heliotrope"));
    talk.ask(&context, "what was the word?").await;
    let asked = talk.fake.requests().pop().unwrap();
    let results: Vec<&Value> =
        asked["messages"].as_array().unwrap().iter().filter(|said| said["role"] == "tool").collect();
    assert_eq!(results.len(), 2);
    assert!(text(&results[0]["content"]).contains(&format!("ws:segment:{first}")), "{}", results[0]);
    assert_eq!(results[1]["content"], secret);
}

#[tokio::test]
async fn what_must_be_in_and_does_not_fit_ends_the_turn_before_the_model_is_asked() {
    let talk = Talk::new().await;
    let context = talk.create().await;
    let mut events = talk.follow(&context).await;
    let said = talk.say(&context, &"too many words ".repeat(4000)).await;
    let told = until_state(&mut events, "PermanentFailure").await;
    let error = &told.last().unwrap().2["error"];
    assert_eq!(error["code"], "WINDOW_TOO_SMALL");
    assert!(text(&error["message"]).contains(&said), "{error}");
    assert!(text(&error["hint"]).contains("unpin what is named"), "{error}");
    assert_eq!(talk.fake.requests().len(), 0);
    let next = talk.call("GET", &format!("/{context}/window?next=true"), None).await;
    assert_refused(&next, 422, "WINDOW_TOO_SMALL", "next");
    assert_eq!(next.1["error"]["details"]["spans"][0]["message_id"], said);
    // On another branch it goes on.
    let path = format!("/{context}/messages/{said}");
    let (status, reply) = talk.call("PUT", &path, Some(json!({ "content": "fewer" }))).await;
    assert_eq!(status, 201, "{reply}");
    until_state(&mut events, "Idle").await;
}

/// Talks until what was said first is left out.
async fn talk_long(talk: &Talk, context: &str) {
    for n in 0..40 {
        talk.fake.then(Reply::text(&format!("answer {n}: {}", "more words on that ".repeat(60))));
        talk.ask(context, &format!("question {n}")).await;
    }
}

#[tokio::test]
async fn what_is_pinned_stays_in_the_window_where_it_was_said() {
    let talk = Talk::new().await;
    let context = talk.create().await;
    let (first, _) = talk.ask(&context, "never touch the file legacy.rs").await;
    let (pinned, _) = talk.ask(&context, "always write tests first").await;
    let project = text(&talk.get(&format!("/{context}")).await["project_id"]);
    let pin = json!({ "segment_ids": [pinned] });
    let (status, reply) = talk.client.call("POST", &format!("/api/projects/{project}/pin"), Some(pin.clone())).await;
    assert_eq!(status, 200, "{reply}");
    talk_long(&talk, &context).await;
    let window = talk.get(&format!("/{context}/window?next=true")).await;
    let of = |window: &Value, id: &str| -> Option<(usize, String)> {
        let spans = window["spans"].as_array().unwrap();
        let at = spans.iter().position(|span| span["message_id"] == id)?;
        Some((at, text(&spans[at]["reason"])))
    };
    assert_eq!(of(&window, &first), None, "it is left out");
    let digest = window["spans"].as_array().unwrap().iter().position(|span| span["kind"] == "digest").unwrap();
    assert_eq!(of(&window, &pinned), Some((digest + 1, "pinned".to_owned())));
    let (status, reply) = talk.client.call("POST", &format!("/api/projects/{project}/unpin"), Some(pin)).await;
    assert_eq!(status, 200, "{reply}");
    let unpinned = talk.get(&format!("/{context}/window?next=true")).await;
    assert_eq!((of(&unpinned, &pinned), &unpinned["changes"]), (None, &json!(["pins"])));
    assert!(unpinned["cached_tokens"].as_u64() < window["cached_tokens"].as_u64(), "it is read anew from there on");
}

#[tokio::test]
async fn what_is_stashed_is_not_in_the_next_window_and_comes_back() {
    let talk = Talk::new().await;
    let context = talk.create().await;
    let (first, _) = talk.ask(&context, "something about zebras").await;
    talk.ask(&context, "something else").await;
    let project = text(&talk.get(&format!("/{context}")).await["project_id"]);
    let about = json!({ "query": "zebras", "filters": { "task_id": context } });
    let (status, reply) =
        talk.client.call("POST", &format!("/api/projects/{project}/stash"), Some(about.clone())).await;
    assert_eq!(status, 200, "{reply}");
    let stashed = reply["stashed_segments"].as_array().unwrap();
    assert!(stashed.contains(&json!(first)), "{reply}");
    let window = talk.get(&format!("/{context}/window?next=true")).await;
    let reasons: Vec<(&Value, &Value)> =
        window["left_out"].as_array().unwrap().iter().map(|left| (&left["message_id"], &left["reason"])).collect();
    assert!(reasons.contains(&(&json!(first), &json!("stashed"))), "{window}");
    talk.fake.then(Reply::text("fine"));
    talk.ask(&context, "go on").await;
    let asked = talk.fake.requests().pop().unwrap();
    assert!(!asked["messages"].to_string().contains("something about zebras"), "{asked}");
    let back = json!({ "query": "zebras", "filters": { "task_id": context }, "move_to_active": true });
    let (status, reply) =
        talk.client.call("POST", &format!("/api/projects/{project}/stash/retrieve"), Some(back)).await;
    assert_eq!(status, 200, "{reply}");
    let window = talk.get(&format!("/{context}/window?next=true")).await;
    assert_eq!((&window["left_out"], &window["changes"]), (&json!([]), &json!(["stash", "tools"])));
}

#[tokio::test]
async fn a_window_that_fills_up_is_told_of() {
    let talk = Talk::new().await;
    let context = talk.create().await;
    talk.ask(&context, &"a few words ".repeat(500)).await;
    let told = told_in_turn(&talk, &context, &"and more words ".repeat(400)).await;
    let warning = told.iter().find(|(_, kind, _)| kind == "UsageWarning").unwrap();
    assert!(["medium", "high", "urgent"].contains(&warning.2["level"].as_str().unwrap()), "{warning:?}");
    assert!(warning.2["percent"].as_u64().unwrap() >= 60, "{warning:?}");
}

#[tokio::test]
async fn a_fork_is_told_what_its_branch_was_told_up_to_there() {
    let talk = Talk::new().await;
    let context = talk.create().await;
    talk_long(&talk, &context).await;
    let before = talk.fake.requests().pop().unwrap();
    let messages = talk.get(&format!("/{context}/messages?limit=1000")).await;
    let last = messages["messages"].as_array().unwrap().iter().rev().find(|said| said["role"] == "user").unwrap();
    let path = format!("/{context}/messages/{}", text(&last["id"]));
    let mut events = talk.follow(&context).await;
    let (status, reply) = talk.call("PUT", &path, Some(json!({ "content": "otherwise" }))).await;
    assert_eq!(status, 201, "{reply}");
    until_state(&mut events, "Idle").await;
    let after = talk.fake.requests().pop().unwrap();
    let (before, after) = (before["messages"].as_array().unwrap(), after["messages"].as_array().unwrap());
    assert_eq!(before[..before.len() - 1], after[..after.len() - 1], "all before what was said anew is the same");
    assert_eq!(after.last().unwrap()["content"], "otherwise");
}
