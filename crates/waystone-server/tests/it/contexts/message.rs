//! Messages beyond the contract's examples: edited, got by their ids, read while they are written.

use serde_json::{Value, json};
use waystone_testkit::model::Reply;

use super::{Talk, named, take, text, until_state};

async fn texts(talk: &Talk, context: &str, branch: &str) -> Vec<String> {
    talk.said(context, Some(branch)).await.into_iter().map(|(_, text)| text).collect()
}

#[tokio::test]
async fn an_edit_makes_a_branch_that_is_active_and_leaves_the_old_one_as_it_was() {
    let talk = Talk::new().await;
    let context = talk.create().await;
    let (first, first_answer) = talk.ask(&context, "one").await;
    let (second, second_answer) = talk.ask(&context, "two").await;
    let before = talk.get(&format!("/{context}/messages?branch=main")).await;
    let mut events = talk.follow(&context).await;
    let body = Some(json!({ "content": "two, but better" }));
    let (status, edited) = talk.call("PUT", &format!("/{context}/messages/{second}"), body).await;
    let third = text(&edited["message_id"]);
    let expected = json!({ "message_id": "third", "context_state": "ProcessingUserMessage", "branch": "edit-1" });
    assert_eq!((status, named(&edited, &[(&third, "third")])), (201, expected));
    let told = until_state(&mut events, "Idle").await;
    let answer = text(&told[told.len() - 2].2["message_id"]);

    assert_eq!(talk.get(&format!("/{context}/messages?branch=main")).await, before);
    let branches = talk.get(&format!("/{context}/branches")).await;
    let expected = json!({ "branches": [
        {
            "name": "main", "message_ids": [first, first_answer, second, second_answer], "parent_message_id": null,
            "is_active": false,
        },
        { "name": "edit-1", "message_ids": [third, answer], "parent_message_id": first_answer, "is_active": true },
    ]});
    assert_eq!(branches, expected);
    let edit = ["one", "one", "two, but better", "two, but better"];
    assert_eq!(texts(&talk, &context, "edit-1").await, edit);
    let new = talk.get(&format!("/{context}/messages/{third}")).await;
    let old = talk.get(&format!("/{context}/messages/{second}")).await;
    assert_eq!(
        (&new["parent_id"], &old["parent_id"]),
        (&json!(first_answer), &json!(first_answer)),
        "they are siblings"
    );
    let asked = talk.fake.requests().pop().unwrap();
    assert_eq!(asked["messages"].as_array().unwrap().len(), 4, "what was edited is not told: {asked}");
}

#[tokio::test]
async fn the_first_message_can_be_edited_and_a_branch_can_be_named() {
    let talk = Talk::new().await;
    let context = talk.create().await;
    let (first, answer) = talk.ask(&context, "one").await;
    let mut events = talk.follow(&context).await;
    let path = format!("/{context}/messages/{first}");
    let (status, edited) = talk.call("PUT", &path, Some(json!({ "content": "uno", "branch": "es" }))).await;
    assert_eq!((status, &edited["branch"]), (201, &json!("es")));
    until_state(&mut events, "Idle").await;
    assert_eq!(texts(&talk, &context, "es").await, ["uno", "uno"]);
    assert_eq!(talk.get(&format!("/{context}/branches")).await["branches"][1]["parent_message_id"], Value::Null);

    talk.refuses("PUT", &path, Some(json!({ "content": "x", "branch": "main" })), 409, "CONFLICT").await;
    let of_answer = format!("/{context}/messages/{answer}");
    talk.refuses("PUT", &of_answer, Some(json!({ "content": "x" })), 400, "VALIDATION_ERROR").await;
    assert_eq!(talk.get(&format!("/{context}")).await["active_branch_name"], "es");
    assert_eq!(talk.fake.requests().len(), 2);
}

#[tokio::test]
async fn messages_are_got_by_their_ids_wherever_they_are() {
    let talk = Talk::new().await;
    let context = talk.create().await;
    let (first, _) = talk.ask(&context, "one").await;
    let mut events = talk.follow(&context).await;
    let (_, edited) =
        talk.call("PUT", &format!("/{context}/messages/{first}"), Some(json!({ "content": "uno" }))).await;
    let second = text(&edited["message_id"]);
    until_state(&mut events, "Idle").await;
    let page = talk.get(&format!("/{context}/messages?ids={second},{first}")).await;
    let said: Vec<&Value> = page["messages"].as_array().unwrap().iter().map(|message| &message["id"]).collect();
    assert_eq!(said.len(), 2, "{page}");
    assert!(said.contains(&&json!(first)) && said.contains(&&json!(second)), "{page}");
    assert_eq!((&page["total"], &page["has_more"]), (&json!(2), &json!(false)));
    let page = talk.get(&format!("/{context}/messages?ids={first},none")).await;
    assert_eq!(page["messages"].as_array().unwrap().len(), 1, "what is not there is left out: {page}");
}

#[tokio::test]
async fn the_text_of_a_message_is_read_from_any_sequence_on() {
    let talk = Talk::new().await;
    talk.fake.then(Reply::chunks(["one ", "two ", "three"]));
    let context = talk.create().await;
    let (question, answer) = talk.ask(&context, "count").await;
    let read = async |query: &str| talk.get(&format!("/{context}/messages/{answer}/content{query}")).await;
    let content = |from: u64, content: &str| {
        json!({
            "message_id": answer, "content": content, "from_sequence": from, "next_sequence": 4, "attempt": 1,
            "is_complete": true,
        })
    };
    for query in ["", "?from_sequence=1"] {
        assert_eq!(read(query).await, content(1, "one two three"), "{query}");
    }
    assert_eq!(read("?from_sequence=2").await, content(2, "two three"));
    assert_eq!(read("?from_sequence=3").await, content(3, "three"));
    assert_eq!(read("?from_sequence=4").await, content(4, ""), "nothing more is to come");
    let whole = talk.get(&format!("/{context}/messages/{question}/content")).await;
    assert_eq!((&whole["content"], &whole["is_complete"]), (&json!("count"), &json!(true)));
}

/// Text is written after 100 ms of the clock; until then only readers of events have it.
#[tokio::test]
async fn the_text_of_a_message_is_read_while_it_is_written() {
    let talk = Talk::new().await;
    talk.fake.then(Reply::chunks(["one ", "two ", "three"]).gated());
    let context = talk.create().await;
    let mut events = talk.follow(&context).await;
    talk.say(&context, "count").await;
    talk.fake.release(2);
    let told = take(&mut events, 5).await;
    let answer = text(&told[3].2["message_id"]);
    let path = format!("/{context}/messages/{answer}/content");
    talk.client.harness.clock.wait_for_sleeper().await;
    talk.client.harness.clock.advance_ms(100);
    let mut read = talk.get(&path).await;
    while read["next_sequence"] == 1 {
        tokio::task::yield_now().await;
        read = talk.get(&path).await;
    }
    let expected = json!({
        "message_id": answer, "content": "one two ", "from_sequence": 1, "next_sequence": 3, "attempt": 1,
        "is_complete": false,
    });
    assert_eq!(read, expected);
    assert_eq!(talk.get(&format!("{path}?from_sequence=2")).await["content"], "two ");
    talk.refuses("GET", &format!("/{context}/messages/{answer}"), None, 404, "MESSAGE_NOT_FOUND").await;
    talk.fake.release(1);
    until_state(&mut events, "Idle").await;
    assert_eq!(talk.get(&format!("{path}?from_sequence=3")).await["content"], "three");
}

#[tokio::test]
async fn a_megabyte_is_said_and_stored_whole() {
    let talk = Talk::new().await;
    talk.fake.otherwise(Reply::text("long"));
    let context = talk.create_with(json!({ "model_id": "gpt-4.1" })).await;
    let long = "lorem ipsum dolor sit amet ".repeat(40_000);
    let (question, _) = talk.ask(&context, &long).await;
    let stored = talk.get(&format!("/{context}/messages/{question}")).await;
    assert!(stored["content"][0]["text"] == json!(long), "it was changed");
    let asked = talk.fake.requests().pop().unwrap();
    assert!(asked["messages"][1]["content"] == json!(long), "the model was told something else");
}

#[tokio::test]
async fn two_messages_of_the_same_text_are_two() {
    let talk = Talk::new().await;
    let context = talk.create().await;
    let (first, _) = talk.ask(&context, "ok").await;
    let (second, _) = talk.ask(&context, "ok").await;
    assert_ne!(first, second);
    assert_eq!(texts(&talk, &context, "main").await, ["ok"; 4]);
}

/// A message is a segment of the task that is named by its conversation, with the same id.
#[tokio::test]
async fn messages_are_segments_of_a_task_of_their_own() {
    let talk = Talk::new().await;
    let context = talk.create().await;
    let (question, answer) = talk.ask(&context, "remember the kestrel").await;
    let (status, found) = talk.client.get(&format!("/api/projects/project/task-context?task_id={context}")).await;
    let ids: Vec<&Value> =
        found["segments"].as_array().into_iter().flatten().map(|segment| &segment["segment_id"]).collect();
    assert_eq!(status, 200, "{found}");
    assert!(ids.contains(&&json!(question)) && ids.contains(&&json!(answer)), "{found}");
}
