//! Turns: their states, what the model is told, failures, ends, and the branches they are on.

use std::sync::Arc;

use serde_json::json;
use waystone_connect::{ProviderSettings, Providers};
use waystone_core::api::{ContextState, EditMessage, ListOperations, MessageType, Role, UpdateContext};
use waystone_core::error::Conflict;
use waystone_core::{Chat, Error};
use waystone_testkit::model::Reply;

use super::{Talk, is_idle, states, told, until_state};

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_goes_through_its_states_and_ends_with_the_answer_as_a_message() {
    let t = Talk::new().await;
    t.fake.then(Reply::chunks(["Hello", " wor", "ld!"]));
    let id = t.begin().await;
    let mut reader = t.follow(&id, None).await;
    let added = t.try_say(&id, json!({ "content": "Hi" })).await.unwrap();
    assert_eq!((added.context_state, added.branch.as_str()), (ContextState::ProcessingUserMessage, "main"));
    let frames = until_state(&mut reader, is_idle).await;
    assert_eq!(
        states(&frames),
        ["ProcessingUserMessage", "AwaitingLLMResponse", "StreamingLLMResponse", "ProcessingLLMResponse", "Idle"]
    );
    let deltas: Vec<(String, u64)> = told(&frames)
        .into_iter()
        .filter(|(kind, _)| kind == "ContentDelta")
        .map(|(_, data)| (data["delta"].as_str().unwrap().to_owned(), data["sequence"].as_u64().unwrap()))
        .collect();
    assert_eq!(deltas, [("Hello".to_owned(), 1), (" wor".to_owned(), 2), ("ld!".to_owned(), 3)]);
    let messages = t.messages(&id, None).await;
    assert_eq!(messages.iter().map(|message| message.role).collect::<Vec<_>>(), [Role::User, Role::Assistant]);
    assert_eq!(messages[1].text(), "Hello world!");
    assert_eq!(messages[1].parent_id.as_ref(), Some(&messages[0].id));
    assert_eq!(messages[1].metadata.model_id.as_deref(), Some("fake"));
    t.h.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_model_is_told_the_system_prompt_and_all_that_was_said_on_the_branch() {
    let t = Talk::new().await;
    let id = t.create(json!({ "system_prompt_id": "brief", "mode": "plan", "agent_role": "reviewer" })).await.id;
    t.fake.then(Reply::text("first answer")).then(Reply::text("second answer"));
    t.say(&id, "first").await;
    t.say(&id, "second").await;
    let asked = t.fake.requests().pop().unwrap();
    let said: Vec<(&str, &str)> = asked["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|said| (said["role"].as_str().unwrap(), said["content"].as_str().unwrap()))
        .collect();
    assert!(
        said[0].0 == "system" && said[0].1.starts_with("Be brief.\n\n") && said[0].1.contains("reviewer"),
        "{said:?}"
    );
    assert_eq!(said[1..], [("user", "first"), ("assistant", "first answer"), ("user", "second")]);
    assert_eq!(t.messages(&id, None).await[1].message_type, MessageType::Plan);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_system_prompt_is_said_and_the_default_one_used() {
    let t = Talk::new().await;
    let id = t.create(json!({ "system_prompt_id": "lost" })).await.id;
    let added = t.try_say(&id, json!({ "content": "Hi" })).await.unwrap();
    assert!(added.warnings[0].contains("there is no system prompt `lost`"), "{:?}", added.warnings);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_conversation_has_one_turn_and_others_go_on_beside_it() {
    let t = Talk::new().await;
    t.fake.then(Reply::text("slow answer").gated());
    let (slow, quick) = (t.begin().await, t.begin().await);
    let mut reader = t.follow(&slow, None).await;
    t.try_say(&slow, json!({ "content": "a" })).await.unwrap();
    until_state(&mut reader, |state| state == "AwaitingLLMResponse").await;
    t.fake.asked(1).await;
    let refused = t.try_say(&slow, json!({ "content": "b" })).await.unwrap_err();
    assert!(matches!(refused, Error::InvalidState { .. }) && refused.code() == "INVALID_STATE", "{refused}");
    t.say(&quick, "c").await;
    assert_eq!(t.state(&quick).await.current_state, ContextState::Idle);
    assert!(t.state(&slow).await.current_state.is_running());
    t.fake.release(10);
    until_state(&mut reader, is_idle).await;
    assert_eq!(t.texts(&slow, None).await, ["a", "slow answer"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_streamed_is_kept_and_marked_when_a_turn_is_ended() {
    let t = Talk::new().await;
    t.fake.then(Reply::chunks(["one ", "two ", "three"]).gated());
    let id = t.begin().await;
    let mut reader = t.follow(&id, None).await;
    t.try_say(&id, json!({ "content": "count" })).await.unwrap();
    t.fake.release(2);
    let mut seen = String::new();
    while seen != "one two " {
        for (_, data) in told(&reader.next().await.unwrap()) {
            seen += data["delta"].as_str().unwrap_or_default();
        }
    }
    let ended = t.h.engine.cancel_turn(&t.h.scope, &id, None).await.unwrap();
    assert_eq!(ended.context_state, ContextState::Idle);
    let messages = t.messages(&id, None).await;
    assert_eq!((messages[1].text().as_str(), messages[1].metadata.cancelled), ("one two ", true));
    assert_eq!(ended.message_id.as_ref(), Some(&messages[1].id));
    t.fake.gone(1).await;
    let again = t.h.engine.cancel_turn(&t.h.scope, &id, None).await.unwrap_err();
    assert_eq!(again.code(), "INVALID_STATE");
    t.say(&id, "go on").await;
    assert_eq!(t.texts(&id, None).await.len(), 4);
    t.h.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_ends_a_turn_while_nothing_can_be_written_is_told_so_and_a_process_that_ends_does_not_wait() {
    let mut t = Talk::new().await;
    let id = t.begin().await;
    for is_left in [false, true] {
        t.fake.then(Reply::chunks(["one ", "two ", "three"]).gated());
        let mut reader = t.follow(&id, None).await;
        t.try_say(&id, json!({ "content": "count" })).await.unwrap();
        t.fake.release(2);
        while !told(&reader.next().await.unwrap()).into_iter().any(|(_, data)| data["delta"] == "two ") {}
        t.h.refuse_steps(true);
        let ticking = t.tick();
        if is_left {
            t.restart().await;
            t.h.engine.adopt_turns(&t.h.scope).await.unwrap();
            t.fake.release(10);
        } else {
            let refused = t.h.engine.cancel_turn(&t.h.scope, &id, None).await.unwrap_err();
            assert_eq!(refused.code(), "STORAGE_UNAVAILABLE");
            t.h.refuse_steps(false);
        }
        while t.state(&id).await.current_state.is_running() {
            tokio::task::yield_now().await;
        }
        ticking.abort();
    }
    let messages = t.messages(&id, None).await;
    assert_eq!((messages[1].text().as_str(), messages[1].metadata.cancelled), ("one two ", true));
    t.h.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_may_not_be_longer_is_kept_and_said_to_be_cut() {
    let t = Talk::new().await;
    let said = r#"{"choices":[{"delta":{"content":"half of"},"finish_reason":"length"}]}"#;
    t.fake.then(Reply::events([said])).then(Reply::text("and the rest"));
    let id = t.begin().await;
    let mut reader = t.follow(&id, None).await;
    t.try_say(&id, json!({ "content": "all of it" })).await.unwrap();
    let frames = until_state(&mut reader, is_idle).await;
    let (_, completed) = told(&frames).into_iter().find(|(kind, _)| kind == "MessageCompleted").unwrap();
    assert_eq!(
        completed["warnings"][0],
        "the answer ends at the limit of its length: ask it to go on, or raise parameters.max_tokens"
    );
    t.say(&id, "go on").await;
    let messages = t.messages(&id, None).await;
    let cut: Vec<bool> = messages.iter().map(|message| message.metadata.truncated).collect();
    assert_eq!((t.texts(&id, None).await[1].as_str(), cut), ("half of", vec![false, true, false, false]));
    t.h.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_fails_is_asked_three_times_and_again_when_someone_says_so() {
    let t = Talk::new().await;
    t.fake.then(Reply::text("busy").status(503)).then(Reply::chunks(["half ", "an answer"]).cut_after(1));
    t.fake.then(Reply::text("busy").status(503));
    let id = t.begin().await;
    let mut reader = t.follow(&id, None).await;
    t.try_say(&id, json!({ "content": "Hi" })).await.unwrap();
    until_state(&mut reader, |state| state == "TransientFailure").await;
    let state = t.state(&id).await;
    assert!(state.error.is_some() && !state.can_send_message);
    let ticking = t.tick();
    let frames = until_state(&mut reader, |state| state == "PermanentFailure").await;
    ticking.abort();
    let failures = states(&frames).iter().filter(|state| *state == "TransientFailure").count();
    assert_eq!(failures, 1, "after the second try it was to be tried once more");
    assert_eq!(told(&frames).last().unwrap().1["error"]["code"], "MODEL_FAILED");
    assert_eq!(t.fake.requests().len(), 3);
    assert_eq!(t.texts(&id, None).await, ["Hi"]);

    t.fake.then(Reply::chunks(["half ", "an answer, and the rest"]));
    let mut reader = t.follow(&id, None).await;
    let retried = t.h.engine.retry_turn(&t.h.scope, &id, None).await.unwrap();
    assert_eq!(retried.context_state, ContextState::AwaitingLLMResponse);
    let frames = until_state(&mut reader, is_idle).await;
    let attempts: Vec<u64> = told(&frames).iter().filter_map(|(_, data)| data["attempt"].as_u64()).collect();
    assert_eq!(attempts, [2, 2], "the message is written anew");
    assert_eq!(t.texts(&id, None).await, ["Hi", "half an answer, and the rest"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fatal_error_ends_the_turn_at_once_and_says_what_to_do() {
    let t = Talk::new().await;
    t.fake.then(Reply::text("bad key").status(401));
    let id = t.begin().await;
    t.say(&id, "Hi").await;
    let error = t.state(&id).await.error.unwrap();
    assert_eq!(error.code, "MODEL_UNAUTHORIZED");
    assert!(error.hint.contains("OPENAI_API_KEY"), "{error:?}");
    t.say(&id, "Hi again").await;
    assert_eq!(t.state(&id).await.error, None);
    assert_eq!(t.texts(&id, None).await.len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_whose_process_is_gone_is_gone_on_with_by_another() {
    let mut t = Talk::new().await;
    t.fake.then(Reply::chunks(["lost ", "words"]).hang_after(1)).then(Reply::text("the whole answer"));
    let id = t.begin().await;
    let mut reader = t.follow(&id, None).await;
    t.try_say(&id, json!({ "content": "Hi" })).await.unwrap();
    until_state(&mut reader, |state| state == "StreamingLLMResponse").await;
    assert_eq!(t.h.engine.adopt_turns(&t.h.scope).await.unwrap(), 0, "its process is alive");
    t.restart().await;
    assert!(t.state(&id).await.current_state.is_running());
    let mut reader = t.follow(&id, None).await;
    assert_eq!(t.h.engine.adopt_turns(&t.h.scope).await.unwrap(), 1);
    assert_eq!(t.h.engine.adopt_turns(&t.h.scope).await.unwrap(), 0, "it is adopted once");
    let frames = until_state(&mut reader, is_idle).await;
    let attempts: Vec<u64> = told(&frames).iter().filter_map(|(_, data)| data["attempt"].as_u64()).collect();
    assert!(!attempts.is_empty() && attempts.iter().all(|attempt| *attempt == 2), "{attempts:?}");
    assert_eq!(t.texts(&id, None).await, ["Hi", "the whole answer"]);
    t.h.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_can_be_ended_by_another_process() {
    let t = Talk::new().await;
    t.fake.then(Reply::chunks(["kept ", "not sent"]).hang_after(1));
    let id = t.begin().await;
    let mut reader = t.follow(&id, None).await;
    t.try_say(&id, json!({ "content": "Hi" })).await.unwrap();
    let mut is_told = false;
    while !is_told {
        is_told = told(&reader.next().await.unwrap()).iter().any(|(kind, _)| kind == "ContentDelta");
    }
    let other = t.h.second();
    // What was streamed is in the log after 100 ms.
    while other.find_turn(&t.h.scope, &id).await.unwrap().message_id.is_none() {
        tokio::task::yield_now().await;
    }
    let content = |engine: waystone_core::Engine| {
        let (scope, id) = (t.h.scope.clone(), id.clone());
        async move {
            let draft = engine.find_turn(&scope, &id).await.unwrap().message_id.unwrap();
            let from = serde_json::from_value(json!({})).unwrap();
            engine.read_content(&scope, &id, &draft, from).await.unwrap().content
        }
    };
    t.h.clock.advance_ms(200);
    while content(other.clone()).await != "kept " {
        tokio::task::yield_now().await;
    }
    let ended = other.cancel_turn(&t.h.scope, &id, None).await.unwrap();
    assert!(ended.message_id.is_some());
    until_state(&mut reader, is_idle).await;
    assert_eq!(t.texts(&id, None).await, ["Hi", "kept "]);
    other.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_made_again_has_one_effect_and_the_first_answer() {
    let t = Talk::new().await;
    let context = json!({ "mode": "code", "idempotency_key": "c1" });
    let (first, again) = (t.create(context.clone()).await, t.create(context).await);
    assert_eq!(first.id, again.id);
    let say = |content: &str| json!({ "content": content, "idempotency_key": "m1" });
    let added = t.try_say(&first.id, say("Hi")).await.unwrap();
    let mut reader = t.follow(&first.id, Some("-0")).await;
    until_state(&mut reader, is_idle).await;
    assert_eq!(t.try_say(&first.id, say("Hi")).await.unwrap(), added);
    assert_eq!(t.texts(&first.id, None).await.len(), 2);
    let other = t.try_say(&first.id, say("Ho")).await.unwrap_err();
    assert!(matches!(other, Error::Conflict(Conflict::KeyReused(_))), "{other}");
}

#[tokio::test(flavor = "multi_thread")]
async fn branches_share_what_came_before_and_an_edit_makes_a_sibling() {
    let t = Talk::new().await;
    for answer in ["A1", "A2", "A2b", "A3"] {
        t.fake.then(Reply::text(answer));
    }
    let id = t.begin().await;
    t.say(&id, "Q1").await;
    t.say(&id, "Q2").await;
    let second = t.messages(&id, None).await[2].id.clone();
    let key = Some("once".parse().unwrap());
    let edit = EditMessage { content: "Q2b".to_owned(), branch: None, idempotency_key: key };
    let mut reader = t.follow(&id, None).await;
    let edited = t.h.engine.edit_message(&t.h.scope, &id, &second, edit.clone()).await.unwrap();
    until_state(&mut reader, is_idle).await;
    let again = t.h.engine.edit_message(&t.h.scope, &id, &second, edit.clone()).await.unwrap();
    assert_eq!(again, edited, "it was sent again");
    let other = EditMessage { content: "Q2c".to_owned(), ..edit };
    let other = t.h.engine.edit_message(&t.h.scope, &id, &second, other).await.unwrap_err();
    assert!(matches!(other, Error::Conflict(Conflict::KeyReused(_))), "{other}");
    let blank = EditMessage { content: " \n".to_owned(), branch: None, idempotency_key: None };
    let blank = t.h.engine.edit_message(&t.h.scope, &id, &second, blank).await.unwrap_err();
    assert_eq!(blank.to_string(), "content is empty");
    let blank = t.try_say(&id, serde_json::from_value(json!({ "content": "\t" })).unwrap()).await.unwrap_err();
    assert_eq!(blank.to_string(), "content is empty");
    assert_eq!(edited.branch, "edit-1");
    assert_eq!(t.texts(&id, None).await, ["Q1", "A1", "Q2b", "A2b"]);
    assert_eq!(t.texts(&id, Some("main")).await, ["Q1", "A1", "Q2", "A2"]);
    let fork = t.messages(&id, Some("main")).await[1].id.clone();
    let from_fork = serde_json::from_value(json!({ "name": "third", "parent_message_id": fork })).unwrap();
    let branch = t.h.engine.create_branch(&t.h.scope, &id, from_fork).await.unwrap();
    assert_eq!((branch.message_ids.len(), branch.is_active), (0, false));
    assert_eq!(t.texts(&id, Some("third")).await, ["Q1", "A1"]);
    let third = "third".parse().unwrap();
    t.h.engine.switch_branch(&t.h.scope, &id, &third).await.unwrap();
    t.say(&id, "Q3").await;
    assert_eq!(t.texts(&id, None).await, ["Q1", "A1", "Q3", "A3"]);
    let refused = t.h.engine.delete_branch(&t.h.scope, &id, &third).await.unwrap_err();
    assert_eq!(refused.code(), "INVALID_STATE");
    let main = "main".parse().unwrap();
    t.h.engine.delete_branch(&t.h.scope, &id, &main).await.unwrap();
    assert_eq!(t.texts(&id, Some("edit-1")).await, ["Q1", "A1", "Q2b", "A2b"], "its messages stay where others go on");
    let names: Vec<String> = t.context(&id).await.branches.unwrap().into_keys().collect();
    assert_eq!(names, ["edit-1", "third"]);
    let listed = ListOperations { project_id: None, limit: 1, cursor: None };
    let deleted = t.h.engine.list_operations(&t.h.scope, listed).await.unwrap().operations.remove(0);
    let how = deleted.how_restored().unwrap();
    let route = format!("POST /api/contexts/{id}/branches/main/restore");
    assert!(how.contains("branch `main`") && how.ends_with(&route), "{how}");
    let key = || Some("again".parse().unwrap());
    let restored = t.h.engine.restore_branch(&t.h.scope, &id, &main, key()).await.unwrap();
    assert_eq!(t.h.engine.restore_branch(&t.h.scope, &id, &main, key()).await.unwrap(), restored, "it was sent again");
    assert_eq!((restored.name.as_str(), restored.message_ids.len(), restored.is_active), ("main", 4, false));
    assert_eq!(t.texts(&id, Some("main")).await, ["Q1", "A1", "Q2", "A2"]);
    let again = t.h.engine.restore_branch(&t.h.scope, &id, &main, None).await.unwrap_err();
    assert_eq!(again.code(), "CONFLICT");
    let unknown = t.h.engine.restore_branch(&t.h.scope, &id, &"never".parse().unwrap(), None).await.unwrap_err();
    assert_eq!(unknown.code(), "BRANCH_NOT_FOUND");
    t.h.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_a_branch_is_found_wherever_it_was_forked() {
    let t = Talk::new().await;
    let id = t.begin().await;
    for round in 0..4 {
        t.say(&id, &format!("Q{round}")).await;
        let tip = t.messages(&id, None).await.pop().unwrap().id;
        let name = format!("b{round}");
        let request = serde_json::from_value(json!({ "name": name, "parent_message_id": tip })).unwrap();
        t.h.engine.create_branch(&t.h.scope, &id, request).await.unwrap();
        t.h.engine.switch_branch(&t.h.scope, &id, &name.parse().unwrap()).await.unwrap();
    }
    let all = t.texts(&id, None).await;
    assert_eq!(all.len(), 8);
    for offset in 0..10 {
        for limit in 1..10 {
            let request = serde_json::from_value(json!({ "offset": offset, "limit": limit })).unwrap();
            let page = t.h.engine.list_messages(&t.h.scope, &id, request).await.unwrap();
            let texts: Vec<String> = page.messages.iter().map(|message| message.text()).collect();
            let end = (offset + limit).min(8);
            assert_eq!(texts, all[offset.min(8)..end.max(offset.min(8))], "{offset} {limit}");
            assert_eq!((page.total, page.has_more), (8, offset < 8 && offset + limit < 8), "{offset} {limit}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_may_begin_with_the_active_branch_of_another() {
    let t = Talk::new().await;
    t.fake.then(Reply::text("A1"));
    let first = t.create(json!({ "workspace_path": "/home/dev/app" })).await;
    assert_eq!(first.project_id.as_str(), "app");
    t.say(&first.id, "Q1").await;
    let copy = t.create(json!({ "parent_id": first.id })).await;
    assert_eq!(copy.parent_id.as_ref(), Some(&first.id));
    assert_eq!(t.texts(&copy.id, None).await, ["Q1", "A1"]);
    let (before, after) = (t.messages(&first.id, None).await, t.messages(&copy.id, None).await);
    assert!(before.iter().zip(&after).all(|(a, b)| a.id != b.id));
    t.say(&copy.id, "Q2").await;
    assert_eq!(t.texts(&first.id, None).await.len(), 2);
    t.h.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_that_is_configured_anew_is_led_so_from_its_next_turn_on() {
    let t = Talk::new().await;
    let id = t.begin().await;
    let change = UpdateContext { model_id: Some("other".to_owned()), ..UpdateContext::default() };
    let updated = t.h.engine.update_context(&t.h.scope, &id, change).await.unwrap();
    assert_eq!((updated.config.model_id.as_str(), updated.config.mode.as_str()), ("other", "chat"));
    t.say(&id, "Hi").await;
    assert_eq!(t.fake.requests()[0]["model"], "other");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_store_may_fail_at_any_step_of_a_turn_and_the_turn_ends_all_the_same() {
    for steps in 0.. {
        let mut t = Talk::new().await;
        let id = t.begin().await;
        t.h.fail_after(steps).await;
        t.h.engine = t.connect(t.h.engine.clone());
        let said = t.try_say(&id, json!({ "content": "Hi" })).await;
        let ticking = t.tick();
        // Whoever comes back sees the turn ended, or never begun.
        while t.h.engine.find_turn(&t.h.scope, &id).await.map_or(true, |turn| turn.current_state.is_running()) {
            let _ = t.h.engine.adopt_turns(&t.h.scope).await;
        }
        ticking.abort();
        t.restart().await;
        let texts = t.texts(&id, None).await;
        assert!(said.is_err() && texts.len() != 1 || texts == ["Hi", "Hi"], "{steps}: {said:?} {texts:?}");
        t.h.check_invariants().await;
        if steps > 40 {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_must_know_how_long_an_answer_may_be_is_told_what_is_left_for_it() {
    let mut t = Talk::new().await;
    let settings = ProviderSettings {
        anthropic_api_key: Some("key".to_owned()),
        anthropic_base_url: Some(t.fake.root_url()),
        models: serde_json::from_value(json!({ "small": { "provider": "anthropic", "limit": 2000 } })).unwrap(),
        ..ProviderSettings::default()
    };
    let chat = Chat { model: Arc::new(Providers::new(settings)), ..t.chat() };
    t.h.engine = t.h.engine.clone().with_chat(chat);
    let cases = [
        (json!({ "model_id": "claude-sonnet-4-5" }), 4096),
        (json!({ "model_id": "small" }), 500),
        (json!({ "model_id": "small", "parameters": { "max_tokens": 700 } }), 700),
    ];
    for (request, expected) in cases {
        let id = t.create(request.clone()).await.id;
        t.say(&id, "Hi").await;
        assert_eq!(t.fake.requests().pop().unwrap()["max_tokens"], expected, "{request}");
    }
}
