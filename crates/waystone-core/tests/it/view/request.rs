//! What the user asked for last is whole in every view that has room for it, wherever it stands and whatever stands beside it.

use super::*;

#[tokio::test]
async fn the_users_last_request_is_whole_in_the_view_when_it_fits() {
    let h = Harness::new();
    let request = "please rename the column in migrations/0007_users.sql\nand say which index\nis built again, by hand";
    let mut messages = vec![json!({ "role": "user", "content": lines(30, "old") })];
    messages.extend((0..4).map(|n| json!({ "role": "assistant", "content": lines(20, &format!("tool{n}")) })));
    messages.push(json!({ "role": "user", "content": request }));
    messages.extend((4..8).map(|n| json!({ "role": "assistant", "content": lines(20, &format!("tool{n}")) })));
    for strategy in ["auto", "structural", "extractive"] {
        let asked = json!({ "context": { "messages": messages }, "ratio": 10, "strategy": strategy });
        let view = compress(&h, asked).await.unwrap();
        let seen = view.context["messages"].as_array().unwrap();
        assert!(seen.contains(&json!({ "role": "user", "content": request })), "{strategy}: {seen:?}");
        assert!(view.report.survival.anchors.in_view >= 3, "{strategy}");
    }
}

#[tokio::test]
async fn the_users_last_request_is_whole_also_where_the_budget_is_smaller() {
    let h = Harness::new();
    let request = format!("Please do these one after the other: {}", lines(12, "step"));
    let messages = json!([
        { "role": "user", "content": request },
        { "role": "assistant", "content": "working on it ".repeat(100) },
    ]);
    for (budget, has_older) in [(60, false), (20, true), (1, false)] {
        let older = json!([{ "role": "user", "content": lines(30, "long ago") }]);
        let before = if has_older { older } else { json!(lines(40, "note")) };
        let context = json!({ "before": before, "messages": messages });
        let view = compress(&h, json!({ "context": context, "targetTokens": budget })).await.unwrap();
        let seen = view.context["messages"].as_array().unwrap();
        assert!(seen.contains(&json!({ "role": "user", "content": request })), "{budget}: {seen:?}");
        assert!(view.report.over_budget && view.warnings[0].contains("was asked last"), "{:?}", view.warnings);
        assert!(view.report.tokens_after < 400, "and little else: {}", view.report.tokens_after);
    }
}

#[tokio::test]
async fn what_a_tool_answered_in_the_users_name_is_no_request() {
    let h = Harness::new();
    let mut messages =
        vec![json!({ "role": "user", "content": "Please find out why the parcels are late, and tell me." })];
    for n in 0..30 {
        messages.push(json!({ "role": "assistant", "content": format!("I look at depot_{n} next.") }));
        let result = json!({ "type": "tool_result", "content": lines(20, &format!("depot {n}")) });
        messages.push(json!({ "role": "user", "content": [result] }));
    }
    // Deep inside it is the same as at the top.
    for context in [json!({ "messages": messages }), json!({ "run": { "log": { "messages": messages } } })] {
        let view = compress(&h, json!({ "context": context, "ratio": 20 })).await.unwrap();
        let shown = Value::from(view.context).to_string();
        assert!(shown.contains("why the parcels are late"), "{shown}");
        assert_eq!(view.report.survival.anchors.in_view, 1);
    }
}

#[tokio::test]
async fn the_last_request_is_there_beside_any_number_of_short_keys() {
    let h = Harness::new();
    let mut context = json!({ "messages": [{ "role": "user", "content": "Sort the parcels by weight, please." }] });
    for n in 0..200 {
        context[format!("fact{n}")] = json!(format!("short fact {n}"));
    }
    for ratio in [1.3, 2.0, 3.0, 10.0] {
        let view = filled(&h, &context, ratio).await;
        assert_eq!(view.context["messages"], context["messages"]);
    }
    let messages = context["messages"].take();
    context["messages"] = json!({ "turns": { "said": messages } });
    let view = filled(&h, &context, 3.0).await;
    assert_eq!(view.context["messages"], context["messages"], "wherever in a value it stands");
}

/// A request is found wherever it stands, whatever stands around it and beside it.
#[tokio::test]
async fn the_newest_conversation_has_the_last_request_and_one_inside_of_a_message_has_none() {
    let h = Harness::new();
    let says = |role: &str, content: String| json!({ "role": role, "content": content });
    let request = says("user", "Now please rename the queue table, and keep the tests of the ledger green.".to_owned());
    let answers = |word: &str| (0..8).map(|n| says("assistant", lines(8, &format!("{word}{n}")))).collect::<Vec<_>>();
    let talk = |first: Value, word: &str| [vec![first], answers(word)].concat();
    let long = || says("user", lines(60, "paste"));

    let helper =
        json!({ "role": "assistant", "content": "I asked.", "helper": { "messages": talk(long(), "helper") } });
    let old = [answers("old"), vec![helper, request.clone()], answers("new")].concat();
    let nested = json!({ "messages": old });
    let threads = json!({ "threads": [
        { "title": "old", "messages": talk(long(), "old") }, { "title": "now", "messages": talk(request.clone(), "now") },
    ] });
    let mut labels: Map<String, Value> = (0..25).map(|n| (format!("label{n}"), json!(format!("value{n}")))).collect();
    labels.insert("messages".to_owned(), talk(request.clone(), "label").into());
    let beside = json!({ "first": lines(60, "first"), "chat": labels, "last": lines(60, "last") });
    let log = json!({ "debugLog": talk(long(), "log"), "messages": talk(request.clone(), "talk") });

    let words = request["content"].as_str().unwrap();
    for (name, context) in [("nested", nested), ("threads", threads), ("beside", beside), ("log", log)] {
        for ratio in [1.5, 3.0, 6.0] {
            let view = filled(&h, &context, ratio).await;
            assert!(json!(view.context).to_string().contains(words), "{name}, {ratio}: {:?}", view.context);
        }
    }
}

#[tokio::test]
async fn an_item_that_is_larger_than_what_is_looked_at_hides_neither_itself_nor_the_request() {
    let h = Harness::new();
    let printed = "a line that a tool printed\n".repeat(200_000);
    assert!(printed.len() > 5_000_000);
    let messages =
        json!([{ "role": "user", "content": "Look at what it prints." }, { "role": "tool", "content": printed }]);
    let view = compress(&h, json!({ "context": { "messages": messages }, "targetTokens": 500 })).await.unwrap();
    let shown = Value::from(view.context).to_string();
    assert!(shown.contains("Look at what it prints.") && shown.contains("a line that a tool printed"), "{shown}");
}

fn says(role: &str, content: impl Into<String>) -> Value {
    json!({ "role": role, "content": content.into() })
}

#[tokio::test]
async fn a_request_is_whole_behind_any_amount_of_what_is_too_old_to_be_looked_at() {
    let h = Harness::new();
    let printed = format!("a line that a tool printed {}\n", "and went on ".repeat(80)).repeat(5_000);
    let request = says("user", "Tell me what it prints,\n\n    and why it prints that.\n".repeat(6));
    let small = says("assistant", "It prints one line again and again.");
    let inner = json!({ "messages": [says("tool", &printed), request] });
    let first = json!({ "messages": [request, small, says("tool", &printed)] });
    for context in [
        json!({ "messages": [says("tool", &printed), request] }),
        json!({ "messages": [request, says("tool", &printed)] }),
        json!({ "chat": inner }),
        json!({ "chat": first }),
        json!({ "chats": [inner, { "note": printed }] }),
    ] {
        let view = compress(&h, json!({ "context": context, "targetTokens": 300 })).await.unwrap();
        let shown = Value::from(view.context).to_string();
        assert!(shown.contains(&request.to_string()), "{:.300}", context.to_string());
    }
}

#[tokio::test]
async fn a_request_that_is_json_keeps_its_white_space() {
    let h = Harness::new();
    let wanted =
        serde_json::to_string_pretty(&json!({ "rename": "queue", "keep": (0..40).collect::<Vec<_>>() })).unwrap();
    let messages =
        [vec![says("user", &wanted)], (0..9).map(|n| says("tool", lines(20, &format!("t{n}")))).collect()].concat();
    let view = compress(&h, json!({ "context": { "messages": messages }, "ratio": 4 })).await.unwrap();
    assert_eq!(view.context["messages"][0]["content"], json!(wanted));
}

#[tokio::test]
async fn a_request_is_found_in_tickets_with_authors_beside_many_labels_and_in_a_log_that_is_the_only_talk() {
    let h = Harness::new();
    let request =
        says("user", "Please rename the queue table, and keep all tests of the ledger green while you do it.");
    let talk = |first: &Value| {
        [vec![first.clone()], (0..8).map(|n| says("assistant", lines(8, &format!("a{n}")))).collect()].concat()
    };
    let tickets = json!({ "tickets": [{ "author": "ann", "messages": talk(&request) }] });
    let mut labels: Map<String, Value> = (0..400).map(|n| (format!("sha{n}"), json!(format!("{n:x}")))).collect();
    labels.insert("messages".to_owned(), talk(&request).into());
    let log = json!({ "chatLog": talk(&request), "notes": lines(40, "note") });
    for (name, context) in [("tickets", tickets), ("labels", json!({ "state": labels })), ("log", log)] {
        let view = filled(&h, &context, 4.0).await;
        assert!(json!(view.context).to_string().contains(&request.to_string()), "{name}: {:?}", view.context);
    }
}

#[tokio::test]
async fn of_several_conversations_the_newest_has_its_request_first() {
    let h = Harness::new();
    let shown = says("user", lines(20, "shot"));
    let request = says("user", lines(30, "ask"));
    let talk = |first: &Value, about: &str| {
        [vec![first.clone()], (0..9).map(|n| says("assistant", lines(20, &format!("{about}{n}")))).collect()].concat()
    };
    let context = json!({ "fewShot": talk(&shown, "s"), "messages": talk(&request, "m") });
    let tokens = count(&request.to_string()) + count(&shown.to_string()) / 2;
    let view = compress(&h, json!({ "context": context, "targetTokens": tokens })).await.unwrap();
    assert!(json!(view.context["messages"]).to_string().contains(&request.to_string()), "{:?}", view.context);
}
