//! `waystone mcp`: what it publishes and costs, and frames that cannot be taken.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Stdio;

use serde_json::{Value, json};
use waystone_testkit::harness::private_dir;
use waystone_testkit::process::{McpProcess, ServeProcess, binary, command, outcome};

const SAVE: &str = "workflow_checkpoint_save";
const LOAD: &str = "workflow_checkpoint_load";

#[test]
fn the_tools_and_their_schemas_are_as_published() {
    let directory = private_dir();
    let mut process = McpProcess::start(&binary("waystone"), directory.path()).unwrap();
    let id = process.send("tools/list", json!({})).unwrap();
    let tools = process.wait_for(id).unwrap()["result"]["tools"].take();
    insta::assert_json_snapshot!(tools);
}

/// Every conversation pays for them, whether it uses them or not.
#[test]
fn the_tools_cost_a_conversation_no_more_than_they_may() {
    for (set, tools, tokens_max) in [("all", 24, 6000), ("core", 9, 1800)] {
        let directory = private_dir();
        std::fs::write(directory.path().join("config.json"), json!({ "tools": set }).to_string()).unwrap();
        let mut process = McpProcess::start(&binary("waystone"), directory.path()).unwrap();
        let id = process.send("tools/list", json!({})).unwrap();
        let list = process.wait_for(id).unwrap()["result"].take();
        let tokens = waystone_core::tokens::count(&list["tools"].to_string());
        let named = list["tools"].as_array().unwrap().len();
        assert_eq!(named, tools, "{set}");
        assert!(tokens <= tokens_max, "{set}: {tokens} tokens, at most {tokens_max}");
        let id = process.send_call("context_list_projects", json!({})).unwrap();
        let is_known = process.wait_for(id).unwrap()["error"].is_null();
        assert_eq!(is_known, set == "all", "what is not listed is not there");
    }
}

#[test]
fn stdout_carries_protocol_only() {
    let directory = private_dir();
    let mut child = command(&binary("waystone"), directory.path())
        .arg("mcp")
        .env("RUST_LOG", "trace")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let client =
        json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
    let call = |id: u64, method: &str, params: Value| json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
    let lines = [
        call(1, "initialize", client).to_string(),
        String::new(),
        "garbage \u{1b}[31m".to_owned(),
        call(2, "tools/call", json!({ "name": SAVE, "arguments": { "context": { "n": 1 } } })).to_string(),
        call(3, "no/such/method", json!({})).to_string(),
        call(4, "tools/call", json!({ "name": "no_such_tool", "arguments": {} })).to_string(),
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":99}}"#.to_owned(),
        r#"{"jsonrpc":"2.0","id":99,"result":{"s":"\ud800"}}"#.to_owned(),
        call(5, "tools/call", json!({ "name": SAVE, "arguments": "text" })).to_string(),
    ];
    child.stdin.take().unwrap().write_all(lines.join("\n").as_bytes()).unwrap();
    let mut output = String::new();
    child.stdout.take().unwrap().read_to_string(&mut output).unwrap();
    assert!(child.wait().unwrap().success());
    let answers: Vec<Value> = output.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut ids: Vec<Option<u64>> = answers.iter().map(|answer| answer["id"].as_u64()).collect();
    ids.sort_unstable();
    let expected = [None, Some(1), Some(2), Some(3), Some(4), Some(5)];
    assert_eq!(ids, expected, "every request is answered before the process ends, and garbage as well");
    let code = |id: u64| answers.iter().find(|answer| answer["id"] == id).unwrap()["error"]["code"].as_i64();
    assert_eq!((code(3), code(4)), (Some(-32601), Some(-32602)));
    let result = &answers.iter().find(|answer| answer["id"] == 5).unwrap()["result"];
    assert_eq!(result["structuredContent"]["error"]["code"], "INVALID_INPUT");
    assert!(answers.iter().all(|answer| answer["jsonrpc"] == "2.0"));
    let mut errors = String::new();
    child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    assert_eq!(errors, "");
}

#[test]
fn a_frame_that_cannot_be_parsed_is_answered() {
    let directory = private_dir();
    let mut process = McpProcess::start(&binary("waystone"), directory.path()).unwrap();
    let mut check = |context: &str, names: &str| {
        let line = format!(
            r#"{{"jsonrpc":"2.0","method":"tools/call","params":{{"name":"{SAVE}","arguments":{{"context":{context}}}}},"id":"x"}}"#
        );
        process.send_line(&line).unwrap();
        let answer = process.receive().unwrap();
        assert_eq!(answer["id"], "x");
        let error = outcome(answer).unwrap_err();
        assert_eq!(error["error"]["code"], "INVALID_INPUT");
        assert!(error["error"]["message"].as_str().unwrap().contains(names), "{error}");
    };
    check(r#"{"s":"\ud800"}"#, "lone surrogate");
    check(r#"{"n":1e999}"#, "out of range");
    check(&format!("{}{}", r#"{"k":"#.repeat(5000), "1".to_owned() + &"}".repeat(5000)), "128 levels");
    check(&format!("{}{}", r#"{"k":"#.repeat(130), "1".to_owned() + &"}".repeat(130)), "128 levels");
    check(r#"{"n":18446744073709551616}"#, "18446744073709551616");
    check(r#"{"n":01}"#, "invalid number");

    process.send_line(r#"{"jsonrpc":"2.0","id":77,"method":"ping","params":{"x":"\udfff"}}"#).unwrap();
    assert_eq!(process.receive().unwrap()["error"]["code"], -32700);
    assert!(process.call(LOAD, json!({ "sessionId": "none" })).unwrap().is_err(), "it goes on");
}

/// Sends a message over HTTP and returns what comes back, without the header.
pub(super) fn post(address: &str, path: &str, message: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).unwrap();
    let header = format!(
        "POST {path} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        message.len()
    );
    stream.write_all(&[header.as_bytes(), message].concat()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
    answer.split_off(end + 4)
}

#[test]
fn a_call_has_the_same_outcome_over_stdio_and_over_http() {
    let (one, other) = (private_dir(), private_dir());
    let mut stdio = McpProcess::start(&binary("waystone"), one.path()).unwrap();
    let http = ServeProcess::start(&binary("waystone"), other.path()).unwrap();
    let mut check = |message: &[u8], expected: &str| {
        let case = String::from_utf8_lossy(&message[..message.len().min(200)]).into_owned();
        stdio.send_bytes(&[message, b"\n"].concat()).unwrap();
        let by_stdio = stdio.receive().unwrap();
        let by_http: Value = waystone_core::json::parse_trusted(&post(&http.address, "/mcp", message)).unwrap();
        let outcome_of = |answer: Value| match outcome(answer) {
            Ok(reply) => reply["status"].to_string(),
            Err(error) => error.to_string(),
        };
        let (by_stdio, by_http) = (outcome_of(by_stdio), outcome_of(by_http));
        assert_eq!(by_stdio, by_http, "{case}");
        assert!(by_http.contains(expected), "{case}: {by_http}");
    };
    let call = |arguments: &str| {
        let params = format!(r#"{{"name":"{SAVE}","arguments":{arguments}}}"#);
        format!(r#"{{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{params}}}"#)
    };
    let save = |context: &str| call(&format!(r#"{{"context":{context}}}"#));
    let nested = |levels: usize| save(&format!("{}1{}", r#"{"k":"#.repeat(levels), "}".repeat(levels)));
    for levels in [99, 100, 101, 124, 125, 126, 127, 128] {
        check(nested(levels).as_bytes(), "SAVED");
    }
    for levels in [129, 200, 5000] {
        check(nested(levels).as_bytes(), "128 levels");
    }
    check(save(&format!(r#"{{"t":"{}"}}"#, "x".repeat(300_000))).as_bytes(), "SAVED");
    check(save(&format!(r#"{{"n":1e400,"t":"{}"}}"#, "x".repeat(300_000))).as_bytes(), "out of range");
    check(save(r#"{"n":1e400}"#).as_bytes(), "out of range");
    check(save(r#"{"s":"\ud800"}"#).as_bytes(), "lone surrogate");
    check(save(r#"{"n":18446744073709551616}"#).as_bytes(), "18446744073709551616");
    check(save(r#"{"n":01}"#).as_bytes(), "invalid number");
    check(&[&save(r#"{"s":""#).as_bytes()[..100], b"\xff\"}}}}"].concat(), "INVALID_INPUT");
    check(save("[]").as_bytes(), "INVALID_INPUT");
    check(call(r#"{"context":{},"x":1}"#).as_bytes(), "unknown field `x`");
    let put = call(r#"{"text":"x","tags":[18446744073709551616]}"#).replace(SAVE, "context_put");
    check(put.as_bytes(), "INVALID_PARAMETER");
    check(call(r#"{},"arguments":{"context":{}}"#).as_bytes(), "a tool call has a name");
    check(call(r#"{"context":{"a":1}}"#).replace("tools/call", r"tools\u002fcall").as_bytes(), "SAVED");
    check(call("\"text\"").as_bytes(), "a tool call has a name");
    check(call("{}").replace(SAVE, "no_such_tool").as_bytes(), "-32602");
    check(br#"{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"\udfff"}}"#, "-32700");
    check(br#"{"jsonrpc":"2.0","id":1,"method":"no/such/method"}"#, "-32601");
    check(b"garbage", "-32700");
}

#[test]
fn a_frame_that_is_too_long_is_answered_and_the_next_one_works() {
    let directory = private_dir();
    let mut process = McpProcess::start(&binary("waystone"), directory.path()).unwrap();
    let text = "x".repeat(66 * 1024 * 1024);
    let id = process.send_call(SAVE, json!({ "context": { "text": text } })).unwrap();
    let error = outcome(process.wait_for(id).unwrap()).unwrap_err();
    assert_eq!(error["error"]["code"], "PAYLOAD_TOO_LARGE");
    assert!(process.call(SAVE, json!({ "context": { "n": 1 } })).unwrap().is_ok());
}

/// At the finest level, by every face, and when what was saved is damaged.
#[test]
fn context_text_never_reaches_the_log() {
    let directory = private_dir();
    let traced = |argument: &str| {
        let mut command = command(&binary("waystone"), directory.path());
        command.arg(argument).env("WAYSTONE_LOG_LEVEL", "trace");
        command
    };
    let mut process = McpProcess::start_with(&mut traced("mcp")).unwrap();
    let marker = "marker-5f2c";
    let metadata = json!({ "name": marker, "tags": [marker], "x": marker });
    let all = [
        json!({ "sessionId": "s", "context": { "text": marker }, "metadata": metadata }),
        json!({ "context": marker }),
        json!({ "context": {}, marker: 1 }),
        json!({ "context": {}, "sessionId": format!("{marker}/") }),
        json!({ "context": { "deep": [[[marker]]] }, "limit": marker }),
    ];
    for arguments in &all {
        let _ = process.call(SAVE, arguments.clone()).unwrap();
    }
    process
        .send_line(&format!(r#"{{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{{"a":"{marker}\ud800"}}}}"#))
        .unwrap();
    process.receive().unwrap();
    process.finish().unwrap();

    let server = ServeProcess::start_with(&mut traced("serve")).unwrap();
    for arguments in all {
        let call = json!({ "name": SAVE, "arguments": arguments });
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call });
        post(&server.address, "/mcp", call.to_string().as_bytes());
        post(&server.address, "/api/checkpoints", arguments.to_string().as_bytes());
    }
    post(&server.address, "/api/checkpoints", format!(r#"{{"context":{{"{marker}":1e999}}}}"#).as_bytes());
    drop(server);
    std::fs::remove_dir_all(directory.path().join("contexts")).unwrap();
    let spoil = "UPDATE checkpoint_bytes SET bytes = zeroblob(length(bytes))";
    waystone_testkit::audit::open(directory.path()).execute_batch(spoil).unwrap();
    let server = ServeProcess::start_with(&mut traced("serve")).unwrap();
    let load = json!({ "name": LOAD, "arguments": { "sessionId": "s" } });
    let load = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": load });
    let answer = post(&server.address, "/mcp", load.to_string().as_bytes());
    assert!(String::from_utf8_lossy(&answer).contains("CHECKPOINT_CORRUPT"), "{}", String::from_utf8_lossy(&answer));
    drop(server);

    let log = std::fs::read_to_string(directory.path().join("logs").join("waystone.log")).unwrap();
    assert!(log.contains("INVALID_INPUT") && log.contains("CHECKPOINT_CORRUPT"), "{log}");
    assert!(!log.contains(marker), "{log}");
}

#[test]
fn an_operation_is_recorded_under_its_agent_or_else_its_client() {
    let directory = private_dir();
    let mut process = McpProcess::start(&binary("waystone"), directory.path()).unwrap();
    process.call(SAVE, json!({ "context": { "n": 1 } })).unwrap().unwrap();
    process.call(SAVE, json!({ "context": { "n": 2 }, "agentId": "planner" })).unwrap().unwrap();
    process.finish().unwrap();
    let db = waystone_testkit::audit::open(directory.path());
    let mut statement = db.prepare("SELECT actor FROM operation ORDER BY seq").unwrap();
    let actors: Vec<String> = statement.query_map([], |row| row.get(0)).unwrap().flatten().collect();
    assert_eq!(actors, ["testkit", "planner"]);
}

#[cfg(unix)]
#[test]
fn a_process_that_is_told_to_end_leaves_nothing_behind() {
    use rustix::process::{Pid, Signal, kill_process};
    let directory = private_dir();
    let mut process = McpProcess::start(&binary("waystone"), directory.path()).unwrap();
    process.call(SAVE, json!({ "sessionId": "s", "context": { "n": 1 } })).unwrap().unwrap();
    process.call(LOAD, json!({ "sessionId": "s" })).unwrap().unwrap();
    kill_process(Pid::from_raw(i32::try_from(process.pid()).unwrap()).unwrap(), Signal::TERM).unwrap();
    assert!(process.child.wait().unwrap().success());
    assert_eq!(std::fs::read_dir(directory.path().join("run")).unwrap().count(), 0);
    let db = waystone_testkit::audit::open(directory.path());
    let operations: u64 = db.query_row("SELECT count(*) FROM operation", [], |row| row.get(0)).unwrap();
    assert_eq!(operations, 2, "the load was recorded");
}

/// Node's clients talk over sockets, from which a read cannot be broken off.
#[cfg(unix)]
#[test]
fn a_process_ends_when_told_to_before_anyone_has_spoken() {
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    use rustix::process::{Pid, Signal, kill_process};
    let directory = private_dir();
    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut child = command(&binary("waystone"), directory.path())
        .arg("mcp")
        .stdin(OwnedFd::from(theirs.try_clone().unwrap()))
        .stdout(OwnedFd::from(theirs))
        .spawn()
        .unwrap();
    let log = directory.path().join("logs").join("waystone.log");
    while !std::fs::read_to_string(&log).is_ok_and(|log| log.contains("serving MCP")) {
        assert_eq!(child.try_wait().unwrap(), None, "it ended before it was told to");
        std::thread::yield_now();
    }
    kill_process(Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap(), Signal::TERM).unwrap();
    assert!(child.wait().unwrap().success());
    drop(ours);
}

#[test]
fn an_unusable_data_directory_makes_saves_volatile_and_every_reply_says_so() {
    let directory = private_dir();
    let file = directory.path().join("file");
    std::fs::write(&file, "").unwrap();
    let mut server = command(&binary("waystone"), &file.join("data"));
    server.arg("mcp").env("TMPDIR", directory.path());
    let mut process = McpProcess::start_with(&mut server).unwrap();
    let saved = process.call(SAVE, json!({ "sessionId": "s", "context": { "n": 1 } })).unwrap().unwrap();
    assert_eq!(saved["status"], "VOLATILE");
    let again = process.call(SAVE, json!({ "sessionId": "s", "context": { "n": 1 } })).unwrap().unwrap();
    let loaded = process.call(LOAD, json!({ "sessionId": "s" })).unwrap().unwrap();
    let listed = process.call("workflow_checkpoint_list", json!({})).unwrap().unwrap();
    assert_eq!(loaded["context"], json!({ "n": 1 }));
    for reply in [saved, again, loaded, listed] {
        assert!(
            reply["warnings"][0].as_str().unwrap().contains("nothing is kept beyond the end of this process"),
            "{reply}"
        );
    }
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 2);
    process.finish().unwrap();
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "what was held is gone");
}
