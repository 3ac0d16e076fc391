//! `waystone models`, and where keys of models go.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};
use waystone_testkit::harness::private_dir;
use waystone_testkit::model::{FakeModel, Reply};
use waystone_testkit::process::{binary, command};

/// A command in an environment in which no model is set up.
fn waystone(data_dir: &Path, arguments: &[&str]) -> Command {
    let nowhere = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut command = command(&binary("waystone"), data_dir);
    command.args(arguments).env("OLLAMA_HOST", nowhere.to_string());
    command
}

fn printed(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn models_are_shown_with_what_each_needs() {
    let directory = private_dir();
    let models = json!({ "mine": { "provider": "gemini", "name": "gemini-2.5-pro", "prices": { "input": 1.25, "output": 10 } } });
    std::fs::write(directory.path().join("config.json"), json!({ "models": models }).to_string()).unwrap();
    let run = |arguments: &[&str]| {
        let mut command = waystone(directory.path(), arguments);
        command.env("ANTHROPIC_API_KEY", "sk-canary").env("WAYSTONE_MODEL_LIMITS", r#"{"gpt-4": 4000}"#);
        printed(&command.output().unwrap())
    };
    let shown = run(&["models", "--model", "gpt-4"]);
    let row = |model: &str| {
        let line = shown.lines().find(|line| line.split_whitespace().next() == Some(model)).unwrap_or_default();
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(row("gpt-4"), "gpt-4 (default) openai 4,000 no");
    assert_eq!(row("claude-sonnet-4-5"), "claude-sonnet-4-5 anthropic 200,000 yes");
    assert_eq!(row("mine"), "mine gemini 1,048,576 $1.25 / $10 no");
    assert_eq!(row("demo"), "demo demo 128,000 yes");
    assert_eq!(row("openai"), "openai set OPENAI_API_KEY (or OPENAI_BASE_URL for a local server)");
    assert_eq!(row("gemini"), "gemini set GEMINI_API_KEY");
    assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
    assert_eq!(shown.matches("OPENAI_API_KEY").count(), 1, "it is said once: {shown}");
    assert!(!shown.contains("sk-canary"), "{shown}");

    let list: Value = serde_json::from_str(&run(&["models", "--json"])).unwrap();
    assert_eq!(list["default_model"], "demo");
    assert!(list["models"].as_array().unwrap().iter().any(|model| model["id"] == "mine" && model["ready"] == false));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_ollama_has_is_found() {
    let directory = private_dir();
    let fake = FakeModel::start().await;
    fake.pull(["llama3.2:latest"]);
    let run = |arguments: &[&str]| {
        let mut command = waystone(directory.path(), arguments);
        printed(&command.env("OLLAMA_HOST", fake.root_url()).output().unwrap())
    };
    assert!(run(&["models"]).contains("ollama/llama3.2:latest"));
    assert_eq!(run(&["chat", "--model", "llama3.2", "hello there"]).trim(), "hello there");
    assert_eq!(fake.requests()[0]["model"], "llama3.2");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_elsewhere_is_sent_its_own_key_and_never_the_providers() {
    let directory = private_dir();
    let fake = FakeModel::start().await;
    let models = json!({
        "own": { "provider": "openai", "base_url": fake.base_url(), "key_env": "MY_OWN_KEY" },
        "bare": { "provider": "openai", "base_url": fake.base_url() },
    });
    std::fs::write(directory.path().join("config.json"), json!({ "models": models }).to_string()).unwrap();
    let run = |model: &str| {
        let mut command = waystone(directory.path(), &["chat", "--model", model, "hello there"]);
        printed(&command.env("OPENAI_API_KEY", "sk-canary").env("MY_OWN_KEY", "mine").output().unwrap())
    };
    assert_eq!((run("own").trim(), run("bare").trim()), ("hello there", "hello there"));
    assert_eq!(fake.authorizations(), [Some("Bearer mine".to_owned()), None]);
    let shown = printed(&waystone(directory.path(), &["models"]).output().unwrap());
    assert!(shown.contains("set MY_OWN_KEY to the key of model `own`"), "{shown}");
}

/// All that is in a folder, one after the other.
fn bytes_in(folder: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            bytes.extend(bytes_in(&path));
        } else {
            bytes.extend(std::fs::read(path).unwrap());
        }
    }
    bytes
}

/// Whatever a provider says, its key is on no screen and in no file.
#[tokio::test(flavor = "multi_thread")]
async fn no_key_is_kept_or_shown_though_servers_echo_it() {
    let places = [
        ("gpt-5", "OPENAI_API_KEY", "OPENAI_BASE_URL", "sk-canary-one"),
        ("claude-x", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "sk-canary-two"),
        ("gemini-x", "GEMINI_API_KEY", "GEMINI_BASE_URL", "canary-three"),
    ];
    for (model, key_variable, url_variable, key) in places {
        let directory = private_dir();
        let fake = FakeModel::start().await;
        let url = if model == "claude-x" { fake.root_url() } else { fake.base_url() };
        let echo =
            json!({ "type": "error", "error": { "type": "invalid_request_error", "message": format!("no {key}") } });
        fake.then(Reply::text(&format!("wrong key: {key}")).status(401)).then(Reply::events([echo.to_string()]));
        for said in ["answered 401: wrong key: [key]", "broke off: no [key]"] {
            let mut command = waystone(directory.path(), &["chat", "--model", model, "hi", "--log-level", "trace"]);
            let output = command.env(key_variable, key).env(url_variable, &url).output().unwrap();
            let seen = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
            assert!(seen.contains(said) && !seen.contains(key), "{seen}");
        }
        let kept = bytes_in(directory.path());
        let has = |text: &str| kept.windows(text.len()).any(|bytes| bytes == text.as_bytes());
        assert!(has("[key]") && !has(key), "{model}");
    }
}
