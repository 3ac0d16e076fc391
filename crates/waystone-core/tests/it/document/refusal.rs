//! What is refused, and by which name.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use waystone_core::Limits;
use waystone_core::api::ImportStatus;
use waystone_testkit::Harness;
use waystone_testkit::contexts::Random;
use waystone_testkit::fault::import::{state, valid};

use super::elsewhere;

async fn session_document() -> Value {
    let h = Harness::new();
    for n in 0..3 {
        h.save("s", json!({ "n": n })).await;
    }
    serde_json::from_str(&h.export_session("s").await.unwrap()).unwrap()
}

async fn project_document() -> Value {
    let h = Harness::new();
    valid::make_project(&h, "p", 8, &mut Random::new(5)).await;
    serde_json::from_str(&h.export_project("p").await.unwrap()).unwrap()
}

/// Panics unless the document is refused with this code, by a message that has these words, and nothing changed.
async fn check(h: &Harness, document: impl Into<Vec<u8>>, code: &str, words: &str) {
    let before = state(h.data_dir());
    let error = h.import(document).await.unwrap_err();
    assert!(error.code() == code && error.to_string().contains(words), "{words}: {} {error}", error.code());
    assert_eq!(state(h.data_dir()), before, "{words}");
}

#[tokio::test]
async fn a_document_that_is_not_one_is_refused() {
    let h = elsewhere();
    for (document, words) in [
        ("", "ends in the middle"),
        ("  ", "ends in the middle"),
        ("[]", "`[` at byte 0"),
        ("{}", "format is missing"),
        (r#"{"format": "waystone.session"}"#, "version is missing"),
        (r#"{"version": 1}"#, "it begins with `version` and not with `format`"),
        (r#"{"format": "other", "version": 1}"#, "its format is `other`"),
        (r#"{"format": "waystone.session", "version": 2, "more": 1}"#, "its version is 2, this program reads up to 1"),
        (r#"{"format": "waystone.session", "version": 0}"#, "version is 0"),
        (r#"{"format": "waystone.session", "version": "1"}"#, "version: invalid type"),
        (r#"{"format": "waystone.session", "version": 1}"#, "session is missing"),
        ("\u{1f}\u{fffd}", "at byte 0"),
    ] {
        check(&h, document, "INVALID_INPUT", words).await;
    }
    check(&h, vec![0x1f, 0x8b, 8, 0], "INVALID_INPUT", "compressed").await;
    let good = session_document().await.to_string();
    check(&h, good.clone() + "{}", "INVALID_INPUT", "something follows").await;
    check(&h, &good[..good.len() - 1], "INVALID_INPUT", "ends in the middle").await;
}

#[tokio::test]
async fn what_editors_and_tools_make_of_a_document_is_taken_or_told_of() {
    let document = session_document().await;
    let sorted = serde_json::to_string(&document.as_object().unwrap().iter().collect::<BTreeMap<_, _>>()).unwrap();
    let order = "its parts are read one by one, in this order: format, version, then session, checkpoints, or project, tasks, segments, snapshots";
    let h = elsewhere();
    check(&h, sorted, "INVALID_INPUT", order).await;
    let late = sorted_parts(&document, ["format", "version", "checkpoints", "session"]);
    check(&h, late, "INVALID_INPUT", order).await;
    check(&h, b"\xef\xbb{}".to_vec(), "INVALID_INPUT", "at byte 0").await;
    let with_mark = format!("\u{feff}{document}");
    assert_eq!(h.import(with_mark).await.unwrap().status, ImportStatus::Imported);
}

fn sorted_parts(document: &Value, names: [&str; 4]) -> String {
    let parts: Vec<String> = names.iter().map(|name| format!("\"{name}\":{}", document[*name])).collect();
    format!("{{{}}}", parts.join(","))
}

#[tokio::test]
async fn what_is_wrong_in_a_session_is_named() {
    let h = elsewhere();
    let good = session_document().await;
    let wrong = |pointer: &str, value: Value| {
        let mut document = good.clone();
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        match document.pointer_mut(parent).unwrap() {
            Value::Object(map) => drop(map.insert(key.to_owned(), value)),
            Value::Array(items) => items[key.parse::<usize>().unwrap()] = value,
            _ => panic!("{pointer}"),
        }
        document.to_string()
    };
    let deep = (0..128).fold(json!({}), |inner, _| json!({ "k": inner }));
    let long_name = "n".repeat(257);
    for (pointer, value, words) in [
        ("/session/id", json!("a/b"), "session id"),
        ("/session/id", json!(".."), "session id"),
        ("/session/projectId", json!(7), "session: invalid type"),
        ("/session/more", json!(7), "unknown field `more`"),
        ("/session/name", json!(""), "name is empty"),
        ("/session/name", json!(long_name), "name must be text"),
        ("/session/tags", json!([""]), "tags must be"),
        ("/session/tags", json!(vec!["t"; 65]), "more than 64 items"),
        ("/session/criticalKeys", json!(["n", "n"]), "criticalKeys twice"),
        ("/session/contextRules", json!([{ "pattern": "(", "class": "USEFUL" }]), "no regular expression"),
        ("/session/createdAt", json!("2026-01-03T00:00:00Z"), "more than a day from now"),
        ("/session/createdAt", json!("1969-12-31T23:59:59Z"), "before 1970"),
        ("/session/createdAt", json!("yesterday"), "session:"),
        ("/checkpoints/1/checkpointId", good["checkpoints"][0]["checkpointId"].clone(), "twice"),
        (
            "/checkpoints/1/parentCheckpointId",
            good["checkpoints"][2]["checkpointId"].clone(),
            "does not stand before it",
        ),
        ("/checkpoints/1/parentCheckpointId", json!("nope"), "its parent `nope`"),
        ("/checkpoints/1/createdAt", json!("9999-01-01T00:00:00Z"), "more than a day"),
        ("/checkpoints/1/contextHash", json!("00"), "its context has the hash"),
        ("/checkpoints/1/context/n", json!(77), "its context has the hash"),
        ("/checkpoints/1/context", json!([]), "not an object"),
        ("/checkpoints/1/context", deep, "128 levels"),
        ("/checkpoints/1/metadata", json!({ "name": 7 }), "metadata.name"),
        ("/checkpoints/1/metadata", json!({ "x": "y".repeat(17_000) }), "metadata has"),
        ("/checkpoints/1/agentId", json!("a b"), "checkpoints[1]: agent id"),
        ("/checkpoints/1/archived", json!(true), "unknown field `archived`"),
        ("/checkpoints/1", json!(null), "checkpoints[1]"),
        ("/more", json!(1), "`,` at byte"),
        ("/checkpoints", json!({}), "where `[` must be"),
        ("/checkpoints", json!([]), "no checkpoints"),
    ] {
        check(&h, wrong(pointer, value), "INVALID_INPUT", words).await;
    }
    for (from, to, words) in [
        (r#""context":{"n":1}"#, r#""context":{"n":1,"n":1}"#, "duplicate key"),
        (r#""context":{"n":1}"#, r#""context":{"n":18446744073709551616}"#, "64 bits"),
        (r#""context":{"n":1}"#, r#""x":1"#, "unknown field `x`"),
        (r#""context":{"n":1}"#, r#""metadata":{}"#, "duplicate field"),
        (r#""context":{"n":1}"#, r#""context":{"n":"\ud800"}"#, "surrogate"),
        (r#","context":{"n":1}"#, "", "context is missing"),
    ] {
        let document = good.to_string();
        assert!(document.contains(from));
        check(&h, document.replacen(from, to, 1), "INVALID_INPUT", words).await;
    }
}

#[tokio::test]
async fn what_is_wrong_in_a_project_is_named() {
    let h = elsewhere();
    let good = project_document().await;
    let first = good["segments"][0]["segment_id"].clone();
    let far = json!("2027-01-03T00:00:00Z");
    for (pointer, value, words) in [
        ("/project", json!({ "project_id": "a/b" }), "project id"),
        ("/tasks/0", json!({ "task_id": "t t", "current": false }), "tasks[0]"),
        ("/segments/1/segment_id", first.clone(), "twice"),
        ("/segments/1/tier", json!("archive"), "is deleted"),
        ("/segments/1/tier", json!("somewhere"), "segments[1]"),
        ("/segments/1/text", json!("  "), "is empty"),
        ("/segments/1/mentions", json!(-1), "segments[1]"),
        ("/segments/1/tags", json!(vec!["x"; 66]), "more than 65"),
        ("/segments/1/tags", json!(["x".repeat(257)]), "tags are at most"),
        ("/segments/1/created_at", far.clone(), "more than a day"),
        ("/segments/1/last_touched_at", far, "more than a day"),
        (
            "/snapshots/0/segments",
            json!([{ "segment_id": "nope", "tier": "working", "pinned": false }]),
            "has segment `nope`",
        ),
        ("/snapshots/0/name", json!("n".repeat(257)), "more than 256"),
    ] {
        let mut document = good.clone();
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        match document.pointer_mut(parent) {
            Some(Value::Array(items)) => items[key.parse::<usize>().unwrap()] = value,
            Some(parent) => parent[key] = value,
            None => panic!("{pointer}"),
        }
        check(&h, document.to_string(), "INVALID_INPUT", words).await;
    }
    let mut two_current = good.clone();
    two_current["tasks"].as_array_mut().unwrap().push(json!({ "task_id": "another", "current": true }));
    check(&h, two_current.to_string(), "INVALID_INPUT", "two tasks are current").await;
}

#[tokio::test]
async fn what_is_here_under_the_same_id_and_not_the_same_is_a_conflict() {
    let document = session_document().await;
    let h = elsewhere();
    h.import(document.to_string()).await.unwrap();
    let id = document["checkpoints"][1]["checkpointId"].as_str().unwrap();
    let mut other = document.clone();
    other["checkpoints"][1]["metadata"] = json!({ "name": "another" });
    check(&h, other.to_string(), "CONFLICT", &format!("`{id}` is here with another content")).await;
    let mut moved = document.clone();
    moved["session"]["id"] = json!("elsewhere");
    let first = document["checkpoints"][0]["checkpointId"].as_str().unwrap();
    check(&h, moved.to_string(), "CONFLICT", &format!("`{first}` is here in session `s`")).await;
    let mut project = document.clone();
    project["session"]["projectId"] = json!("other");
    check(&h, project.to_string(), "CONFLICT", "is here in project `project`").await;

    h.engine.delete_checkpoint(&h.scope, &id.parse().unwrap(), Default::default()).await.unwrap();
    let again = h.import(document.to_string()).await.unwrap();
    assert_eq!((again.checkpoints_known, again.warnings.len()), (Some(3), 1), "{:?}", again.warnings);
    h.engine.delete_session(&h.scope, &"s".parse().unwrap(), Default::default()).await.unwrap();
    check(&h, document.to_string(), "CONFLICT", "session `s` was deleted here").await;

    let document = project_document().await;
    h.import(document.to_string()).await.unwrap();
    let mut other = document.clone();
    other["segments"][2]["text"] = json!("another text");
    check(&h, other.to_string(), "CONFLICT", "with another text").await;
    let mut moved = document.clone();
    moved["project"]["project_id"] = json!("q");
    check(&h, moved.to_string(), "CONFLICT", "or in another project").await;
}

#[tokio::test]
async fn an_import_stays_within_what_may_be_kept() {
    let document = session_document().await.to_string();
    let project = project_document().await.to_string();
    let check = async |limits: Limits, document: &str, code: &str, words: &str| {
        check(&Harness::with_limits(limits), document, code, words).await;
    };
    let d = Limits::default;
    let quota = "STORAGE_QUOTA_EXCEEDED";
    check(Limits { checkpoints_max: 2, ..d() }, &document, quota, "would have 3 checkpoints").await;
    check(Limits { session_bytes_max: 40, ..d() }, &document, quota, "MAX_SESSION_BYTES").await;
    check(Limits { total_bytes_max: 40, ..d() }, &document, quota, "MAX_TOTAL_BYTES").await;
    check(Limits { total_bytes_max: 40, ..d() }, &project, quota, "MAX_TOTAL_BYTES").await;
    check(Limits { checkpoint_bytes_max: 5, ..d() }, &document, quota, "MAX_CHECKPOINT_BYTES").await;
    let large = "PAYLOAD_TOO_LARGE";
    check(Limits { import_bytes_max: 500, ..d() }, &document, large, "the document has").await;
    check(Limits { context_bytes_max: 6, ..d() }, &document, large, "context has 7 bytes").await;
    check(Limits { context_bytes_max: 6, ..d() }, &project, large, "a text has").await;
}
