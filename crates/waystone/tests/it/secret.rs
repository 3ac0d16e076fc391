//! Secrets, as people, agents and applications meet them.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use waystone_testkit::harness::private_dir;
use waystone_testkit::process::{McpProcess, ServeProcess, binary, command};
use waystone_testkit::secrets::planted;

use super::mcp::post;

const SAVE: &str = "workflow_checkpoint_save";

fn secret_of(rule: &str) -> String {
    planted(5).into_iter().find(|one| one.rule == rule).unwrap().secret
}

fn waystone(data_dir: &Path, change: impl FnOnce(&mut Command)) -> Output {
    let mut command = command(&binary("waystone"), data_dir);
    change(&mut command);
    command.output().unwrap()
}

fn error_of(output: &Output) -> String {
    assert!(!output.status.success());
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn every_face_tells_of_a_secret_and_no_log_event_or_operation_shows_it() {
    let directory = private_dir();
    let (data, file) = (directory.path().join("data"), directory.path().join("context.json"));
    let (key, token) = (secret_of("aws-access-key"), secret_of("github-token"));
    let traced = |argument: &str| {
        let mut command = command(&binary("waystone"), &data);
        command.arg(argument).env("WAYSTONE_LOG_LEVEL", "trace");
        command
    };
    let told = |warnings: &Value| {
        let text = warnings.to_string();
        assert!(text.contains("possible secret: aws-access-key at /") && !text.contains(&key), "{text}");
    };

    let mut agent = McpProcess::start_with(&mut traced("mcp")).unwrap();
    let context = json!({ "env": key, "more": token });
    told(&agent.call(SAVE, json!({ "sessionId": "a", "context": context })).unwrap().unwrap()["warnings"]);
    told(&agent.call("context_put", json!({ "project_id": "p", "text": key })).unwrap().unwrap()["warnings"]);
    agent.finish().unwrap();

    let server = ServeProcess::start_with(&mut traced("serve")).unwrap();
    let request = json!({ "sessionId": "b", "context": context, "metadata": { "name": token } });
    let reply = post(&server.address, "/api/checkpoints", request.to_string().as_bytes());
    told(&serde_json::from_slice::<Value>(&reply).unwrap()["warnings"]);
    drop(server);

    fs::write(&file, context.to_string()).unwrap();
    let saved = waystone(&data, |command| {
        command.args(["checkpoint", "save", "c"]).arg(&file);
    });
    assert!(saved.status.success(), "{saved:?}");
    told(&json!(String::from_utf8_lossy(&saved.stderr)));

    let log = fs::read_to_string(data.join("logs/waystone.log")).unwrap();
    let database = waystone_testkit::audit::open(&data);
    let mut rows = database
        .prepare("SELECT CAST(payload AS TEXT) FROM operation UNION ALL SELECT CAST(payload AS TEXT) FROM event")
        .unwrap();
    let rows = rows.query_map([], |row| row.get::<_, Option<String>>(0)).unwrap();
    let kept: String = rows.map(|row| row.unwrap().unwrap_or_default()).collect();
    assert!(kept.len() > 100 && log.len() > 100, "{kept}");
    for secret in [&key, &token] {
        assert!(!log.contains(secret) && !kept.contains(secret));
    }
}

#[test]
fn a_policy_comes_from_the_settings_and_blocks_on_every_face() {
    let directory = private_dir();
    let (data, file) = (directory.path().join("data"), directory.path().join("context.json"));
    let context = json!({ "env": secret_of("jwt") });
    fs::write(&file, context.to_string()).unwrap();
    let save = |command: &mut Command| {
        command.args(["checkpoint", "save", "s"]).arg(&file);
    };

    let refused = error_of(&waystone(&data, |command| {
        save(command.env("WAYSTONE_SECRETS", "block"));
    }));
    assert!(refused.contains("jwt at /env") && refused.contains("nothing was stored"), "{refused}");
    let mut blocking = command(&binary("waystone"), &data);
    let mut agent = McpProcess::start_with(blocking.args(["mcp", "--secrets", "block"])).unwrap();
    let refused = agent.call(SAVE, json!({ "context": context })).unwrap().unwrap_err();
    assert_eq!(refused["error"]["code"], "SECRET_BLOCKED");
    assert_eq!(refused["error"]["details"]["findings"][0]["pointer"], "/env");
    agent.finish().unwrap();

    fs::write(data.join("config.json"), r#"{ "secrets": "off" }"#).unwrap();
    let saved = waystone(&data, save);
    assert!(saved.status.success() && saved.stderr.is_empty(), "{saved:?}");
    let wrong = error_of(&waystone(&data, |command| save(command.env("WAYSTONE_PII", "loud"))));
    assert!(wrong.contains("WAYSTONE_PII") && wrong.contains("off, warn, redact, block"), "{wrong}");
}

#[test]
fn a_file_of_rules_counts_and_a_bad_one_is_named_at_the_start() {
    let directory = private_dir();
    let data = directory.path();
    let rules = data.join("secrets.json");
    let put = |command: &mut Command| {
        command.args(["segment", "put", "see ACME-123456"]);
    };
    fs::write(&rules, r#"{ "rules": [{ "id": "acme", "pattern": "ACME-[0-9]{6}" }] }"#).unwrap();
    let told = waystone(data, put);
    assert!(String::from_utf8_lossy(&told.stderr).contains("possible secret: acme at /text"), "{told:?}");

    fs::write(&rules, r#"{ "rules": [{ "id": "acme", "pattern": "ACME-(" }] }"#).unwrap();
    let refused = error_of(&waystone(data, put));
    assert!(refused.contains("secrets.json: rule `acme`: pattern: regex parse error"), "{refused}");
    fs::write(&rules, "x".repeat(2 * 1024 * 1024)).unwrap();
    assert!(error_of(&waystone(data, put)).contains("too large"));
}

#[test]
fn a_hook_stops_no_one_and_keeps_no_secret_that_is_blocked() {
    let directory = private_dir();
    let (data, transcript) = (directory.path().join("data"), directory.path().join("s1.jsonl"));
    let key = secret_of("openai-key");
    let line = json!({ "type": "user", "uuid": "u1", "sessionId": "s-1", "message": { "role": "user", "content": format!("use {key} now") } });
    fs::write(&transcript, format!("{line}\n")).unwrap();
    let run = |event: &str| {
        let mut child = command(&binary("waystone"), &data)
            .args(["hook", event])
            .env("WAYSTONE_SECRETS", "block")
            .current_dir(directory.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let input = json!({ "session_id": "s-1", "transcript_path": transcript, "cwd": directory.path() });
        child.stdin.take().unwrap().write_all(input.to_string().as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(run("stop"), "");
    assert!(run("session-start").contains("use [redacted:openai-key] now"));
    let list = ["--json", "segment", "list", "--all", "--full", "--task", "claude-code-s-1"];
    let listed = waystone(&data, |command| {
        command.args(list).current_dir(directory.path());
    });
    let text = String::from_utf8(listed.stdout).unwrap();
    assert!(text.contains("use [redacted:openai-key] now") && !text.contains(&key), "{text}");
}
