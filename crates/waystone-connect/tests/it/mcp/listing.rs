//! Which tools there are.

use serde_json::{Map, json};
use waystone_core::api::Tool;

use super::{Control, call, count, echo, names, servers};

#[tokio::test]
async fn tools_are_told_with_their_schema_and_hints() {
    let schema = json!({ "type": "object", "properties": { "path": { "type": "string" } }, "required": ["path"] });
    let tools = json!([
        { "name": "write", "title": "Writes", "inputSchema": schema, "annotations": { "idempotentHint": true } },
        { "name": "read.file", "description": "Reads", "inputSchema": schema, "annotations": { "readOnlyHint": true } },
        { "name": "run", "description": "ä".repeat(2000), "inputSchema": { "type": "object" } },
    ]);
    let control = Control::new().await;
    let servers = servers([("fake", control.server(json!({ "tools": tools })))]);
    let tool = |name: &str, description: &str, read_only, idempotent| Tool {
        name: name.to_owned(),
        description: description.to_owned(),
        input_schema: if name == "fake__run" {
            super::object(json!({ "type": "object", "properties": {} }))
        } else {
            super::object(schema.clone())
        },
        read_only,
        idempotent,
    };
    let expected = [
        tool("fake__read_file", "Reads", true, true),
        tool("fake__run", &"ä".repeat(1024), false, false),
        tool("fake__write", "Writes", false, true),
    ];
    let toolbox = servers.list().await;
    assert_eq!((toolbox.tools.as_slice(), toolbox.warnings.as_slice()), (&expected[..], &[][..]));
}

#[tokio::test]
async fn all_servers_are_asked_and_those_that_do_not_start_are_named_in_warnings() {
    let control = Control::new().await;
    let tools = |name: &str| json!({ "tools": [{ "name": name, "inputSchema": {} }] });
    let servers = servers([
        ("b", control.server(tools("two"))),
        ("a", control.server(tools("one"))),
        ("dying", control.server(json!({ "stderr": "no database\n  at line 3", "exit": 7 }))),
        ("missing", json!({ "command": "there-is-no-such-program" })),
        ("refusing", control.server(json!({ "tools": "none" }))),
    ]);
    let toolbox = servers.list().await;
    let names: Vec<_> = toolbox.tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names, ["a__one", "b__two"]);
    assert_eq!(toolbox.warnings.len(), 3, "{toolbox:?}");
    let dying = "MCP server `dying`: it ended before it answered; it said: no database at line 3";
    assert_eq!(toolbox.warnings[0], dying);
    let missing = "MCP server `missing`: `there-is-no-such-program` cannot be started: ";
    assert!(toolbox.warnings[1].starts_with(missing), "{toolbox:?}");
    assert_eq!(
        toolbox.warnings[2],
        "MCP server `refusing`: its tools cannot be listed: its answer is no list of tools"
    );
}

#[tokio::test]
async fn what_a_server_says_is_told_without_secrets() {
    let control = Control::new().await;
    let pattern = "ghp_".to_owned() + &"aB3dE6gH9jK2".repeat(3);
    let dying = |stderr: &str| {
        let mut server = control.server(json!({ "stderr": stderr, "exit": 7 }));
        server["env"]["PASSWORD"] = json!("hunter-two-hunter");
        server
    };
    let cut = format!("{pattern} {}", "word ".repeat(815));
    let servers = servers([
        ("a", dying(&format!("login with {pattern} failed"))),
        ("b", dying("login with hunter-two-hunter failed")),
        ("c", dying(&cut)),
    ]);
    let warnings = servers.list().await.warnings;
    assert!(warnings.iter().all(|warning| !warning.contains("aB3dE6gH9jK2")), "{warnings:?}");
    assert!(warnings[0].contains("it said: login with [redacted:"), "{warnings:?}");
    assert_eq!(warnings[1], "MCP server `b`: it ended before it answered; it said: login with *** failed");
    assert!(warnings[2].contains("it said: word word"), "{warnings:?}");
}

#[tokio::test]
async fn nothing_is_started_before_it_is_needed_and_then_once() {
    let control = Control::new().await;
    let servers = std::sync::Arc::new(servers([("fake", control.server(json!({})))]));
    assert!(control.none_started().await);
    let mut asked = tokio::task::JoinSet::new();
    for number in 0..20 {
        let servers = servers.clone();
        asked.spawn(async move {
            let text = format!("this is number {number}");
            assert_eq!(echo(&servers, &text).await.content, json!(text));
        });
    }
    while let Some(done) = asked.join_next().await {
        done.unwrap();
    }
    let heard = control.started().await;
    servers.shut_down().await;
    let methods = heard.end().await;
    let counts = ["initialize", "tools/list", "tools/call"].map(|method| count(&methods, method));
    assert_eq!(counts, [1, 1, 20]);
    assert!(control.none_started().await);
}

#[tokio::test]
async fn a_list_is_asked_for_again_only_when_it_has_changed() {
    for stateless in [false, true] {
        let control = Control::new().await;
        let servers = servers([(
            "fake",
            control.server(json!({ "stateless": stateless, "tools": [
            { "name": "change", "inputSchema": {} },
        ] })),
        )]);
        assert_eq!(names(&servers).await, ["fake__change"]);
        assert_eq!(names(&servers).await, ["fake__change"]);
        if stateless {
            drop(control.started().await);
        }
        let mut heard = control.started().await;
        if stateless {
            heard.method("subscriptions/listen").await;
        }
        call(&servers, "fake__change", json!({ "name": "new" })).await;
        assert_eq!(names(&servers).await, ["fake__change", "fake__new"]);
        assert_eq!(servers.call("fake__none", &Map::new()).await, None);
        servers.shut_down().await;
        assert_eq!(count(&heard.end().await, "tools/list"), 2);
    }
}

#[tokio::test]
async fn a_list_comes_in_pages_and_is_not_endless() {
    let tools = |count: usize| -> Vec<_> {
        (0..count).map(|number| json!({ "name": format!("t{number:04}"), "inputSchema": {} })).collect()
    };
    let control = Control::new().await;
    let servers = servers([
        ("few", control.server(json!({ "tools": tools(25), "page": 10 }))),
        ("many", control.server(json!({ "tools": tools(600), "page": 100 }))),
        ("most", control.server(json!({ "tools": tools(512), "page": 512 }))),
    ]);
    let toolbox = servers.list().await;
    assert_eq!(toolbox.tools.len(), 25 + 512 + 512);
    assert_eq!(toolbox.tools[24].name, "few__t0024");
    assert_eq!(toolbox.warnings, ["MCP server `many`: it has more than 512 tools; the rest is left out"]);
}

#[tokio::test]
async fn a_tool_whose_schema_providers_refuse_is_left_out_and_that_is_told() {
    let control = Control::new().await;
    let long = json!({ "type": "object", "properties": { "x": { "description": "x".repeat(64 * 1024) } } });
    let tools = json!([
        { "name": "bare", "inputSchema": {} },
        { "name": "long", "inputSchema": long },
        { "name": "text", "inputSchema": { "type": "string" } },
    ]);
    let servers = servers([("fake", control.server(json!({ "tools": tools })))]);
    let toolbox = servers.list().await;
    let schemas: Vec<_> = toolbox.tools.iter().map(|tool| (tool.name.as_str(), json!(tool.input_schema))).collect();
    assert_eq!(schemas, [("fake__bare", json!({ "type": "object", "properties": {} }))]);
    let expected = [
        "MCP server `fake`: its tool `long` is left out: its schema is longer than 64 KiB",
        "MCP server `fake`: its tool `text` is left out: its schema is not of an object",
    ];
    assert_eq!(toolbox.warnings, expected);
    assert_eq!(servers.call("fake__long", &Map::new()).await, None);
}

#[tokio::test]
async fn of_many_tools_that_are_left_out_a_few_are_named() {
    let tools: Vec<_> =
        (0..25).map(|number| json!({ "name": format!("t{number}"), "inputSchema": { "type": "array" } })).collect();
    let control = Control::new().await;
    let toolbox = servers([("fake", control.server(json!({ "tools": tools })))]).list().await;
    assert_eq!((toolbox.tools.len(), toolbox.warnings.len()), (0, 11));
    assert_eq!(toolbox.warnings[10], "MCP server `fake`: and 15 more of its tools are left out");
}

#[tokio::test]
async fn servers_of_every_version_are_understood() {
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2031-01-01"] {
        let control = Control::new().await;
        let servers = servers([("fake", control.server(json!({ "version": version })))]);
        assert_eq!(echo(&servers, version).await.content, json!(version));
        let asked = control.started().await.method("initialize").await;
        let client = json!({ "name": "waystone", "version": env!("CARGO_PKG_VERSION") });
        assert_eq!((&asked["params"]["clientInfo"], &asked["params"]["capabilities"]), (&client, &json!({})));
    }
    let control = Control::new().await;
    let servers = servers([("fake", control.server(json!({ "stateless": true })))]);
    assert_eq!(echo(&servers, "2026-07-28").await.content, json!("2026-07-28"));
}

#[tokio::test]
async fn noise_on_standard_output_is_passed_over() {
    let control = Control::new().await;
    let noise = json!(["Server is starting…", "{\"half\":", "", "[1]", "{\"level\":\"info\"}"]);
    let servers = servers([("fake", control.server(json!({ "noise": noise })))]);
    assert_eq!(echo(&servers, "hi").await.content, json!("hi"));
}
