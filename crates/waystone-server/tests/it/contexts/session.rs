//! A conversation is a session too: what becomes of the one becomes of the other.

use std::time::Duration;

use serde_json::{Value, json};
use waystone_core::Chat;
use waystone_server::http::{Guard, Http};
use waystone_testkit::audit;
use waystone_testkit::model::{FakeModel, Reply};

use super::{Talk, assert_refused, chat_of, take, text, until_state};
use crate::client::{Client, json_of, post};

#[tokio::test]
async fn a_session_that_is_a_conversation_takes_no_checkpoint() {
    let talk = Talk::new().await;
    let context = talk.create().await;
    talk.ask(&context, "hello").await;
    let save = json!({ "sessionId": context, "context": { "n": 1 } });
    for (path, body) in [
        ("/api/checkpoints".to_owned(), save.clone()),
        (format!("/api/sessions/{context}/checkpoints"), json!({ "context": { "n": 1 } })),
    ] {
        let (status, reply) = talk.client.call("POST", &path, Some(body)).await;
        assert_refused(&(status.as_u16(), reply), 409, "CONFLICT", &path);
    }
    let params = json!({ "name": "workflow_checkpoint_save", "arguments": save });
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
    let reply = json_of(talk.client.send(post("/mcp", call.to_string())).await).await;
    assert_eq!(reply["result"]["structuredContent"]["error"]["code"], "CONFLICT", "{reply}");
    assert_eq!(talk.said(&context, None).await.len(), 2);
}

#[tokio::test]
async fn a_conversation_is_listed_among_the_sessions() {
    let talk = Talk::new().await;
    let context = talk.create().await;
    let (status, session) = talk.client.get(&format!("/api/sessions/{context}")).await;
    assert_eq!((status.as_u16(), &session["id"]), (200, &json!(context)), "{session}");
    assert_eq!(session["conversation"], true, "{session}");
    talk.client.call("POST", "/api/checkpoints", Some(json!({ "sessionId": "s", "context": { "n": 1 } }))).await;
    let (_, listed) = talk.client.get("/api/sessions").await;
    let kinds: Vec<_> =
        listed["sessions"].as_array().unwrap().iter().map(|one| (&one["id"], &one["conversation"])).collect();
    assert_eq!(kinds, [(&json!("s"), &json!(null)), (&json!(context), &json!(true))], "{listed}");
}

#[tokio::test]
async fn deleting_either_deletes_the_other_and_a_restore_brings_both_back() {
    let talk = Talk::new().await;
    let context = talk.create().await;
    talk.ask(&context, "hello").await;
    let before = talk.get(&format!("/{context}")).await;
    let session = format!("/api/sessions/{context}");
    for delete in [session.clone(), format!("/api/contexts/{context}")] {
        let (status, _) = talk.client.call("DELETE", &delete, None).await;
        assert!(status.is_success(), "{delete}: {status}");
        talk.refuses("GET", &format!("/{context}"), None, 404, "CONTEXT_NOT_FOUND").await;
        talk.refuses(
            "POST",
            &format!("/{context}/messages"),
            Some(json!({ "content": "x" })),
            404,
            "CONTEXT_NOT_FOUND",
        )
        .await;
        assert_eq!(talk.get("").await, json!({ "contexts": [] }));
        let (status, reply) = talk.client.get(&session).await;
        assert_refused(&(status.as_u16(), reply), 404, "SESSION_NOT_FOUND", &delete);

        let (status, restored) = talk.client.call("POST", &format!("{session}/restore"), None).await;
        assert_eq!((status.as_u16(), &restored["id"]), (200, &json!(context)), "{delete}: {restored}");
        assert_eq!(talk.get(&format!("/{context}")).await, before, "{delete}");
    }
    talk.ask(&context, "still there?").await;
    assert_eq!(talk.said(&context, None).await.len(), 4);
    talk.client.harness.check_invariants().await;
}

#[tokio::test]
async fn what_is_purged_is_gone_for_good() {
    let talk = Talk::new().await;
    let context = talk.create().await;
    let (question, _) = talk.ask(&context, "remember the kestrel").await;
    assert_eq!(talk.call("DELETE", &format!("/{context}?purge=true"), None).await, (204, Value::Null));
    talk.refuses("GET", &format!("/{context}"), None, 404, "CONTEXT_NOT_FOUND").await;
    let (status, reply) = talk.client.call("POST", &format!("/api/sessions/{context}/restore"), None).await;
    assert_refused(&(status.as_u16(), reply), 404, "SESSION_NOT_FOUND", "restore");
    let (status, reply) = talk.client.get(&format!("/api/handles/ws:segment:{question}")).await;
    assert_eq!(status.as_u16(), 404, "its messages are gone too: {reply}");
    let database = audit::open(talk.client.harness.data_dir());
    for table in ["SELECT payload FROM event", "SELECT payload FROM operation", "SELECT text FROM segment_text"] {
        let mut statement = database.prepare(table).unwrap();
        let texts = statement.query_map([], |row| row.get::<_, Option<String>>(0)).unwrap();
        let found = texts.flatten().flatten().find(|text| text.contains("kestrel"));
        assert_eq!(found, None, "{table}");
    }
    talk.client.harness.check_invariants().await;
}

#[tokio::test]
async fn a_conversation_that_was_deleted_can_still_be_purged() {
    let talk = Talk::new().await;
    let context = talk.create().await;
    talk.ask(&context, "hello").await;
    assert_eq!(talk.call("DELETE", &format!("/{context}"), None).await.0, 204);
    assert_eq!(talk.call("DELETE", &format!("/{context}?purge=true"), None).await, (204, Value::Null));
    talk.refuses("DELETE", &format!("/{context}?purge=true"), None, 404, "CONTEXT_NOT_FOUND").await;
}

#[tokio::test]
async fn a_turn_ends_when_its_conversation_is_deleted_and_it_rests_when_that_is_restored() {
    let talk = Talk::new().await;
    talk.fake.then(Reply::chunks(["one ", "two ", "three"]).gated());
    let context = talk.create().await;
    let mut events = talk.follow(&context).await;
    talk.say(&context, "count").await;
    talk.fake.release(1);
    take(&mut events, 4).await;
    assert_eq!(talk.call("DELETE", &format!("/{context}"), None).await.0, 204);
    talk.fake.gone(1).await;
    talk.client.call("POST", &format!("/api/sessions/{context}/restore"), None).await;
    assert_eq!(talk.state(&context).await, "Idle");
    let said = [("user".to_owned(), "count".to_owned()), ("assistant".to_owned(), "one ".to_owned())];
    assert_eq!(talk.said(&context, None).await, said, "what was streamed is kept");
    talk.ask(&context, "again").await;
}

/// The same by the session's own route, and by whoever deletes it in another process.
#[tokio::test]
async fn a_turn_ends_when_its_session_is_deleted() {
    let talk = Talk::new().await;
    talk.fake.then(Reply::chunks(["one ", "two ", "three"]).gated());
    let context = talk.create().await;
    let mut events = talk.follow(&context).await;
    talk.say(&context, "count").await;
    talk.fake.release(1);
    take(&mut events, 4).await;
    let (status, _) = talk.client.call("DELETE", &format!("/api/sessions/{context}"), None).await;
    assert_eq!(status.as_u16(), 200);
    talk.fake.release(2);
    take(&mut events, 2).await;
    // The answer is whole, and there is no place for it.
    for _ in 0..50 {
        talk.get("").await;
    }
    let closed = tokio::time::timeout(Duration::from_secs(20), talk.client.harness.engine.close()).await;
    assert!(closed.is_ok(), "the turn of a conversation that is gone never ends");
}

#[tokio::test]
async fn a_restored_conversation_is_replayed_and_goes_on() {
    let talk = Talk::new().await;
    let context = talk.create().await;
    let mut events = talk.follow(&context).await;
    talk.say(&context, "hello").await;
    let told = until_state(&mut events, "Idle").await;
    talk.call("DELETE", &format!("/{context}"), None).await;
    talk.client.call("POST", &format!("/api/sessions/{context}/restore"), None).await;
    let mut again = talk.follow_after(&context, Some(&told[0].0)).await;
    assert_eq!(until_state(&mut again, "Idle").await, told[1..]);
}

#[tokio::test]
async fn where_a_conversation_stands_is_kept_after_each_turn_and_a_branch_can_begin_there() {
    let talk = Talk::new().await;
    let context = talk.create().await;
    talk.fake.then(Reply::text("one")).then(Reply::text("two"));
    talk.ask(&context, "first").await;
    talk.ask(&context, "second").await;
    let (status, page) = talk.client.get(&format!("/api/checkpoints?sessionId={context}")).await;
    assert_eq!(status, 200, "{page}");
    let checkpoints = page["checkpoints"].as_array().unwrap();
    assert_eq!(checkpoints.len(), 2, "{page}");
    let first = text(&checkpoints[1]["checkpointId"]);
    let (status, loaded) = talk.client.get(&format!("/api/checkpoints/{first}")).await;
    assert_eq!(status, 200, "{loaded}");
    let said: Vec<String> = loaded["context"]["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|message| text(&message["content"][0]["text"]))
        .collect();
    assert_eq!(said, ["first", "one"]);
    assert_eq!(loaded["context"]["conversation"]["config"]["model_id"], "gpt-4");

    let body = json!({ "name": "again", "checkpoint_id": first });
    let (status, branch) = talk.post(&format!("/{context}/branches"), body).await;
    assert_eq!(status, 201, "{branch}");
    let said: Vec<String> = talk.said(&context, Some("again")).await.into_iter().map(|(_, text)| text).collect();
    assert_eq!(said, ["first", "one"]);
    let other = talk.create().await;
    let body = json!({ "name": "theirs", "checkpoint_id": first });
    talk.refuses("POST", &format!("/{other}/branches"), Some(body), 400, "VALIDATION_ERROR").await;
    let both = json!({ "name": "both", "checkpoint_id": first, "parent_message_id": "x" });
    talk.refuses("POST", &format!("/{context}/branches"), Some(both), 400, "VALIDATION_ERROR").await;
}

#[tokio::test]
async fn a_checkpoint_of_a_conversation_is_made_on_demand_and_outlives_its_branch() {
    let talk = Talk::new().await;
    let context = talk.create().await;
    talk.refuses("POST", &format!("/{context}/checkpoints"), Some(json!({})), 400, "VALIDATION_ERROR").await;
    talk.fake.then(Reply::text("one")).then(Reply::text("elsewhere"));
    talk.ask(&context, "first").await;
    talk.post(&format!("/{context}/branches"), json!({ "name": "side" })).await;
    let mut events = talk.follow(&context).await;
    talk.post(&format!("/{context}/messages"), json!({ "content": "aside", "branch": "side" })).await;
    until_state(&mut events, "Idle").await;
    let body = json!({ "branch": "side", "metadata": { "name": "before the change" } });
    let path = format!("/{context}/checkpoints");
    let (status, saved) = talk.post_keyed(&path, "s1", &body).await;
    assert_eq!((status, &saved["status"]), (201, &json!("SAVED")), "{saved}");
    let again = talk.post_keyed(&path, "s1", &body).await.1;
    assert_eq!(again["checkpointId"], saved["checkpointId"], "once");
    assert_eq!(talk.call("DELETE", &format!("/{context}/branches/side"), None).await.0, 204);
    let id = text(&saved["checkpointId"]);
    let (status, loaded) = talk.client.get(&format!("/api/checkpoints/{id}")).await;
    assert_eq!(status, 200, "{loaded}");
    assert_eq!(loaded["context"]["messages"].as_array().unwrap().len(), 4);
    assert_eq!(loaded["name"], "before the change");
    // What is no conversation's own cannot be saved into it.
    let forged = json!({ "sessionId": context, "context": { "conversation": {} } });
    let (status, refused) = talk.client.call("POST", "/api/checkpoints", Some(forged)).await;
    assert_eq!((status.as_u16(), &refused["error"]["code"]), (409, &json!("CONFLICT")));
}

/// Whoever does not want them has those that are asked for, and no others.
#[tokio::test]
async fn without_auto_save_only_what_is_asked_for_is_kept_as_a_checkpoint() {
    let fake = FakeModel::start().await;
    let client = Client::new();
    let chat = Chat { saves_turns: false, ..chat_of(Some(fake.base_url())) };
    let engine = client.harness.engine.clone().with_chat(chat);
    let router = Http::new(engine, "tester", client.stop.subscribe()).router(Guard::default());
    let talk = Talk { client: Client { router, ..client }, fake };
    let context = talk.create().await;
    talk.ask(&context, "first").await;
    talk.ask(&context, "second").await;
    let listed =
        || async { talk.client.get(&format!("/api/checkpoints?sessionId={context}")).await.1["total"].clone() };
    assert_eq!(listed().await, 0);
    let (status, saved) = talk.post(&format!("/{context}/checkpoints"), json!({})).await;
    assert_eq!((status, &saved["status"]), (201, &json!("SAVED")), "{saved}");
    talk.ask(&context, "third").await;
    assert_eq!(listed().await, 1);
}
