//! MCP servers as tool servers: against a script that plays one, in processes of its own.

mod config;
mod ending;
mod http;
mod listing;
mod restart;
mod results;

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{advance, pause, resume};
use waystone_connect::mcp::{Servers, parse_servers};
use waystone_core::tools::ToolOutput;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/mcp/server.py");

/// Where servers tell what they hear.
pub(crate) struct Control(TcpListener);

impl Control {
    pub(crate) async fn new() -> Self {
        Self(TcpListener::bind("127.0.0.1:0").await.unwrap())
    }

    fn port(&self) -> String {
        self.0.local_addr().unwrap().port().to_string()
    }

    /// A server that does as `settings` say, as it is configured.
    pub(crate) fn server(&self, settings: Value) -> Value {
        json!({ "command": "python3", "args": [SCRIPT, settings.to_string()], "env": { "CONTROL": self.port() } })
    }

    /// The next process that was started.
    pub(crate) async fn started(&self) -> Heard {
        let (stream, _) = self.0.accept().await.unwrap();
        Heard { lines: BufReader::new(stream).lines(), methods: Vec::new() }
    }

    pub(crate) async fn none_started(&self) -> bool {
        tokio::select! {
            biased;
            _ = self.0.accept() => false,
            () = std::future::ready(()) => true,
        }
    }
}

/// What one process hears.
pub(crate) struct Heard {
    lines: Lines<BufReader<TcpStream>>,
    methods: Vec<String>,
}

impl Heard {
    async fn next(&mut self) -> Option<Value> {
        // A process that is killed may leave unread what it was sent, which is no clean end.
        let line = self.lines.next_line().await.ok().flatten()?;
        let message: Value = serde_json::from_str(&line).unwrap();
        self.methods.extend(message["method"].as_str().map(str::to_owned));
        Some(message)
    }

    /// The next message of `method`.
    pub(crate) async fn method(&mut self, method: &str) -> Value {
        while let Some(message) = self.next().await {
            if message["method"] == method {
                return message;
            }
        }
        panic!("it ended without {method}");
    }

    /// The methods of all that it heard, once it has ended and all that it started.
    pub(crate) async fn end(mut self) -> Vec<String> {
        while self.next().await.is_some() {}
        self.methods
    }
}

pub(crate) fn count(methods: &[String], method: &str) -> usize {
    methods.iter().filter(|other| *other == method).count()
}

/// All of `servers`, by name.
pub(crate) fn servers<const N: usize>(servers: [(&str, Value); N]) -> Servers {
    let servers: BTreeMap<_, _> = servers.into_iter().collect();
    Servers::new(parse_servers(&json!(servers)).unwrap(), &[], |_| None)
}

pub(crate) async fn names(servers: &Servers) -> Vec<String> {
    let toolbox = servers.list().await;
    assert_eq!(toolbox.warnings, [] as [String; 0]);
    toolbox.tools.into_iter().map(|tool| tool.name).collect()
}

pub(crate) async fn call(servers: &Servers, tool: &str, arguments: Value) -> ToolOutput {
    servers.call(tool, &object(arguments)).await.unwrap()
}

pub(crate) async fn echo(servers: &Servers, text: &str) -> ToolOutput {
    call(servers, "fake__echo", json!({ "text": text })).await
}

/// The words of a call that failed.
pub(crate) async fn failure(servers: &Servers, tool: &str, arguments: Value) -> String {
    let output = call(servers, tool, arguments).await;
    assert!(output.is_error, "{output:?}");
    output.content.as_str().unwrap().to_owned()
}

pub(crate) fn object(value: Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

/// So much later.
pub(crate) async fn later(seconds: u64) {
    pause();
    advance(Duration::from_secs(seconds)).await;
    resume();
}
