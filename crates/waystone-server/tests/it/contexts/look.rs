//! What a model finds when it looks for what its window leaves out.

use serde_json::{Value, json};
use waystone_core::tokens;
use waystone_testkit::model::Reply;

use super::{Talk, text};

/// Talks until what was said first is left out.
async fn talk_long(talk: &Talk, context: &str) {
    for n in 0..40 {
        talk.fake.then(Reply::text(&format!("answer {n}: {}", "more words on that ".repeat(60))));
        talk.ask(context, &format!("question {n}")).await;
    }
}

/// Lets the model look for something before it answers. Returns the ids of question and answer, and what it was told.
async fn look(talk: &Talk, context: &str, question: &str, query: &str) -> (String, String, String) {
    talk.fake.then(Reply::calls([("context_search_stashed", json!({ "query": query }))]));
    talk.fake.then(Reply::text(&format!("that is all about {query}")));
    let (question, _) = talk.ask(context, question).await;
    let asked = talk.fake.requests().pop().unwrap();
    let told = asked["messages"].as_array().unwrap().iter().rfind(|said| said["role"] == "tool").unwrap();
    let messages = talk.get(&format!("/{context}/messages?limit=1000")).await;
    let answer = messages["messages"].as_array().unwrap().last().unwrap();
    (question, text(&answer["id"]), text(&told["content"]))
}

fn has(told: &str, id: &str) -> bool {
    told.contains(&format!("ws:segment:{id}"))
}

#[tokio::test]
async fn a_model_finds_what_was_said_before_on_its_branch_and_not_that_it_looked() {
    let talk = Talk::new().await;
    let context = talk.create().await;
    let (first, first_answer) = talk.ask(&context, "the shed is heliotrope").await;
    let elsewhere = talk.create().await;
    let (abroad, _) = talk.ask(&elsewhere, "a heliotrope of another conversation").await;
    talk.post(&format!("/{context}/branches"), json!({ "name": "other", "parent_message_id": first_answer })).await;
    talk.call("PUT", &format!("/{context}/branches/other"), None).await;
    let (aside, _) = talk.ask(&context, "a heliotrope of another branch").await;
    talk.call("PUT", &format!("/{context}/branches/main"), None).await;
    talk_long(&talk, &context).await;

    let (question, answer, told) = look(&talk, &context, "which heliotrope was it?", "heliotrope").await;
    let found = [&first, &abroad, &aside, &question].map(|id| has(&told, id));
    assert_eq!(found, [true, false, false, false], "{told}");

    let (again, _, told) = look(&talk, &context, "and what of heliotrope since?", "heliotrope").await;
    let found = [&first, &question, &answer, &again].map(|id| has(&told, id));
    assert_eq!(found, [true, true, true, false], "{told}");
    let messages = talk.get(&format!("/{context}/messages?limit=1000")).await;
    let of_tools = |message: &&Value| ["tool_call", "tool_result"].contains(&message["message_type"].as_str().unwrap());
    let of_tools: Vec<&Value> = messages["messages"].as_array().unwrap().iter().filter(of_tools).collect();
    assert_eq!(of_tools.len(), 4);
    assert!(of_tools.iter().all(|message| !has(&told, &text(&message["id"]))), "{told}");
}

#[tokio::test]
async fn what_a_model_finds_is_told_whole() {
    let talk = Talk::new().await;
    let context = talk.create().await;
    // Two tokens or three for a character.
    let dense: String = (0..200).map(|n| char::from_u32(0x1f300 + n * 3).unwrap()).collect();
    for n in 0..8 {
        talk.fake.then(Reply::text("noted"));
        talk.ask(&context, &format!("heliotrope {n} {dense}")).await;
    }
    talk_long(&talk, &context).await;
    let (_, _, told) = look(&talk, &context, "which one was it?", "heliotrope").await;
    assert!(tokens::count(&told) <= 8192 / 16, "{} tokens", tokens::count(&told));
    assert!(told.contains("[user]: heliotrope"), "{told}");
    assert!(told.trim_end().ends_with(" ---"), "its end is there too: {told}");
}
