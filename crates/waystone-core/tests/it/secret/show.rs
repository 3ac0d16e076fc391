//! What is shown where secrets are to be left out: views, exports, guides. What is asked for by its id is given as it is.

use serde_json::{Value, json};
use waystone_core::api::View;
use waystone_core::canon::Hash;
use waystone_core::secret::without_secrets;
use waystone_core::store::TranscriptEnd;
use waystone_core::transcript::{Captured, Said, Turn};

use super::*;

async fn compress(h: &Harness, request: Value) -> View {
    h.engine.compress_context(&h.scope, serde_json::from_value(request).unwrap()).await.unwrap()
}

#[tokio::test]
async fn views_leave_secrets_out_and_loads_and_handles_do_not() {
    let h = harness(Redact);
    let (key, token) = (secret_of("private-key"), secret_of("github-token"));
    let filler: Vec<String> = (0..300).map(|n| format!("step {n} went well")).collect();
    let context = json!({ "constraints": format!("must use {token}"), "tls": key, "steps": filler });
    let metadata = json!({ "name": token, "note": { "by": token } });
    let request = json!({ "sessionId": "s", "context": context, "metadata": metadata });
    let saved = h.try_save(request).await.unwrap();
    assert_eq!(saved.warnings.len(), 4, "who saves is told");

    let loaded = h.load(&saved.checkpoint_id).await;
    assert_eq!(serde_json::from_str::<Value>(loaded.context.get()).unwrap(), context);
    let viewed = h.try_load(json!({ "sessionId": "s", "maxTokens": 400 })).await.unwrap();
    let prioritized = json!({ "sessionId": "s", "tokenBudget": 400 });
    let prioritized =
        h.engine.prioritize_context(&h.scope, serde_json::from_value(prioritized).unwrap()).await.unwrap();
    let stored = compress(&h, json!({ "sessionId": "s", "targetTokens": 400 })).await;
    let given = compress(&h, json!({ "context": context, "targetTokens": 400 })).await;
    let shown = [json!(viewed), json!(prioritized), json!(stored), json!(given)];
    for view in &shown {
        let text = view.to_string();
        let body: String = key.lines().nth(1).unwrap().to_owned();
        assert!(!text.contains(&token) && !text.contains(&body), "{text}");
        assert_eq!(view["context"]["constraints"], "must use [redacted:github-token]");
        assert!(view["warnings"].to_string().contains("2 texts are shown without possible secrets"), "{text}");
    }
    for holder in [format!("ws:checkpoint:{}", saved.checkpoint_id), handle_of(&given)] {
        let request = json!({ "handle": format!("{holder}#/constraints") });
        let expanded = h.engine.expand_handle(&h.scope, serde_json::from_value(request).unwrap()).await.unwrap();
        assert!(json!(expanded).to_string().contains(&token), "the original is one call away");
    }
    let resumed = h.engine.resume_sessions(&h.scope, serde_json::from_value(json!({})).unwrap()).await.unwrap();
    assert!(!json!(resumed).to_string().contains(&token), "{resumed:?}");
}

#[tokio::test]
async fn previews_of_sessions_show_no_secret_in_a_name_or_a_tag() {
    let token = secret_of("github-token");
    for (policy, shown) in [(Warn, token.as_str()), (Redact, "[redacted:github-token]")] {
        let h = harness(policy);
        let metadata = json!({ "name": format!("with {token}") });
        h.try_save(json!({ "sessionId": "s", "context": { "n": 1 }, "metadata": metadata })).await.unwrap();
        let named = json!({ "name": format!("about {token}"), "tags": ["plain", token] });
        let named = serde_json::from_value(named).unwrap();
        h.engine.update_session(&h.scope, &"s".parse().unwrap(), named).await.unwrap();
        let resumed = h.engine.resume_sessions(&h.scope, serde_json::from_value(json!({})).unwrap()).await.unwrap();
        let preview = &resumed.sessions[0].preview;
        assert_eq!(preview.checkpoint_name, Some(format!("with {shown}")));
        assert_eq!(preview.name, Some(format!("about {shown}")));
        assert_eq!(preview.tags, ["plain", shown]);
    }
}

/// The context that a view was made of.
fn handle_of(view: &View) -> String {
    let handle = view.next.as_ref().unwrap().arguments["handle"].as_str().unwrap();
    handle.split('#').next().unwrap().to_owned()
}

#[tokio::test]
async fn an_export_without_its_secrets_can_be_imported() {
    let h = harness(Redact);
    let (key, token) = (secret_of("stripe-key"), secret_of("slack-token"));
    let request =
        json!({ "sessionId": "s", "context": { "n": 1.5, "env": { "K": key } }, "metadata": { "name": token } });
    h.try_save(request).await.unwrap();
    h.save("s", json!({ "clean": true })).await;
    put(&h, json!({ "project_id": "p", "text": format!("a {key}") })).await.unwrap();
    put(&h, json!({ "project_id": "p", "text": "clean", "tags": [token] })).await.unwrap();
    let session = h.export_session("s").await.unwrap();
    let project = h.export_project("p").await.unwrap();
    for document in [&session, &project] {
        assert!(!document.contains(&key) && !document.contains(&token), "{document}");
        assert!(document.contains("[redacted:stripe-key]") && document.contains("[redacted:slack-token]"));
    }

    let other = harness(Block);
    assert_eq!(other.import(session.clone()).await.unwrap().warnings, Vec::<String>::new());
    assert_eq!(other.import(project.clone()).await.unwrap().warnings, Vec::<String>::new());
    assert_eq!(other.export_session("s").await.unwrap(), session);
    assert_eq!(other.export_project("p").await.unwrap(), project);
    other.check_invariants().await;
}

async fn capture(h: &Harness, turns: &[(&str, Said)]) -> u64 {
    let turn = |(name, said): &(&str, Said)| Turn { name: (*name).to_owned(), at: None, said: said.clone() };
    let captured = Captured {
        client: "claude-code",
        session: "c".parse().unwrap(),
        path: "/t".to_owned(),
        place: "/p".to_owned(),
        turns: turns.iter().map(turn).collect(),
        end: TranscriptEnd { at: 1, hash: Hash::of(b"") },
    };
    h.engine.capture_transcript(&h.scope, captured).await.unwrap()
}

/// All that was captured, as one text.
async fn captured(h: &Harness) -> String {
    let project = h.engine.project().to_string();
    let request = json!({ "project_id": project, "all_tasks": true, "full": true });
    let page = h.engine.list_task_context(&h.scope, serde_json::from_value(request).unwrap()).await.unwrap();
    page.segments.iter().map(|segment| segment.text.clone()).collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn a_transcript_is_captured_whatever_is_said_and_told_without_secrets() {
    let (key, password) = (secret_of("openai-key"), secret_of("assigned-secret"));
    let turns = [
        ("1", Said::Request(format!("deploy with {key}, please"))),
        ("2", Said::Call { id: "c".into(), tool: "Bash".into(), input: json!({ "api_key": password }) }),
        ("3", Said::Reply("done".to_owned())),
    ];
    for (policy, is_kept, is_told) in [(Warn, true, true), (Redact, true, false), (Block, false, false)] {
        let h = harness(policy);
        assert_eq!(capture(&h, &turns).await, 3);
        assert_eq!(capture(&h, &turns).await, 0, "each once");
        let kept = captured(&h).await;
        assert_eq!((kept.contains(&key), kept.contains(&password)), (is_kept, is_kept), "{policy:?}: {kept}");
        let guide = h.engine.read_guide(&h.scope, &"c".parse().unwrap(), "/p").await.unwrap().unwrap();
        assert_eq!(guide.contains(&key), is_told, "{policy:?}: {guide}");
        assert!(is_told || guide.contains("deploy with [redacted:openai-key], please"), "{guide}");
    }
}

#[test]
fn what_others_say_is_shown_without_secrets_whatever_is_set() {
    let token = secret_of("github-token");
    assert_eq!(without_secrets(&format!("no {token} here")), "no [redacted:github-token] here");
    assert_eq!(without_secrets("nothing to hide"), "nothing to hide");
}
