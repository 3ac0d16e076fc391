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
        ("[1]", "a context is a JSON object"),
        ("{\"n\":123456789012345678901234567890}", "123456789012345678901234567890"),
        ("{\"s\":\"\\ud800\"}", "lone surrogate"),
        ("{", "EOF"),
    ] {
        std::fs::write(&file, text).unwrap();
        check(&["checkpoint", "save", "s", path], 1, says);
    }
    check(&["checkpoint", "save", "s", "/no/such/file"], 1, "cannot open /no/such/file");
    check(&["checkpoint", "show", "nope"], 1, "hint: look for its id");
    check(&["checkpoint", "show", "nope", "--json"], 1, r#""code":"CHECKPOINT_NOT_FOUND""#);
    check(&["checkpoint", "list", "s", "--limit", "0"], 2, "1..=1000");
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
