//! The filesystem server from npm as a tool server, stopped and killed in the middle of a call. `cargo xtask test` runs it.
//!
//! Usage: tool_server NODE SERVER

#![cfg(unix)]
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "it is a test, and a panic is its report")]

use std::fs;
use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::time::{advance, pause, resume};
use waystone_connect::mcp::{Servers, parse_servers};
use waystone_core::tools::ToolOutput;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let [_, node, server] = &std::env::args().collect::<Vec<_>>()[..] else {
        panic!("usage: tool_server NODE SERVER");
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().canonicalize().unwrap();
    let configured = json!({ "files": { "command": node, "args": [server, "${FOLDER}"] } });
    let filled = path.to_str().unwrap().to_owned();
    let environment = move |name: &str| (name == "FOLDER").then(|| filled.clone());
    let servers = Servers::new(parse_servers(&configured).unwrap(), &[], environment);

    check_list(&servers).await;
    let (first, second) = (path.join("first.txt"), path.join("second.txt"));
    let written = call(&servers, "write_file", json!({ "path": first, "content": "one" })).await;
    assert!(!written.is_error, "{written:?}");
    assert_eq!(fs::read_to_string(&first).unwrap(), "one");
    let outside = call(&servers, "read_text_file", json!({ "path": "/etc/hostname" })).await;
    assert!(outside.is_error, "{outside:?}");

    let process = child();
    kill_process(process, Signal::STOP).unwrap();
    let killing = async {
        while waiting_bytes(process) == 0 {
            tokio::task::yield_now().await;
        }
        kill_process(process, Signal::KILL).unwrap();
    };
    let call_killed = call(&servers, "write_file", json!({ "path": second, "content": "two" }));
    let (killed, ()) = tokio::join!(call_killed, killing);
    let unknown = "it went away while the call was under way; the outcome of the call is unknown";
    assert_eq!(killed, ToolOutput::error(format!("MCP server `files`: {unknown}")));

    pause();
    advance(Duration::from_secs(1)).await;
    resume();
    let read = call(&servers, "read_text_file", json!({ "path": first })).await;
    assert_eq!((&read.content, read.is_error), (&json!({ "content": "one" }), false));
    assert_ne!(child(), process);
    check_list(&servers).await;
    servers.shut_down().await;
    assert!(!second.exists(), "the call was sent again");
    assert_eq!(children(), []);
    println!("1 tool server was killed and used again");
}

async fn check_list(servers: &Servers) {
    let toolbox = servers.list().await;
    assert_eq!(toolbox.warnings, [] as [String; 0]);
    let find = |name: &str| toolbox.tools.iter().find(|tool| tool.name == name).unwrap();
    let (read, write) = (find("files__read_text_file"), find("files__write_file"));
    assert_eq!((read.read_only, write.read_only), (true, false));
    assert!(write.description.len() > 20 && write.input_schema["properties"]["path"].is_object(), "{write:?}");
}

async fn call(servers: &Servers, tool: &str, arguments: Value) -> ToolOutput {
    servers.call(&format!("files__{tool}"), arguments.as_object().unwrap()).await.unwrap()
}

fn child() -> Pid {
    let children = children();
    assert_eq!(children.len(), 1);
    children[0]
}

/// Of this process.
fn children() -> Vec<Pid> {
    let parent = format!("PPid:\t{}", std::process::id());
    let is_ours = |path: &Path| {
        fs::read_to_string(path.join("status")).is_ok_and(|status| status.lines().any(|line| line == parent))
    };
    let processes = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path()).filter(|path| is_ours(path));
    let pid = |path: &Path| Pid::from_raw(path.file_name()?.to_str()?.parse().ok()?);
    processes.filter_map(|path| pid(&path)).collect()
}

/// How much `process` was sent and has not read.
fn waiting_bytes(process: Pid) -> u64 {
    let input = fs::File::open(format!("/proc/{}/fd/0", process.as_raw_nonzero())).unwrap();
    rustix::io::ioctl_fionread(input).unwrap()
}
