//! Views, marks, handles and diffs as a process on a terminal or behind an agent gives them.

use std::path::Path;
use std::process::Output;

use serde_json::{Value, json};
use waystone_testkit::harness::private_dir;
use waystone_testkit::model::{FakeModel, Reply};
use waystone_testkit::process::{McpProcess, binary, command};

const SAVE: &str = "workflow_checkpoint_save";
const LOAD: &str = "workflow_checkpoint_load";
const COMPRESS: &str = "workflow_context_compress";
const PRIORITIZE: &str = "workflow_context_prioritize";
const MARK: &str = "workflow_mark_critical";
const EXPAND: &str = "context_expand";

/// What would act on a terminal: a colour, a bell, an end of line in a key, C1 controls, writing turned around.
const STEERING: &str = "\u{1b}[31m\u{7}\u{9b}2J\u{202e}\r";

fn long(about: &str) -> String {
    (0..60).map(|n| format!("{about} step {n} reads file_{n}.rs and says something")).collect::<Vec<_>>().join("\n")
}

fn waystone(data_dir: &Path, arguments: &[&str]) -> Output {
    command(&binary("waystone"), data_dir).args(arguments).output().unwrap()
}

/// What is printed by a command that succeeds. Nothing of it acts on a terminal.
#[track_caller]
fn printed(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    let steers = |c: char| (c.is_control() && c != '\n' && c != '\t') || c == '\u{202e}';
    assert!(!text.contains(steers), "{text:?}");
    text
}

#[test]
fn an_agent_saves_compresses_and_expands() {
    let directory = private_dir();
    let mut process = McpProcess::start(&binary("waystone"), directory.path()).unwrap();
    let context = json!({ "userGoal": "ship it", "notes": long("note"), "debugLog": long("log") });
    let rules = json!([{ "pattern": "^debug", "class": "USEFUL" }]);
    let saved = process.call(SAVE, json!({ "context": context, "contextRules": rules })).unwrap().unwrap();
    let marked = process.call(MARK, json!({ "contextKey": "notes" })).unwrap().unwrap();
    assert_eq!((&marked["status"], &marked["sessionId"]), (&json!("SUCCESS"), &saved["sessionId"]));
    let missing = process.call(MARK, json!({ "contextKey": "none" })).unwrap().unwrap();
    assert_eq!(missing["status"], "KEY_NOT_FOUND");

    let view = process.call(COMPRESS, json!({ "ratio": 1.5 })).unwrap().unwrap();
    assert_eq!(view["context"]["notes"], context["notes"], "it is marked");
    assert!(view["tokensAfter"].as_f64().unwrap() <= view["tokensBefore"].as_f64().unwrap() / 1.5);
    assert_eq!(view["classes"]["USEFUL"], json!(["debugLog"]));
    assert_eq!(view["next"]["tool"], EXPAND);
    let expanded = process.call(EXPAND, view["next"]["arguments"].clone()).unwrap().unwrap();
    assert_eq!(expanded["content"], context["debugLog"]);
    let given = json!({ "context": { "a": long("a"), "tmp": 1 }, "tokenBudget": 100 });
    let given = process.call(PRIORITIZE, given).unwrap().unwrap();
    let loaded =
        process.call(LOAD, json!({ "checkpointId": saved["checkpointId"], "maxTokens": 100 })).unwrap().unwrap();
    assert_eq!((&loaded["overBudget"], &loaded["context"]["notes"]), (&json!(true), &context["notes"]));
    process.finish().unwrap();

    // Another process, as after a restart of the agent.
    let mut process = McpProcess::start(&binary("waystone"), directory.path()).unwrap();
    for (key, expected) in
        [(&given["survival"]["shortened"][0], json!(long("a"))), (&given["survival"]["dropped"][0], json!(1))]
    {
        let expanded = process.call(EXPAND, json!({ "handle": key["handle"] })).unwrap().unwrap();
        assert_eq!(expanded["content"], expected, "{key}");
    }
}

#[test]
fn a_bad_call_has_the_code_of_its_family() {
    let directory = private_dir();
    let mut process = McpProcess::start(&binary("waystone"), directory.path()).unwrap();
    let id = process.call(SAVE, json!({ "sessionId": "s", "context": { "a": "x" } })).unwrap().unwrap()["checkpointId"]
        .clone();
    let handle = format!("ws:checkpoint:{}#/a", id.as_str().unwrap());
    let mut check = |tool: &str, arguments: Value, code: &str| {
        let error = process.call(tool, arguments.clone()).unwrap().unwrap_err();
        assert_eq!(error["error"]["code"], code, "{tool} {arguments}: {error}");
        let whole = error["error"]["message"].is_string() && error["error"]["hint"].is_string();
        assert!(whole && error["error"]["details"].is_object(), "{error}");
    };
    for arguments in [
        json!({}),
        json!({ "handle": 7 }),
        json!({ "handle": "" }),
        json!({ "handle": "text" }),
        json!({ "handle": format!("{handle}?lines=0-1") }),
        json!({ "handle": handle, "limit": 0 }),
        json!({ "handle": handle, "limit": -1 }),
        json!({ "handle": handle, "offset": "1" }),
        json!({ "handle": handle, "Limit": 1 }),
    ] {
        check(EXPAND, arguments, "INVALID_PARAMETER");
    }
    check(EXPAND, json!({ "handle": "ws:checkpoint:none#/a" }), "HANDLE_NOT_FOUND");
    for arguments in [
        json!({ "sessionId": "s", "targetTokens": 1, "ratio": 2 }),
        json!({ "sessionId": "s", "strategy": "magic" }),
        json!({ "sessionId": "s", "tokens": 1 }),
        json!({ "context": "text" }),
        json!({ "context": {}, "checkpointId": id }),
    ] {
        check(COMPRESS, arguments, "INVALID_INPUT");
    }
    check(PRIORITIZE, json!({ "sessionId": "s" }), "INVALID_INPUT");
    check(PRIORITIZE, json!({ "sessionId": "s", "tokenBudget": 0 }), "INVALID_INPUT");
    check(MARK, json!({}), "INVALID_INPUT");
    check(MARK, json!({ "contextKey": "k".repeat(1025) }), "INVALID_INPUT");
    check(MARK, json!({ "contextKey": "a", "sessionId": "none" }), "SESSION_NOT_FOUND");
    check(LOAD, json!({ "sessionId": "s", "maxTokens": 0 }), "INVALID_INPUT");
}

#[test]
fn a_person_sees_a_view_and_what_became_of_each_key() {
    let directory = private_dir();
    let (data, file) = (directory.path().join("data"), directory.path().join("context.json"));
    let odd = format!("odd{STEERING}");
    let context =
        json!({ "userGoal": "ship it", "notes": long("note"), odd.as_str(): format!("{STEERING}\n{}", long("odd")) });
    std::fs::write(&file, context.to_string()).unwrap();
    let file = file.to_str().unwrap();
    let run = |arguments: &[&str]| waystone(&data, arguments);
    let rules = json!([{ "pattern": "^notes", "class": "USEFUL", "reason": format!("why{STEERING}") }]).to_string();
    let saved: Value =
        serde_json::from_str(&printed(&run(&["checkpoint", "save", "s", file, "--rules", &rules, "--json"]))).unwrap();
    let id = saved["checkpointId"].as_str().unwrap();

    for arguments in [
        &["checkpoint", "view", "--latest", "s", "--ratio", "4", "--strategy", "extractive", "--goal", "file_7.rs"][..],
        &["checkpoint", "view", "--file", file, "--tokens", "400", "--prioritize", "--weights", r#"{"USEFUL":60}"#],
        &["checkpoint", "show", id, "--max-tokens", "400"],
    ] {
        let shown = printed(&run(arguments));
        assert!(shown.contains("\"userGoal\": \"ship it\""), "{arguments:?}: {shown}");
        assert!(shown.contains("CRITICAL") && shown.contains("key: user goal") && shown.contains("whole"), "{shown}");
        assert!(shown.contains(" of ") && shown.contains("the rest: waystone expand 'ws:"), "{shown}");
    }
    let view: Value =
        serde_json::from_str(&printed(&run(&["checkpoint", "view", id, "--tokens", "400", "--json"]))).unwrap();
    let survival = &view["survival"];
    let left = survival["shortened"].as_array().unwrap().iter().chain(survival["dropped"].as_array().unwrap());
    for key in left {
        let (name, handle) = (key["key"].as_str().unwrap(), key["handle"].as_str().unwrap());
        let expanded: Value = serde_json::from_str(&printed(&run(&["expand", handle, "--json"]))).unwrap();
        assert_eq!(expanded["content"], context[name]);
        assert!(printed(&run(&["expand", handle])).contains("step 59 reads"), "{name}");
    }
    let notes = format!("ws:checkpoint:{id}#/notes");
    assert_eq!(printed(&run(&["expand", &notes])).trim_end(), long("note"), "text is printed as it is");
    let line = printed(&run(&["expand", &format!("{notes}?lines=3-3")]));
    assert_eq!(line, "note step 2 reads file_2.rs and says something\n");
    assert_eq!(printed(&run(&["expand", &notes, "--offset", "5", "--limit", "6"])), "step 0\n");
    let warned = run(&["checkpoint", "view", "--tokens", "1"]);
    assert!(printed(&warned).contains("ship it"));
    assert!(
        String::from_utf8_lossy(&warned.stderr).contains("what is CRITICAL or was asked last"),
        "too small a budget is said"
    );
}

#[test]
fn a_person_marks_keys_and_compares_checkpoints() {
    let directory = private_dir();
    let (data, file) = (directory.path().join("data"), directory.path().join("context.json"));
    let odd = format!("odd{STEERING}");
    let run = |arguments: &[&str]| waystone(&data, arguments);
    let save = |context: &Value| {
        std::fs::write(&file, context.to_string()).unwrap();
        let reason = format!("why{STEERING}");
        let rules = json!([{ "pattern": "^b$", "class": "USEFUL", "reason": reason }]).to_string();
        let saved = printed(&run(&["checkpoint", "save", "s", file.to_str().unwrap(), "--rules", &rules, "--json"]));
        serde_json::from_str::<Value>(&saved).unwrap()["checkpointId"].as_str().unwrap().to_owned()
    };
    let before = save(&json!({ "b": 1, odd.as_str(): STEERING, "text": long("old") }));
    assert!(printed(&run(&["session", "mark", "s", "b"])).contains("`b` is never shortened"));
    assert_eq!(printed(&run(&["session", "class", "s", "b"])), "CRITICAL (marked critical)\n");
    assert!(
        printed(&run(&["session", "mark", "s", &odd])).contains("never shortened"),
        "a key cannot steer a terminal"
    );
    assert!(printed(&run(&["session", "unmark", "s", &odd])).contains("no longer marked"));
    assert!(printed(&run(&["session", "unmark", "s", "b"])).contains("`b` is no longer marked"));
    assert!(printed(&run(&["session", "class", "s", "b"])).starts_with("USEFUL (why"), "nor can a rule");
    let marked: Value = serde_json::from_str(&printed(&run(&["session", "mark", "s", "b", "--json"]))).unwrap();
    assert_eq!(marked["status"], "SUCCESS");

    let mut text = long("old").replace("step 30 ", "step thirty ");
    text += STEERING;
    let after = save(&json!({ "b": 2, "new": odd, "text": text }));
    let shown = printed(&run(&["checkpoint", "diff", &before, &after]));
    for part in ["~ b", "  -1", "  +2", "+ new", "- odd", "~ text", "  -old step 30 ", "  +old step thirty ", "  @@ "] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert_eq!(printed(&run(&["checkpoint", "diff", &before, &before])), "Both hold the same context.\n");
    let diff: Value = serde_json::from_str(&printed(&run(&["checkpoint", "diff", &before, &after, "--json"]))).unwrap();
    let kinds: Vec<&Value> = diff["changes"].as_array().unwrap().iter().map(|change| &change["kind"]).collect();
    assert_eq!(kinds, ["changed", "added", "changed", "removed"]);
}

#[test]
fn rules_in_the_configuration_count_for_every_session() {
    let directory = private_dir();
    let (data, file) = (directory.path().join("data"), directory.path().join("context.json"));
    std::fs::write(&file, r#"{"apiDump":"x","debugLog":"y"}"#).unwrap();
    printed(&waystone(&data, &["checkpoint", "save", "s", file.to_str().unwrap()]));
    let class = |key: &str| waystone(&data, &["session", "class", "s", key]);
    assert_eq!(printed(&class("apiDump")), "IMPORTANT (default)\n");
    let configure =
        |rules: &str| std::fs::write(data.join("config.json"), format!(r#"{{"contextRules":{rules}}}"#)).unwrap();
    configure(r#"[{"pattern":"^api","class":"EPHEMERAL","reason":"it can be fetched again"}]"#);
    assert_eq!(printed(&class("apiDump")), "EPHEMERAL (it can be fetched again)\n");
    assert_eq!(printed(&class("debugLog")), "EPHEMERAL (key: debug)\n");
    for bad in
        [r#"[{"pattern":"(","class":"USEFUL"}]"#, r#"[{"pattern":"x","class":"BEST"}]"#, r#"[{"pattern":"x"}]"#, "7"]
    {
        configure(bad);
        let output = class("apiDump");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{bad}: {error}");
        assert!(error.contains("contextRules"), "{bad}: {error}");
    }
}

#[test]
fn what_a_person_gets_wrong_has_a_hint_and_an_exit_code() {
    let directory = private_dir();
    let (data, file) = (directory.path().join("data"), directory.path().join("context.json"));
    std::fs::write(&file, r#"{"a":1}"#).unwrap();
    let file = file.to_str().unwrap();
    printed(&waystone(&data, &["checkpoint", "save", "s", file]));
    let check = |arguments: &[&str], code: i32, says: &str| {
        let output = waystone(&data, arguments);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {error}");
        assert!(error.contains(says) && output.stdout.is_empty(), "{arguments:?}: {error}");
        assert!(!error.contains('\u{202e}') && !error.contains('\u{7}'), "{error:?}");
    };
    check(&["checkpoint", "view", "none"], 1, "hint: ");
    check(&["checkpoint", "view", "--latest", "none", "--json"], 1, r#""code":"SESSION_NOT_FOUND""#);
    check(&["checkpoint", "view", "--latest", "s", "--tokens", "0"], 2, "targetTokens is 0");
    check(&["checkpoint", "view", "--latest", "s", "--tokens", "9", "--ratio", "2"], 2, "cannot be used with");
    check(&["checkpoint", "view", "--latest", "s", "--ratio", "0.5"], 2, "ratio");
    check(&["checkpoint", "view", "--latest", "s", "--strategy", "magic"], 2, "structural");
    check(&["checkpoint", "view", "--latest", "s", "--prioritize"], 2, "--tokens");
    check(&["checkpoint", "view", "--tokens", "9", "--prioritize", "--weights", "1"], 2, "--weights");
    check(&["checkpoint", "view", "c", "--file", file], 2, "cannot be used with");
    check(&["checkpoint", "view", "--file", "/no/such/file"], 2, "cannot open /no/such/file");
    check(&["checkpoint", "diff", "none", "none"], 1, "there is no checkpoint `none`");
    check(&["checkpoint", "diff", "one"], 2, "<AFTER>");
    check(&["checkpoint", "save", "s", file, "--rules", r#"[{"pattern":"(","class":"USEFUL"}]"#], 2, "`(`");
    check(&["expand", "text"], 2, "`text` is no handle");
    check(&["expand", "ws:checkpoint:none#/a"], 1, "there is nothing behind the handle");
    check(&["expand", "ws:checkpoint:none#/a", "--json"], 1, r#""code":"HANDLE_NOT_FOUND""#);
    check(&["session", "mark", "s", "none"], 1, "has no key `none`");
    check(&["session", "mark", "s", "none", "--json"], 1, r#""code":"KEY_NOT_FOUND""#);
    check(&["session", "mark", "s", STEERING], 1, "has no key");
    check(&["session", "mark", "s", &"k".repeat(1025)], 2, "contextKey");
    check(&["session", "unmark", "s", "a"], 1, "is not marked");
    check(&["session", "mark", "none", "a"], 1, "there is no session `none`");
    check(&["session", "class", "s", "none"], 1, "key `none`");
}

/// On a terminal and over MCP, by a model that is on this machine; and without one.
#[tokio::test(flavor = "multi_thread")]
async fn a_model_of_this_machine_writes_summaries_where_that_is_configured() {
    let directory = private_dir();
    let fake = FakeModel::start().await;
    fake.pull(["llama3.2:latest"]).otherwise(Reply::text("Sixty steps read a file each."));
    let file = directory.path().join("context.json");
    std::fs::write(&file, json!({ "userGoal": "ship it", "notes": long("note") }).to_string()).unwrap();
    let view = |model: &str| {
        let arguments = ["checkpoint", "view", "--tokens", "300", "--strategy", "summary", "--file"];
        let mut command = command(&binary("waystone"), directory.path());
        command.args(arguments).arg(&file).args(["--compression-model", model]);
        command.env("OLLAMA_HOST", fake.root_url()).output().unwrap()
    };
    let shown = printed(&view("llama3.2"));
    assert!(shown.contains("\"notes\": \"Sixty steps read a file each.\""), "{shown}");
    assert!(shown.contains("summaries by llama3.2: notes (1 calls, "), "{shown}");
    assert_eq!(fake.requests()[0]["model"], "llama3.2");

    let without = view("demo");
    assert!(!printed(&without).contains("summaries by"));
    let said = String::from_utf8_lossy(&without.stderr).into_owned();
    assert!(
        said.contains("the demo model writes no summaries") && said.contains("lines were chosen instead"),
        "{said}"
    );

    let settings = json!({ "contextCompression": "advanced", "compressionModel": "llama3.2" });
    std::fs::write(directory.path().join("config.json"), settings.to_string()).unwrap();
    let mut mcp = command(&binary("waystone"), directory.path());
    mcp.arg("mcp").env("OLLAMA_HOST", fake.root_url());
    let mut process = McpProcess::start_with(&mut mcp).unwrap();
    let saved = process.call(SAVE, json!({ "context": { "notes": long("note") } })).unwrap().unwrap();
    let request = json!({ "checkpointId": saved["checkpointId"], "maxTokens": 200 });
    let loaded = process.call(LOAD, request).unwrap().unwrap();
    assert_eq!(loaded["context"], json!({ "notes": "Sixty steps read a file each." }), "{loaded}");
    assert_eq!(loaded["summary"]["model"], "llama3.2", "{loaded}");
    let handle = &loaded["survival"]["shortened"][0]["handle"];
    let whole = process.call(EXPAND, json!({ "handle": handle })).unwrap().unwrap();
    assert_eq!(whole["content"], long("note"));
}
