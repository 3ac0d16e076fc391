//! Each example of the contract but "Tool Execution", which is in `tools/example.rs`: the same requests, whole answers.

use std::time::Duration;

use futures_util::FutureExt;
use serde_json::{Value, json};
use waystone_testkit::model::Reply;

use super::{AT, Talk, client_of, named, text};

/// A conversation with one question and its answer: its id, and those of both messages.
async fn greeting(talk: &Talk) -> (String, String, String) {
    talk.fake.then(Reply::chunks(["Hi ", "there!"]));
    let context = talk.create().await;
    let (question, answer) = talk.ask(&context, "Hello").await;
    (context, question, answer)
}

fn config() -> Value {
    json!({
        "model_id": "gpt-4", "mode": "code", "parameters": {}, "system_prompt_id": "default", "agent_role": "assistant",
    })
}

/// What the fake counted: words of all it was told, and its own chunks.
fn answer_tokens(talk: &Talk) -> Value {
    let request = &talk.fake.requests()[0];
    let words = |message: &Value| message["content"].as_str().unwrap().split_whitespace().count();
    let prompt: usize = request["messages"].as_array().unwrap().iter().map(words).sum();
    json!({ "prompt": prompt, "completion": 2, "total": prompt + 2 })
}

fn question_message() -> Value {
    json!({
        "id": "msg-1", "role": "user", "content": [{ "type": "text", "text": "Hello" }], "message_type": "text",
        "metadata": {
            "created_at": AT, "branch": "main", "origin": "user",
            "tokens": { "prompt": 1, "completion": 0, "total": 1, "estimated": true },
        },
        "parent_id": null,
    })
}

fn answer_message(talk: &Talk) -> Value {
    json!({
        "id": "msg-2", "role": "assistant", "content": [{ "type": "text", "text": "Hi there!" }], "message_type": "text",
        "metadata": {
            "created_at": AT, "branch": "main", "tokens": answer_tokens(talk), "origin": "agent", "model_id": "gpt-4",
        },
        "parent_id": "msg-1",
    })
}

#[tokio::test]
async fn a_context_is_created_with_all_that_was_asked_for() {
    let talk = Talk::new().await;
    let body = json!({
        "model_id": "gpt-4", "mode": "code", "system_prompt_id": "default", "workspace_path": "/path/to/workspace",
    });
    let (status, created) = talk.post("", body).await;
    let mut config = config();
    config["workspace_path"] = json!("/path/to/workspace");
    let main = json!({ "name": "main", "message_ids": [], "parent_message_id": null, "is_active": true });
    let expected = json!({
        "id": "C", "project_id": "project", "config": config, "branches": { "main": main }, "active_branch_name": "main",
        "current_state": "Idle", "created_at": AT, "updated_at": AT,
        "warnings": ["workspace_path `/path/to/workspace` is no folder here: tools that work in it will fail"],
    });
    assert_eq!((status, named(&created, &[(&text(&created["id"]), "C")])), (201, expected));
    let path = format!("/{}", text(&created["id"]));
    let (_, changed) = talk.call("PUT", &path, Some(json!({ "mode": "plan" }))).await;
    assert_eq!(changed["config"]["workspace_path"], "/path/to/workspace", "what is left out stays");
    let (status, changed) = talk.call("PUT", &path, Some(json!({ "workspace_path": null }))).await;
    assert_eq!((status, changed["config"].get("workspace_path")), (200, None), "{changed}");
}

#[tokio::test]
async fn a_context_of_which_nothing_is_said_is_one_with_the_demo() {
    let talk = Talk::new().await;
    let (status, created) = talk.post("", json!({})).await;
    let expected = json!({
        "model_id": "demo", "mode": "chat", "parameters": {}, "system_prompt_id": "default", "agent_role": "assistant",
    });
    assert_eq!((status, &created["config"]), (201, &expected));
}

#[tokio::test]
async fn contexts_are_listed_without_their_messages_last_used_first() {
    let talk = Talk::new().await;
    let (first, ..) = greeting(&talk).await;
    let second = talk.create().await;
    let names = [(first.as_str(), "first"), (second.as_str(), "second")];
    // A conversation is called by what was said first.
    let of = |id: &str, at: &str| {
        let mut listed = json!({
            "id": id, "project_id": "project", "config": config(), "active_branch_name": "main", "current_state": "Idle",
            "created_at": AT, "updated_at": at,
        });
        if id == "first" {
            listed["title"] = json!("Hello");
        }
        listed
    };
    let listed = talk.get("").await;
    assert_eq!(named(&listed, &names), json!({ "contexts": [of("second", AT), of("first", AT)] }));

    talk.client.harness.clock.advance_ms(300_000);
    talk.ask(&first, "again").await;
    let later = "2026-01-01T00:05:00.000Z";
    let listed = talk.get("").await;
    assert_eq!(named(&listed, &names), json!({ "contexts": [of("first", later), of("second", AT)] }));

    let page = talk.get("?limit=1").await;
    let cursor = text(&page["next_cursor"]);
    let next = talk.get(&format!("?limit=1&cursor={cursor}")).await;
    assert_eq!(named(&next, &names), json!({ "contexts": [of("second", AT)] }), "a last page has no cursor");
    assert_eq!(talk.get("?state=PermanentFailure").await, json!({ "contexts": [] }));
    assert_eq!(talk.get("?project_id=other").await, json!({ "contexts": [] }));
}

#[tokio::test]
async fn a_context_is_got_with_its_messages_and_branches() {
    let talk = Talk::new().await;
    let (context, question, answer) = greeting(&talk).await;
    let names = [(context.as_str(), "C"), (question.as_str(), "msg-1"), (answer.as_str(), "msg-2")];
    let main =
        json!({ "name": "main", "message_ids": ["msg-1", "msg-2"], "parent_message_id": null, "is_active": true });
    let mut expected = json!({
        "id": "C", "project_id": "project", "config": config(),
        "message_pool": {
            "msg-1": { "message": question_message(), "parent_id": null },
            "msg-2": { "message": answer_message(&talk), "parent_id": "msg-1" },
        },
        "branches": { "main": main }, "active_branch_name": "main", "current_state": "Idle", "created_at": AT,
        "updated_at": AT,
    });
    assert_eq!(named(&talk.get(&format!("/{context}")).await, &names), expected);
    expected.as_object_mut().unwrap().remove("message_pool");
    assert_eq!(named(&talk.get(&format!("/{context}?message_pool=false")).await, &names), expected);
}

#[tokio::test]
async fn an_update_changes_what_it_names_and_nothing_else() {
    let talk = Talk::new().await;
    let context = talk.create_with(json!({ "model_id": "gpt-4", "mode": "code", "parameters": { "top_p": 1 } })).await;
    let body = json!({ "mode": "plan", "system_prompt_id": "custom-prompt" });
    talk.client.harness.clock.advance_ms(1000);
    let (status, updated) = talk.call("PUT", &format!("/{context}"), Some(body)).await;
    let config = json!({
        "model_id": "gpt-4", "mode": "plan", "parameters": { "top_p": 1 }, "system_prompt_id": "custom-prompt",
        "agent_role": "assistant",
    });
    assert_eq!((status, &updated["id"], &updated["config"]), (200, &json!(context), &config));
    assert_eq!(updated["updated_at"], "2026-01-01T00:00:01.000Z");
    assert_eq!(talk.get(&format!("/{context}?message_pool=false")).await, updated);
}

#[tokio::test]
async fn a_deleted_context_is_answered_with_nothing_and_is_gone() {
    let talk = Talk::new().await;
    let (context, question, _) = greeting(&talk).await;
    assert_eq!(talk.call("DELETE", &format!("/{context}"), None).await, (204, Value::Null));
    assert_eq!(talk.get("").await, json!({ "contexts": [] }));
    let all = ["", "/messages", &format!("/messages/{question}"), "/branches", "/state", "/events"];
    for path in all {
        talk.refuses("GET", &format!("/{context}{path}"), None, 404, "CONTEXT_NOT_FOUND").await;
    }
    talk.refuses("DELETE", &format!("/{context}"), None, 404, "CONTEXT_NOT_FOUND").await;
}

#[tokio::test]
async fn messages_are_listed_oldest_first_a_page_at_a_time() {
    let talk = Talk::new().await;
    let (context, question, answer) = greeting(&talk).await;
    let names = [(question.as_str(), "msg-1"), (answer.as_str(), "msg-2")];
    let both = json!([question_message(), answer_message(&talk)]);
    let page = async |query: &str| named(&talk.get(&format!("/{context}/messages{query}")).await, &names);
    for query in ["", "?branch=main&limit=50&offset=0", "?limit=2"] {
        assert_eq!(page(query).await, json!({ "messages": both, "total": 2, "has_more": false }), "{query}");
    }
    assert_eq!(page("?limit=1").await, json!({ "messages": [both[0]], "total": 2, "has_more": true }));
    assert_eq!(page("?limit=1&offset=1").await, json!({ "messages": [both[1]], "total": 2, "has_more": false }));
    assert_eq!(page("?offset=2").await, json!({ "messages": [], "total": 2, "has_more": false }));
    assert_eq!(page("?offset=4294967295").await, json!({ "messages": [], "total": 2, "has_more": false }));
}

#[tokio::test]
async fn fifty_messages_are_listed_where_no_limit_is_given() {
    let talk = Talk::new().await;
    let context = talk.create().await;
    for n in 0..26 {
        talk.ask(&context, &format!("{n}")).await;
    }
    let page = talk.get(&format!("/{context}/messages")).await;
    let count = page["messages"].as_array().unwrap().len();
    assert_eq!((count, &page["total"], &page["has_more"]), (50, &json!(52), &json!(true)));
    assert_eq!(page["messages"][49]["content"][0]["text"], "24");
}

#[tokio::test]
async fn adding_a_message_answers_at_once_with_its_id_and_the_state() {
    let talk = Talk::new().await;
    talk.fake.then(Reply::text("later").gated());
    let context = talk.create().await;
    let body = json!({ "content": "What's the weather in London?", "branch": "main" });
    let (status, added) = talk.post(&format!("/{context}/messages"), body).await;
    let message = text(&added["message_id"]);
    let expected = json!({ "message_id": "msg-3", "context_state": "ProcessingUserMessage", "branch": "main" });
    assert_eq!((status, named(&added, &[(&message, "msg-3")])), (201, expected));
    assert_eq!(talk.said(&context, None).await, [("user".to_owned(), "What's the weather in London?".to_owned())]);
}

#[tokio::test]
async fn one_message_is_got_with_its_tokens_and_what_it_follows() {
    let talk = Talk::new().await;
    let (context, question, answer) = greeting(&talk).await;
    let names = [(question.as_str(), "msg-1"), (answer.as_str(), "msg-2")];
    let get = async |id: &str| named(&talk.get(&format!("/{context}/messages/{id}")).await, &names);
    assert_eq!(get(&question).await, question_message());
    assert_eq!(get(&answer).await, answer_message(&talk));
}

#[tokio::test]
async fn a_branch_is_created_switched_to_and_listed() {
    let talk = Talk::new().await;
    let (context, question, answer) = greeting(&talk).await;
    let names = [(question.as_str(), "msg-1"), (answer.as_str(), "msg-2")];
    let path = format!("/{context}/branches");
    let (status, created) =
        talk.post(&path, json!({ "name": "alternative-approach", "parent_message_id": answer })).await;
    let branch = |name: &str, ids: &[&str], parent: Value, is_active: bool| json!({ "name": name, "message_ids": ids, "parent_message_id": parent, "is_active": is_active });
    let main = |is_active| branch("main", &["msg-1", "msg-2"], Value::Null, is_active);
    let other = |is_active| branch("alternative-approach", &[], json!("msg-2"), is_active);
    assert_eq!((status, named(&created, &names)), (201, other(false)));
    assert_eq!(named(&talk.get(&path).await, &names), json!({ "branches": [main(true), other(false)] }));

    let (status, switched) = talk.call("PUT", &format!("{path}/alternative-approach"), None).await;
    let expected = json!({ "active_branch_name": "alternative-approach", "message_count": 0 });
    assert_eq!((status, switched), (200, expected));
    assert_eq!(named(&talk.get(&path).await, &names), json!({ "branches": [main(false), other(true)] }));
    assert_eq!(talk.get(&format!("/{context}")).await["active_branch_name"], "alternative-approach");
}

#[tokio::test]
async fn the_state_says_what_can_be_done_now() {
    let talk = Talk::new().await;
    talk.fake.then(Reply::chunks(["one", "two"]).gated());
    let context = talk.create().await;
    let path = format!("/{context}/state");
    let idle =
        json!({ "current_state": "Idle", "can_send_message": true, "pending_tool_approvals": 0, "branch": "main" });
    assert_eq!(talk.get(&path).await, idle);

    let mut events = talk.follow(&context).await;
    talk.say(&context, "go").await;
    super::until_state(&mut events, "AwaitingLLMResponse").await;
    let awaiting = json!({ "current_state": "AwaitingLLMResponse", "can_send_message": false, "pending_tool_approvals": 0, "branch": "main" });
    assert_eq!(talk.get(&path).await, awaiting);
    talk.fake.release(1);
    let (_, _, delta) = super::take(&mut events, 2).await.remove(1);
    let streaming = json!({
        "current_state": "StreamingLLMResponse", "can_send_message": false, "pending_tool_approvals": 0, "branch": "main",
        "message_id": delta["message_id"],
    });
    assert_eq!(talk.get(&path).await, streaming);
    talk.fake.release(1);
    super::until_state(&mut events, "Idle").await;
    assert_eq!(talk.get(&path).await, idle);
}

#[tokio::test]
async fn a_heartbeat_comes_after_every_30_seconds() {
    let talk = Talk::new().await;
    let context = talk.create().await;
    let mut events = talk.follow(&context).await;
    for _ in 0..2 {
        // The log is read first, by a thread that knows nothing of paused time.
        for _ in 0..1000 {
            assert!(events.next().now_or_never().is_none(), "nothing has happened");
            tokio::task::yield_now().await;
        }
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(31)).await;
        let heartbeat = (String::new(), "Heartbeat".to_owned(), json!({ "timestamp": AT }));
        assert_eq!(events.next().await, Some(heartbeat), "it has no id: there is nothing to come back to");
        tokio::time::resume();
    }
}

#[tokio::test]
async fn every_error_has_its_code_its_status_and_the_contracts_object() {
    let talk = Talk::new().await;
    let context = talk.create().await;
    let none = "550e8400-e29b-41d4-a716-446655440000";
    let (status, reply) = talk.call("GET", &format!("/{none}"), None).await;
    let expected = json!({ "error": {
        "code": "CONTEXT_NOT_FOUND", "message": format!("Context with ID {none} not found"),
        "details": { "context_id": none }, "hint": "look for its id in GET /api/contexts",
    }});
    assert_eq!((status, reply), (404, expected));

    let content = || Some(json!({ "content": "x" }));
    for (method, path, body) in [
        ("PUT", "", Some(json!({ "mode": "plan" }))),
        ("DELETE", "", None),
        ("GET", "/messages", None),
        ("POST", "/messages", content()),
        ("GET", "/messages/m", None),
        ("PUT", "/messages/m", content()),
        ("GET", "/messages/m/content", None),
        ("GET", "/messages?ids=m", None),
        ("GET", "/branches", None),
        ("POST", "/branches", Some(json!({ "name": "b" }))),
        ("PUT", "/branches/b", None),
        ("DELETE", "/branches/b", None),
        ("GET", "/state", None),
        ("POST", "/retry", None),
        ("POST", "/cancel", None),
        ("GET", "/events", None),
    ] {
        talk.refuses(method, &format!("/{none}{path}"), body, 404, "CONTEXT_NOT_FOUND").await;
    }
    talk.refuses("POST", "", Some(json!({ "parent_id": none })), 404, "CONTEXT_NOT_FOUND").await;

    let is = async |method: &str, path: &str, body: Option<Value>, status: u16, code: &str| {
        talk.refuses(method, &format!("/{context}{path}"), body, status, code).await;
    };
    is("GET", "/messages?branch=none", None, 404, "BRANCH_NOT_FOUND").await;
    is("POST", "/messages", Some(json!({ "content": "x", "branch": "none" })), 404, "BRANCH_NOT_FOUND").await;
    is("PUT", "/branches/none", None, 404, "BRANCH_NOT_FOUND").await;
    is("DELETE", "/branches/none", None, 404, "BRANCH_NOT_FOUND").await;
    is("GET", "/messages/none", None, 404, "MESSAGE_NOT_FOUND").await;
    is("GET", "/messages/none/content", None, 404, "MESSAGE_NOT_FOUND").await;
    is("PUT", "/messages/none", content(), 404, "MESSAGE_NOT_FOUND").await;
    let branch = Some(json!({ "name": "b", "parent_message_id": "none" }));
    is("POST", "/branches", branch, 404, "MESSAGE_NOT_FOUND").await;
    is("POST", "/retry", None, 400, "INVALID_STATE").await;
    is("POST", "/cancel", None, 400, "INVALID_STATE").await;
    is("POST", "/messages", Some(json!({})), 400, "VALIDATION_ERROR").await;
    is("PUT", "", Some(json!({ "mode": 1 })), 400, "VALIDATION_ERROR").await;
    talk.refuses("GET", "/a%2Fb", None, 400, "VALIDATION_ERROR").await;
    assert_eq!(talk.said(&context, None).await, [], "nothing was said");
}

#[tokio::test]
async fn a_message_of_another_context_is_not_found_here() {
    let talk = Talk::new().await;
    let (_, question, _) = greeting(&talk).await;
    let other = talk.create().await;
    talk.refuses("GET", &format!("/{other}/messages/{question}"), None, 404, "MESSAGE_NOT_FOUND").await;
    let edit = Some(json!({ "content": "x" }));
    talk.refuses("PUT", &format!("/{other}/messages/{question}"), edit, 404, "MESSAGE_NOT_FOUND").await;
    let fork = Some(json!({ "name": "b", "parent_message_id": question }));
    talk.refuses("POST", &format!("/{other}/branches"), fork, 404, "MESSAGE_NOT_FOUND").await;
}

#[tokio::test]
async fn the_demo_answers_without_a_provider() {
    let client = client_of(None);
    let talk = Talk { client, fake: waystone_testkit::model::FakeModel::start().await };
    let context = talk.create_with(json!({})).await;
    let (_, answer) = talk.ask(&context, "Hello, how are you?").await;
    let message = talk.get(&format!("/{context}/messages/{answer}")).await;
    let said = text(&message["content"][0]["text"]);
    assert!(said.contains("Hello, how are you?"), "{said}");
    assert_eq!(message["metadata"]["model_id"], "demo");
}
