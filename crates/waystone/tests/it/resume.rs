//! Where work is gone on with, in a repository whose files are written here: git itself need not be there.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;

use serde_json::{Value, json};
use waystone_testkit::harness::private_dir;
use waystone_testkit::process::{McpProcess, ServeProcess, binary, command};

const COMMITS: [&str; 2] = ["0123456789abcdef0123456789abcdef01234567", "89abcdef0123456789abcdef0123456789abcdef"];

fn check_out(repository: &Path, branch: &str, commit: &str) {
    let git = repository.join(".git");
    fs::create_dir_all(git.join("refs/heads")).unwrap();
    fs::write(git.join("HEAD"), format!("ref: refs/heads/{branch}\n")).unwrap();
    fs::write(git.join("refs/heads").join(branch), commit).unwrap();
}

fn resume(repository: &Path, data: &Path, arguments: &[&str]) -> Value {
    let mut run = command(&binary("waystone"), data);
    let done = run.current_dir(repository).args(["--json", "resume"]).args(arguments).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    serde_json::from_slice(&done.stdout).unwrap()
}

fn ask(address: &str, what: &str, body: &str) -> Value {
    let mut stream = TcpStream::connect(address).unwrap();
    let length = body.len();
    write!(stream, "{what} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
}

#[test]
fn work_is_gone_on_with_where_the_branch_is_that_it_was_saved_on() {
    let (place, data) = (private_dir(), private_dir());
    let (repository, data) = (place.path().join("app"), data.path());
    check_out(&repository, "side", COMMITS[0]);
    let mut agent =
        McpProcess::start_with(command(&binary("waystone"), data).arg("mcp").current_dir(&repository)).unwrap();
    let mut save = |session: &str, goal: &str| {
        let context = json!({ "goal": goal });
        agent.call("workflow_checkpoint_save", json!({ "sessionId": session, "context": context })).unwrap().unwrap();
    };
    save("one", "paint the shed");
    // The branch changes while the agent works.
    check_out(&repository, "main", COMMITS[1]);
    save("two", "mend the fence");
    let loaded = agent.call("workflow_checkpoint_load", json!({ "sessionId": "two" })).unwrap().unwrap();
    assert_eq!(loaded["git"], json!({ "branch": "main", "head": COMMITS[1] }));

    let found = agent.call("workflow_resume", json!({})).unwrap().unwrap();
    assert_eq!(found["sessions"][0]["sessionId"], "two");
    check_out(&repository, "side", COMMITS[0]);
    let found = agent.call("workflow_resume", json!({})).unwrap().unwrap();
    let why = ["same git commit `0123456789ab`", "same git branch `side`"];
    assert_eq!((&found["sessions"][0]["sessionId"], &found["confident"]), (&json!("one"), &json!(true)));
    assert_eq!(found["sessions"][0]["why"].as_array().unwrap()[..2], why.map(Value::from));
    assert_eq!(found["next"], json!({ "tool": "workflow_checkpoint_load", "arguments": { "sessionId": "one" } }));
    agent.finish().unwrap();

    let folder = repository.join("src");
    fs::create_dir(&folder).unwrap();
    assert_eq!(resume(&folder, data, &[])["sessions"][0]["sessionId"], "one");
    assert_eq!(resume(&folder, data, &["fence"])["sessions"][0]["sessionId"], "two");
    fs::write(repository.join(".git/HEAD"), [0xff; 100]).unwrap();
    assert_eq!(resume(&folder, data, &[])["sessions"][0]["sessionId"], "two", "a broken repository says nothing");
}

#[test]
fn a_server_says_nothing_of_the_repository_it_happens_to_run_in() {
    let (place, data) = (private_dir(), private_dir());
    check_out(place.path(), "side", COMMITS[0]);
    let mut run = command(&binary("waystone"), data.path());
    let server = ServeProcess::start_with(run.arg("serve").current_dir(place.path())).unwrap();
    let context = json!({ "context": { "goal": "paint" } }).to_string();
    assert_eq!(ask(&server.address, "POST /api/sessions/s/checkpoints", &context)["status"], "SAVED");
    let found = ask(&server.address, "GET /api/resume?limit=3", "");
    assert_eq!(found["sessions"][0]["sessionId"], "s");
    assert_eq!(found["sessions"][0]["git"], Value::Null);
    assert_eq!(found["sessions"][0]["why"].as_array().unwrap().len(), 1);
}
