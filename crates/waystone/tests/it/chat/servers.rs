//! Tool servers as processes of the command that needs them.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;

use serde_json::json;

use super::person::{Person, printed};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../waystone-connect/tests/it/mcp/server.py");

#[test]
fn a_tool_server_does_not_inherit_what_opens_models() {
    let person = Person::new();
    let control = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = control.local_addr().unwrap().port().to_string();
    let servers = json!({ "fake": { "command": "python3", "args": [SCRIPT, "{}"], "env": { "CONTROL": port } } });
    let models = json!({ "mine": { "provider": "openai", "key_env": "MY_OWN_KEY" } });
    let asked = r#"call fake__surroundings {"names": ["OPENAI_API_KEY", "MY_OWN_KEY", "MY_OTHER"]}"#;
    let mut chat = person.command(&["chat", "--allowed-tools", "fake__surroundings", asked]);
    chat.env("WAYSTONE_MCP_SERVERS", servers.to_string()).env("WAYSTONE_MODELS", models.to_string());
    chat.env("OPENAI_API_KEY", "canary-one").env("MY_OWN_KEY", "canary-two").env("MY_OTHER", "passed-on");
    printed(&chat.output().unwrap());
    let id = person.ask_json(&["context", "list"])["contexts"][0]["id"].as_str().unwrap().to_owned();
    let said = person.ask(&["--json", "context", "show", &id]);
    assert!(said.contains("passed-on") && !said.contains("canary"), "{said}");
}

#[test]
fn a_tool_server_is_told_that_we_end_and_is_not_just_killed() {
    let person = Person::new();
    let control = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = control.local_addr().unwrap().port().to_string();
    let servers = json!({ "fake": { "command": "python3", "args": [SCRIPT, "{}"], "env": { "CONTROL": port } } });
    let mut chat =
        person.command(&["chat", "--allowed-tools", "fake__echo", r#"call fake__echo {"text": "hi there"}"#]);
    let said = printed(&chat.env("WAYSTONE_MCP_SERVERS", servers.to_string()).output().unwrap());
    assert!(said.ends_with("The tool `fake__echo` said: \"hi there\".\n"), "{said}");
    let (stream, _) = control.accept().unwrap();
    let last = BufReader::new(stream).lines().map_while(Result::ok).last().unwrap();
    assert_eq!(last, r#"{"method": "end of input"}"#);
}
