//! Windows of conversations that are kept: what a call reads, and what it keeps to.

use serde_json::{Value, json};
use waystone_core::api::{FindWindow, Window};
use waystone_core::canon::Hash;
use waystone_core::id::{SegmentId, SessionId};
use waystone_core::store::{AtHand, ConversationStore, Scope, WindowPart};
use waystone_testkit::model::Reply;

use super::{Talk, is_idle, told, until_state};

/// A conversation whose model holds 8,192 tokens.
async fn begin(t: &Talk, more: Value) -> SessionId {
    let mut request = json!({ "model_id": "gpt-4" });
    request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    t.create(request).await.id
}

async fn talk_on(t: &Talk, id: &SessionId, turns: std::ops::Range<usize>) {
    for n in turns {
        t.fake.then(Reply::text(&format!("answer {n}: {}", "more words on that ".repeat(80))));
        t.say(id, &format!("question {n}")).await;
    }
}

async fn next(t: &Talk, id: &SessionId) -> Window {
    t.h.engine.find_window(&t.h.scope, id, FindWindow { next: true, branch: None }).await.unwrap()
}

async fn pin(t: &Talk, id: &SessionId, message: &SegmentId) {
    let project = t.context(id).await.project_id;
    let request = serde_json::from_value(json!({ "project_id": project, "segment_ids": [message] })).unwrap();
    t.h.engine.pin_segments(&t.h.scope, request).await.unwrap();
}

/// What the model was sent last, and what the whole branch would give.
async fn sent_and_whole(t: &Talk, id: &SessionId, n: usize) -> (usize, u64) {
    talk_on(t, id, n..n + 1).await;
    let sent = t.fake.requests().pop().unwrap()["messages"].as_array().unwrap().len();
    let whole = t.h.engine.find_window(&t.h.scope, id, FindWindow::default()).await.unwrap();
    (sent, whole.spans.iter().filter(|span| span.kind != "tools").count() as u64)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_reads_what_its_window_can_have_and_not_the_whole_branch() {
    let t = Talk::new().await;
    let id = begin(&t, json!({})).await;
    let first = t.say(&id, "never touch legacy.rs").await.message_id;
    talk_on(&t, &id, 0..60).await;
    pin(&t, &id, &first).await;
    for n in 60..75 {
        let (sent, whole) = sent_and_whole(&t, &id, n).await;
        assert_eq!(sent as u64, whole, "a window made from a part is the one made from all");
    }
    let scope = Scope::local("test");
    let load = async |part| t.h.store().load_window(&scope, &id, None, part).await.unwrap();
    let (part, whole) = (load(WindowPart::AfterCut { at_hand: None }).await, load(WindowPart::Whole).await);
    assert_eq!(part.entries.len() as u64 + part.passed_over, whole.entries.len() as u64);
    assert!(part.entries.len() < 40 && whole.entries.len() > 140, "{} of {}", part.entries.len(), whole.entries.len());
    assert_eq!((part.entries[0].message.id.clone(), &part.pinned), (first, &whole.pinned));
    // What whoever asks has is not read again, and all else is.
    let (from, to) = (part.entries[5].position, part.entries[part.entries.len() - 3].clone());
    let at_hand = AtHand { from, last: to.message.id.clone() };
    let rest = load(WindowPart::AfterCut { at_hand: Some(at_hand) }).await;
    assert_eq!((rest.at_hand.clone(), rest.passed_over), (from..to.position + 1, part.passed_over));
    let mut positions: Vec<u64> = rest.entries.iter().map(|entry| entry.position).chain(rest.at_hand).collect();
    positions.sort_unstable();
    assert_eq!(positions, part.entries.iter().map(|entry| entry.position).collect::<Vec<_>>());
    let unknown = AtHand { from, last: "01k5b000000000000000000003".parse().unwrap() };
    let all = load(WindowPart::AfterCut { at_hand: Some(unknown) }).await;
    assert_eq!((all.entries.len(), all.at_hand.is_empty()), (part.entries.len(), true));
}

/// Says something, and looks whether the model was told what the whole branch gives.
async fn say_and_compare(t: &Talk, id: &SessionId, n: usize) {
    talk_on(t, id, n..n + 1).await;
    let request = t.fake.requests().pop().unwrap();
    let messages = request["messages"].as_array().unwrap().iter().filter(|message| message["role"] != "system");
    let sent: Vec<String> = messages
        .map(|message| Hash::of(json!([message["role"], message["content"]]).to_string().as_bytes()).to_string())
        .collect();
    let whole = t.h.engine.find_window(&t.h.scope, id, FindWindow::default()).await.unwrap();
    let spans = whole.spans.into_iter().filter(|span| !["system_prompt", "tools"].contains(&span.kind));
    assert_eq!(sent, spans.filter_map(|span| span.hash).collect::<Vec<_>>(), "turn {n}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_at_hand_of_a_branch_gives_the_window_that_all_of_it_gives() {
    let t = Talk::new().await;
    let id = begin(&t, json!({})).await;
    let project = t.context(&id).await.project_id;
    let (scope, engine) = (&t.h.scope, &t.h.engine);
    let of = |message: &SegmentId| json!({ "project_id": project, "segment_ids": [message] });
    let aside = json!({ "project_id": project, "query": "19", "filters": { "task_id": id } });
    let mut said = Vec::new();
    for n in 0..40 {
        say_and_compare(&t, &id, n).await;
        let list = engine.find_window(scope, &id, FindWindow::default()).await.unwrap();
        said.push(list.spans.iter().rev().find_map(|span| span.message_id.clone()).unwrap());
        match n {
            // Each is behind the cut when it is marked, and before it some turns later.
            8 => drop(engine.pin_segments(scope, serde_json::from_value(of(&said[7])).unwrap()).await.unwrap()),
            16 => drop(engine.unpin_segments(scope, serde_json::from_value(of(&said[7])).unwrap()).await.unwrap()),
            20 => drop(engine.stash_segments(scope, serde_json::from_value(aside.clone()).unwrap()).await.unwrap()),
            24 | 32 => {
                let request = json!({ "name": format!("at-{n}"), "parent_message_id": said[n - 1] });
                engine.create_branch(scope, &id, serde_json::from_value(request).unwrap()).await.unwrap();
                engine.switch_branch(scope, &id, &format!("at-{n}").parse().unwrap()).await.unwrap();
            }
            28 => drop(engine.switch_branch(scope, &id, &"main".parse().unwrap()).await.unwrap()),
            _ => {}
        }
    }
    let stashed = engine.find_window(scope, &id, FindWindow::default()).await.unwrap();
    assert!(stashed.left_out.iter().any(|out| out.reason == "stashed"), "nothing was put aside");
}

#[tokio::test(flavor = "multi_thread")]
async fn where_there_is_no_room_for_our_own_tools_a_turn_goes_without_them() {
    let t = Talk::new().await;
    let mut went_without = 0;
    // With the last of these there is room for what must be in, and none for the tools besides.
    for words in (1020..1140).step_by(20) {
        let id = begin(&t, json!({ "parameters": { "max_tokens": 4192 } })).await;
        t.fake.then(Reply::text("noted"));
        let large = t.say(&id, &"a pinned word ".repeat(words)).await.message_id;
        for _ in 0..3 {
            t.fake.then(Reply::text(&"an answer of some words ".repeat(120)));
            t.say(&id, "go on").await;
        }
        let is_offered = |t: &Talk| t.fake.requests().pop().unwrap()["tools"].is_array();
        assert!(is_offered(&t), "something was left out");
        pin(&t, &id, &large).await;
        t.say(&id, "go on").await;
        assert_eq!(t.state(&id).await.error, None, "{words} words");
        went_without += usize::from(!is_offered(&t));
    }
    assert!(went_without > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_sent_stays_as_it_was_when_there_is_less_room() {
    let t = Talk::new().await;
    let id = begin(&t, json!({ "tools": [{ "name": "look", "read_only": true }] })).await;
    let long: String = (0..700).map(|n| format!("line {n} of what was found\n")).collect();
    t.fake.then(Reply::calls([("look", json!({}))]));
    let mut reader = t.follow(&id, None).await;
    t.try_say(&id, json!({ "content": "look" })).await.unwrap();
    let frames = until_state(&mut reader, |state| state == "ExecutingTools").await;
    let call = told(&frames).into_iter().find(|(kind, _)| kind == "ToolCallRequested").unwrap().1;
    let call = call["tool_calls"][0]["id"].as_str().unwrap().parse().unwrap();
    let answer = serde_json::from_value(json!({ "result": long })).unwrap();
    t.h.engine.answer_tool_call(&t.h.scope, &id, &call, answer, None).await.unwrap();
    until_state(&mut reader, is_idle).await;
    let before = t.fake.requests().pop().unwrap()["messages"].as_array().unwrap().clone();
    let less = serde_json::from_value(json!({ "parameters": { "max_tokens": 3000 } })).unwrap();
    t.h.engine.update_context(&t.h.scope, &id, less).await.unwrap();
    let window = next(&t, &id).await;
    assert_eq!(window.changes, []);
    t.say(&id, "go on").await;
    let now = t.fake.requests().pop().unwrap()["messages"].as_array().unwrap().clone();
    assert!(now.starts_with(&before), "{now:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_is_told_of_another_branch_can_look_at_what_it_came_to() {
    let t = Talk::new().await;
    let id = begin(&t, json!({})).await;
    let first = t.say(&id, "hello").await.message_id;
    let branch = serde_json::from_value(json!({ "name": "other", "parent_message_id": first })).unwrap();
    t.h.engine.create_branch(&t.h.scope, &id, branch).await.unwrap();
    t.try_say(&id, json!({ "content": "We decided to use cents.", "branch": "other" })).await.unwrap();
    let mut reader = t.follow(&id, None).await;
    while t.state(&id).await.current_state.as_str() != "Idle" {
        reader.next().await;
    }
    let merge = serde_json::from_value(json!({ "from": "other" })).unwrap();
    t.h.engine.merge_branch(&t.h.scope, &id, &"main".parse().unwrap(), merge).await.unwrap();
    t.h.engine.switch_branch(&t.h.scope, &id, &"main".parse().unwrap()).await.unwrap();
    t.say(&id, "what was decided there?").await;
    let tools = t.fake.requests().pop().unwrap()["tools"].clone();
    let names: Vec<&Value> = tools.as_array().unwrap().iter().map(|tool| &tool["function"]["name"]).collect();
    assert_eq!(names, ["context_search_stashed", "context_expand"]);
}
