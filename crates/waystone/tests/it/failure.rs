//! What a person or a script is told when something fails.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};
use waystone_testkit::harness::{copy_dir, private_dir};
use waystone_testkit::process::{McpProcess, binary, command};
use waystone_testkit::{audit, golden, shim};

fn run(data_dir: &Path, arguments: &[&str], change: impl FnOnce(&mut Command)) -> Output {
    let mut command = command(&binary("waystone"), data_dir);
    change(command.args(arguments));
    command.output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// The error object on standard error, and the exit code.
fn error_of(output: &Output) -> (Value, Option<i32>) {
    let text = stderr(output);
    let reply: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    (reply["error"].clone(), output.status.code())
}

#[test]
fn every_failure_is_an_object_with_a_hint_when_json_is_asked_for() {
    let directory = private_dir();
    let data = directory.path().join("data");
    let check = |arguments: &[&str], variable: (&str, &str), code: &str, exit: i32, says: &str| {
        let output = run(&data, &[arguments, &["--json"]].concat(), |command| _ = command.env(variable.0, variable.1));
        let (error, found) = error_of(&output);
        assert_eq!((error["code"].as_str().unwrap(), found), (code, Some(exit)), "{arguments:?}: {error}");
        assert!(error["message"].as_str().unwrap().contains(says), "{arguments:?}: {error}");
        assert!(!error["hint"].as_str().unwrap().is_empty() && error["details"].is_object(), "{arguments:?}: {error}");
        assert!(output.stdout.is_empty());
    };
    let file = directory.path().join("file");
    fs::write(&file, "[1]").unwrap();
    let path = file.to_str().unwrap();
    let (none, wrong, unusable) = (("LANG", "C"), "INVALID_INPUT", "STORAGE_UNAVAILABLE");
    check(&["--no-such-flag"], none, wrong, 2, "unexpected argument '--no-such-flag'");
    check(&[], none, wrong, 2, "requires a subcommand");
    check(&["checkpoint", "list", "--cursor", "foo"], none, wrong, 2, "cursor");
    check(&["session", "rename", "s", &"x".repeat(300)], none, wrong, 2, "name");
    check(&["serve", "--host", "example.com"], none, wrong, 2, "`example.com` is not an address");
    check(&["serve", "--host", "0.0.0.0"], none, wrong, 2, "no API keys yet");
    check(&["status", "--log-level", "loud"], none, wrong, 2, "loud");
    check(&["status"], ("WAYSTONE_PORT", "abc"), wrong, 2, "WAYSTONE_PORT: `abc` is not a whole number");
    check(&["status"], ("WAYSTONE_PROJECT", "a/b"), wrong, 2, "project");
    check(&["checkpoint", "save", path], none, wrong, 2, "it is not a JSON object");
    let large = directory.path().join("large");
    fs::write(&large, " ".repeat(2 << 20)).unwrap();
    let (large, limit) = (large.to_str().unwrap(), ("WAYSTONE_MAX_CONTEXT_BYTES", "10"));
    check(&["checkpoint", "save", large], limit, "PAYLOAD_TOO_LARGE", 1, "the file has 2097152 bytes, at most 1048586");
    check(&["checkpoint", "save", "/no/such/file"], none, wrong, 2, "cannot open /no/such/file");
    check(&["status"], ("WAYSTONE_DATA_DIR", path), unusable, 3, "cannot use");
    check(&["session", "show", "nope"], none, "SESSION_NOT_FOUND", 1, "nope");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    check(&["serve", "--port", &port], none, "CONFLICT", 1, "cannot listen on");

    let output = run(&data, &["--\u{9b}31m", "--json"], |_| {});
    assert!(!stderr(&output).contains('\u{9b}') && stderr(&output).contains("\\u009b"), "{}", stderr(&output));
}

/// Damages every page of the database after the first `keep`.
fn spoil(data: &Path, keep: usize) {
    audit::open(data).execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    let path = data.join("waystone.db");
    let mut bytes = fs::read(&path).unwrap();
    bytes[keep..].fill(0xa5);
    fs::write(path, bytes).unwrap();
}

#[test]
fn whoever_meets_a_damaged_database_is_told_how_to_repair_it() {
    for keep in [0, 100, 4096] {
        let directory = private_dir();
        let data = directory.path().join("data");
        let file = directory.path().join("context.json");
        fs::write(&file, r#"{"n":1}"#).unwrap();
        let save = ["checkpoint", "save", "s", file.to_str().unwrap()];
        assert!(run(&data, &save, |_| {}).status.success());
        spoil(&data, keep);
        for arguments in [&["doctor"][..], &["status"], &["session", "list"], &["checkpoint", "list"], &save] {
            let output = run(&data, arguments, |_| {});
            let said = stderr(&output);
            assert!(said.contains("waystone doctor --repair"), "{keep} {arguments:?}: {said}");
            let expected = if arguments == ["doctor"] { 1 } else { 3 };
            assert_eq!(output.status.code(), Some(expected), "{keep} {arguments:?}: {said}");
        }
        let repaired = run(&data, &["doctor", "--repair"], |_| {});
        let said = stderr(&repaired);
        assert!(repaired.status.success() && said.contains("rebuilt from its files"), "{keep}: {said}");
        assert!(!said.contains("\\u{a}"), "{said}");
    }
}

#[cfg(unix)]
#[test]
fn a_directory_that_others_use_is_not_repaired_and_they_are_named() {
    use std::os::unix::fs::MetadataExt;
    let directory = private_dir();
    let mut process = McpProcess::start(&binary("waystone"), directory.path()).unwrap();
    let saved = process.call("workflow_checkpoint_save", json!({ "context": { "n": 1 } })).unwrap().unwrap();
    // What is in it may change: who has it open keeps house meanwhile.
    let database = || fs::metadata(directory.path().join("waystone.db")).unwrap().ino();
    let before = database();
    let output = run(directory.path(), &["doctor", "--repair"], |_| {});
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains(&process.pid().to_string()), "{said}");
    assert!(database() == before && !directory.path().join("damaged").exists(), "nothing is replaced");
    let wanted = json!({ "checkpointId": saved["checkpointId"] });
    assert_eq!(process.call("workflow_checkpoint_load", wanted).unwrap().unwrap()["context"], json!({ "n": 1 }));
    assert!(process.finish().unwrap().success());
    assert!(run(directory.path(), &["doctor", "--repair"], |_| {}).status.success(), "when they have left it is");
}

/// What is kept must not go elsewhere without a word: the directory is there, and someone opened it.
#[cfg(unix)]
#[test]
fn a_server_for_agents_does_not_start_on_a_directory_open_to_others() {
    use std::os::unix::fs::PermissionsExt;
    let directory = private_dir();
    assert!(run(directory.path(), &["status"], |_| {}).status.success());
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let output = run(directory.path(), &["mcp"], |command| _ = command.stdin(std::process::Stdio::null()));
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    assert!(stderr(&output).contains("chmod") && output.stdout.is_empty(), "{}", stderr(&output));
}

#[test]
fn an_older_checkpoint_is_not_shown_as_if_it_were_the_newest() {
    let directory = private_dir();
    let (data, file) = (directory.path().join("data"), directory.path().join("context.json"));
    for n in 1..=2 {
        fs::write(&file, format!(r#"{{"n":{n}}}"#)).unwrap();
        assert!(run(&data, &["checkpoint", "save", "s", file.to_str().unwrap()], |_| {}).status.success());
    }
    let newest = "(SELECT max(checkpoint) FROM checkpoint_bytes)";
    let spoil = format!("UPDATE checkpoint_bytes SET bytes = x'00' WHERE checkpoint = {newest}");
    audit::open(&data).execute_batch(&spoil).unwrap();
    fs::remove_dir_all(data.join("contexts")).unwrap();
    let shown = run(&data, &["checkpoint", "show", "--latest", "s"], |_| {});
    let said = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(said.contains("degraded: 1 newer one is damaged") && said.contains("\"n\": 1"), "{said}");
    assert!(stderr(&shown).contains("warning: this is not the newest checkpoint of its session"), "{}", stderr(&shown));
}

#[test]
fn what_is_deleted_must_exist_and_be_confirmed() {
    let directory = private_dir();
    let (data, file) = (directory.path().join("data"), directory.path().join("context.json"));
    fs::write(&file, r#"{"n":1}"#).unwrap();
    let saved = run(&data, &["checkpoint", "save", "s", file.to_str().unwrap(), "--json"], |_| {});
    let saved: Value = serde_json::from_slice(&saved.stdout).unwrap();
    let id = saved["checkpointId"].as_str().unwrap();

    let (missing, exit) = error_of(&run(&data, &["checkpoint", "delete", "nope", "--json"], |_| {}));
    assert_eq!((&missing["code"], exit), (&json!("CHECKPOINT_NOT_FOUND"), Some(1)));
    for (noun, id, what) in
        [("session", "s", "session s with 1 checkpoint "), ("checkpoint", id, &format!("checkpoint {id} "))]
    {
        let (error, exit) = error_of(&run(&data, &[noun, "delete", id, "--json"], |_| {}));
        assert_eq!((&error["code"], &error["hint"], exit), (&json!("INVALID_INPUT"), &json!("use --yes"), Some(2)));
        assert!(error["message"].as_str().unwrap().contains(what), "{error}");
    }
    assert!(run(&data, &["session", "show", "s"], |_| {}).status.success(), "nothing was deleted");
    let loads = "SELECT count(*) FROM operation WHERE kind = 'checkpoint.loaded'";
    let loads: i64 = audit::open(&data).query_row(loads, [], |row| row.get(0)).unwrap();
    assert_eq!(loads, 0, "to ask about a checkpoint is not to load it");
}

#[test]
fn what_a_save_left_out_is_told_on_standard_error() {
    let directory = private_dir();
    let (data, file) = (directory.path().join("data"), directory.path().join("context.json"));
    fs::write(&file, r#"{"n":1}"#).unwrap();
    let save = ["checkpoint", "save", "s", file.to_str().unwrap()];
    assert!(run(&data, &save, |_| {}).status.success());
    let again = run(&data, &[&save[..], &["--name", "x"]].concat(), |_| {});
    assert!(stderr(&again).starts_with("warning: metadata was not kept"), "{}", stderr(&again));
    let said = String::from_utf8_lossy(&again.stdout).into_owned();
    assert!(said.starts_with("unchanged, kept ") && said.lines().count() == 1, "{said}");
}

#[test]
fn a_lone_argument_of_save_is_said_to_be_the_file() {
    let directory = private_dir();
    let said = stderr(&run(directory.path(), &["checkpoint", "save", "my-session"], |_| {}));
    assert!(said.contains("one argument is FILE") && said.contains("`-` reads standard input"), "{said}");
    let said = stderr(&run(directory.path(), &["checkpoint", "save", "-"], |_| {}));
    assert!(said.contains("standard input: "), "{said}");
}

#[cfg(unix)]
#[test]
fn variables_of_others_are_no_concern_of_ours() {
    use std::os::unix::ffi::OsStrExt;
    let directory = private_dir();
    let spoilt = std::ffi::OsStr::from_bytes(b"\xff");
    for name in ["USER", "USERNAME", "USERFOO", "USERPROFILE"] {
        let output = run(directory.path(), &["status"], |command| _ = command.env(name, spoilt));
        assert!(output.status.success(), "{name}: {}", stderr(&output));
    }
}

#[test]
fn a_configuration_is_a_file() {
    let directory = private_dir();
    let config = directory.path().join("config.json");
    let refused = || {
        let output = run(directory.path(), &["config", "show"], |_| {});
        assert_eq!(output.status.code(), Some(2));
        stderr(&output)
    };
    fs::create_dir(&config).unwrap();
    assert!(refused().contains("config.json is not a file"));
    fs::remove_dir(&config).unwrap();
    if cfg!(unix) {
        assert!(Command::new("mkfifo").arg(&config).status().unwrap().success());
        assert!(refused().contains("config.json is not a file"), "and no one waits for its writer");
        fs::remove_file(&config).unwrap();
    }
    fs::write(&config, r#"{ "dataDir": "/x" }"#).unwrap();
    let said = refused();
    assert!(said.contains("--data-dir or WAYSTONE_DATA_DIR only"), "{said}");
}

/// As on a disk without room for it: no file may be larger than some hundred pages.
#[cfg(unix)]
#[test]
fn a_backup_that_cannot_be_copied_for_want_of_room_is_not_passed_over() {
    let directory = private_dir();
    let data = directory.path().join("data");
    let (log, context) = (directory.path().join("log.txt"), directory.path().join("context.json"));
    fs::write(&context, r#"{ "goal": "small" }"#).unwrap();
    let done = |arguments: &[&str]| {
        let output = run(&data, arguments, |_| {});
        assert!(output.status.success(), "{}", stderr(&output));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    for part in 0..4 {
        let text: String = (0..20_000).map(|n| format!("line {n} of log {part}, which is long\n")).collect();
        fs::write(&log, text).unwrap();
        done(&["segment", "put", "--file", log.to_str().unwrap()]);
    }
    done(&["checkpoint", "save", "s", context.to_str().unwrap()]);
    done(&["backup"]);
    for name in ["waystone.db", "waystone.db-wal", "waystone.db-shm"] {
        let _ = fs::remove_file(data.join(name));
    }
    let limited = format!("trap '' XFSZ; ulimit -f 1500; exec {} doctor --repair", binary("waystone").display());
    let mut shell = command(Path::new("bash"), &data);
    let refused = shell.args(["-c", &limited]).output().unwrap();
    assert!(!refused.status.success(), "{}", String::from_utf8_lossy(&refused.stdout));
    done(&["doctor", "--repair"]);
    assert!(done(&["segment", "list", "--json"]).contains("line 1 of log 3"));
}

/// A backup of an older format is brought to the present one when a repair begins with it, and that takes room too.
#[cfg(unix)]
#[test]
fn a_backup_that_cannot_be_brought_to_the_present_format_for_want_of_room_is_not_passed_over() {
    /// ENOSPC.
    const NO_ROOM: i32 = 28;
    let older = golden::all().into_iter().find(|golden| golden.name.starts_with("12-")).unwrap();
    let conversations = |data: &Path| {
        let output = run(data, &["context", "list", "--json"], |_| {});
        let listed: Value = serde_json::from_slice(&output.stdout).unwrap();
        listed["contexts"].as_array().unwrap().len()
    };
    let expected = conversations(older.directory.path());
    assert!(expected > 0);
    for name in ["waystone.db", "waystone.db-wal", "waystone.db-shm"] {
        let _ = fs::remove_file(older.directory.path().join(name));
    }
    let (mut at, mut refused) = (1, 0);
    loop {
        let directory = private_dir();
        let (data, log) = (directory.path().join("data"), directory.path().join("calls"));
        copy_dir(older.directory.path(), &data);
        let call = shim::Call { kind: "write", errno: NO_ROOM, at };
        let settings = shim::fail(call, &data, &log, None).unwrap();
        let output = run(&data, &["doctor", "--repair"], |command| _ = command.envs(settings));
        if !output.status.success() {
            refused += 1;
            let again = run(&data, &["doctor", "--repair"], |_| {});
            assert!(again.status.success(), "write {at}: {}", stderr(&again));
        }
        assert_eq!(conversations(&data), expected, "write {at}: {}", stderr(&output));
        if !log.exists() {
            break;
        }
        at += 40;
    }
    assert!(refused > 3, "{refused} of {at}");
}
