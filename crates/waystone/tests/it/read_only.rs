//! `--read-only`: no byte of the data directory changes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::json;
use waystone_core::canon::Hash;
use waystone_testkit::golden;
use waystone_testkit::harness::private_dir;
use waystone_testkit::process::{McpProcess, binary, command};

fn waystone(data_dir: &Path, arguments: &[&str]) -> Output {
    command(&binary("waystone"), data_dir).args(arguments).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Every file with its hash. Left out are what processes tell each other, and a log that is empty.
fn files(folder: &Path) -> BTreeMap<PathBuf, Hash> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        match path.is_dir() {
            true if name == "run" => {}
            true => found.extend(files(&path)),
            false if name.ends_with("lock") || name.ends_with("-shm") => {}
            false => {
                let bytes = std::fs::read(&path).unwrap();
                if !(name.ends_with("-wal") && bytes.is_empty()) {
                    found.insert(path, Hash::of(&bytes));
                }
            }
        }
    }
    found
}

fn start(data: &Path, arguments: &[&str]) -> McpProcess {
    McpProcess::start_with(command(&binary("waystone"), data).arg("mcp").args(arguments)).unwrap()
}

#[test]
fn a_process_that_only_reads_changes_no_byte_and_sees_what_others_save() {
    let directory = private_dir();
    let data = directory.path().join("data");
    let save = |process: &mut McpProcess, n: u32| {
        let arguments = json!({ "sessionId": "s", "context": { "n": n } });
        process.call("workflow_checkpoint_save", arguments).unwrap()
    };
    let mut writer = start(&data, &[]);
    save(&mut writer, 1).unwrap();
    assert!(writer.finish().unwrap().success());

    let before = files(&data);
    let mut reader = start(&data, &["--read-only"]);
    let load = |reader: &mut McpProcess| {
        let loaded = reader.call("workflow_checkpoint_load", json!({ "sessionId": "s" })).unwrap().unwrap();
        loaded["context"]["n"].as_u64().unwrap()
    };
    assert_eq!(load(&mut reader), 1);
    assert!(save(&mut reader, 2).unwrap_err().to_string().contains("READ_ONLY"));
    for arguments in [
        &["status"][..],
        &["session", "list"],
        &["audit", "verify"],
        &["checkpoint", "show", "--latest", "s"],
        &["search", "n"],
        &["stats"],
        &["session", "export", "s", "-o", "-"],
    ] {
        let output = waystone(&data, &[arguments, &["--read-only"]].concat());
        assert!(output.status.success(), "{arguments:?}: {}", said(&output));
    }
    for arguments in [
        &["session", "rename", "s", "name"][..],
        &["session", "delete", "s", "--yes"],
        &["session", "export", "s"],
        &["doctor"],
        &["doctor", "--repair"],
        &["restore-from", "/nowhere", "--yes"],
        &["backup"],
        &["cleanup", "--yes"],
        &["segment", "put", "a"],
        &["undo"],
    ] {
        let output =
            command(&binary("waystone"), &data).args(arguments).env("WAYSTONE_READ_ONLY", "1").output().unwrap();
        let said = said(&output);
        assert!(output.status.code() == Some(1) && said.contains("only reads"), "{arguments:?}: {said}");
    }
    assert_eq!(files(&data), before);

    let mut writer = start(&data, &[]);
    save(&mut writer, 2).unwrap();
    assert_eq!(load(&mut reader), 2, "beside a writer");
    assert!(writer.finish().unwrap().success());
    assert_eq!(load(&mut reader), 2, "after it");
    assert!(reader.finish().unwrap().success());
}

#[test]
fn a_process_that_only_reads_makes_no_directory_and_changes_no_format() {
    let directory = private_dir();
    let missing = directory.path().join("missing");
    for command in ["status", "mcp"] {
        let output = waystone(&missing, &[command, "--read-only"]);
        assert!(output.status.code() == Some(3) && said(&output).contains("makes nothing"), "{}", said(&output));
    }
    assert!(!missing.exists());
    let golden = golden::all().remove(0);
    let older = golden.directory.path();
    let before = files(older);
    let output = waystone(older, &["status", "--read-only"]);
    assert!(output.status.code() == Some(3) && said(&output).contains("older format"), "{}", said(&output));
    assert_eq!(files(older), before);
}
