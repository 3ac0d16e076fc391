//! Each example of the contract's "Tool Execution", its event and its state: the same requests, all that the answers show.

use serde_json::json;
use waystone_testkit::model::Reply;

use super::super::{AT, outline};
use super::{Desk, ask_weather, assert_has, assert_paired, completed, requested, states, text, until_state, weather};

#[tokio::test]
async fn approved_calls_are_counted_and_executed() {
    let desk = Desk::new().await;
    let waiting = desk.wait([ask_weather("London"), ask_weather("Paris")]).await;
    let (status, approved) = desk.decide(&waiting.context, "approve", &waiting.ids()).await;
    assert_eq!(status, 200, "{approved}");
    assert_has(&approved, &json!({ "approved_count": 2, "context_state": "ExecutingTools" }));
    let state = desk.talk.get(&format!("/{}/state", waiting.context)).await;
    let expected = json!({ "current_state": "ExecutingTools", "can_send_message": false, "pending_tool_approvals": 0 });
    assert_has(&state, &expected);
}

#[tokio::test]
async fn denied_calls_are_counted_and_the_model_is_asked_again() {
    let desk = Desk::new().await;
    let waiting = desk.wait([ask_weather("London"), ask_weather("Paris")]).await;
    let (status, denied) = desk.decide(&waiting.context, "deny", &waiting.ids()).await;
    assert_eq!(status, 200, "{denied}");
    assert_has(&denied, &json!({ "denied_count": 2, "context_state": "AwaitingLLMResponse" }));
}

#[tokio::test]
async fn a_call_is_shown_with_its_arguments_its_approval_and_its_result() {
    let desk = Desk::new().await;
    let mut waiting = desk.wait([ask_weather("London")]).await;
    let (context, call) = (waiting.context.clone(), waiting.calls[0].clone());
    let asked = json!({
        "id": call, "tool_name": "get_weather", "arguments": { "location": "London" }, "approval_status": "Pending",
    });
    let pending = desk.call(&context, &call).await;
    assert_has(&pending, &asked);
    assert!(pending["result"].is_null() && pending["executed_at"].is_null(), "{pending}");

    desk.decide(&context, "approve", &[&call]).await;
    let result = json!({ "temperature": 15, "condition": "Cloudy" });
    let (status, answered) = desk.answer(&context, &call, json!({ "result": result })).await;
    assert_eq!(status, 200, "{answered}");
    until_state(&mut waiting.events, "Idle").await;
    let expected = json!({
        "id": call, "tool_name": "get_weather", "arguments": { "location": "London" }, "approval_status": "Approved",
        "result": result, "executed_at": AT,
    });
    assert_has(&answered, &json!({ "id": call, "tool_name": "get_weather", "result": result }));
    assert_has(&desk.call(&context, &call).await, &expected);
    let told: serde_json::Value = serde_json::from_str(&desk.results()[0].1).unwrap();
    assert_eq!(told, result, "what the model was told");
}

#[tokio::test]
async fn a_turn_that_waits_says_for_what() {
    let desk = Desk::new().await;
    let waiting = desk.wait([ask_weather("London"), ask_weather("Paris")]).await;
    let state = desk.talk.get(&format!("/{}/state", waiting.context)).await;
    let expected = json!({
        "current_state": "AwaitingToolApproval", "can_send_message": false, "pending_tool_approvals": 2,
        "pending_tool_calls": [
            { "id": "call_0", "tool_name": "get_weather", "arguments": { "location": "London" }, "approval_status": "Pending" },
            { "id": "call_1", "tool_name": "get_weather", "arguments": { "location": "Paris" }, "approval_status": "Pending" },
        ],
    });
    assert_has(&state, &expected);
    let context = desk.talk.get(&format!("/{}", waiting.context)).await;
    assert_eq!(context["current_state"], "AwaitingToolApproval");
}

#[tokio::test]
async fn who_listens_is_told_of_each_call_before_and_after() {
    let desk = Desk::new().await;
    let mut waiting = desk.wait([ask_weather("London"), ask_weather("Paris")]).await;
    let context = waiting.context.clone();
    let (_, _, data) = waiting.told.iter().find(|(_, kind, _)| kind == "ToolCallRequested").unwrap();
    let expected = json!({
        "context_id": context,
        "tool_calls": [
            { "id": "call_0", "name": "get_weather", "arguments": { "location": "London" } },
            { "id": "call_1", "name": "get_weather", "arguments": { "location": "Paris" } },
        ],
    });
    assert_has(data, &expected);
    assert_eq!(requested(&waiting.told).len(), 2, "each once");

    desk.decide(&context, "approve", &waiting.ids()).await;
    desk.answer(&context, "call_1", json!({ "result": "dry" })).await;
    desk.answer(&context, "call_0", json!({ "result": "wet" })).await;
    let told = until_state(&mut waiting.events, "Idle").await;
    for (call, result) in [("call_1", "dry"), ("call_0", "wet")] {
        let of_call = |event: &&super::Event| event.1 == "ToolCallCompleted" && event.2["tool_call_id"] == call;
        let found: Vec<_> = told.iter().filter(of_call).collect();
        assert_eq!(found.len(), 1, "{told:#?}");
        let message = text(&found[0].2["message_id"]);
        let expected = json!({
            "context_id": context, "tool_call_id": call, "tool_name": "get_weather", "outcome": "succeeded",
            "message_id": message,
        });
        assert_has(&found[0].2, &expected);
        let stored = desk.talk.get(&format!("/{context}/messages/{message}")).await;
        assert_has(&stored, &json!({ "role": "user", "message_type": "tool_result" }));
        assert!(stored["content"].to_string().contains(result), "{stored}");
    }
}

/// The design's table of transitions.
#[tokio::test]
async fn a_turn_with_calls_goes_through_the_states_of_the_design() {
    let desk = Desk::new().await;
    let mut waiting = desk.wait([ask_weather("London")]).await;
    let before = ["ProcessingUserMessage", "AwaitingLLMResponse", "ProcessingLLMResponse", "AwaitingToolApproval"];
    assert_eq!(states(&waiting.told), before, "without words there is nothing to stream");

    desk.decide(&waiting.context, "approve", &["call_0"]).await;
    desk.answer(&waiting.context, "call_0", json!({ "result": "rain" })).await;
    let told = until_state(&mut waiting.events, "Idle").await;
    let after = ["ExecutingTools", "AwaitingLLMResponse", "StreamingLLMResponse", "ProcessingLLMResponse", "Idle"];
    assert_eq!(states(&told), after);
    assert!(outline(&told).contains(&"= Done.".to_owned()), "{:?}", outline(&told));
    assert_eq!(completed(&told), [("call_0".to_owned(), "succeeded".to_owned())]);
    assert_paired(&desk.talk.fake.requests());
}

#[tokio::test]
async fn calls_and_results_are_messages_of_their_own_types() {
    let desk = Desk::new().await;
    desk.talk.fake.then(Reply::text("Let me see.").tool_calls([super::read("README.md")])).then(Reply::text("Rain."));
    let context = desk.create().await;
    let mut events = desk.talk.follow(&context).await;
    desk.talk.say(&context, "What is the weather?").await;
    let told = until_state(&mut events, "Idle").await;
    let page = desk.talk.get(&format!("/{context}/messages")).await;
    let kinds = page["messages"].as_array().unwrap().iter();
    let kinds: Vec<_> = kinds.map(|message| (text(&message["role"]), text(&message["message_type"]))).collect();
    let expected = [("user", "text"), ("assistant", "tool_call"), ("user", "tool_result"), ("assistant", "text")];
    assert_eq!(kinds, expected.map(|(role, kind)| (role.to_owned(), kind.to_owned())));
    let words = page["messages"][1]["content"][0].clone();
    assert_eq!(words, json!({ "type": "text", "text": "Let me see." }));
    let finals: Vec<_> = outline(&told).into_iter().filter(|line| line.starts_with("= ")).collect();
    assert_eq!(finals, ["= Let me see.", "= Rain."], "MessageCompleted is for each message of the assistant");
}

#[tokio::test]
async fn an_id_that_the_model_uses_again_gets_a_suffix() {
    let desk = Desk::new().await;
    let context = desk.create_with(json!([weather()])).await;
    let mut first = desk.wait_in(context, [ask_weather("London")]).await;
    assert_eq!(first.calls, ["call_0"]);
    desk.decide(&first.context, "deny", &["call_0"]).await;
    until_state(&mut first.events, "Idle").await;
    let second = desk.wait_in(first.context, [ask_weather("Paris")]).await;
    let id = &second.calls[0];
    assert!(id.starts_with("call_0") && id != "call_0", "{id}");
    assert_eq!(desk.call(&second.context, "call_0").await["approval_status"], "Denied");
    assert_has(
        &desk.call(&second.context, id).await,
        &json!({ "arguments": { "location": "Paris" }, "approval_status": "Pending" }),
    );
}

#[tokio::test]
async fn the_tools_of_a_conversation_are_listed() {
    let desk = Desk::new().await;
    let context = desk.create_with(json!([weather()])).await;
    let list = desk.talk.get(&format!("/{context}/tools")).await;
    let tools = list["tools"].as_array().unwrap();
    let of = |name: &str| tools.iter().find(|tool| tool["name"] == name).unwrap_or_else(|| panic!("no {name}: {list}"));
    for (name, read_only) in [
        ("read_file", true),
        ("list_files", true),
        ("search_files", true),
        ("write_file", false),
        ("get_weather", false),
    ] {
        assert_eq!(of(name)["read_only"].as_bool().unwrap_or(false), read_only, "{name}");
        assert!(of(name)["input_schema"].is_object() && of(name)["description"].is_string(), "{}", of(name));
    }
    assert_eq!(tools.len(), 5);
    let bare = desk.talk.create().await;
    assert_eq!(desk.talk.get(&format!("/{bare}/tools")).await["tools"], json!([]), "without a folder there are none");
    desk.talk.ask(&context, "hello").await;
    let offered = desk.talk.fake.requests().pop().unwrap()["tools"].as_array().unwrap().len();
    assert_eq!(offered, 5, "the model is offered the same");
}
