//! Reading files.

use serde_json::json;

use super::Place;

const KIB: usize = 1024;

#[tokio::test]
async fn a_file_is_read_as_it_is() {
    for content in ["one\ntwo\n", "no line end", "\r\nwindows\r\n", "ünï\u{1f600}cödé\n", "\n\n\n"] {
        let place = Place::with([("a/b.txt", content)]);
        assert_eq!(place.ok("read_file", json!({ "path": "a/b.txt" })).await, content);
    }
}

#[tokio::test]
async fn an_empty_file_is_said_to_be_empty() {
    let place = Place::with([("empty", "")]);
    assert_eq!(place.ok("read_file", json!({ "path": "empty" })).await, "[the file is empty]");
}

#[tokio::test]
async fn offset_and_limit_are_in_lines_and_what_is_left_is_told() {
    let place = Place::with([("f", "1\n2\n3\n4")]);
    for (offset, limit, expected) in [
        (1, 4, "1\n2\n3\n4"),
        (1, 9, "1\n2\n3\n4"),
        (1, 2, "1\n2\n[lines 1 to 2; there is more: go on with offset 3]"),
        (3, 1, "3\n[lines 3 to 3; there is more: go on with offset 4]"),
        (4, 1, "4"),
    ] {
        let arguments = json!({ "path": "f", "offset": offset, "limit": limit });
        assert_eq!(place.ok("read_file", arguments).await, expected, "{offset} {limit}");
    }
    for offset in [5, 6, 1_000_000_000, u64::MAX] {
        let refusal = place.refusal("read_file", json!({ "path": "f", "offset": offset })).await;
        assert_eq!(refusal, "`f` has 4 lines: give a smaller offset");
    }
}

#[tokio::test]
async fn the_last_line_end_begins_no_line() {
    let place = Place::with([("f", "1\n")]);
    let refusal = place.refusal("read_file", json!({ "path": "f", "offset": 2 })).await;
    assert_eq!(refusal, "`f` has 1 line: give a smaller offset");
}

#[tokio::test]
async fn a_long_file_is_read_whole_by_going_on_where_it_says() {
    let content: String = (0..60_000).map(|number| format!("line {number}\n")).collect();
    let place = Place::with([("long.txt", &content)]);
    let (mut read, mut offset) = (String::new(), 1);
    for _ in 0..10 {
        let said = place.ok("read_file", json!({ "path": "long.txt", "offset": offset })).await;
        assert!(said.len() <= 257 * KIB);
        let Some((text, note)) = said.rsplit_once('[') else {
            read.push_str(&said);
            break;
        };
        read.push_str(text);
        let (_, next) = note.trim_end_matches(']').rsplit_once(' ').unwrap();
        offset = next.parse().unwrap();
    }
    assert_eq!(read, content);
}

#[tokio::test]
async fn a_line_that_is_too_long_is_cut_between_characters_and_says_so() {
    let content = format!("x{}\nafter it\n", "ü".repeat(200 * KIB));
    let place = Place::with([("f", &content)]);
    let said = place.ok("read_file", json!({ "path": "f" })).await;
    let (text, note) = said.rsplit_once('\n').unwrap();
    assert!(content.starts_with(text) && text.len() == 256 * KIB - 1, "{} bytes", text.len());
    assert_eq!(note, "[line 1 is cut here: it is too long; what follows it begins at offset 2]");
    assert_eq!(place.ok("read_file", json!({ "path": "f", "offset": 2 })).await, "after it\n");
}

#[tokio::test]
async fn what_is_no_text_is_refused() {
    let place = Place::new();
    place.put("nul", b"text\0text");
    place.put("latin", b"caf\xe9\n");
    place.put("half", b"cut \xc3");
    for path in ["nul", "latin", "half"] {
        let expected = format!("`{path}` is not text in UTF-8: it cannot be read");
        assert_eq!(place.refusal("read_file", json!({ "path": path })).await, expected);
    }
}

#[tokio::test]
async fn what_is_not_there_or_no_file_is_refused_with_what_to_do_instead() {
    let place = Place::with([("folder/", ""), ("file", "text")]);
    for (path, expected) in [
        ("gone", "`gone` does not exist: list_files shows what there is"),
        ("folder", "`folder` is a folder: list_files shows what is in it"),
        (".", "`.` is a folder: list_files shows what is in it"),
        ("file/x", "`file/x` is not a folder, or a part of it is none: list_files shows what there is"),
        ("../x", "`../x` is outside of the workspace: give a path that is relative to it"),
        ("/etc/x", "`/etc/x` is outside of the workspace: give a path that is relative to it"),
    ] {
        assert_eq!(place.refusal("read_file", json!({ "path": path })).await, expected);
    }
}

#[cfg(unix)]
#[tokio::test]
async fn a_link_that_stays_inside_is_followed() {
    let place = Place::with([("folder/file", "text")]);
    std::os::unix::fs::symlink("folder", place.path("link")).unwrap();
    std::os::unix::fs::symlink("../folder/./file", place.path("folder/again")).unwrap();
    assert_eq!(place.ok("read_file", json!({ "path": "link/file" })).await, "text");
    assert_eq!(place.ok("read_file", json!({ "path": "link/again" })).await, "text");
}

#[cfg(unix)]
#[tokio::test]
async fn pipes_and_sockets_are_refused_and_nobody_waits_for_them() {
    let place = Place::new();
    assert!(std::process::Command::new("mkfifo").arg(place.path("pipe")).status().unwrap().success());
    let _socket = std::os::unix::net::UnixListener::bind(place.path("socket")).unwrap();
    for path in ["pipe", "socket"] {
        let expected = format!("`{path}` is neither a file nor a folder: leave it alone");
        assert_eq!(place.refusal("read_file", json!({ "path": path })).await, expected);
        assert_eq!(place.refusal("search_files", json!({ "path": path, "query": "x" })).await, expected);
        assert_eq!(place.refusal("write_file", json!({ "path": path, "content": "x" })).await, expected);
    }
    assert_eq!(place.ok("list_files", json!({})).await, "pipe (special)\nsocket (special)");
    assert_eq!(place.ok("search_files", json!({ "query": "x" })).await, "[no line contains `x`]");
}
