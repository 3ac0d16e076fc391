//! What all commands have in common: errors, exit codes, documents, and that nothing stored steers a terminal.

use std::path::Path;
use std::process::Output;

use serde_json::Value;
use waystone_testkit::harness::private_dir;
use waystone_testkit::process::{binary, command};

fn waystone(data_dir: &Path, arguments: &[&str]) -> Output {
    command(&binary("waystone"), data_dir).args(arguments).output().unwrap()
}

fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Typed as it stands it must not replace what is in another directory.
#[test]
fn a_backup_says_how_it_is_restored_into_the_directory_that_it_is_of() {
    let directory = private_dir();
    let (data, copy) = (directory.path().join("data"), directory.path().join("copy"));
    let said = stdout(&waystone(&data, &["backup", copy.to_str().unwrap()]));
    let line = format!("`waystone --data-dir {} restore-from {}`", data.display(), copy.display());
    assert!(said.contains(&line), "{said}");
}

#[test]
fn a_person_can_save_list_and_show() {
    let directory = private_dir();
    let (data, file) = (directory.path().join("data"), directory.path().join("context.json"));
    std::fs::write(&file, r#"{ "goal": "ship it", "n": 9007199254740993 }"#).unwrap();
    let file = file.to_str().unwrap();
    let saved =
        waystone(&data, &["--json", "checkpoint", "save", "s1", file, "--name", "first \u{1b}[31m", "--tag", "t"]);
    let saved: Value = serde_json::from_str(&stdout(&saved)).unwrap();
    let id = saved["checkpointId"].as_str().unwrap();

    let list = stdout(&waystone(&data, &["checkpoint", "list", "s1"]));
    assert!(list.contains(id) && list.contains("first \\u{1b}[31m"), "{list}");
    assert!(!list.contains('\u{1b}'), "control characters are escaped");
    let show = stdout(&waystone(&data, &["checkpoint", "show", id]));
    assert!(show.contains("\"n\": 9007199254740993"), "{show}");
    let session: Value = serde_json::from_str(&stdout(&waystone(&data, &["session", "show", "s1", "--json"]))).unwrap();
    assert_eq!((&session["id"], &session["checkpointCount"]), (&"s1".into(), &1.into()));
    assert!(stdout(&waystone(&data, &["session", "list"])).contains("s1"));
    let status: Value = serde_json::from_str(&stdout(&waystone(&data, &["status", "--json"]))).unwrap();
    assert_eq!(status["checkpointCount"], 1);

    assert!(stdout(&waystone(&data, &["session", "rename", "s1", "My work"])).contains("My work"));
    assert!(stdout(&waystone(&data, &["session", "tag", "s1", "a", "b"])).contains("a, b"));
    let asked = waystone(&data, &["checkpoint", "delete", id]);
    assert!(!asked.status.success() && String::from_utf8_lossy(&asked.stderr).contains("--yes"));
    assert!(stdout(&waystone(&data, &["checkpoint", "delete", id, "--yes"])).contains("kept until"));
    assert!(stdout(&waystone(&data, &["session", "delete", "s1", "--yes"])).contains("deleted s1"));
    assert!(stdout(&waystone(&data, &["session", "list"])).contains("No sessions yet"));
}

#[test]
fn a_person_can_say_all_that_a_program_can() {
    let directory = private_dir();
    let (data, file) = (directory.path().join("data"), directory.path().join("context.json"));
    let file = file.to_str().unwrap();
    let run = |arguments: &[&str]| waystone(&data, arguments);
    let save = |n: u32, arguments: &[&str]| {
        std::fs::write(file, format!(r#"{{"n":{n}}}"#)).unwrap();
        run(&[&["checkpoint", "save", "--json"], arguments].concat())
    };
    let reply = |output: &Output| serde_json::from_str::<Value>(&stdout(output)).unwrap();
    let first = reply(&save(1, &[file, "--in", "p1", "--agent", "a", "--workflow", "w", "--idempotency-key", "k"]));
    let (session, id) = (first["sessionId"].as_str().unwrap(), first["checkpointId"].as_str().unwrap());
    let metadata = r#"{"ticket":"T-7","name":"lost"}"#;
    let second = &["other", file, "--in", "p2", "--metadata", metadata, "--name", "kept", "--tag", "t"];
    let second = reply(&save(2, second));
    let (second_id, before_all) = (second["checkpointId"].as_str().unwrap(), "2020-01-01");
    assert_eq!(
        reply(&save(1, &[file, "--in", "p1", "--agent", "a", "--workflow", "w", "--idempotency-key", "k"])),
        first
    );
    let conflict = save(3, &[session, file, "--expected-checkpoint", second_id]);
    assert!(!conflict.status.success() && String::from_utf8_lossy(&conflict.stderr).contains("CONFLICT"));
    let child = reply(&save(3, &[session, file, "--parent-checkpoint", id, "--expected-checkpoint", id]));
    let child_id = child["checkpointId"].as_str().unwrap();
    assert_eq!(child["parentCheckpointId"], id);

    let listed = |arguments: &[&str]| {
        let page = reply(&run(&[&["checkpoint", "list", "--json"], arguments].concat()));
        let ids = page["checkpoints"].as_array().unwrap().iter().map(|row| row["checkpointId"].as_str().unwrap());
        ids.map(str::to_owned).collect::<Vec<_>>()
    };
    for (arguments, expected) in [
        (&[][..], &[child_id, second_id, id][..]),
        (&[session], &[child_id, id]),
        (&["--in", "p2"], &[second_id]),
        (&["--project", "p2"], &[second_id]),
        (&["--query", "t-7 KEPT"], &[second_id]),
        (&["--tag", "t"], &[second_id]),
        (&["--agent", "a"], &[id]),
        (&["--workflow", "w"], &[id]),
        (&["--since", before_all, "--offset", "1", "--limit", "1"], &[second_id]),
        (&["--until", before_all], &[]),
    ] {
        assert_eq!(listed(arguments), expected, "{arguments:?}");
    }
    let sessions = stdout(&run(&["session", "list", "--project", "p2"]));
    assert!(sessions.contains("other") && !sessions.contains(session), "{sessions}");
    let shown = stdout(&run(&["checkpoint", "show", second_id]));
    assert!(shown.contains(r#"metadata    {"ticket":"T-7"}"#), "{shown}");
    let shown = stdout(&run(&["checkpoint", "show", id]));
    assert!(shown.contains("agent       a\n") && shown.contains("workflow    w\n"), "{shown}");
    let page = stdout(&run(&["checkpoint", "list", "--limit", "2"]));
    assert!(page.contains("\n2 of 3; more: --cursor "), "{page}");
    let page = stdout(&run(&["session", "list", "--limit", "1"]));
    assert!(page.contains("\nmore: --cursor "), "{page}");
    let table = |arguments: &[&str]| stdout(&run(&[&["checkpoint", "list"], arguments].concat()));
    assert!(table(&[]).starts_with("SESSION") && table(&[]).contains(session));
    assert!(table(&[session]).starts_with("CHECKPOINT") && !table(&[session]).contains(session));
    assert_eq!(reply(&run(&["checkpoint", "show", "--latest", session, "--json"]))["checkpointId"], child_id);
    std::fs::write(file, "{}").unwrap();
    assert!(stdout(&run(&["checkpoint", "save", file])).contains(" in session "), "the id of what was made is printed");
}

#[test]
fn errors_come_with_a_hint_and_an_exit_code() {
    let directory = private_dir();
    let data = directory.path().join("data");
    let check = |arguments: &[&str], code: i32, says: &str| {
        let output = waystone(&data, arguments);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {error}");
        assert!(error.contains(says), "{arguments:?}: {error}");
        assert!(output.stdout.is_empty());
    };
    let file = directory.path().join("bad.json");
    let path = file.to_str().unwrap();
    for (text, says) in [
        ("{\"a\":1,\"a\":2}", "duplicate key `a`"),
        ("[1]", "it is not a JSON object"),
        ("{\"n\":123456789012345678901234567890}", "123456789012345678901234567890"),
        ("{\"s\":\"\\ud800\"}", "lone surrogate"),
        ("{", "not valid JSON: EOF"),
        ("hello", "not valid JSON: expected value at line 1 column 1"),
    ] {
        std::fs::write(&file, text).unwrap();
        check(&["checkpoint", "save", "s", path], 2, says);
    }
    check(&["checkpoint", "save", "s", "/no/such/file"], 2, "cannot open /no/such/file");
    check(&["restore-from", "/no/such/backup"], 3, "/no/such/backup");
    check(&["checkpoint", "show", "nope"], 1, "hint: look for its id");
    check(&["checkpoint", "show", "nope", "--json"], 1, r#""code":"CHECKPOINT_NOT_FOUND""#);
    check(&["checkpoint", "list", "s", "--limit", "0"], 2, "limit is 0, it must be from 1 to 1000");
    check(&["session", "list", "--limit", "1001"], 2, "limit is 1001, it must be from 1 to 1000");
    check(&["checkpoint", "show"], 2, "<CHECKPOINT|--latest <SESSION>>");
    check(&["checkpoint", "show", "c", "--latest", "s"], 2, "cannot be used with");
    check(&["checkpoint", "save", path, "--metadata", "[]"], 2, "it is not a JSON object");
    check(&["session", "show", "a/b"], 2, "may contain only");
    check(&["--no-such-flag"], 2, "unexpected argument");
    check(&["session", "delete", "s"], 1, "there is no session");
    let file = directory.path().join("file");
    std::fs::write(&file, "").unwrap();
    check(&["status", "--data-dir", file.to_str().unwrap()], 3, "choose another directory");
}

#[test]
fn a_relative_data_directory_works_from_the_first_time() {
    let directory = private_dir();
    for _ in 0..2 {
        let output = command(&binary("waystone"), Path::new("fresh"))
            .arg("status")
            .current_dir(directory.path())
            .output()
            .unwrap();
        assert!(stdout(&output).contains("fresh"));
    }
}

#[test]
fn a_log_that_cannot_be_opened_stops_nothing() {
    let directory = private_dir();
    std::fs::write(directory.path().join("logs"), "not a folder").unwrap();
    let status = waystone(directory.path(), &["status", "--json"]);
    let reply: Value = serde_json::from_str(&stdout(&status)).unwrap();
    assert_eq!(reply["checkpointCount"], 0);
    let said = String::from_utf8(status.stderr).unwrap();
    assert!(said.contains("nothing is logged"), "{said}");
}

#[test]
fn a_person_can_take_a_session_and_a_project_elsewhere() {
    let directory = private_dir();
    let (data, there) = (directory.path().join("data"), directory.path().join("there"));
    let file = directory.path().join("file.json");
    let file = file.to_str().unwrap();
    std::fs::write(file, r#"{"n":1}"#).unwrap();
    stdout(&waystone(&data, &["checkpoint", "save", "Run:1", file, "--agent", "a"]));
    stdout(&waystone(&data, &["segment", "put", "a text", "--project", "p"]));

    let first = stdout(&waystone(&data, &["session", "export", "Run:1", "--json"]));
    let first: Value = serde_json::from_str(&first).unwrap();
    let second: Value =
        serde_json::from_str(&stdout(&waystone(&data, &["session", "export", "Run:1", "--json"]))).unwrap();
    let path = first["path"].as_str().unwrap();
    assert!(path.contains("exports/%52un%3A1-20") && path != second["path"].as_str().unwrap(), "{path}");
    let mode = |path: &str| std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(path).unwrap().permissions());
    assert_eq!((mode(path) & 0o777, mode(data.join("exports").to_str().unwrap()) & 0o777), (0o600, 0o700));

    let refused = waystone(&data, &["session", "export", "Run:1", "--output", file]);
    assert_eq!(refused.status.code(), Some(2));
    assert_eq!(std::fs::read_to_string(file).unwrap(), r#"{"n":1}"#);
    stdout(&waystone(&data, &["session", "export", "Run:1", "--output", file, "--force"]));
    let document = std::fs::read(file).unwrap();
    assert_eq!(document, std::fs::read(path).unwrap());
    assert_eq!(mode(file) & 0o777, 0o600);
    assert_eq!(stdout(&waystone(&data, &["session", "export", "Run:1", "-o", "-"])).as_bytes(), document);

    assert!(stdout(&waystone(&there, &["session", "import", file])).starts_with("imported session Run:1"));
    assert!(stdout(&waystone(&there, &["session", "import", path])).starts_with("unchanged"));
    assert_eq!(stdout(&waystone(&there, &["session", "export", "Run:1", "-o", "-"])).as_bytes(), document);
    stdout(&waystone(&data, &["segment", "export", "--project", "p", "--output", file, "--force"]));
    assert!(stdout(&waystone(&there, &["segment", "import", file])).starts_with("imported project p: 1 segment added"));
    let missing = waystone(&there, &["session", "import", "/nowhere"]);
    assert!(missing.status.code() == Some(2) && String::from_utf8_lossy(&missing.stderr).contains("/nowhere"));
    let left: Vec<_> = std::fs::read_dir(data.join("exports")).unwrap().collect();
    assert_eq!(left.len(), 2, "{left:?}");
}

/// What would clear a screen, set a title, colour, overwrite a line, turn the writing around, or say what no one sees.
const HOSTILE: &str = "a\u{1b}[2Jb\u{1b}]0;title\u{7}c\u{9b}31md\re\u{202e}f\u{2066}g\u{2028}h\u{e0041}i\u{8}needle";

/// Without the colours that are ours.
fn without_colours(text: &str) -> String {
    let mut shown = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("\u{1b}[") {
        let end = after.find(|c: char| !c.is_ascii_digit() && c != ';').unwrap_or(after.len());
        let is_colour = after[end..].starts_with('m');
        shown += before;
        (shown, rest) = if is_colour { (shown, &after[end + 1..]) } else { (shown + "\u{1b}", after) };
    }
    shown + rest
}

#[test]
fn nothing_that_is_stored_steers_a_terminal() {
    let directory = private_dir();
    let (data, file) = (directory.path().join("data"), directory.path().join("context.json"));
    let path = file.to_str().unwrap();
    let run = |arguments: &[&str]| {
        // As on a terminal: what looks like a colour is not taken out.
        let output = command(&binary("waystone"), &data).env("CLICOLOR_FORCE", "1").args(arguments).output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
        let acting: Vec<char> =
            without_colours(&said).chars().filter(|c| *c != '\n' && waystone_core::prose::steers(*c)).collect();
        assert!(acting.is_empty(), "{arguments:?}: {acting:?} in {said:?}");
        said
    };
    let save = |context: Value| {
        std::fs::write(&file, context.to_string()).unwrap();
        let saved = run(&["--json", "checkpoint", "save", "s", path, "--name", HOSTILE, "--tag", HOSTILE, "--in", "p"]);
        serde_json::from_str::<Value>(&saved).unwrap()["checkpointId"].as_str().unwrap().to_owned()
    };
    let first = save(serde_json::json!({ "goal": HOSTILE, HOSTILE: { HOSTILE: [HOSTILE] } }));
    let second = save(serde_json::json!({ "goal": format!("{HOSTILE}\nx"), HOSTILE: HOSTILE.repeat(100) }));
    let put = run(&["--json", "segment", "put", HOSTILE, "--tag", HOSTILE, "--file-path", HOSTILE, "--project", "p"]);
    let segment = serde_json::from_str::<Value>(&put).unwrap()["segment_ids"][0].as_str().unwrap().to_owned();
    let (of_checkpoint, of_segment) = (format!("ws:checkpoint:{first}"), format!("ws:segment:{segment}"));
    for arguments in [
        &["session", "rename", "s", HOSTILE][..],
        &["session", "tag", "s", HOSTILE],
        &["session", "mark", "s", HOSTILE],
        &["session", "class", "s", HOSTILE],
        &["session", "list"],
        &["session", "show", "s"],
        &["session", "unmark", "s", HOSTILE],
        &["session", "unmark", "s", HOSTILE],
        &["checkpoint", "list"],
        &["checkpoint", "list", "--query", HOSTILE, "--content"],
        &["checkpoint", "show", &first],
        &["checkpoint", "show", &second, "--max-tokens", "20"],
        &["checkpoint", "view", &second, "--tokens", "20"],
        &["checkpoint", "diff", &first, &second],
        &["expand", &of_checkpoint],
        &["expand", &of_segment],
        &["expand", &format!("{of_checkpoint}#/none")],
        &["resume", "needle", "--project", "p"],
        &["search", "needle"],
        &["segment", "list", "--project", "p"],
        &["segment", "list", "--project", "p", "--full", "--all"],
        &["segment", "show", &segment],
        &["segment", "gc", "--project", "p"],
        &["segment", "usage", "--project", "p"],
        &["task", "use", "t", "--project", "p"],
        &["task", "snapshot", "--name", HOSTILE, "--project", "p"],
        &["task", "snapshots", "--project", "p"],
        &["segment", "stash", "--project", "p"],
        &["segment", "search", "needle", "--project", "p"],
        &["segment", "retrieve", "needle", "--project", "p", "--full"],
        &["undo", "--list", "--project", "p"],
        &["audit", "list"],
        &["stats"],
        &["doctor"],
        &["session", "export", "s"],
        &["session", "delete", "s", "--yes"],
    ] {
        run(arguments);
        run(&[&["--json"], arguments].concat());
    }
}
