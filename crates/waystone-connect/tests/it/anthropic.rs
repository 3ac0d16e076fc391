//! Anthropic's messages: what is sent, what comes back, and what goes wrong.

use serde_json::{Value, json};
use tokio::time::{Instant, pause};
use waystone_connect::{ProviderSettings, Providers};
use waystone_core::api::Role;
use waystone_core::model::{Chunk, Cut, Model, ModelCall, ModelError, Said, Usage};
use waystone_testkit::model::{FakeModel, Reply};

use crate::ask::{ANSWER_TOKENS, KEY, call, call_with_tools, called, calls, drain, text, texts, usage};

const MODEL: &str = "claude-sonnet-4-5";

fn at(fake: &FakeModel) -> Providers {
    let (anthropic_api_key, anthropic_base_url) = (Some(KEY.to_owned()), Some(fake.root_url()));
    Providers::new(ProviderSettings { anthropic_api_key, anthropic_base_url, ..ProviderSettings::default() })
}

async fn ask(fake: &FakeModel) -> (Vec<Chunk>, Option<ModelError>) {
    drain(at(fake).call(call_with_tools(MODEL, "hi there")).await.unwrap()).await
}

/// What is sent for `asked`.
async fn request(asked: ModelCall) -> Value {
    let fake = FakeModel::start().await;
    at(&fake).call(asked).await.unwrap();
    fake.requests().remove(0)
}

fn said(role: Role, text: &str) -> Said {
    Said::Text { role, text: text.to_owned() }
}

fn result(call_id: &str, text: &str, is_error: bool) -> Said {
    Said::Result { call_id: call_id.to_owned(), tool: "time".to_owned(), text: text.to_owned(), is_error }
}

#[tokio::test]
async fn a_question_is_put_as_anthropic_wants_it() {
    let mut asked = call_with_tools(MODEL, "one");
    asked.system = "Be brief.".to_owned();
    asked.tools[1].description.clear();
    asked.answer_tokens = 3000;
    let schema = json!({ "type": "object", "properties": { "city": { "type": "string" } } });
    let cached = json!({ "type": "ephemeral" });
    let expected = json!({
        "model": MODEL,
        "max_tokens": 3000,
        "stream": true,
        "system": [{ "type": "text", "text": "Be brief.", "cache_control": cached }],
        "messages": [{ "role": "user", "content": [{ "type": "text", "text": "one", "cache_control": cached }] }],
        "tools": [
            { "name": "weather", "input_schema": schema, "description": "The weather of a city" },
            { "name": "time", "input_schema": schema },
        ],
    });
    assert_eq!(request(asked.clone()).await, expected);

    asked.system.clear();
    asked.is_last = true;
    let without_system = request(asked).await;
    assert_eq!((&without_system["system"], &without_system["tools"][1]["cache_control"]), (&Value::Null, &cached));
    assert_eq!(without_system["tool_choice"], json!({ "type": "none" }));
}

#[tokio::test]
async fn users_and_the_model_speak_in_turn_and_results_come_first() {
    let mut asked = call_with_tools(MODEL, "one");
    asked.messages.extend([said(Role::User, "two"), said(Role::System, "rule"), said(Role::User, " \n")]);
    asked.messages.push(Said::Calls {
        text: "Let me see.".to_owned(),
        calls: vec![called("a", "time", json!({ "city": "Bern" })), called("b.1:x", "time", json!("{\"ci"))],
    });
    asked.messages.extend([result("a", "noon", false), said(Role::User, "well?"), result("b.1:x", "", true)]);
    asked.messages.extend([
        said(Role::Assistant, "Noon."),
        said(Role::Assistant, "Sharp."),
        said(Role::User, "thanks"),
    ]);
    let text = |text: &str| json!({ "type": "text", "text": text });
    let expected = json!([
        { "role": "user", "content": [text("one"), text("two"), text("<system>\nrule\n</system>")] },
        { "role": "assistant", "content": [
            text("Let me see."),
            { "type": "tool_use", "id": "a", "name": "time", "input": { "city": "Bern" } },
            { "type": "tool_use", "id": "b_1_x", "name": "time", "input": { "arguments": "{\"ci" } },
        ] },
        { "role": "user", "content": [
            { "type": "tool_result", "tool_use_id": "a", "content": [text("noon")] },
            { "type": "tool_result", "tool_use_id": "b_1_x", "content": [], "is_error": true },
            text("well?"),
        ] },
        { "role": "assistant", "content": [text("Noon."), text("Sharp.")] },
        { "role": "user", "content": [{ "type": "text", "text": "thanks", "cache_control": { "type": "ephemeral" } }] },
    ]);
    assert_eq!(request(asked).await["messages"], expected);
}

#[tokio::test]
async fn a_conversation_that_has_lost_its_beginning_or_its_tools_can_be_gone_on_with() {
    let mut asked = call(MODEL, "");
    asked.messages = vec![
        Said::Calls {
            text: String::new(),
            calls: vec![called("a", "time", json!({})), called("b", "date", json!({}))],
        },
        result("a", "noon", false),
        result("b", "today", false),
    ];
    let sent = request(asked).await;
    assert_eq!(
        sent["messages"][0],
        json!({ "role": "user", "content": [{ "type": "text", "text": "(The conversation goes on.)" }] })
    );
    assert_eq!(sent["messages"][1]["role"], "assistant");
    assert_eq!(sent["tools"][0], json!({ "name": "date", "input_schema": { "type": "object" } }));
    assert_eq!((&sent["tools"][1]["name"], &sent["tool_choice"]["type"]), (&json!("time"), &json!("none")));
}

#[tokio::test]
async fn parameters_are_passed_on_to_anthropic_but_change_nothing_of_ours() {
    let mut asked = call(MODEL, "hi");
    let thinking = json!({ "type": "enabled", "budget_tokens": 1024 });
    let parameters = json!({
        "max_tokens": 2000, "temperature": 0.5, "top_k": null, "thinking": thinking,
        "model": "other", "messages": [], "system": "no", "stream": false, "tools": [{}], "tool_choice": { "type": "any" },
    });
    asked.parameters = parameters.as_object().unwrap().clone();
    let content = json!([{ "type": "text", "text": "hi", "cache_control": { "type": "ephemeral" } }]);
    let expected = json!({
        "model": MODEL, "max_tokens": 2000, "stream": true, "messages": [{ "role": "user", "content": content }],
        "temperature": 0.5, "thinking": thinking,
    });
    assert_eq!(request(asked.clone()).await, expected);

    // Thoughts are not kept, so that there can be none while tools are called.
    asked.messages.push(Said::Calls { text: String::new(), calls: vec![called("a", "time", json!({}))] });
    asked.messages.push(result("a", "noon", false));
    assert_eq!(request(asked.clone()).await["thinking"], Value::Null);

    asked.parameters = json!({ "max_tokens": null }).as_object().unwrap().clone();
    assert_eq!(request(asked).await["max_tokens"], ANSWER_TOKENS);
}

#[tokio::test]
async fn the_key_and_the_version_are_headers_and_the_address_may_have_the_version_too() {
    let fake = FakeModel::start().await;
    for base_url in [fake.root_url(), fake.root_url() + "/", fake.base_url()] {
        for key in [None, Some(KEY.to_owned())] {
            let (anthropic_api_key, anthropic_base_url) = (key, Some(base_url.clone()));
            let settings = ProviderSettings { anthropic_api_key, anthropic_base_url, ..ProviderSettings::default() };
            Providers::new(settings).call(call(MODEL, "hi")).await.unwrap();
        }
    }
    assert_eq!(fake.api_keys(), vec![[None, Some(KEY.to_owned())]; 3].concat());
    assert_eq!(fake.authorizations(), vec![None; 6]);
}

#[tokio::test]
async fn an_answer_comes_chunk_by_chunk_and_its_calls_after_it() {
    let fake = FakeModel::start().await;
    let rain = [("weather", json!({ "city": "Zürich 🌧", "days": [1, 2] })), ("time", json!({}))];
    let expected = [called("toolu_0", "weather", rain[0].1.clone()), called("toolu_1", "time", json!({}))];
    for size in (1..=40).chain([1000]) {
        fake.then(Reply::chunks(["naïve ", "🦀"]).tool_calls(rain.clone()).split_calls(size).split_bytes(size));
        let (chunks, error) = ask(&fake).await;
        assert_eq!((&chunks[..2], error), (&texts(["naïve ", "🦀"])[..], None), "{size} at a time");
        assert_eq!(calls(&chunks[2..4]), expected, "{size} at a time");
        assert!(matches!(chunks[4..], [Chunk::Usage(_)]), "{chunks:?}");
    }
    fake.then(Reply::calls(rain));
    assert_eq!(calls(&ask(&fake).await.0), expected);
}

#[tokio::test]
async fn what_was_read_afresh_from_a_cache_and_into_one_is_the_prompt() {
    let fake = FakeModel::start().await;
    fake.then(Reply::chunks(["a", "b"]));
    assert_eq!(ask(&fake).await.0[2], usage(2, 2));
    let mut asked = call(MODEL, "six words are in this question");
    asked.system = "And two".to_owned();
    fake.then(Reply::chunks(["a"]).cached(4, 1));
    let (chunks, _) = drain(at(&fake).call(asked).await.unwrap()).await;
    assert_eq!(chunks[1], Chunk::Usage(Usage { prompt: 8, completion: 1, cache_read: 4, cache_write: 1 }));
}

#[tokio::test]
async fn what_is_thought_or_not_known_is_passed_over() {
    let fake = FakeModel::start().await;
    fake.then(Reply::events([
        r#"{"type":"message_start","message":{"id":"m","content":[],"usage":{"input_tokens":7,"output_tokens":0}}}"#,
        r#"{"type":"ping"}"#,
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hm"}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"x"}}"#,
        r#"{"type":"content_block_stop","index":0}"#,
        r#"{"type":"content_block_start","index":1,"content_block":{"type":"server_tool_use","id":"s","name":"n","input":{}}}"#,
        r#"{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{}"}}"#,
        r#"{"type":"content_block_start","index":2,"content_block":{"type":"text","text":"a"}}"#,
        r#"{"type":"content_block_delta","index":2,"delta":{"type":"text_delta","text":"b"}}"#,
        r#"{"type":"content_block_delta","index":2,"delta":{"type":"citations_delta","citation":{}}}"#,
        r#"{"type":"content_block_start","index":3,"content_block":{"type":"tool_use","name":"time","input":{"city":"Bern"}}}"#,
        r#"{"type":"content_block_stop","index":3}"#,
        r#"{"type":"something_new","x":1}"#,
        r#"{"type":"message_delta","delta":{"stop_reason":"max_tokens"},"usage":{"input_tokens":0,"output_tokens":3}}"#,
        r#"{"type":"message_stop"}"#,
        "not read",
    ]));
    let (chunks, error) = ask(&fake).await;
    let call = Chunk::Call(called("call_1", "time", json!({ "city": "Bern" })));
    assert_eq!((chunks, error), ([texts(["a", "b"]), vec![call, usage(7, 3), Chunk::Cut(Cut::Length)]].concat(), None));
}

#[tokio::test]
async fn arguments_that_are_no_object_are_told_as_they_were_written() {
    let fake = FakeModel::start().await;
    for (pieces, expected) in [
        (vec![], json!({})),
        (vec![""], json!({})),
        (vec!["{\"city\": \"Be"], json!("{\"city\": \"Be")),
        (vec!["[1", "]"], json!("[1]")),
    ] {
        let begin = json!({ "type": "tool_use", "id": "a", "name": "time", "input": {} });
        let begin = json!({ "type": "content_block_start", "index": 0, "content_block": begin });
        let delta = |piece: &&str| json!({ "type": "input_json_delta", "partial_json": piece });
        let deltas =
            pieces.iter().map(delta).map(|delta| json!({ "type": "content_block_delta", "index": 0, "delta": delta }));
        let events = [begin].into_iter().chain(deltas).chain([json!({ "type": "message_stop" })]);
        fake.then(Reply::events(events.map(|event| event.to_string())));
        assert_eq!(ask(&fake).await, (vec![Chunk::Call(called("a", "time", expected))], None));
    }
}

#[tokio::test]
async fn a_call_of_anthropics_that_was_cut_before_its_arguments_has_none() {
    let fake = FakeModel::start().await;
    for (reason, input, expected) in [
        ("max_tokens", json!({}), json!("")),
        ("model_context_window_exceeded", json!({}), json!("")),
        ("max_tokens", json!({ "city": "Bern" }), json!({ "city": "Bern" })),
        ("tool_use", json!({}), json!({})),
    ] {
        let begin = |index: u64, input: Value| {
            let block = json!({ "type": "tool_use", "id": format!("c{index}"), "name": "time", "input": input });
            json!({ "type": "content_block_start", "index": index, "content_block": block })
        };
        let end = json!({ "type": "message_delta", "delta": { "stop_reason": reason } });
        let events = [begin(0, json!({})), begin(1, input), end, json!({ "type": "message_stop" })];
        fake.then(Reply::events(events.map(|event| event.to_string())));
        let calls = [called("c0", "time", json!({})), called("c1", "time", expected)].map(Chunk::Call);
        let expected = calls.into_iter().chain((reason != "tool_use").then_some(Chunk::Cut(Cut::Length))).collect();
        assert_eq!(ask(&fake).await, (expected, None), "{reason}");
    }
}

#[tokio::test]
async fn an_answer_of_anthropics_that_was_refused_halfway_calls_nothing() {
    let fake = FakeModel::start().await;
    let text =
        json!({ "type": "content_block_delta", "index": 0, "delta": { "type": "text_delta", "text": "I will" } });
    let block = json!({ "type": "tool_use", "id": "a", "name": "wipe", "input": {} });
    let begun = json!({ "type": "content_block_start", "index": 1, "content_block": block });
    let end = json!({ "type": "message_delta", "delta": { "stop_reason": "refusal" } });
    fake.then(Reply::events([text, begun, end, json!({ "type": "message_stop" })].map(|event| event.to_string())));
    let expected = vec![Chunk::Text("I will".to_owned()), Chunk::Cut(Cut::Filter)];
    assert_eq!(ask(&fake).await, (expected, None));
}

#[tokio::test]
async fn an_answer_without_its_last_event_was_cut() {
    let fake = FakeModel::start().await;
    for count in 0..=5 {
        fake.then(Reply::chunks(["one ", "two"]).tool_calls([("time", json!({}))]).cut_after(count).split_bytes(7));
        let (chunks, error) = ask(&fake).await;
        assert_eq!(chunks, texts(["one ", "two"])[..count.min(2)]);
        assert_eq!(
            error.map(|error| (error.error.code, error.is_recoverable)),
            Some(("MODEL_INTERRUPTED".to_owned(), true))
        );
    }
    let events = [
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"all?"}}"#,
        r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":1}}"#,
    ];
    fake.then(Reply::events(events));
    let (chunks, error) = ask(&fake).await;
    assert_eq!((text(&chunks), error.unwrap().error.code), ("all?".to_owned(), "MODEL_INTERRUPTED".to_owned()));
    fake.then(Reply::events([events[0], "{\"type\":", r#"{"type":"message_stop"}"#]));
    assert_eq!(ask(&fake).await.1.unwrap().error.code, "MODEL_INTERRUPTED");
}

#[tokio::test]
async fn an_answer_of_anthropics_that_falls_silent_is_given_up_after_two_minutes() {
    let fake = FakeModel::start().await;
    fake.then(Reply::text("Hello world").hang_after(1));
    let mut answer = at(&fake).call(call(MODEL, "hi")).await.unwrap();
    assert_eq!(answer.next().await, Some(Ok(Chunk::Text("Hello ".to_owned()))));
    pause();
    let begun = Instant::now();
    let (chunks, error) = drain(answer).await;
    assert_eq!((chunks, error.unwrap().error.code.as_str()), (vec![], "MODEL_INTERRUPTED"));
    assert_eq!(begun.elapsed().as_secs(), 120);
}

#[tokio::test]
async fn an_error_in_anthropics_stream_ends_it() {
    let fake = FakeModel::start().await;
    for (kind, code, is_recoverable) in [
        ("overloaded_error", "MODEL_OVERLOADED", true),
        ("rate_limit_error", "MODEL_OVERLOADED", true),
        ("api_error", "MODEL_FAILED", true),
        ("timeout_error", "MODEL_FAILED", true),
        ("invalid_request_error", "MODEL_REFUSED", false),
        ("request_too_large", "MODEL_REFUSED", false),
        ("billing_error", "MODEL_REFUSED", false),
        ("authentication_error", "MODEL_UNAUTHORIZED", false),
        ("permission_error", "MODEL_UNAUTHORIZED", false),
        ("not_found_error", "MODEL_NOT_FOUND", false),
        ("a_new_error", "MODEL_INTERRUPTED", true),
    ] {
        let half = r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"half"}}"#.to_owned();
        let error = json!({ "type": "error", "error": { "type": kind, "message": format!("died of {KEY}") } });
        fake.then(Reply::events([half, error.to_string(), r#"{"type":"message_stop"}"#.to_owned()]));
        let (chunks, error) = ask(&fake).await;
        let error = error.unwrap();
        assert_eq!(
            (text(&chunks).as_str(), error.error.code.as_str(), error.is_recoverable),
            ("half", code, is_recoverable)
        );
        assert!(error.error.message.ends_with("broke off: died of [key]"), "{error:?}");
    }
}

#[tokio::test]
async fn whoever_refuses_without_a_word_is_not_asked_again() {
    let fake = FakeModel::start().await;
    let stop = r#"{"type":"message_delta","delta":{"stop_reason":"refusal"},"usage":{"output_tokens":1}}"#;
    fake.then(Reply::events([stop, r#"{"type":"message_stop"}"#]));
    let error = ask(&fake).await.1.unwrap();
    assert_eq!((error.error.code.as_str(), error.is_recoverable), ("MODEL_REFUSED", false));

    let said = r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"No."}}"#;
    fake.then(Reply::events([said, stop, r#"{"type":"message_stop"}"#]));
    assert_eq!(ask(&fake).await, (vec![Chunk::Text("No.".to_owned()), usage(0, 1), Chunk::Cut(Cut::Filter)], None));
}
