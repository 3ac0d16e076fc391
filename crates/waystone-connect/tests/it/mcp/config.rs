//! What can be configured.

use serde_json::{Map, Value, json};
use waystone_connect::mcp::parse_servers;

use super::{Control, call, servers};

fn check(server: Value, expected: &str) {
    let error = parse_servers(&json!({ "files": server })).unwrap_err();
    assert!(error.starts_with("MCP server `files`: ") && error.contains(expected), "{server}: {error}");
}

#[test]
fn servers_are_commands_or_addresses() {
    let written = json!({
        "files": { "command": "npx", "args": ["-y", "server"], "env": { "A": "1" }, "cwd": "/" },
        "plain": { "command": "server", "type": "stdio" },
        "WEB-1": { "url": "https://host/mcp", "headers": { "Authorization": "Bearer ${KEY}" }, "type": "http" },
        "off_": { "url": "${URL}", "disabled": true },
    });
    let parsed = parse_servers(&written).unwrap();
    assert_eq!(parsed.keys().collect::<Vec<_>>(), ["WEB-1", "files", "off_", "plain"]);
    assert_eq!(parse_servers(&json!({})).unwrap().len(), 0);
}

#[test]
fn what_cannot_be_a_server_is_refused_by_name() {
    check(json!({ "command": "a", "autoApprove": [] }), "unknown field `autoApprove`");
    check(json!({ "command": "a", "url": "http://b" }), "both `command` and `url`");
    check(json!({ "args": ["a"] }), "neither `command` nor `url`");
    check(json!({ "command": "a", "headers": {} }), "`headers` does not go with `command`");
    check(json!({ "url": "http://b", "env": {} }), "`env` does not go with `url`");
    check(json!({ "url": "http://b", "type": "stdio" }), "`type` does not go with `url`");
    check(json!({ "url": "http://b", "type": "sse" }), "unknown variant `sse`");
    check(json!({ "command": " " }), "`command` is empty");
    check(json!({ "command": "a", "args": "b" }), "invalid type");
    check(json!("npx"), "invalid type");
}

#[test]
fn names_are_short_and_simple_and_there_are_not_too_many() {
    for name in ["", "a b", "a.b", "ä", &"a".repeat(33)] {
        let error = parse_servers(&json!({ name: { "command": "a" } })).unwrap_err();
        assert!(error.starts_with(&format!("`{name}` is no name of an MCP server")), "{error}");
    }
    assert!(parse_servers(&json!({ "a".repeat(32): { "command": "a" } })).is_ok());
    let many = |count: usize| {
        let servers: Map<_, _> = (0..count).map(|n| (format!("s{n}"), json!({ "command": "a" }))).collect();
        parse_servers(&Value::Object(servers))
    };
    assert_eq!(many(32).unwrap().len(), 32);
    assert_eq!(many(33).unwrap_err(), "mcpServers has 33 servers, and 32 is the most");
    assert!(parse_servers(&json!([])).is_err());
}

#[test]
fn debug_output_has_no_values() {
    let written = json!({
        "a": { "command": "x", "env": { "TOKEN": "s3cret" }, "args": ["--key=s3cret"] },
        "b": { "url": "http://user:s3cret@host", "headers": { "Authorization": "s3cret" } },
    });
    let seen = format!("{:?}", parse_servers(&written).unwrap());
    assert!(seen.contains("TOKEN") && seen.contains("Authorization") && !seen.contains("s3cret"), "{seen}");
}

#[tokio::test]
async fn a_process_is_given_what_is_configured_and_of_ours_what_is_not_hidden() {
    let control = Control::new().await;
    let mut server = control.server(json!({}));
    let folder = tempfile::tempdir().unwrap();
    server["args"].as_array_mut().unwrap().push(json!("--key=${KEY}"));
    server["env"]["TOKEN"] = json!("a ${KEY}");
    server["cwd"] = json!(folder.path());
    let parsed = parse_servers(&json!({ "fake": server })).unwrap();
    let environment = |name: &str| (name == "KEY").then(|| "s3cret".to_owned());

    // Cargo sets both for tests.
    let asked = json!({ "names": ["TOKEN", "CARGO_PKG_NAME", "CARGO_PKG_VERSION"] });
    let servers = waystone_connect::mcp::Servers::new(parsed, &["CARGO_PKG_VERSION"], environment);
    let output = call(&servers, "fake__surroundings", asked).await;
    let expected = json!({
        "arguments": ["--key=s3cret"],
        "cwd": folder.path().canonicalize().unwrap(),
        "env": { "TOKEN": "a s3cret", "CARGO_PKG_NAME": "waystone-connect", "CARGO_PKG_VERSION": null },
    });
    assert_eq!((output.content, output.is_error), (expected, false));
}

#[tokio::test]
async fn a_name_that_is_not_in_the_environment_keeps_one_server_from_starting() {
    let control = Control::new().await;
    let mut unknown = control.server(json!({}));
    unknown["env"]["TOKEN"] = json!("${NOBODY_HAS_IT}");
    let off = json!({ "command": "nobody-runs-this", "disabled": true });
    let servers = servers([("fake", control.server(json!({}))), ("off", off), ("unknown", unknown)]);
    let toolbox = servers.list().await;
    assert_eq!(toolbox.warnings, ["MCP server `unknown`: the environment has no `NOBODY_HAS_IT`"]);
    assert!(toolbox.tools.iter().all(|tool| tool.name.starts_with("fake__")), "{toolbox:?}");
    assert_eq!(toolbox.tools.len(), 10);
    assert_eq!(servers.call("off__echo", &Map::new()).await, None);
}
