//! The tools of a real folder: what reads runs unasked, what writes after approval, and nothing leaves it.

use serde_json::{Value, json};
use waystone_core::secret::Policy;
use waystone_testkit::model::Reply;
use waystone_testkit::secrets::planted;

use super::{Desk, assert_has, assert_paired, completed, read, requested, states, text, until_state, write};
use crate::client::Client;

/// Lets the model make calls that nobody needs to decide about, and returns the calls' ids.
async fn run<'a>(desk: &Desk, context: &str, calls: impl IntoIterator<Item = (&'a str, Value)>) -> Vec<String> {
    desk.talk.fake.then(Reply::calls(calls)).then(Reply::text("Done."));
    let mut events = desk.talk.follow(context).await;
    desk.talk.say(context, "Go.").await;
    let told = until_state(&mut events, "Idle").await;
    assert!(!states(&told).contains(&"AwaitingToolApproval".to_owned()), "{told:#?}");
    requested(&told).iter().map(|call| text(&call["id"])).collect()
}

#[tokio::test]
async fn what_reads_runs_unasked_and_what_writes_after_approval() {
    let desk = Desk::new().await;
    desk.talk.fake.then(Reply::calls([read("README.md")])).then(Reply::calls([write("notes.txt", "It rains.\n")]));
    desk.talk.fake.then(Reply::text("Noted."));
    let context = desk.create().await;
    let mut events = desk.talk.follow(&context).await;
    desk.talk.say(&context, "Note what the README says.").await;
    let told = until_state(&mut events, "AwaitingToolApproval").await;
    assert_eq!(completed(&told), [("call_0".to_owned(), "succeeded".to_owned())]);
    assert!(desk.results()[0].1.contains("It rains."), "the model was told: {:?}", desk.results());
    let calls = requested(&told);
    assert_eq!((&calls[0]["name"], &calls[1]["name"]), (&json!("read_file"), &json!("write_file")));
    assert_eq!(desk.file("notes.txt"), None, "nothing is written before someone says so");

    let call = text(&calls[1]["id"]);
    assert_eq!(desk.decide(&context, "approve", &[&call]).await.0, 200);
    let told = until_state(&mut events, "Idle").await;
    assert_eq!(completed(&told), [(call.clone(), "succeeded".to_owned())]);
    assert_eq!(desk.file("notes.txt").as_deref(), Some("It rains.\n"));
    let written = desk.call(&context, &call).await;
    assert_has(&written, &json!({ "tool_name": "write_file", "approval_status": "Approved", "outcome": "succeeded" }));
    for time in ["requested_at", "decided_at", "executed_at"] {
        assert!(written[time].is_string(), "{time}: {written}");
    }
    assert_paired(&desk.talk.fake.requests());
}

#[tokio::test]
async fn a_denied_call_writes_nothing_and_the_model_is_told_why() {
    let desk = Desk::new().await;
    let mut waiting = desk.wait([write("notes.txt", "x")]).await;
    let path = format!("/{}/tools/deny", waiting.context);
    let (status, denied) =
        desk.talk.post(&path, json!({ "tool_call_ids": ["call_0"], "reason": "not on a Friday" })).await;
    assert_eq!(status, 200, "{denied}");
    let told = until_state(&mut waiting.events, "Idle").await;
    assert_eq!(completed(&told), [("call_0".to_owned(), "denied".to_owned())]);
    assert_eq!(desk.file("notes.txt"), None);
    assert!(desk.results()[0].1.contains("not on a Friday"), "{:?}", desk.results());
    let call = desk.call(&waiting.context, "call_0").await;
    assert_has(&call, &json!({ "approval_status": "Denied", "outcome": "denied" }));
    assert_paired(&desk.talk.fake.requests());
}

#[tokio::test]
async fn of_parallel_calls_each_goes_its_own_way() {
    let desk = Desk::new().await;
    let calls = [read("README.md"), write("a.txt", "a"), write("b.txt", "b"), write("c.txt", "c")];
    let mut waiting = desk.wait(calls).await;
    let context = waiting.context.clone();
    let pending: Vec<String> = desk.talk.get(&format!("/{context}/state")).await["pending_tool_calls"]
        .as_array()
        .unwrap()
        .iter()
        .map(|call| text(&call["id"]))
        .collect();
    assert_eq!(pending, ["call_1", "call_2", "call_3"], "what only reads waits for nobody");
    let (status, first) = desk.decide(&context, "approve", &["call_1"]).await;
    assert_eq!(status, 200);
    assert_has(&first, &json!({ "approved_count": 1, "context_state": "AwaitingToolApproval" }));
    let (_, second) = desk.decide(&context, "deny", &["call_2"]).await;
    assert_has(&second, &json!({ "denied_count": 1, "context_state": "AwaitingToolApproval" }));
    assert_eq!(desk.talk.get(&format!("/{context}/state")).await["pending_tool_approvals"], 1);
    let (_, third) = desk.decide(&context, "approve", &["call_3"]).await;
    assert_has(&third, &json!({ "approved_count": 1, "context_state": "ExecutingTools" }));
    let told = until_state(&mut waiting.events, "Idle").await;
    assert_eq!(desk.statuses(&waiting).await, ["Approved", "Approved", "Denied", "Approved"]);
    let files: Vec<_> = ["a.txt", "b.txt", "c.txt"].map(|name| desk.file(name)).into();
    assert_eq!(files, [Some("a".to_owned()), None, Some("c".to_owned())]);
    let mut ended = [completed(&waiting.told), completed(&told)].concat();
    ended.sort();
    let outcomes: Vec<&str> = ended.iter().map(|(_, outcome)| outcome.as_str()).collect();
    assert_eq!(outcomes, ["succeeded", "succeeded", "denied", "succeeded"]);
    let told_of: Vec<String> = desk.results().into_iter().map(|(id, _)| id).collect();
    let ended: Vec<String> =
        [completed(&waiting.told), completed(&told)].concat().into_iter().map(|(id, _)| id).collect();
    assert_eq!(told_of, ended, "in the order in which they came, which is that of the branch");
    assert_paired(&desk.talk.fake.requests());
}

#[tokio::test]
async fn a_tool_that_fails_is_told_to_the_model_and_the_turn_goes_on() {
    let desk = Desk::new().await;
    let context = desk.create().await;
    let calls = [read("missing.md"), ("read_file", json!({})), ("no_such_tool", json!({}))];
    for call in run(&desk, &context, calls).await {
        let failed = desk.call(&context, &call).await;
        assert_eq!(failed["outcome"], "failed", "{failed}");
        let result = desk.talk.get(&format!("/{context}/messages/{}", text(&failed["result_message_id"]))).await;
        assert_eq!(result["content"][0]["is_error"], true, "{result}");
    }
    assert_eq!(desk.results().len(), 3);
}

#[tokio::test]
async fn no_path_of_a_model_leads_out_of_the_folder() {
    const OUTSIDE: &str = "nobody inside may read this";
    let desk = Desk::new().await;
    let outside = tempfile::tempdir().unwrap();
    let secret = outside.path().join("outside.txt");
    std::fs::write(&secret, OUTSIDE).unwrap();
    std::os::unix::fs::symlink(&secret, desk.folder.path().join("link.txt")).unwrap();
    std::os::unix::fs::symlink(outside.path(), desk.folder.path().join("link")).unwrap();
    let (absolute, folder) = (secret.to_str().unwrap(), outside.path().to_str().unwrap());
    let relative = format!("../{}/outside.txt", outside.path().file_name().unwrap().to_str().unwrap());
    let context = desk.create().await;
    let calls = [
        read("../../etc/passwd"),
        read("../../../../../../../../etc/passwd"),
        read("/etc/passwd"),
        read(absolute),
        read(&relative),
        read("link.txt"),
        read("link/outside.txt"),
        ("list_files", json!({ "path": ".." })),
        ("list_files", json!({ "path": folder })),
        ("search_files", json!({ "query": "nobody", "path": ".." })),
        ("search_files", json!({ "query": "root", "path": "/etc" })),
    ];
    let expected = calls.len();
    let calls = run(&desk, &context, calls).await;
    assert_eq!(calls.len(), expected);
    for call in calls {
        let refused = desk.call(&context, &call).await;
        assert_eq!(refused["outcome"], "failed", "{refused}");
    }
    for (id, result) in desk.results() {
        let has_leaked = result.contains(OUTSIDE) || result.contains("root:") || result.contains("outside.txt:");
        assert!(!has_leaked, "{id}: {result}");
    }
}

#[tokio::test]
async fn no_approval_lets_a_model_write_out_of_the_folder() {
    let desk = Desk::new().await;
    let outside = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(outside.path(), desk.folder.path().join("link")).unwrap();
    let absolute = outside.path().join("absolute.txt");
    let relative = format!("../{}/relative.txt", outside.path().file_name().unwrap().to_str().unwrap());
    let calls = [write(absolute.to_str().unwrap(), "x"), write(&relative, "x"), write("link/through.txt", "x")];
    let mut waiting = desk.wait(calls).await;
    assert_eq!(desk.decide(&waiting.context, "approve", &waiting.ids()).await.0, 200);
    until_state(&mut waiting.events, "Idle").await;
    for call in waiting.ids() {
        assert_eq!(desk.call(&waiting.context, call).await["outcome"], "failed", "{call}");
    }
    assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn a_long_result_is_kept_whole_and_shown_to_the_model_with_a_handle() {
    let desk = Desk::new().await;
    let long: String = (0..6000).map(|n| format!("line {n} of what the weather was like\n")).collect();
    let context = desk.create_with(json!([{ "name": "log", "read_only": true }])).await;
    desk.talk.fake.then(Reply::calls([("log", json!({}))])).then(Reply::text("Long."));
    let mut events = desk.talk.follow(&context).await;
    desk.talk.say(&context, "Go.").await;
    until_state(&mut events, "ExecutingTools").await;
    assert_eq!(desk.answer(&context, "call_0", json!({ "result": long })).await.0, 200);
    until_state(&mut events, "Idle").await;
    assert_eq!(desk.call(&context, "call_0").await["result"], long.as_str());
    let (_, shown) = desk.results().remove(0);
    assert!(shown.len() < long.len() / 4, "{} bytes of {}", shown.len(), long.len());
    let at = shown.find("ws:").unwrap_or_else(|| panic!("no handle: {shown}"));
    let handle: String = shown[at..].chars().take_while(|c| !" ])`\"\n,;".contains(*c)).collect();
    let (status, expanded) = desk.talk.client.get(&format!("/api/handles?handle={}", handle.replace('#', "%23"))).await;
    assert_eq!(status, 200, "{handle}: {expanded}");
    assert!(expanded.to_string().contains("line 3000 of"), "one call returns the original");
}

#[tokio::test]
async fn the_demo_calls_a_tool_when_told_to() {
    let desk = Desk::new().await;
    let folder = desk.folder.path().to_str().unwrap();
    let context = desk.talk.create_with(json!({ "model_id": "demo", "workspace_path": folder })).await;
    let mut events = desk.talk.follow(&context).await;
    desk.talk.say(&context, r#"call read_file {"path": "README.md"}"#).await;
    let told = until_state(&mut events, "Idle").await;
    assert_has(&requested(&told)[0], &json!({ "name": "read_file", "arguments": { "path": "README.md" } }));
    assert_eq!(completed(&told)[0].1, "succeeded");
    let page = desk.talk.get(&format!("/{context}/messages")).await;
    let answer = text(&page["messages"][3]["content"][0]["text"]);
    assert!(answer.contains("It rains."), "{answer}");

    desk.talk.say(&context, r#"call write_file {"path": "demo.txt", "content": "demo"}"#).await;
    let told = until_state(&mut events, "AwaitingToolApproval").await;
    let call = text(&requested(&told)[0]["id"]);
    assert_eq!(desk.decide(&context, "approve", &[&call]).await.0, 200);
    until_state(&mut events, "Idle").await;
    assert_eq!(desk.file("demo.txt").as_deref(), Some("demo"));
}

#[tokio::test]
async fn a_folder_that_is_not_there_is_told_of_and_one_that_is_relative_refused() {
    let desk = Desk::new().await;
    let folder = desk.folder.path().to_str().unwrap();
    let warnings = async |path: &str| {
        let (status, created) = desk.talk.post("", json!({ "workspace_path": path })).await;
        assert_eq!(status, 201, "{created}");
        let (place, body) = (format!("/{}", text(&created["id"])), json!({ "workspace_path": path }));
        let (_, changed) = desk.talk.call("PUT", &place, Some(body)).await;
        assert_eq!(changed["warnings"], created["warnings"]);
        created["warnings"].clone()
    };
    assert_eq!(warnings(folder).await, Value::Null);
    for path in [format!("{folder}/README.md"), format!("{folder}/nowhere")] {
        let told = format!("workspace_path `{path}` is no folder here: tools that work in it will fail");
        assert_eq!(warnings(&path).await, json!([told]));
    }
    let (status, refused) = desk.talk.post("", json!({ "workspace_path": "src" })).await;
    assert_eq!((status, &refused["error"]["code"]), (400, &json!("VALIDATION_ERROR")), "{refused}");
    let message = "workspace_path `src` is relative: give it from the root on";
    assert_eq!(refused["error"]["message"], message);
}

#[tokio::test]
async fn without_a_folder_the_model_reaches_no_files() {
    let desk = Desk::new().await;
    let context = desk.talk.create_with(json!({ "model_id": "gpt-4", "tools": [super::weather()] })).await;
    let calls = run(&desk, &context, [read("README.md"), write("a.txt", "a")]).await;
    for call in &calls {
        assert_eq!(desk.call(&context, call).await["outcome"], "failed");
    }
    assert!(desk.results().iter().all(|(_, result)| !result.contains("It rains.")), "{:?}", desk.results());
    let other = desk.create().await;
    desk.talk.refuses("GET", &format!("/{other}/tools/{}", calls[0]), None, 404, "TOOL_CALL_NOT_FOUND").await;
}

/// As any call that cannot be run: a tool server may be gone for a moment, and what was said before is not lost for that.
#[tokio::test]
async fn a_model_that_calls_where_there_are_no_tools_is_told_so() {
    let desk = Desk::new().await;
    let context = desk.talk.create().await;
    desk.talk.fake.then(Reply::calls([read("README.md")])).then(Reply::text("I see."));
    let mut events = desk.talk.follow(&context).await;
    desk.talk.say(&context, "Go.").await;
    until_state(&mut events, "Idle").await;
    let told = desk.talk.fake.requests().pop().unwrap()["messages"].to_string();
    assert!(told.contains("there is no tool `read_file`: this conversation has none"), "{told}");
}

/// What is done about secrets in what a tool reads is what is done about them anywhere.
#[tokio::test]
async fn a_secret_in_a_file_is_kept_and_shown_as_the_policy_says() {
    let secret = planted(1).into_iter().find(|planted| planted.rule == "github-token").unwrap().secret;
    for (policy, is_warned, is_kept, is_shown) in [
        (Policy::Off, false, true, true),
        (Policy::Warn, true, true, true),
        (Policy::Redact, true, true, false),
        (Policy::Block, false, false, false),
    ] {
        let mut client = Client::new();
        client.harness = client.harness.with_secrets(policy, Policy::Off);
        let desk = Desk::with(client, Default::default()).await;
        std::fs::write(desk.folder.path().join(".env"), format!("GITHUB_TOKEN={secret}\n")).unwrap();
        let context = desk.create().await;
        desk.talk.fake.then(Reply::calls([read(".env")]));
        let mut events = desk.talk.follow(&context).await;
        desk.talk.say(&context, "Go.").await;
        let told = until_state(&mut events, "Idle").await;
        let of_call = told.iter().find(|(_, kind, _)| kind == "ToolCallCompleted").unwrap();
        assert_eq!(of_call.2["outcome"], "succeeded", "{policy:?}");
        let warnings = of_call.2["warnings"].to_string();
        assert!(warnings.contains("github-token") || !is_warned, "{policy:?}: {of_call:?}");
        assert!(told.iter().all(|event| !event.2.to_string().contains(&secret)), "{policy:?}: no event shows it");
        let result = desk.call(&context, "call_0").await["result"].to_string();
        assert_eq!(result.contains(&secret), is_kept, "{policy:?}: {result}");
        assert_eq!(desk.results()[0].1.contains(&secret), is_shown, "{policy:?}: {:?}", desk.results());
    }
}
