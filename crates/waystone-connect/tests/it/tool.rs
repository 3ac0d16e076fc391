//! Calls of tools over chat completions: what is offered, what is called in all its forms, and what is sent back.

use serde_json::{Value, json};
use waystone_core::model::{Call, Chunk, Cut, Model, ModelCall, ModelError, Said};
use waystone_testkit::model::{FakeModel, Reply};

use crate::ask::{at, call, call_with_tools, called, calls, drain, text, texts, usage};

async fn ask(fake: &FakeModel) -> (Vec<Chunk>, Option<ModelError>) {
    drain(at(fake).call(call_with_tools("gpt-4", "hi there")).await.unwrap()).await
}

fn rain() -> Vec<(&'static str, Value)> {
    vec![("weather", json!({ "city": "Zürich 🌧", "days": [1, 2] })), ("time", json!({}))]
}

fn result(call_id: &str, tool: &str, text: &str) -> Said {
    Said::Result { call_id: call_id.to_owned(), tool: tool.to_owned(), text: text.to_owned(), is_error: false }
}

#[tokio::test]
async fn tools_are_offered_as_functions_and_forbidden_when_words_are_wanted() {
    let fake = FakeModel::start().await;
    let mut asked = call_with_tools("gpt-4", "hi");
    asked.tools[1].description.clear();
    asked.parameters = json!({ "tools": [], "tool_choice": "required" }).as_object().unwrap().clone();
    let asked_last = ModelCall { is_last: true, ..asked.clone() };
    for asked in [asked, asked_last, call("gpt-4", "hi")] {
        at(&fake).call(asked).await.unwrap();
    }
    let schema = json!({ "type": "object", "properties": { "city": { "type": "string" } } });
    let weather = json!({ "name": "weather", "parameters": schema, "description": "The weather of a city" });
    let time = json!({ "name": "time", "parameters": schema });
    let tools = json!([{ "type": "function", "function": weather }, { "type": "function", "function": time }]);
    let requests = fake.requests();
    assert_eq!((&requests[0]["tools"], &requests[0]["tool_choice"]), (&tools, &Value::Null));
    assert_eq!((&requests[1]["tools"], &requests[1]["tool_choice"]), (&tools, &json!("none")));
    assert_eq!((&requests[2]["tools"], &requests[2]["tool_choice"]), (&Value::Null, &Value::Null));
}

#[tokio::test]
async fn calls_and_what_came_of_them_are_sent_back() {
    let fake = FakeModel::start().await;
    let mut asked = call_with_tools("gpt-4", "hi");
    asked.messages.push(Said::Calls {
        text: String::new(),
        calls: vec![called("a", "weather", json!({ "city": "Bern" })), called("b", "time", json!("{\"city\": "))],
    });
    asked.messages.extend([result("a", "weather", "rain"), result("b", "time", "no such arguments")]);
    asked.messages.push(Said::Calls { text: "Again.".to_owned(), calls: vec![called("c", "time", json!({}))] });
    asked.messages.push(result("c", "time", ""));
    at(&fake).call(asked).await.unwrap();
    let function = |name: &str, arguments: &str| json!({ "name": name, "arguments": arguments });
    let called = |id: &str, function: Value| json!({ "id": id, "type": "function", "function": function });
    let broken = r#"{"arguments":"{\"city\": "}"#;
    let both = [called("a", function("weather", r#"{"city":"Bern"}"#)), called("b", function("time", broken))];
    let expected = json!([
        { "role": "user", "content": "hi" },
        { "role": "assistant", "content": null, "tool_calls": both },
        { "role": "tool", "tool_call_id": "a", "content": "rain" },
        { "role": "tool", "tool_call_id": "b", "content": "no such arguments" },
        { "role": "assistant", "content": "Again.", "tool_calls": [called("c", function("time", "{}"))] },
        { "role": "tool", "tool_call_id": "c", "content": "" },
    ]);
    assert_eq!(fake.requests()[0]["messages"], expected);
}

#[tokio::test]
async fn calls_come_whole_after_the_text_however_they_are_cut() {
    let fake = FakeModel::start().await;
    let expected = rain().into_iter().zip(["call_0", "call_1"]);
    let expected: Vec<_> = expected.map(|((name, arguments), id)| called(id, name, arguments)).collect();
    for size in (1..=40).chain([1000]) {
        fake.then(Reply::text("Let me see.").tool_calls(rain()).split_calls(size).split_bytes(size));
        let (chunks, error) = ask(&fake).await;
        assert_eq!((text(&chunks[..3]), error), ("Let me see.".to_owned(), None));
        assert_eq!(calls(&chunks[3..5]), expected, "{size} characters at a time");
        assert!(matches!(chunks[5..], [Chunk::Usage(_)]), "{chunks:?}");
    }
    fake.then(Reply::calls(rain()));
    assert_eq!(calls(&ask(&fake).await.0), expected);
}

#[tokio::test]
async fn an_answer_that_is_cut_calls_nothing() {
    let fake = FakeModel::start().await;
    let pieces = 2 + 2 * 2;
    for count in 0..=pieces {
        fake.then(Reply::calls(rain()).cut_after(count));
        let (chunks, error) = ask(&fake).await;
        assert_eq!((chunks, error.unwrap().error.code.as_str()), (vec![], "MODEL_INTERRUPTED"), "after {count}");
    }
}

/// Gives `deltas` one after the other and looks what comes of them.
async fn check(deltas: &[Value], expected: &[Call]) {
    let fake = FakeModel::start().await;
    let event = |delta: &Value| json!({ "choices": [{ "index": 0, "delta": delta }] }).to_string();
    fake.then(Reply::events(deltas.iter().map(event).chain(["[DONE]".to_owned()])));
    let (chunks, error) = ask(&fake).await;
    assert_eq!((calls(&chunks), error), (expected.to_vec(), None), "{deltas:?}");
}

fn piece(call: Value) -> Value {
    json!({ "tool_calls": [call] })
}

#[tokio::test]
async fn ids_and_names_may_come_once_or_again_and_again() {
    let one = [called("a", "time", json!({ "city": "Bern" }))];
    let (head, tail) = (r#"{"city""#, r#":"Bern"}"#);
    check(
        &[
            piece(
                json!({ "index": 0, "id": "a", "type": "function", "function": { "name": "time", "arguments": "" } }),
            ),
            piece(json!({ "index": 0, "function": { "arguments": head } })),
            piece(json!({ "index": 0, "function": { "arguments": tail } })),
        ],
        &one,
    )
    .await;
    check(
        &[
            piece(json!({ "index": 0, "id": "a", "function": { "name": "time", "arguments": head } })),
            piece(json!({ "index": 0, "id": "a", "function": { "name": "time", "arguments": tail } })),
            piece(json!({ "index": 0, "id": "a", "function": { "name": "time", "arguments": "" } })),
        ],
        &one,
    )
    .await;
    check(
        &[
            piece(json!({ "index": 0, "id": "a", "function": { "name": "time", "arguments": null } })),
            piece(json!({ "index": 0, "id": "", "function": { "name": "", "arguments": head } })),
            piece(json!({ "index": 0, "id": "made-up", "function": { "name": null, "arguments": tail } })),
            piece(json!({ "index": 0, "id": null, "function": { "name": "time", "arguments": "" } })),
        ],
        &one,
    )
    .await;
}

#[tokio::test]
async fn arguments_may_come_whole_or_more_of_them_each_time() {
    let one = [called("a", "time", json!({ "city": "Bern" }))];
    let whole = r#"{"city":"Bern"}"#;
    let with = |arguments: Value| {
        piece(json!({ "index": 0, "id": "a", "function": { "name": "time", "arguments": arguments } }))
    };
    check(&[with(json!(whole))], &one).await;
    check(&[with(json!({ "city": "Bern" }))], &one).await;
    check(&[with(json!(whole)), with(json!(whole))], &one).await;
    check(&[with(json!("{")), with(json!(r#"{"city":"#)), with(json!(whole))], &one).await;
    let nested = [called("a", "time", json!({ "a": { "a": 1 } }))];
    check(&[with(json!(r#"{"a":"#)), with(json!(r#"{"a":1}}"#))], &nested).await;
}

#[tokio::test]
async fn what_is_no_object_is_told_as_it_was_written() {
    let with = |arguments: &str| {
        [piece(json!({ "index": 0, "id": "a", "function": { "name": "time", "arguments": arguments } }))]
    };
    for arguments in ["{\"city\": \"Be", "[1]", "null", "42", "Bern", "{} {}"] {
        check(&with(arguments), &[called("a", "time", json!(arguments))]).await;
    }
    for arguments in ["", " \n", "{}"] {
        check(&with(arguments), &[called("a", "time", json!({}))]).await;
    }
}

#[tokio::test]
async fn a_call_that_was_cut_before_its_arguments_has_none() {
    let fake = FakeModel::start().await;
    let one = |id: &str, arguments: &str| json!({ "id": id, "function": { "name": "time", "arguments": arguments } });
    for (reason, arguments, expected) in [
        ("length", "", json!("")),
        ("max_tokens", "", json!("")),
        ("length", "{\"city\": \"Be", json!("{\"city\": \"Be")),
        ("length", "{}", json!({})),
        ("tool_calls", "", json!({})),
    ] {
        let delta = json!({ "tool_calls": [one("a", ""), one("b", arguments)] });
        let event = json!({ "choices": [{ "delta": delta, "finish_reason": reason }] });
        fake.then(Reply::events([event.to_string(), "[DONE]".to_owned()]));
        let (chunks, error) = drain(at(&fake).call(call_with_tools("gpt-4", "hi")).await.unwrap()).await;
        assert_eq!((calls(&chunks)[1].arguments.clone(), error), (expected, None), "{reason} {arguments}");
        assert_eq!(calls(&chunks)[0].arguments, json!({}), "only the last one may be cut");
        assert_eq!(chunks.last() == Some(&Chunk::Cut(Cut::Length)), reason != "tool_calls", "{reason}");
    }
}

/// As another number it would be looked at, approved and run.
#[tokio::test]
async fn a_number_that_cannot_be_kept_makes_arguments_a_text() {
    for arguments in [r#"{"amount": 123456789012345678901234567890}"#, r#"{"amount": 1, "amount": 2}"#] {
        let call = json!({ "index": 0, "id": "a", "function": { "name": "pay", "arguments": arguments } });
        check(&[piece(call)], &[called("a", "pay", json!(arguments))]).await;
    }
}

#[tokio::test]
async fn an_answer_that_a_filter_ended_calls_nothing() {
    let fake = FakeModel::start().await;
    let one = |text: &str| {
        let call = json!({ "index": 0, "id": "a", "function": { "name": "wipe", "arguments": "" } });
        let delta = json!({ "content": text, "tool_calls": [call] });
        json!({ "choices": [{ "delta": delta, "finish_reason": "content_filter" }] }).to_string()
    };
    fake.then(Reply::events([one("I will"), "[DONE]".to_owned()]));
    let filtered = Chunk::Cut(Cut::Filter);
    assert_eq!(ask(&fake).await, (vec![Chunk::Text("I will".to_owned()), filtered], None));
    fake.then(Reply::events([one(""), "[DONE]".to_owned()]));
    let (chunks, error) = ask(&fake).await;
    assert_eq!((chunks, error.unwrap().error.code.as_str()), (vec![], "MODEL_REFUSED"));
}

#[tokio::test]
async fn arguments_go_back_as_an_object_whatever_they_were() {
    let fake = FakeModel::start().await;
    for (arguments, expected) in [
        (json!({ "city": "Bern" }), json!({ "city": "Bern" })),
        (json!({}), json!({})),
        (json!("{\"city\": \"Be"), json!({ "arguments": "{\"city\": \"Be" })),
        (json!(""), json!({ "arguments": "" })),
        (json!([1]), json!({ "arguments": [1] })),
    ] {
        let mut asked = call_with_tools("gpt-4", "hi");
        asked.messages.push(Said::Calls { text: String::new(), calls: vec![called("a", "time", arguments)] });
        asked.messages.push(result("a", "time", "noon"));
        at(&fake).call(asked).await.unwrap();
        let sent = fake.requests().last().unwrap()["messages"][1]["tool_calls"][0]["function"]["arguments"].clone();
        assert_eq!(serde_json::from_str::<Value>(sent.as_str().unwrap()).unwrap(), expected);
    }
}

#[tokio::test]
async fn calls_are_told_apart_though_servers_do_not_number_them() {
    let two = [called("a", "time", json!({ "n": 1 })), called("b", "time", json!({ "n": 2 }))];
    let with = |n: u32| json!({ "name": "time", "arguments": format!("{{\"n\":{n}}}") });
    // All under the same index.
    check(
        &[
            piece(json!({ "index": 0, "id": "a", "function": with(1) })),
            piece(json!({ "index": 0, "id": "b", "function": { "name": "time", "arguments": "{\"n\":" } })),
            piece(json!({ "index": 0, "function": { "arguments": "2}" } })),
        ],
        &two,
    )
    .await;
    // No index, all at once or one after the other, and in pieces.
    check(&[json!({ "tool_calls": [{ "id": "a", "function": with(1) }, { "id": "b", "function": with(2) }] })], &two)
        .await;
    check(
        &[
            piece(json!({ "id": "a", "function": { "name": "time", "arguments": "{\"n\":" } })),
            piece(json!({ "id": "b", "function": with(2) })),
            piece(json!({ "id": "a", "function": { "arguments": "1}" } })),
        ],
        &two,
    )
    .await;
    let made_up = [called("call_1", "time", json!({ "n": 1 })), called("call_2", "time", json!({ "n": 2 }))];
    check(&[piece(json!({ "function": with(1) })), piece(json!({ "function": with(2) }))], &made_up).await;
    check(
        &[
            piece(json!({ "function": { "name": "time", "arguments": "{\"n\"" } })),
            piece(json!({ "function": { "arguments": ":1}" } })),
            piece(json!({ "index": 0, "function": with(2) })),
        ],
        &made_up,
    )
    .await;
}

#[tokio::test]
async fn the_old_form_of_a_call_is_one_too() {
    let deltas = [
        json!({ "function_call": { "name": "time", "arguments": "" } }),
        json!({ "function_call": { "arguments": "{\"city\":" } }),
        json!({ "function_call": { "arguments": "\"Bern\"}" } }),
    ];
    check(&deltas, &[called("call_1", "time", json!({ "city": "Bern" }))]).await;
}

#[tokio::test]
async fn ids_that_are_made_up_go_on_where_the_conversation_is() {
    let fake = FakeModel::start().await;
    let mut asked = call_with_tools("gpt-4", "hi");
    let before = vec![called("call_1", "time", json!({})), called("call_2", "time", json!({}))];
    asked.messages.push(Said::Calls { text: String::new(), calls: before });
    asked.messages.extend([result("call_1", "time", "1"), result("call_2", "time", "2")]);
    let event = json!({ "choices": [{ "delta": { "tool_calls": [{ "function": { "name": "time" } }] } }] });
    fake.then(Reply::events([event.to_string(), "[DONE]".to_owned()]));
    let (chunks, _) = drain(at(&fake).call(asked).await.unwrap()).await;
    assert_eq!(calls(&chunks), [called("call_3", "time", json!({}))]);
}

#[tokio::test]
async fn a_call_that_cannot_be_told_breaks_the_answer_off() {
    let fake = FakeModel::start().await;
    let answer = async |call: Value| {
        let event = json!({ "choices": [{ "delta": { "tool_calls": [call] } }] }).to_string();
        fake.then(Reply::events([event, "[DONE]".to_owned()]));
        ask(&fake).await.1.map(|error| (error.error.code, error.is_recoverable))
    };
    let broken = Some(("MODEL_INTERRUPTED".to_owned(), true));
    assert_eq!(answer(json!({ "id": "a", "function": { "arguments": "{}" } })).await, broken);
    assert_eq!(answer(json!({ "id": 7 })).await, broken);
    assert_eq!(answer(json!({ "index": 0 })).await, None, "nothing was called");

    let long = json!({ "index": 0, "id": "a", "function": { "name": "time", "arguments": "x".repeat(1 << 20) } });
    let event = json!({ "choices": [{ "delta": { "tool_calls": [long] } }] }).to_string();
    fake.then(Reply::events(std::iter::repeat_n(event, 20)));
    let error = ask(&fake).await.1.unwrap();
    assert!(error.error.message.ends_with("broke off: its calls of tools are too long"), "{error:?}");
}

#[tokio::test]
async fn whoever_is_to_answer_in_words_calls_nothing() {
    let fake = FakeModel::start().await;
    let asked = ModelCall { is_last: true, ..call_with_tools("gpt-4", "hi there") };
    fake.then(Reply::calls(rain()));
    let (chunks, error) = drain(at(&fake).call(asked.clone()).await.unwrap()).await;
    let error = error.unwrap();
    assert_eq!((chunks, error.error.code.as_str()), (vec![usage(2, 6)], "MODEL_CALLED_TOOL"));
    assert!(error.error.message.ends_with("only called tools, and it was to answer in words"), "{error:?}");

    fake.then(Reply::chunks(["It rains."]).tool_calls(rain()));
    let (chunks, error) = drain(at(&fake).call(asked).await.unwrap()).await;
    assert_eq!((chunks, error), ([texts(["It rains."]), vec![usage(2, 7)]].concat(), None));
}

/// The provider refuses ids of more than 40 characters, and others give longer ones.
#[tokio::test]
async fn a_long_id_is_sent_shorter_the_same_for_a_call_and_its_result() {
    let fake = FakeModel::start().await;
    let (long, other) = (format!("toolu_{}", "x".repeat(94)), format!("toolu_{}-2", "x".repeat(94)));
    let (fits, not) = ("f".repeat(40), "f".repeat(41));
    let ids = [&long, &other, &fits, &not];
    let mut asked = call_with_tools("gpt-4", "hi");
    let calls = ids.iter().map(|id| called(id, "time", json!({}))).collect();
    asked.messages.push(Said::Calls { text: String::new(), calls });
    asked.messages.extend(ids.iter().map(|id| result(id, "time", "noon")));
    at(&fake).call(asked.clone()).await.unwrap();
    at(&fake).call(asked).await.unwrap();

    let requests = fake.requests();
    assert_eq!(requests[0], requests[1]);
    let messages = requests[0]["messages"].as_array().unwrap();
    let called = messages[1]["tool_calls"].as_array().unwrap().iter().map(|call| call["id"].as_str().unwrap());
    let called: Vec<&str> = called.collect();
    let answered: Vec<&str> = messages[2..].iter().map(|result| result["tool_call_id"].as_str().unwrap()).collect();
    assert_eq!(called, answered);
    assert!(called.iter().all(|id| id.len() == 40), "{called:?}");
    assert!(called[0].starts_with("toolu_xxx") && called[0] != called[1] && called[2] == fits, "{called:?}");
    assert_ne!(called[2], called[3]);

    // Who answers with an id that it was sent means another call than the one it was short for.
    let short = called[0].to_owned();
    let mut asked = call_with_tools("gpt-4", "hi");
    let calls = [&long, &short].map(|id| self::called(id, "time", json!({}))).into();
    asked.messages.push(Said::Calls { text: String::new(), calls });
    asked.messages.extend([&long, &short].map(|id| result(id, "time", "noon")));
    at(&fake).call(asked).await.unwrap();
    let sent = fake.requests().pop().unwrap();
    let id = |at: usize| sent["messages"][1]["tool_calls"][at]["id"].clone();
    assert!(id(0) == *short && id(1) != id(0), "{sent}");
    assert_eq!((&sent["messages"][2]["tool_call_id"], &sent["messages"][3]["tool_call_id"]), (&id(0), &id(1)));
}

#[tokio::test]
async fn what_a_provider_adds_to_a_call_goes_back_with_it() {
    let fake = FakeModel::start().await;
    let providers = at(&fake);
    let extra = json!({ "google": { "thought_signature": "sig" } });
    let signed = json!({ "id": "a", "function": { "name": "time", "arguments": "{}" }, "extra_content": extra });
    let event = json!({ "choices": [{ "delta": { "tool_calls": [signed] }, "finish_reason": "stop" }] });
    fake.then(Reply::events([event.to_string()]));
    let (chunks, _) = drain(providers.call(call_with_tools("gpt-4", "hi")).await.unwrap()).await;

    let mut asked = call_with_tools("gpt-4", "hi");
    asked.messages.push(Said::Calls { text: String::new(), calls: calls(&chunks) });
    asked.messages.push(result("a", "time", "noon"));
    providers.call(asked).await.unwrap();
    assert_eq!(fake.requests()[1]["messages"][1]["tool_calls"][0]["extra_content"], extra);
}

#[tokio::test]
async fn what_came_from_a_cache_is_part_of_the_prompt() {
    let fake = FakeModel::start().await;
    fake.then(Reply::chunks(["a"]).cached(1, 0));
    let (chunks, _) = ask(&fake).await;
    let counted = waystone_core::model::Usage { prompt: 2, completion: 1, cache_read: 1, cache_write: 0 };
    assert_eq!(chunks[1], Chunk::Usage(counted));
}
