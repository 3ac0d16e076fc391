//! Sealed data directories: what is in their files, and who gets it out.

#[cfg(target_os = "linux")]
mod upload;

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};
use tempfile::TempDir;
use waystone_testkit::audit;
use waystone_testkit::harness::private_dir;
use waystone_testkit::process::{McpProcess, binary, command};

/// Stands in every text that a client gives.
pub(crate) const CANARY: &str = "kanarienvogel";

struct Place {
    directory: TempDir,
}

impl Place {
    fn new() -> Self {
        let place = Self { directory: private_dir() };
        let made = place.plain(&["key", "generate", "--output", place.key().to_str().unwrap()]).output().unwrap();
        assert!(made.status.success(), "{made:?}");
        place
    }

    fn key(&self) -> PathBuf {
        self.directory.path().join("key")
    }

    fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    /// A command without a key.
    fn plain(&self, arguments: &[&str]) -> Command {
        let mut command = command(&binary("waystone"), &self.data());
        command.args(arguments);
        command
    }

    fn sealed(&self, arguments: &[&str]) -> Command {
        let mut command = self.plain(arguments);
        command.env("WAYSTONE_KEY_FILE", self.key()).env("WAYSTONE_ENCRYPTION", "enabled");
        command
    }

    fn run(&self, arguments: &[&str]) -> Value {
        let output = self.sealed(&[&["--json"], arguments].concat()).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

pub(crate) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// The files in which these bytes stand.
pub(crate) fn files_with(folder: &Path, wanted: &[u8]) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| match path.is_dir() {
            true => files_with(&path, wanted),
            false => {
                let bytes = std::fs::read(&path).unwrap();
                let has = bytes.windows(wanted.len()).any(|window| window.eq_ignore_ascii_case(wanted));
                if has { vec![path] } else { Vec::new() }
            }
        })
        .collect()
}

/// Says the word in every field that takes text, over MCP.
pub(crate) fn say_everywhere(process: &mut McpProcess) {
    let word = |n: &str| format!("{CANARY} {n}");
    let context = json!({ "goal": word("goal"), CANARY: [word("in a list")], "debugLog": "x".repeat(3000) });
    let metadata = json!({ "name": word("name"), "tags": [CANARY], "more": { CANARY: 1 } });
    let rules = json!([{ "pattern": CANARY, "class": "USEFUL" }]);
    let save = json!({
        "sessionId": "s", "context": context, "metadata": metadata, "contextRules": rules, "idempotencyKey": "k",
    });
    let calls = [
        ("workflow_checkpoint_save", save.clone()),
        ("workflow_checkpoint_save", save),
        ("workflow_checkpoint_save", json!({ "sessionId": "s", "context": { "goal": word("changed") } })),
        ("workflow_mark_critical", json!({ "sessionId": "s", "contextKey": CANARY })),
        ("workflow_context_compress", json!({ "context": context, "targetTokens": 40 })),
        ("workflow_checkpoint_load", json!({ "sessionId": "s" })),
        ("workflow_checkpoint_list", json!({ "query": CANARY })),
        ("workflow_checkpoint_list", json!({ "query": CANARY, "content": true })),
        (
            "context_put",
            json!({ "project_id": "default", "text": word("put"), "tags": [CANARY], "file_path": CANARY, "task_id": "t" }),
        ),
        (
            "context_put",
            json!({ "project_id": "default", "text": word("put"), "tags": [CANARY], "file_path": CANARY, "task_id": "t" }),
        ),
        ("context_create_task_snapshot", json!({ "project_id": "default", "task_id": "t", "name": CANARY })),
        ("context_stash", json!({ "project_id": "default", "query": CANARY })),
        ("context_search_stashed", json!({ "query": CANARY, "project_id": "default" })),
        ("workflow_resume", json!({ "query": CANARY })),
    ];
    for (tool, arguments) in calls {
        let answer = process.call(tool, arguments).unwrap();
        assert!(answer.is_ok(), "{tool}: {answer:?}");
    }
}

#[test]
fn no_word_that_a_client_says_stands_in_any_file_of_a_sealed_directory() {
    let place = Place::new();
    // The same in a plain directory is seen: the test can fail.
    let open = private_dir();
    let mut plain = McpProcess::start(&binary("waystone"), open.path()).unwrap();
    say_everywhere(&mut plain);
    assert!(!files_with(open.path(), CANARY.as_bytes()).is_empty());

    let mut process = McpProcess::start_with(&mut place.sealed(&["mcp"])).unwrap();
    say_everywhere(&mut process);
    assert_eq!(files_with(&place.data(), CANARY.as_bytes()), Vec::<PathBuf>::new(), "while it runs");
    assert!(process.finish().unwrap().success());
    place.run(&["session", "rename", "s", CANARY]);
    place.run(&["backup"]);
    place.run(&[
        "checkpoint",
        "delete",
        "--yes",
        place.run(&["checkpoint", "list"])["checkpoints"][0]["checkpointId"].as_str().unwrap(),
    ]);
    assert!(place.sealed(&["doctor"]).output().unwrap().status.success());
    assert_eq!(files_with(&place.data(), CANARY.as_bytes()), Vec::<PathBuf>::new(), "at rest");

    let found = place.run(&["checkpoint", "list", "--query", CANARY]);
    assert_eq!(found["total"], 1, "what is sealed is found and read by who has the key");
    assert_eq!(place.run(&["session", "show", "s"])["name"], CANARY);
    let refused = place.sealed(&["session", "export", "s"]).output().unwrap();
    assert!(!refused.status.success() && said(&refused).contains("--output"), "{refused:?}");
    let document = place.sealed(&["session", "export", "s", "--output", "-"]).output().unwrap();
    assert!(said(&document).contains(CANARY), "a person may take it out");
}

/// Says the word to a model that says it again, and calls tools with it: one that runs, and one that waits. Returns the conversations.
fn talk_everywhere(mut command: impl FnMut(&[&str]) -> Command) -> Vec<String> {
    let folder = private_dir();
    let call = format!(r#"call write_file {{"path": "{CANARY}.txt", "content": "{CANARY}"}}"#);
    let said = format!("what of {CANARY}?");
    let chat: [(&[&str], bool); 3] = [
        (&["--json", "chat", "--mode", CANARY, &said], true),
        (&["--json", "--allowed-tools", "write_file", "chat", &call], true),
        (&["--json", "chat", &call], false),
    ];
    for (arguments, is_answered) in chat {
        let output = command(arguments).current_dir(folder.path()).output().unwrap();
        assert_eq!(output.status.success(), is_answered, "{arguments:?}: {output:?}");
    }
    assert_eq!(std::fs::read_to_string(folder.path().join(format!("{CANARY}.txt"))).unwrap(), CANARY);
    let list: Value =
        serde_json::from_slice(&command(&["--json", "context", "list"]).output().unwrap().stdout).unwrap();
    list["contexts"].as_array().unwrap().iter().map(|context| context["id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn no_word_of_a_conversation_or_of_its_tools_stands_in_any_file_of_a_sealed_directory() {
    let open = private_dir();
    talk_everywhere(|arguments| {
        let mut command = command(&binary("waystone"), open.path());
        command.args(arguments);
        command
    });
    assert!(!files_with(open.path(), CANARY.as_bytes()).is_empty(), "the test can fail");

    let place = Place::new();
    let conversations = talk_everywhere(|arguments| place.sealed(arguments));
    assert_eq!(conversations.len(), 3);
    place.run(&["backup"]);
    assert_eq!(files_with(&place.data(), CANARY.as_bytes()), Vec::<PathBuf>::new());
    let waiting = place.run(&["context", "show", &conversations[0]]);
    assert!(waiting.to_string().contains(&format!("{CANARY}.txt")), "who has the key reads it: {waiting}");
    for id in &conversations {
        place.run(&["context", "delete", "--purge", "--yes", id]);
    }
    assert_eq!(place.run(&["context", "list"])["contexts"], json!([]));
    assert_eq!(files_with(&place.data(), CANARY.as_bytes()), Vec::<PathBuf>::new());
}

#[test]
fn a_sealed_directory_is_refused_without_its_key_and_a_plain_one_with_one() {
    let place = Place::new();
    let refused = |command: &mut Command, why: &str| {
        let output = command.output().unwrap();
        assert!(!output.status.success() && said(&output).contains(why), "{why}: {output:?}");
    };
    refused(place.plain(&["status"]).env("WAYSTONE_ENCRYPTION", "enabled"), "keychain cannot keep a key");
    refused(place.sealed(&["status"]).env("WAYSTONE_KEY_FILE", place.directory.path().join("none")), "cannot be read");
    assert!(!place.data().join("waystone.db").exists(), "nothing was made");
    place.run(&["status"]);
    refused(&mut place.plain(&["status"]), "there is no key");
    refused(&mut place.plain(&["doctor", "--repair"]), "there is no key");
    assert!(place.plain(&["status"]).env("WAYSTONE_KEY_FILE", place.key()).output().unwrap().status.success());

    let other = place.directory.path().join("other");
    place.plain(&["key", "generate", "--output", other.to_str().unwrap()]).output().unwrap();
    refused(place.sealed(&["status"]).env("WAYSTONE_KEY_FILE", &other), "another key");
    refused(place.plain(&["key", "generate", "--output"]).arg(&other), "is not overwritten");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    std::fs::set_permissions(place.key(), mode).unwrap();
    refused(&mut place.sealed(&["status"]), "chmod 600");

    let open = private_dir();
    assert!(command(&binary("waystone"), open.path()).arg("status").output().unwrap().status.success());
    let mut on_plain = command(&binary("waystone"), open.path());
    refused(on_plain.arg("status").env("WAYSTONE_KEY_FILE", &other).env("WAYSTONE_ENCRYPTION", "1"), "is not sealed");
}

#[test]
fn a_lost_database_comes_back_from_sealed_files_with_the_key_alone() {
    let place = Place::new();
    let mut process = McpProcess::start_with(&mut place.sealed(&["mcp"])).unwrap();
    say_everywhere(&mut process);
    assert!(process.finish().unwrap().success());
    let before = place.run(&["checkpoint", "show", "--latest", "s"]);
    for name in ["waystone.db", "waystone.db-wal", "waystone.db-shm"] {
        let _ = std::fs::remove_file(place.data().join(name));
    }
    std::fs::remove_dir_all(place.data().join("backups")).ok();
    let refused = place.plain(&["doctor", "--repair"]).output().unwrap();
    assert!(said(&refused).contains("there is no key"), "{refused:?}");
    assert!(!place.data().join("waystone.db").exists());
    assert!(place.sealed(&["doctor", "--repair"]).output().unwrap().status.success());
    let after = place.run(&["checkpoint", "show", "--latest", "s"]);
    assert_eq!((&after["context"], &after["metadata"]), (&before["context"], &before["metadata"]));
    assert_eq!(files_with(&place.data(), CANARY.as_bytes()), Vec::<PathBuf>::new());
}

#[test]
fn what_is_moved_to_another_row_does_not_open_there() {
    let place = Place::new();
    let mut process = McpProcess::start_with(&mut place.sealed(&["mcp"])).unwrap();
    for (session, n) in [("a", 1), ("b", 2), ("b", 3)] {
        let save = json!({ "sessionId": session, "context": { "n": n }, "metadata": { "name": format!("name {n}") } });
        process.call("workflow_checkpoint_save", save).unwrap().unwrap();
    }
    for text in ["first", "second"] {
        process.call("context_put", json!({ "text": text })).unwrap().unwrap();
    }
    assert!(process.finish().unwrap().success());
    std::fs::remove_dir_all(place.data().join("contexts")).unwrap();
    let db = audit::open(&place.data());
    let swaps = [
        ("checkpoint_bytes", "bytes", "checkpoint", 2, 3),
        ("checkpoint", "metadata", "key", 1, 2),
        ("segment_text", "text", "segment", 1, 2),
    ];
    for (table, column, key, a, b) in swaps {
        db.execute_batch(&format!(
            "CREATE TEMP TABLE kept AS SELECT {column} AS value FROM {table} WHERE {key} = {a};
             UPDATE {table} SET {column} = (SELECT {column} FROM {table} WHERE {key} = {b}) WHERE {key} = {a};
             UPDATE {table} SET {column} = (SELECT value FROM kept) WHERE {key} = {b}; DROP TABLE kept;"
        ))
        .unwrap();
    }
    drop(db);
    let list = place.run(&["checkpoint", "list"]);
    let listed: Vec<&Value> =
        list["checkpoints"].as_array().unwrap().iter().map(|one| &one["metadata"]["name"]).collect();
    assert_eq!(listed, [&json!("name 3"), &Value::Null, &Value::Null], "no name is told of another's");
    let newest = list["checkpoints"][0]["checkpointId"].as_str().unwrap().to_owned();
    let load = place.sealed(&["checkpoint", "show", &newest]).output().unwrap();
    assert!(said(&load).contains("CHECKPOINT_CORRUPT") || !load.status.success(), "{load:?}");
    let search = place.sealed(&["search", "second"]).output().unwrap();
    assert!(!said(&search).contains("second\n"), "{search:?}");
}

#[test]
fn with_a_session_that_is_removed_its_key_goes_from_every_copy() {
    let place = Place::new();
    let mut process = McpProcess::start_with(&mut place.sealed(&["mcp"])).unwrap();
    say_everywhere(&mut process);
    process.call("workflow_checkpoint_save", json!({ "sessionId": "stays", "context": { "n": 1 } })).unwrap().unwrap();
    assert!(process.finish().unwrap().success());
    place.run(&["backup"]);
    let key = |session: &str| -> Vec<u8> {
        let sql = "SELECT wrapped_key FROM session WHERE id = ?1";
        audit::open(&place.data()).query_row(sql, [session], |row| row.get(0)).unwrap()
    };
    let (gone, stays) = (key("s"), key("stays"));
    // There may be a backup besides that was made by itself.
    let place_of =
        |path: PathBuf| path.strip_prefix(place.data()).unwrap().components().next().unwrap().as_os_str().to_owned();
    let copies: BTreeSet<_> = files_with(&place.data(), &gone).into_iter().map(place_of).collect();
    let wanted = ["backups", "contexts", "waystone.db"];
    assert!(wanted.iter().all(|wanted| copies.contains(OsStr::new(wanted))), "{copies:?}");
    place.run(&["session", "delete", "s", "--purge", "--yes"]);
    place.run(&["status"]);
    assert_eq!(files_with(&place.data(), &gone), Vec::<PathBuf>::new());
    assert!(!files_with(&place.data(), &stays).is_empty());
    assert_eq!(place.run(&["checkpoint", "show", "--latest", "stays"])["context"], json!({ "n": 1 }));
}
