//! Settings: layers, mistakes, the schema, completions and man pages.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};
use waystone_testkit::harness::private_dir;
use waystone_testkit::process::{binary, command};

fn show(data_dir: &Path, change: impl FnOnce(&mut Command)) -> Output {
    let mut command = command(&binary("waystone"), data_dir);
    command.args(["config", "show", "--origin", "--json"]);
    change(&mut command);
    command.output().unwrap()
}

fn settings(output: &Output) -> Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn later_layers_win_and_each_value_says_where_it_is_from() {
    let directory = private_dir();
    let file = directory.path().join("config.json");
    std::fs::write(
        &file,
        r#"{ "$schema": "x", "maxCheckpoints": 7, "port": 4000, "logLevel": "warn", "allowedOrigins": ["https://a.example"] }"#,
    )
    .unwrap();
    let shown = settings(&show(directory.path(), |command| {
        command.args(["--max-session-bytes", "99"]).env("WORKRAIL_MAX_CHECKPOINTS", "8").env("WAYSTONE_PORT", "5000");
        command.args(["--port", "6000"]);
    }));
    let expect = |key: &str, value: Value, origin: &str| {
        assert_eq!(shown[key], json!({ "value": value, "origin": origin }), "{key}");
    };
    let file = file.to_str().unwrap();
    expect("maxCheckpoints", json!(8), "WORKRAIL_MAX_CHECKPOINTS");
    expect("port", json!(6000), "--port");
    expect("maxSessionBytes", json!(99), "--max-session-bytes");
    expect("logLevel", json!("warn"), file);
    expect("allowedOrigins", json!(["https://a.example"]), file);
    expect("maxTotalBytes", json!(10u64 << 30), "default");
    assert_eq!(shown.get("$schema"), None, "it is for editors");
    assert_eq!(shown["dataDir"]["origin"], "WAYSTONE_DATA_DIR");
}

#[test]
fn what_is_given_in_confidence_is_not_shown_in_any_form() {
    let directory = private_dir();
    let file = json!({
        "mcpServers": {
            "process": { "command": "run", "args": ["--token", "canary-1"], "env": { "TOKEN": "canary-2", "NAME": "${NAME}" } },
            "web": { "url": "https://me:canary-3@example.com/mcp?key=canary-4", "headers": { "X-Key": "canary-5" } },
        },
        "models": { "own": { "provider": "openai", "base_url": "https://me:canary-6@example.com/v1" } },
    });
    std::fs::write(directory.path().join("config.json"), file.to_string()).unwrap();
    for arguments in [&["config", "show"][..], &["config", "show", "--origin"], &["config", "show", "--json"]] {
        let output = command(&binary("waystone"), directory.path()).args(arguments).output().unwrap();
        let shown = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && !shown.contains("canary"), "{shown}");
        for part in ["https://***@example.com/mcp?key=***", "${NAME}", "https://***@example.com/v1", "X-Key"] {
            assert!(shown.contains(part), "{part} in {shown}");
        }
    }
    let shown = settings(&show(directory.path(), |_| {}));
    let env = json!({ "TOKEN": "***", "NAME": "${NAME}" });
    assert_eq!(shown["mcpServers"]["value"]["process"]["env"], env);
}

#[test]
fn what_is_wrong_is_named_with_the_nearest_right_name() {
    let directory = private_dir();
    let check = |file: &str, says: &[&str]| {
        std::fs::write(directory.path().join("config.json"), file).unwrap();
        let output = show(directory.path(), |_| {});
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{file}: {error}");
        assert!(says.iter().all(|part| error.contains(part)), "{file}: {error}");
    };
    check(r#"{ "maxChekpoints": 5 }"#, &["config.json", "maxChekpoints", "did you mean `maxCheckpoints`"]);
    check(r#"{ "port": 70000 }"#, &["port", "from 0 to 65535"]);
    check(r#"{ "port": "80" }"#, &["port", "whole number"]);
    check(r#"{ "logLevel": "loud" }"#, &["logLevel", "off, error, warn"]);
    check(r#"{ "dataDir": "/x" }"#, &["dataDir"]);
    check(r#"{ "port": 1, "port": 2 }"#, &["duplicate key"]);
    check(r#"{ "host": "example.com" }"#, &["host", "`example.com` is not an address"]);
    check(r#"{ "host": "0.0.0.0" }"#, &["host", "no API keys yet"]);
    check("[]", &["a JSON object"]);
    check(
        r#"{ "models": { "m": { "provider": "openai", "url": "x" } } }"#,
        &["models: model `m`", "unknown field `url`"],
    );
    check(r#"{ "models": { "m": { "name": "x" } } }"#, &["models: model `m`", "missing field `provider`"]);
    check(r#"{ "models": { "m": { "provider": "other" } } }"#, &["models: model `m`", "`other`", "`anthropic`"]);
    check(r#"{ "models": { "m": { "provider": "openai", "api_key": "k" } } }"#, &["unknown field `api_key`"]);
    check(r#"{ "models": { "m": { "provider": "openai", "base_url": "x" } } }"#, &["base_url is not an address"]);
    check(
        r#"{ "models": { "m": { "provider": "openai", "limit": 0 } } }"#,
        &["model `m`: limit: 0 is not a number of"],
    );
    check(r#"{ "models": { "m": { "provider": "openai", "prices": { "input": 1 } } } }"#, &["missing field `output`"]);
    check(
        r#"{ "models": { "m": { "provider": "openai", "prices": { "input": -1, "output": 2 } } } }"#,
        &["prices: -1"],
    );
    check(r#"{ "models": [] }"#, &["models: [] is not an object of models"]);
    check(r#"{ "modelLimits": { "m": "many" } }"#, &["modelLimits: model `m`", "expected u64"]);
    check(r#"{ "allowedOrigins": ["https://a.example", "*"] }"#, &["allowedOrigins", r#"\"*\" is not an origin"#]);
    check(r#"{ "allowedOrigins": "https://a.example" }"#, &["allowedOrigins", "is not a list"]);
    std::fs::remove_file(directory.path().join("config.json")).unwrap();

    let output = show(directory.path(), |command| _ = command.env("WAYSTONE_MAX_CHECKPOINT", "5"));
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("did you mean WAYSTONE_MAX_CHECKPOINTS"));
    let output = show(directory.path(), |command| _ = command.env("WAYSTONE_PORT", "x"));
    assert!(String::from_utf8_lossy(&output.stderr).contains("WAYSTONE_PORT: `x` is not a whole number"));
    let origins = "https://a.example,https://b.example/";
    let output = show(directory.path(), |command| _ = command.env("WAYSTONE_ALLOWED_ORIGINS", origins));
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(error.contains(r#"WAYSTONE_ALLOWED_ORIGINS: \"https://b.example/\" is not an origin"#), "{error}");
    let output = show(directory.path(), |command| _ = command.args(["--max-checkpoints", "0"]));
    assert_eq!(output.status.code(), Some(2));
    let mut status = command(&binary("waystone"), directory.path());
    // Nor is there a keychain.
    status.env("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nowhere");
    let output = status.arg("status").env("WORKRAIL_ENCRYPTION", "enabled").output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(error.contains("WAYSTONE_KEY_FILE, or a passphrase"), "{error}");
    assert!(!directory.path().join("waystone.db").exists(), "never silently in plain text");
}

#[test]
fn models_and_their_limits_are_set_like_everything_else() {
    let directory = private_dir();
    let models = json!({ "mine": { "provider": "openai", "name": "gpt-4o", "prices": { "input": 1.5, "output": 2 } } });
    std::fs::write(
        directory.path().join("config.json"),
        json!({ "models": models, "modelLimits": { "a": 1 } }).to_string(),
    )
    .unwrap();
    let shown = settings(&show(directory.path(), |command| {
        command.env("WAYSTONE_MODEL_LIMITS", r#"{"gpt-4": 4000}"#);
    }));
    assert_eq!(shown["models"]["value"], models);
    assert_eq!(shown["modelLimits"], json!({ "value": { "gpt-4": 4000 }, "origin": "WAYSTONE_MODEL_LIMITS" }));
    let output = show(directory.path(), |command| _ = command.args(["--model-limits", "{"]));
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn the_published_schema_is_the_one_in_force() {
    let directory = private_dir();
    let output = command(&binary("waystone"), directory.path()).args(["config", "schema"]).output().unwrap();
    let published = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/config.schema.json");
    let hint = "write it again with `waystone config schema > docs/config.schema.json`";
    assert_eq!(std::fs::read_to_string(published).unwrap(), String::from_utf8(output.stdout).unwrap(), "{hint}");
}

#[test]
fn completions_and_man_pages_are_written() {
    let directory = private_dir();
    let run = |arguments: &[&str]| command(&binary("waystone"), directory.path()).args(arguments).output().unwrap();
    let completions = run(&["completions", "bash"]);
    assert!(String::from_utf8_lossy(&completions.stdout).contains("checkpoint"));
    let man = directory.path().join("man");
    let written = run(&["man", man.to_str().unwrap()]);
    assert!(String::from_utf8_lossy(&written.stdout).contains("man/waystone.1"));
    assert!(man.join("waystone-checkpoint-save.1").exists());
    let page = std::fs::read_to_string(man.join("waystone.1")).unwrap();
    for said in ["Where everything is kept", "Most bytes of a context", "default: 3000", "trace", "Exit codes"] {
        assert!(page.contains(said), "{said}: {page}");
    }
    let page = std::fs::read_to_string(man.join("waystone-session-list.1")).unwrap();
    assert!(page.contains("waystone(1)") && !page.contains("max\\-context"), "{page}");
}

#[test]
fn only_addresses_of_this_machine_are_listened_on() {
    let directory = private_dir();
    for host in ["0.0.0.0", "::", "10.0.0.1", "192.168.0.1", "169.254.0.1", "::ffff:10.0.0.1", "fe80::1"] {
        let mut command = command(&binary("waystone"), directory.path());
        let output = command.args(["serve", "--host", host, "--port", "0"]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{host}: {said}");
        assert!(said.contains("no API keys yet"), "{host}: {said}");
    }
}
