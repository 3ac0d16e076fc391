//! Servers over streamable HTTP.

use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use waystone_connect::mcp::{Servers, parse_servers};

use super::{Control, Heard, SCRIPT, call, count, echo, failure, later, names, servers};

/// A server in a process that is not ours to start.
struct Remote {
    process: Process,
    heard: Heard,
    port: u64,
}

/// Killed when it is dropped.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Remote {
    async fn start(control: &Control, mut settings: Value) -> Self {
        if settings["port"].is_null() {
            settings["port"] = json!(0);
        }
        let mut command = Command::new("python3");
        command.args([SCRIPT, &settings.to_string()]).env("CONTROL", control.port());
        let process = Process(command.stdin(Stdio::null()).spawn().unwrap());
        let mut heard = control.started().await;
        let port = heard.next().await.unwrap()["port"].as_u64().unwrap();
        Self { process, heard, port }
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}/mcp", self.port)
    }

    fn server(&self) -> Value {
        json!({ "url": self.url() })
    }

    async fn kill(self) -> Vec<String> {
        drop(self.process);
        self.heard.end().await
    }
}

#[tokio::test]
async fn tools_of_a_server_on_the_web_are_listed_and_called() {
    for settings in [json!({}), json!({ "events": true }), json!({ "stateless": true })] {
        let control = Control::new().await;
        let remote = Remote::start(&control, settings).await;
        let servers = servers([("fake", remote.server())]);
        assert_eq!(names(&servers).await.len(), 10);
        assert_eq!(echo(&servers, "hi").await.content, json!("hi"));
        let refused = failure(&servers, "fake__error", json!({ "code": -32602, "message": "no such path" })).await;
        assert_eq!(refused, "MCP server `fake`: it answered with an error: no such path");
        assert_eq!(echo(&servers, "still here").await.content, json!("still here"));
        servers.shut_down().await;
        remote.kill().await;
    }
}

#[tokio::test]
async fn headers_are_sent_with_what_is_filled_in() {
    let control = Control::new().await;
    let mut remote = Remote::start(&control, json!({})).await;
    let headers = json!({ "Authorization": "Bearer ${KEY}", "X-Team": "a", "Accept": "text/html" });
    let configured = json!({ "fake": { "url": "http://127.0.0.1:${PORT}/mcp", "headers": headers } });
    let port = remote.port.to_string();
    let servers = Servers::new(parse_servers(&configured).unwrap(), &[], move |name| match name {
        "KEY" => Some("s3cret".to_owned()),
        "PORT" => Some(port.clone()),
        _ => None,
    });
    assert_eq!(echo(&servers, "hi").await.content, json!("hi"));
    for method in ["initialize", "tools/list", "tools/call"] {
        let headers = remote.heard.method(method).await["headers"].take();
        let sent = |name: &str| {
            let found = headers.as_object().unwrap().iter().find(|(other, _)| other.eq_ignore_ascii_case(name));
            found.map(|(_, value)| value.as_str().unwrap().to_owned())
        };
        assert_eq!(sent("authorization").unwrap(), "Bearer s3cret");
        assert_eq!(sent("x-team").unwrap(), "a");
        assert_eq!(sent("accept").unwrap(), "application/json, text/event-stream");
        assert_eq!(sent("mcp-session-id").is_some(), method != "initialize");
        assert_eq!(sent("mcp-protocol-version").is_some(), method != "initialize");
    }
    servers.shut_down().await;
    assert!(remote.heard.method("DELETE").await["session"].is_string());
    remote.kill().await;
}

#[tokio::test]
async fn a_server_that_dies_in_a_call_is_reached_anew_and_the_call_is_not_sent_again() {
    for settings in [json!({}), json!({ "events": true })] {
        let control = Control::new().await;
        let remote = Remote::start(&control, settings).await;
        let port = remote.port;
        let servers = servers([("fake", remote.server())]);
        let died = failure(&servers, "fake__crash", json!({})).await;
        assert!(died.ends_with("; the outcome of the call is unknown"), "{died}");
        assert_eq!(count(&remote.kill().await, "tools/call"), 1);

        later(1).await;
        let missed = failure(&servers, "fake__echo", json!({})).await;
        assert!(missed.starts_with("MCP server `fake`: it cannot be reached: "), "{missed}");

        let remote = Remote::start(&control, json!({ "port": port })).await;
        later(2).await;
        assert_eq!(echo(&servers, "back").await.content, json!("back"));
        assert_eq!(count(&remote.kill().await, "tools/call"), 1, "of the echo alone");
    }
}

#[tokio::test]
async fn a_call_whose_answer_is_lost_is_not_sent_again() {
    let control = Control::new().await;
    let remote = Remote::start(&control, json!({ "hangs_up": true })).await;
    let servers = servers([("fake", remote.server())]);
    assert_eq!(echo(&servers, "hi").await.content, json!("hi"));
    let lost = failure(&servers, "fake__crash", json!({})).await;
    assert!(lost.starts_with("MCP server `fake`: the connection broke: "), "{lost}");
    assert!(lost.ends_with("; the outcome of the call is unknown"), "{lost}");
    later(1).await;
    assert_eq!(echo(&servers, "again").await.content, json!("again"));
    assert_eq!(count(&remote.kill().await, "tools/call"), 3);
}

#[tokio::test]
async fn a_server_that_has_forgotten_the_session_is_given_another() {
    let control = Control::new().await;
    let remote = Remote::start(&control, json!({})).await;
    let port = remote.port;
    let servers = servers([("fake", remote.server())]);
    assert_eq!(echo(&servers, "hi").await.content, json!("hi"));
    remote.kill().await;
    let remote = Remote::start(&control, json!({ "port": port })).await;
    later(1).await;
    assert_eq!(echo(&servers, "again").await.content, json!("again"));
    let mut methods = remote.kill().await;
    methods.retain(|method| method.contains('/') || method == "initialize");
    assert_eq!(methods, ["tools/call", "initialize", "notifications/initialized", "tools/call"]);
}

#[tokio::test]
async fn a_status_that_says_no_is_told() {
    let control = Control::new().await;
    let remote = Remote::start(&control, json!({ "statuses": { "initialize": 401 } })).await;
    let servers = servers([("fake", remote.server()), ("page", json!({ "url": "no address" }))]);
    let no_address = "MCP server `page`: `url` is not an address that begins with http:// or https://";
    assert_eq!(servers.list().await.warnings, ["MCP server `fake`: it answered 401: no way", no_address]);
    remote.kill().await;
}

#[tokio::test]
async fn a_status_says_whether_a_call_was_carried_out() {
    let not_done = "the call was not carried out";
    let unknown = "the outcome of the call is unknown";
    for (status, outcome) in [(400, not_done), (429, not_done), (408, unknown), (500, unknown), (307, unknown)] {
        let control = Control::new().await;
        let remote = Remote::start(&control, json!({ "statuses": { "tools/call": status } })).await;
        let servers = servers([("fake", remote.server())]);
        for _ in 0..2 {
            let refused = failure(&servers, "fake__echo", json!({})).await;
            assert_eq!(refused, format!("MCP server `fake`: it answered {status}: no way; {outcome}"));
        }
        let methods = remote.kill().await;
        assert_eq!(["initialize", "tools/call"].map(|method| count(&methods, method)), [1, 2]);
    }
}

#[tokio::test]
async fn a_change_of_the_tools_is_told_on_a_stream_of_its_own() {
    let control = Control::new().await;
    let mut remote = Remote::start(&control, json!({ "tools": [{ "name": "change", "inputSchema": {} }] })).await;
    let servers = servers([("fake", remote.server())]);
    assert_eq!(names(&servers).await, ["fake__change"]);
    remote.heard.method("GET").await;
    call(&servers, "fake__change", json!({ "name": "new" })).await;
    remote.heard.method("told").await;
    // It was sent, and is heard any moment.
    while names(&servers).await != ["fake__change", "fake__new"] {
        tokio::task::yield_now().await;
    }
    remote.kill().await;
}

#[tokio::test]
async fn long_results_over_http_are_taken_and_endless_ones_are_not() {
    let mebibyte = 1024 * 1024;
    for settings in [json!({}), json!({ "events": true })] {
        let control = Control::new().await;
        let remote = Remote::start(&control, settings).await;
        let servers = servers([("fake", remote.server())]);
        let long = call(&servers, "fake__long", json!({ "bytes": 31 * mebibyte })).await;
        assert_eq!(long.content.as_str().unwrap().len(), 31 * mebibyte);
        let longer = failure(&servers, "fake__long", json!({ "bytes": 33 * mebibyte })).await;
        assert!(longer.contains("its answer is longer than 32 MiB"), "{longer}");
        later(1).await;
        assert_eq!(echo(&servers, "anew").await.content, json!("anew"));
        remote.kill().await;
    }
}
