//! Segments as a person puts them and takes them out of the window.

use std::io::Write;
use std::path::Path;
use std::process::{Output, Stdio};

use serde_json::Value;
use waystone_testkit::harness::private_dir;
use waystone_testkit::process::{binary, command};

use crate::chat::terminal;

fn waystone(data_dir: &Path, arguments: &[&str], input: Stdio) -> Output {
    command(&binary("waystone"), data_dir).args(arguments).stdin(input).output().unwrap()
}

fn piped(data_dir: &Path, arguments: &[&str], text: &str) -> Output {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    std::io::Seek::rewind(&mut file).unwrap();
    waystone(data_dir, arguments, file.into())
}

fn texts(data_dir: &Path) -> Vec<(String, String)> {
    let list = waystone(data_dir, &["segment", "list", "--json"], Stdio::null());
    let list: Value = serde_json::from_slice(&list.stdout).unwrap();
    let text = |segment: &Value, field: &str| segment[field].as_str().unwrap().to_owned();
    let segments = list["segments"].as_array().unwrap().iter();
    segments.map(|segment| (text(segment, "segment_id"), text(segment, "text"))).collect()
}

#[test]
fn a_text_that_is_not_typed_is_piped_in() {
    let directory = private_dir();
    for (arguments, text) in [(&["segment", "put"][..], "one\ntwo\n"), (&["segment", "put", "-"], "three")] {
        assert!(piped(directory.path(), arguments, text).status.success(), "{arguments:?}");
    }
    let kept: Vec<String> = texts(directory.path()).into_iter().map(|(_, text)| text).collect();
    assert_eq!(kept, ["one\ntwo\n", "three"]);
    let (_keys, screen) = terminal::open();
    let nothing = waystone(directory.path(), &["segment", "put"], screen.into());
    let said = String::from_utf8(nothing.stderr).unwrap();
    assert_eq!(nothing.status.code(), Some(2));
    assert!(said.contains("there is no text to keep") && said.contains("pipe it in"), "{said}");
}

#[test]
fn an_id_from_a_list_says_which_segment_is_stashed() {
    let directory = private_dir();
    let put = waystone(directory.path(), &["segment", "put", "one", "two"], Stdio::null());
    assert!(put.status.success());
    let (id, _) = texts(directory.path()).remove(0);
    let stashed = waystone(directory.path(), &["segment", "stash", &id], Stdio::null());
    assert!(String::from_utf8(stashed.stdout).unwrap().starts_with("stashed 1 segment"));
    let left: Vec<String> = texts(directory.path()).into_iter().map(|(_, text)| text).collect();
    assert_eq!(left, ["two"]);
}

#[test]
fn undo_after_a_deletion_names_the_command_that_restores() {
    let directory = private_dir();
    assert!(piped(directory.path(), &["checkpoint", "save", "s", "-"], "{}").status.success());
    assert!(waystone(directory.path(), &["session", "delete", "s", "--yes"], Stdio::null()).status.success());
    let said = String::from_utf8(waystone(directory.path(), &["undo"], Stdio::null()).stderr).unwrap();
    assert!(said.contains("`waystone session restore s`"), "{said}");
    assert!(waystone(directory.path(), &["segment", "put", "one"], Stdio::null()).status.success());
    assert!(waystone(directory.path(), &["session", "restore", "s"], Stdio::null()).status.success());
    assert!(waystone(directory.path(), &["session", "delete", "s", "--yes"], Stdio::null()).status.success());
    let undone = waystone(directory.path(), &["undo"], Stdio::null());
    let said = String::from_utf8(undone.stderr).unwrap();
    assert!(undone.status.success() && said.contains("`waystone session restore s`"), "{said}");
}
