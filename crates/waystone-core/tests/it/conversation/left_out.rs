//! What a window leaves out: what of it is told instead, and how the model gets the rest.

use serde_json::{Value, json};
use waystone_core::api::{ContextState, Deletion, FindWindow, MergedBranch};
use waystone_core::id::SessionId;
use waystone_core::secret::{Policy, Secrets};
use waystone_testkit::audit;
use waystone_testkit::model::Reply;

use super::{Talk, is_idle, told, until_state};

/// A conversation whose model holds 8,192 tokens.
async fn begin(t: &Talk) -> SessionId {
    t.create(json!({ "model_id": "gpt-4" })).await.id
}

/// So much that the window is cut several times.
async fn talk_on(t: &Talk, id: &SessionId) {
    for n in 0..30 {
        t.fake.then(Reply::text(&format!("answer {n}: {}", "more words on that ".repeat(80))));
        t.say(id, &format!("question {n}")).await;
    }
}

/// What the model was sent last.
fn sent(t: &Talk) -> String {
    t.fake.requests().pop().unwrap()["messages"].to_string()
}

async fn stash(t: &Talk, id: &SessionId, words: &str) {
    let project = t.context(id).await.project_id;
    let request = json!({ "project_id": project, "query": words, "filters": { "task_id": id } });
    let done = t.h.engine.stash_segments(&t.h.scope, serde_json::from_value(request).unwrap()).await.unwrap();
    assert!(!done.stashed_segments.is_empty());
}

async fn merge(t: &Talk, id: &SessionId, dry_run: bool) -> MergedBranch {
    let request = serde_json::from_value(json!({ "from": "other", "dry_run": dry_run })).unwrap();
    t.h.engine.merge_branch(&t.h.scope, id, &"main".parse().unwrap(), request).await.unwrap()
}

/// A branch `other`, on which something was said that is not on `main`.
async fn fork(t: &Talk, id: &SessionId, said: &str) {
    let first = t.say(id, "hello").await.message_id;
    let branch = serde_json::from_value(json!({ "name": "other", "parent_message_id": first })).unwrap();
    t.h.engine.create_branch(&t.h.scope, id, branch).await.unwrap();
    t.h.engine.switch_branch(&t.h.scope, id, &"other".parse().unwrap()).await.unwrap();
    t.say(id, said).await;
    t.h.engine.switch_branch(&t.h.scope, id, &"main".parse().unwrap()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_stashed_does_not_come_back_in_the_digest_that_is_made_later() {
    let t = Talk::new().await;
    let id = begin(&t).await;
    t.say(&id, "We decided that the codeword is ZEBRAFISH.").await;
    t.say(&id, "We decided to keep amounts in cents.").await;
    stash(&t, &id, "ZEBRAFISH").await;
    talk_on(&t, &id).await;
    let told = sent(&t);
    assert!(told.contains("[user]: We decided to keep amounts in cents."), "the user said so: {told}");
    // The model's own echo of it is what else there is.
    assert!(!told.contains("(4 words): We decided that the codeword") && !told.contains("[user]: We decided that"));
    let window = t.h.engine.find_window(&t.h.scope, &id, FindWindow::default()).await.unwrap();
    let survival = window.survival.unwrap();
    assert!(survival.total > 0 && survival.in_view > 0 && survival.lost == 0, "{survival:?}");
    assert_eq!(survival.total, survival.in_view + survival.one_call_away);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_of_a_conversation_shows_nothing_that_was_stashed_and_keeps_what_is_pinned() {
    let t = Talk::new().await;
    let id = begin(&t).await;
    t.fake.then(Reply::text("yes")).then(Reply::text("yes"));
    t.say(&id, "We decided that the codeword is ZEBRAFISH.").await;
    t.say(&id, "We decided to keep amounts in cents.").await;
    stash(&t, &id, "ZEBRAFISH").await;
    let pinned = t.messages(&id, None).await[2].id.clone();
    let pin = json!({ "project_id": t.context(&id).await.project_id, "segment_ids": [pinned] });
    t.h.engine.pin_segments(&t.h.scope, serde_json::from_value(pin).unwrap()).await.unwrap();
    let copy = t.create(json!({ "parent_id": id, "model_id": "gpt-4" })).await.id;
    t.fake.then(Reply::text("yes"));
    t.say(&copy, "what was decided?").await;
    let told = sent(&t);
    assert!(told.contains("amounts in cents") && !told.contains("ZEBRAFISH"), "{told}");
    assert_eq!(t.texts(&copy, None).await.len(), 6, "all of it is kept");
    let copied = t.messages(&copy, None).await[2].id.clone();
    let sql = format!("SELECT pinned FROM segment WHERE id = '{copied}'");
    let is_pinned: bool = audit::open(t.h.data_dir()).query_row(&sql, [], |row| row.get(0)).unwrap();
    assert!(is_pinned);
    t.h.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_redact_a_merge_tells_no_secret_and_keeps_none() {
    let mut t = Talk::new().await;
    t.h.engine = t.h.engine.clone().with_secrets(Secrets::new(Policy::Redact, Policy::Off, Vec::new()));
    let id = begin(&t).await;
    t.fake.then(Reply::text("yes")).then(Reply::text("yes"));
    let key = ["AKIA", "Z7Q4", "M2XN", "W8LP", "T5RD"].concat();
    fork(&t, &id, &format!("We decided to use the key {key} from now on.")).await;
    let told = [merge(&t, &id, true).await.content, merge(&t, &id, false).await.content];
    assert!(told.iter().all(|told| told.contains("We decided to use the key") && !told.contains(&key)), "{told:?}");
    let kept = t.texts(&id, None).await;
    assert!(kept.iter().all(|text| !text.contains(&key)), "{kept:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_merge_tells_nothing_that_was_stashed_and_one_that_was_undone_stays_away() {
    let t = Talk::new().await;
    let id = begin(&t).await;
    t.fake.then(Reply::text("yes"));
    t.fake.then(Reply::text("yes"));
    fork(&t, &id, "We decided to use the codeword ZEBRAFISH.").await;
    assert!(merge(&t, &id, true).await.content.contains("ZEBRAFISH"));
    merge(&t, &id, false).await;
    t.say(&id, "what was decided?").await;
    assert!(sent(&t).contains("ZEBRAFISH"));
    let undone = serde_json::from_value(json!({})).unwrap();
    let list = t.h.engine.list_operations(&t.h.scope, undone).await.unwrap().operations;
    let merged = list.iter().find(|operation| operation.kind == "branch.merged").unwrap();
    let undo = serde_json::from_value(json!({ "operation_id": merged.operation_id })).unwrap();
    t.h.engine.undo_operation(&t.h.scope, undo).await.unwrap();
    talk_on(&t, &id).await;
    assert!(!sent(&t).contains("ZEBRAFISH"), "{}", sent(&t));
    stash(&t, &id, "ZEBRAFISH").await;
    assert!(!merge(&t, &id, true).await.content.contains("ZEBRAFISH"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_branch_is_told_of_another_whose_turn_failed() {
    let t = Talk::new().await;
    let id = begin(&t).await;
    fork(&t, &id, "We decided to use cents.").await;
    t.fake.then(Reply::text("no").status(401));
    t.say(&id, "this fails").await;
    let failed = t.state(&id).await;
    assert_eq!(failed.current_state, ContextState::PermanentFailure);
    assert!(merge(&t, &id, false).await.content.contains("use cents"));
    let now = t.state(&id).await;
    assert_eq!((now.current_state, now.error), (ContextState::PermanentFailure, failed.error));
    let mut reader = t.follow(&id, None).await;
    t.h.engine.retry_turn(&t.h.scope, &id, None).await.unwrap();
    until_state(&mut reader, is_idle).await;
    assert!(sent(&t).contains("use cents"));
}

/// A conversation whose model called `edit_file` with these, and was answered.
async fn called(t: &Talk, arguments: &Value) -> SessionId {
    let tools = json!({ "model_id": "gpt-4", "tools": [{ "name": "edit_file", "read_only": true }] });
    let id = t.create(tools).await.id;
    t.fake.then(Reply::calls([("edit_file", arguments.clone())]));
    let mut reader = t.follow(&id, None).await;
    t.try_say(&id, json!({ "content": "edit it" })).await.unwrap();
    let frames = until_state(&mut reader, |state| state == "ExecutingTools").await;
    let call = told(&frames).into_iter().find(|(kind, _)| kind == "ToolCallRequested").unwrap().1;
    let call = call["tool_calls"][0]["id"].as_str().unwrap().parse().unwrap();
    let answer = serde_json::from_value(json!({ "result": "ok" })).unwrap();
    t.h.engine.answer_tool_call(&t.h.scope, &id, &call, answer, None).await.unwrap();
    until_state(&mut reader, is_idle).await;
    id
}

/// What one of our own tools returned to the model.
async fn returned(t: &Talk, id: &SessionId, tool: &str, arguments: Value) -> String {
    t.fake.then(Reply::calls([(tool, arguments)]));
    t.say(id, "look back").await;
    let last = t.fake.requests().pop().unwrap()["messages"].as_array().unwrap().last().unwrap().clone();
    last["content"].as_str().unwrap().to_owned()
}

fn handle_in(found: &str) -> String {
    let id = found.split("ws:segment:").nth(1).unwrap().split([':', ')', ' ', ']']).next().unwrap();
    format!("ws:segment:{id}")
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_model_called_a_tool_with_is_found_and_read_again_once_it_is_left_out() {
    let t = Talk::new().await;
    let arguments = json!({ "path": "src/ledger.rs", "note": "first line\nmarmalade-77 is the key" });
    let id = called(&t, &arguments).await;
    talk_on(&t, &id).await;
    let told = sent(&t);
    assert!(!told.contains("marmalade-77") && told.contains("src/ledger.rs"), "{told}");
    let found = returned(&t, &id, "context_search_stashed", json!({ "query": "marmalade-77" })).await;
    assert!(found.contains("  marmalade-77 is the key"), "in words, not in JSON: {found}");
    let expand = serde_json::from_value(json!({ "handle": handle_in(&found) })).unwrap();
    let whole = t.h.engine.expand_handle(&t.h.scope, expand).await.unwrap();
    let parts: Value = serde_json::from_str(whole.content.as_str().unwrap()).unwrap();
    assert_eq!(parts[0]["arguments"], arguments, "{parts}");
    stash(&t, &id, "marmalade-77").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_redact_no_secret_of_a_call_is_found_or_read_again() {
    let mut t = Talk::new().await;
    t.h = t.h.with_secrets(Policy::Redact, Policy::Off);
    // Put together here, so that no scanner finds one in this file.
    let secret = ["AKIA", "Z7Q4", "M2XN", "W8LP", "T5RD"].concat();
    let id = called(&t, &json!({ "note": format!("A=1\n{secret} marmalade") })).await;
    talk_on(&t, &id).await;
    let found = returned(&t, &id, "context_search_stashed", json!({ "query": "marmalade" })).await;
    assert!(found.contains("marmalade") && !found.contains(&secret), "{found}");
    let whole = returned(&t, &id, "context_expand", json!({ "handle": handle_in(&found) })).await;
    assert!(whole.contains("marmalade") && !whole.contains(&secret), "{whole}");
}

#[tokio::test(flavor = "multi_thread")]
async fn with_redact_no_page_or_preview_has_a_part_of_a_key() {
    let mut t = Talk::new().await;
    t.h = t.h.with_secrets(Policy::Redact, Policy::Off);
    let id = called(&t, &json!({ "note": "marmalade" })).await;
    let head = format!("-----BEGIN RSA {}-----\n", "PRIVATE KEY");
    let lines: Vec<String> = (0..60).map(|n| format!("MIIEpAIBAAKCAQEA{n:02}x9/{}", "Zk3v".repeat(9))).collect();
    let key = format!("{head}{}\n{}", lines.join("\n"), head.replace("BEGIN", "END"));
    let (long, short) = ("words before it ".repeat(60), "quince ".repeat(35));
    t.say(&id, &format!("{long}{key}")).await;
    t.say(&id, &format!("{short}{key}")).await;
    talk_on(&t, &id).await;
    let is_clean = |told: &str| !told.contains("Zk3vZk3v");
    let found = returned(&t, &id, "context_search_stashed", json!({ "query": "quince" })).await;
    assert!(found.contains("quince") && is_clean(&found), "{found}");
    let whole = returned(&t, &id, "context_search_stashed", json!({ "query": "words before it" })).await;
    for offset in (0..4000).step_by(500) {
        let arguments = json!({ "handle": handle_in(&whole), "offset": offset });
        let page = returned(&t, &id, "context_expand", arguments).await;
        assert!(is_clean(&page), "from {offset} on: {page}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_keeps_a_merge_that_was_undone_out_of_reach_as_the_other_does() {
    let t = Talk::new().await;
    let id = begin(&t).await;
    t.fake.then(Reply::text("yes"));
    t.fake.then(Reply::text("yes"));
    fork(&t, &id, "We decided to use the codeword ZEBRAFISH.").await;
    merge(&t, &id, false).await;
    let list = serde_json::from_value(json!({})).unwrap();
    let list = t.h.engine.list_operations(&t.h.scope, list).await.unwrap().operations;
    let merged = list.iter().find(|operation| operation.kind == "branch.merged").unwrap();
    let undo = serde_json::from_value(json!({ "operation_id": merged.operation_id })).unwrap();
    t.h.engine.undo_operation(&t.h.scope, undo).await.unwrap();
    let copy = t.create(json!({ "parent_id": id, "model_id": "gpt-4" })).await.id;
    for of in [&id, &copy] {
        let project = t.context(of).await.project_id;
        let search = json!({ "project_id": project, "query": "ZEBRAFISH", "filters": { "task_id": of } });
        let search = serde_json::from_value(search).unwrap();
        let found = t.h.engine.search_stashed(&t.h.scope, search).await.unwrap();
        assert_eq!(found.total_matches, 0, "{found:?}");
    }
    t.h.check_invariants().await;
}

/// The snapshot goes with the conversation; what was done before it can be undone all the same.
#[tokio::test(flavor = "multi_thread")]
async fn undo_walks_past_the_snapshot_of_a_conversation_that_is_removed() {
    let t = Talk::new().await;
    let id = begin(&t).await;
    t.fake.then(Reply::text("yes"));
    t.say(&id, "hello").await;
    let project = t.context(&id).await.project_id;
    let put = json!({ "project_id": project, "text": "a note", "task_id": "other" });
    t.h.engine.put_segments(&t.h.scope, serde_json::from_value(put).unwrap()).await.unwrap();
    let taken = serde_json::from_value(json!({ "project_id": project, "task_id": id })).unwrap();
    t.h.engine.create_snapshot(&t.h.scope, taken).await.unwrap();
    t.h.engine.delete_session(&t.h.scope, &id, Deletion { purge: true }).await.unwrap();
    let undo = serde_json::from_value(json!({ "project_id": project })).unwrap();
    let undone = t.h.engine.undo_operation(&t.h.scope, undo).await.unwrap();
    assert_eq!(undone.undone.kind, "segment.put");
}
