//! Arguments that do not fit, as models give them.

use serde_json::{Value, json};

use super::Place;

#[tokio::test]
async fn arguments_that_do_not_fit_are_named_with_what_is_expected() {
    let place = Place::with([("file.txt", "text")]);
    let cases: [(&str, Value, &str); 13] = [
        ("read_file", json!({}), "`path` is missing: it must be a string"),
        ("read_file", json!({ "path": null }), "`path` is missing: it must be a string"),
        ("read_file", json!({ "path": 5 }), "`path` must be a string, not a number"),
        ("read_file", json!({ "path": "file.txt", "offset": 0 }), "`offset` must be a whole number from 1 on"),
        ("read_file", json!({ "path": "file.txt", "offset": 1.5 }), "`offset` must be a whole number from 1 on"),
        ("read_file", json!({ "path": "file.txt", "limit": -1 }), "`limit` must be a whole number from 1 on"),
        (
            "read_file",
            json!({ "path": "file.txt", "limit": "9" }),
            "`limit` must be a whole number from 1 on, not a string",
        ),
        (
            "read_file",
            json!({ "path": "file.txt", "lines": 3 }),
            "there is no argument `lines`: read_file takes `path`, `offset`, `limit`",
        ),
        ("list_files", json!({ "path": ["src"] }), "`path` must be a string, not an array"),
        ("list_files", json!({ "glob": true }), "`glob` must be a string, not a boolean"),
        ("search_files", json!({ "path": "." }), "`query` is missing: it must be a string"),
        ("write_file", json!({ "path": "new.txt" }), "`content` is missing: it must be a string"),
        (
            "write_file",
            json!({ "path": "new.txt", "content": { "a": 1 } }),
            "`content` must be a string, not an object",
        ),
    ];
    for (tool, arguments, expected) in cases {
        assert_eq!(place.refusal(tool, arguments.clone()).await, expected, "{tool} {arguments}");
    }
    assert!(!place.path("new.txt").exists());
}

#[tokio::test]
async fn null_counts_as_absent_and_a_whole_number_may_be_written_as_a_fraction() {
    let place = Place::with([("file.txt", "1\n2\n3\n")]);
    let arguments = json!({ "path": "file.txt", "offset": 2.0, "limit": null });
    assert_eq!(place.ok("read_file", arguments).await, "2\n3\n");
}

#[tokio::test]
async fn a_tool_that_there_is_not_is_an_error() {
    let place = Place::new();
    assert_eq!(place.refusal("run_shell", json!({})).await, "there is no tool `run_shell`");
}

#[tokio::test]
async fn a_glob_that_is_none_is_refused_and_never_breaks_the_tool() {
    let place = Place::with([("file.txt", "text")]);
    for glob in ["[", "{a", "a}", "[z-a]", &"{".repeat(500), &format!("{}{}", "{a,".repeat(250), "}".repeat(250))] {
        let (said, is_error) = place.call("list_files", json!({ "glob": glob })).await;
        assert!(said.starts_with("`glob` must be a pattern such as `*.rs`") && is_error, "{glob}: {said}");
    }
    let long = place.refusal("search_files", json!({ "query": "text", "glob": "*".repeat(1025) })).await;
    assert!(long.ends_with("of at most 1024 bytes"), "{long}");
}
