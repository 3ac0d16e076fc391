//! Turns as a client sees them: their events in order, ended early, several at once.

use serde_json::{Value, json};
use waystone_testkit::model::Reply;

use super::{AT, Event, Talk, named, outline, take, text, until_state};

fn states(events: &[Event]) -> Vec<String> {
    events.iter().filter(|(_, kind, _)| kind == "StateChanged").map(|event| text(&event.2["new_state"])).collect()
}

#[tokio::test]
async fn a_whole_turn_is_told_in_order_and_its_words_are_the_stored_message() {
    let talk = Talk::new().await;
    talk.fake.then(Reply::chunks(["Hello ", "wor", "ld!"]));
    let context = talk.create().await;
    let mut events = talk.follow(&context).await;
    talk.say(&context, "Hello, how are you?").await;
    let told = until_state(&mut events, "Idle").await;

    let message = text(&told[3].2["message_id"]);
    let names = [(context.as_str(), "C"), (message.as_str(), "msg-5")];
    let state = |new: &str| ("StateChanged", json!({ "context_id": "C", "new_state": new, "timestamp": AT }));
    let delta = |text: &str, sequence: u64| {
        let data =
            json!({ "context_id": "C", "message_id": "msg-5", "delta": text, "sequence": sequence, "attempt": 1 });
        ("ContentDelta", data)
    };
    let completed = json!({ "context_id": "C", "message_id": "msg-5", "final_content": "Hello world!" });
    let expected = [
        state("ProcessingUserMessage"),
        state("AwaitingLLMResponse"),
        state("StreamingLLMResponse"),
        delta("Hello ", 1),
        delta("wor", 2),
        delta("ld!", 3),
        state("ProcessingLLMResponse"),
        ("MessageCompleted", completed),
        state("Idle"),
    ];
    let actual: Vec<(&str, Value)> = told.iter().map(|(_, kind, data)| (kind.as_str(), named(data, &names))).collect();
    assert_eq!(actual, expected);

    let runs: Vec<_> = told.iter().map(|(id, ..)| id.rsplit_once('-').unwrap()).collect();
    assert!(runs.iter().all(|(run, _)| *run == runs[0].0), "one owner is one run: {runs:?}");
    // The third tells of the window.
    assert_eq!(runs.iter().map(|(_, n)| *n).collect::<Vec<_>>(), ["1", "2", "4", "5", "6", "7", "8", "9", "10"]);
    let stored = talk.get(&format!("/{context}/messages/{message}")).await;
    assert_eq!(stored["content"], json!([{ "type": "text", "text": "Hello world!" }]));
}

#[tokio::test]
async fn many_words_of_any_script_are_told_and_stored_as_they_were_said() {
    let talk = Talk::new().await;
    let words: Vec<String> = (0..300).map(|n| format!("{n} żółć\n\n\r\ndata: 👩‍👩‍👧 \"\\ ")).collect();
    talk.fake.then(Reply::chunks(words.clone()).split_bytes(7));
    let context = talk.create().await;
    let mut events = talk.follow(&context).await;
    talk.say(&context, "tell me all").await;
    let told = until_state(&mut events, "Idle").await;
    let deltas: Vec<&Event> = told.iter().filter(|(_, kind, _)| kind == "ContentDelta").collect();
    let sequences: Vec<u64> = deltas.iter().map(|event| event.2["sequence"].as_u64().unwrap()).collect();
    assert_eq!(sequences, (1..=300).collect::<Vec<_>>());
    let said: String = deltas.iter().map(|event| text(&event.2["delta"])).collect();
    let completed = told.iter().find(|(_, kind, _)| kind == "MessageCompleted").unwrap();
    assert_eq!((&said, &text(&completed.2["final_content"])), (&words.concat(), &words.concat()));
    assert_eq!(talk.said(&context, None).await[1].1, words.concat());
}

#[tokio::test]
async fn the_model_is_told_all_of_the_branch_and_how_to_answer() {
    let talk = Talk::new().await;
    let body = json!({
        "model_id": "gpt-4", "mode": "plan", "system_prompt_id": "custom-prompt", "agent_role": "reviewer",
        "parameters": { "temperature": 0.5 },
    });
    let context = talk.create_with(body).await;
    talk.ask(&context, "one").await;
    talk.ask(&context, "two").await;
    let request = talk.fake.requests().pop().unwrap();
    assert_eq!((&request["model"], &request["temperature"]), (&json!("gpt-4"), &json!(0.5)));
    let (system, said) = request["messages"].as_array().unwrap().split_first().unwrap();
    let prompt = text(&system["content"]);
    assert!(prompt.starts_with("You are terse.") && prompt.contains("reviewer"), "{prompt}");
    let roles: Vec<(String, String)> =
        said.iter().map(|message| (text(&message["role"]), text(&message["content"]))).collect();
    let pair = |role: &str, content: &str| (role.to_owned(), content.to_owned());
    assert_eq!(roles, [pair("user", "one"), pair("assistant", "one"), pair("user", "two")]);
}

#[tokio::test]
async fn an_answer_is_a_plan_or_a_question_where_it_is_one() {
    let talk = Talk::new().await;
    talk.fake.then(Reply::text("1. look 2. leap")).then(Reply::text("Which one?")).then(Reply::text("Done."));
    let context = talk.create_with(json!({ "model_id": "gpt-4", "mode": "plan" })).await;
    for (content, kind) in [("plan it", "plan"), ("go on", "question")] {
        let (_, answer) = talk.ask(&context, content).await;
        assert_eq!(talk.get(&format!("/{context}/messages/{answer}")).await["message_type"], kind);
    }
    talk.call("PUT", &format!("/{context}"), Some(json!({ "mode": "code" }))).await;
    let (_, answer) = talk.ask(&context, "go on").await;
    assert_eq!(talk.get(&format!("/{context}/messages/{answer}")).await["message_type"], "text");
}

#[tokio::test]
async fn an_unknown_system_prompt_is_taken_and_warned_of() {
    let talk = Talk::new().await;
    let context = talk.create_with(json!({ "model_id": "gpt-4", "system_prompt_id": "no-such" })).await;
    let mut events = talk.follow(&context).await;
    let (status, added) = talk.post(&format!("/{context}/messages"), json!({ "content": "x" })).await;
    assert_eq!(status, 201);
    assert!(text(&added["warnings"][0]).contains("`no-such`"), "{added}");
    until_state(&mut events, "Idle").await;
}

#[tokio::test]
async fn while_a_turn_runs_nothing_else_is_said_edited_or_tried_again() {
    let talk = Talk::new().await;
    let context = talk.create().await;
    let (question, _) = talk.ask(&context, "first").await;
    talk.fake.then(Reply::chunks(["a", "b"]).gated());
    let mut events = talk.follow(&context).await;
    talk.say(&context, "second").await;
    let content = || Some(json!({ "content": "third" }));
    for state in ["AwaitingLLMResponse", "StreamingLLMResponse"] {
        until_state(&mut events, state).await;
        for (method, path, body) in [
            ("POST", format!("/{context}/messages"), content()),
            ("PUT", format!("/{context}/messages/{question}"), content()),
            ("POST", format!("/{context}/retry"), None),
        ] {
            let (status, reply) = talk.call(method, &path, body).await;
            assert_eq!((status, &reply["error"]["code"]), (400, &json!("INVALID_STATE")), "{method} {path}");
            let details = json!({ "context_id": context, "current_state": state });
            assert_eq!(reply["error"]["details"], details, "{method} {path}");
        }
        talk.fake.release(1);
    }
    until_state(&mut events, "Idle").await;
    let said: Vec<String> = talk.said(&context, None).await.into_iter().map(|(_, text)| text).collect();
    assert_eq!(said, ["first", "first", "second", "ab"]);
    assert_eq!(talk.get(&format!("/{context}/branches")).await["branches"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn of_two_messages_at_once_one_is_taken() {
    let talk = Talk::new().await;
    talk.fake.then(Reply::text("answer").gated());
    let context = talk.create().await;
    let path = format!("/{context}/messages");
    let say = |content: &str| talk.post(&path, json!({ "content": content }));
    let (one, two) = tokio::join!(say("one"), say("two"));
    let mut statuses = [one.0, two.0];
    statuses.sort_unstable();
    assert_eq!(statuses, [201, 400]);
    assert_eq!(talk.said(&context, None).await.len(), 1);
}

#[tokio::test]
async fn turns_of_two_contexts_run_side_by_side() {
    let talk = Talk::new().await;
    talk.fake.then(Reply::chunks(["slow ", "words"]).gated()).then(Reply::text("quick"));
    let (slow, quick) = (talk.create().await, talk.create().await);
    let mut slow_events = talk.follow(&slow).await;
    talk.say(&slow, "go").await;
    talk.fake.release(1);
    until_state(&mut slow_events, "StreamingLLMResponse").await;
    talk.ask(&quick, "go").await;
    assert_eq!((talk.state(&slow).await.as_str(), talk.state(&quick).await.as_str()), ("StreamingLLMResponse", "Idle"));
    talk.fake.release(1);
    let told = until_state(&mut slow_events, "Idle").await;
    let expected = ["\"slow \"", "\"words\"", "ProcessingLLMResponse", "= slow words", "Idle"];
    assert_eq!(outline(&told), expected, "and none of the other's");
}

#[tokio::test]
async fn a_cancelled_turn_keeps_what_was_streamed_and_says_so() {
    let talk = Talk::new().await;
    talk.fake.then(Reply::chunks(["one ", "two ", "three"]).gated());
    let context = talk.create().await;
    let mut events = talk.follow(&context).await;
    let question = talk.say(&context, "count").await;
    talk.fake.release(2);
    let told = take(&mut events, 5).await;
    let message = text(&told[4].2["message_id"]);
    let (status, cancelled) = talk.call("POST", &format!("/{context}/cancel"), None).await;
    assert_eq!((status, &cancelled), (200, &json!({ "context_state": "Idle", "message_id": message })));
    let rest = until_state(&mut events, "Idle").await;
    let completed =
        json!({ "context_id": context, "message_id": message, "final_content": "one two ", "cancelled": true });
    assert_eq!((outline(&rest), &rest[0].2), (vec!["= one two ".to_owned(), "Idle".to_owned()], &completed));

    let stored = talk.get(&format!("/{context}/messages/{message}")).await;
    let kept = (&stored["content"][0]["text"], &stored["metadata"]["cancelled"], &stored["parent_id"]);
    assert_eq!(kept, (&json!("one two "), &json!(true), &json!(question)));
    talk.fake.gone(1).await;
    talk.refuses("POST", &format!("/{context}/cancel"), None, 400, "INVALID_STATE").await;
    let (status, ended) = talk.post_keyed(&format!("/{context}/cancel"), "k", &json!({})).await;
    assert_eq!(
        (status, &ended["context_state"]),
        (200, &json!("Idle")),
        "whoever may be asking again is told that it has ended"
    );
    talk.ask(&context, "and on").await;
    let said: Vec<String> = talk.said(&context, None).await.into_iter().map(|(_, text)| text).collect();
    assert_eq!(said, ["count", "one two ", "and on", "and on"]);
}

#[tokio::test]
async fn a_turn_that_is_cancelled_before_the_first_word_leaves_the_question_alone() {
    let talk = Talk::new().await;
    talk.fake.then(Reply::text("never").hang());
    let context = talk.create().await;
    let mut events = talk.follow(&context).await;
    talk.say(&context, "anyone?").await;
    until_state(&mut events, "AwaitingLLMResponse").await;
    talk.fake.asked(1).await;
    let (status, cancelled) = talk.call("POST", &format!("/{context}/cancel"), None).await;
    assert_eq!((status, cancelled), (200, json!({ "context_state": "Idle" })));
    assert_eq!(outline(&until_state(&mut events, "Idle").await), ["Idle"]);
    talk.fake.gone(1).await;
    assert_eq!(talk.said(&context, None).await, [("user".to_owned(), "anyone?".to_owned())]);
}

/// The design: cancelled in any running state, what was streamed is kept and marked.
#[tokio::test]
async fn a_turn_that_is_cancelled_while_it_waits_to_try_again_keeps_what_was_streamed() {
    let talk = Talk::new().await;
    talk.fake.then(Reply::chunks(["half ", "an ", "answer"]).cut_after(2));
    let context = talk.create().await;
    let mut events = talk.follow(&context).await;
    talk.say(&context, "go").await;
    let told = until_state(&mut events, "TransientFailure").await;
    assert_eq!(outline(&told)[3..], ["\"half \"", "\"an \"", "TransientFailure"]);
    let message = told[3].2["message_id"].clone();
    let (status, cancelled) = talk.call("POST", &format!("/{context}/cancel"), None).await;
    assert_eq!((status, &cancelled["context_state"]), (200, &json!("Idle")));
    assert_eq!(cancelled["message_id"], message, "what readers saw is kept: {cancelled}");
    assert_eq!(outline(&until_state(&mut events, "Idle").await), ["= half an ", "Idle"]);
    assert_eq!(talk.said(&context, None).await[1], ("assistant".to_owned(), "half an ".to_owned()));
}

#[tokio::test]
async fn a_turn_goes_on_where_it_began_when_another_branch_becomes_active() {
    let talk = Talk::new().await;
    let context = talk.create().await;
    talk.ask(&context, "first").await;
    talk.post(&format!("/{context}/branches"), json!({ "name": "other" })).await;
    talk.fake.then(Reply::text("on main").gated());
    let mut events = talk.follow(&context).await;
    talk.say(&context, "second").await;
    until_state(&mut events, "AwaitingLLMResponse").await;
    assert_eq!(talk.call("PUT", &format!("/{context}/branches/other"), None).await.0, 200);
    talk.fake.release(2);
    let told = until_state(&mut events, "Idle").await;
    assert_eq!(states(&told).last().unwrap(), "Idle");
    let said = async |branch| talk.said(&context, Some(branch)).await.into_iter().map(|(_, text)| text);
    assert_eq!(said("main").await.collect::<Vec<_>>(), ["first", "first", "second", "on main"]);
    assert_eq!(said("other").await.collect::<Vec<_>>(), ["first", "first"]);
}

/// A conversation may be led otherwise from the next call of the model on, also in the middle of a turn.
#[tokio::test]
async fn an_answer_names_the_model_that_gave_it() {
    let talk = Talk::new().await;
    talk.fake.then(Reply::text("busy").status(503)).then(Reply::text("here"));
    let context = talk.create().await;
    let mut events = talk.follow(&context).await;
    talk.say(&context, "go").await;
    until_state(&mut events, "TransientFailure").await;
    talk.call("PUT", &format!("/{context}"), Some(json!({ "model_id": "gpt-5" }))).await;
    talk.pass_back_off().await;
    let told = until_state(&mut events, "Idle").await;
    let message = text(&told[told.len() - 2].2["message_id"]);
    assert_eq!(talk.fake.requests()[1]["model"], "gpt-5");
    let stored = talk.get(&format!("/{context}/messages/{message}")).await;
    assert_eq!(stored["metadata"]["model_id"], "gpt-5");
}

#[tokio::test]
async fn a_cancel_that_came_too_late_and_is_sent_again_ends_no_other_turn() {
    let talk = Talk::new().await;
    talk.fake.then(Reply::text("done")).then(Reply::chunks(["one ", "two"]).gated());
    let context = talk.create().await;
    talk.ask(&context, "first").await;
    let path = format!("/{context}/cancel");
    let late = talk.post_keyed(&path, "k", &json!({})).await;
    assert_eq!((late.0, &late.1["context_state"]), (200, &json!("Idle")));
    let mut events = talk.follow(&context).await;
    talk.say(&context, "second").await;
    assert_eq!(talk.post_keyed(&path, "k", &json!({})).await, late);
    talk.fake.release(2);
    until_state(&mut events, "Idle").await;
    assert_eq!(talk.said(&context, None).await.last().unwrap().1, "one two");
}
