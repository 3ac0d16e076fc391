//! `waystone audit`

use std::path::Path;
use std::process::Output;

use serde_json::Value;
use waystone_testkit::audit;
use waystone_testkit::harness::private_dir;
use waystone_testkit::process::{binary, command};

fn waystone(data_dir: &Path, arguments: &[&str]) -> Output {
    command(&binary("waystone"), data_dir).args(arguments).output().unwrap()
}

fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Exit code, and what is said on standard error.
fn refused(output: &Output) -> (i32, String) {
    (output.status.code().unwrap(), String::from_utf8_lossy(&output.stderr).into_owned())
}

fn save(data: &Path, file: &Path, n: u32) {
    std::fs::write(file, format!(r#"{{"n":{n}}}"#)).unwrap();
    stdout(&waystone(data, &["checkpoint", "save", "s", file.to_str().unwrap()]));
}

#[test]
fn a_person_lists_and_verifies_what_was_done_and_loaded() {
    let directory = private_dir();
    let (data, file) = (directory.path().join("data"), directory.path().join("file"));
    for n in 0..3 {
        save(&data, &file, n);
    }
    stdout(&waystone(&data, &["checkpoint", "show", "--latest", "s"]));
    let list = stdout(&waystone(&data, &["audit", "list"]));
    assert!(list.contains("checkpoint.loaded") && list.contains("session:s"), "{list}");
    let loads = stdout(&waystone(&data, &["audit", "list", "--kind", "checkpoint.loaded", "--json"]));
    let loads: Value = serde_json::from_str(&loads).unwrap();
    assert_eq!((loads["records"].as_array().unwrap().len(), &loads["records"][0]["seq"]), (1, &4.into()));
    assert_eq!(loads["records"][0]["payload"]["sessionId"], "s");

    let verified: Value = serde_json::from_str(&stdout(&waystone(&data, &["audit", "verify", "--json"]))).unwrap();
    assert_eq!((&verified["sound"], &verified["records"]), (&true.into(), &4.into()));
    let log = std::fs::read_to_string(data.join("logs/waystone.log")).unwrap();
    let line = format!("audit head seq=4 hash={}", verified["head"]["hash"].as_str().unwrap());
    assert!(log.contains(&line), "{log}");

    audit::open(&data).execute("UPDATE operation SET actor = 'mallory' WHERE seq = 2", []).unwrap();
    let (code, said) = refused(&waystone(&data, &["audit", "verify"]));
    assert!(code == 1 && said.contains("record 2 does not have the hash"), "{code}: {said}");
}

#[test]
fn a_head_that_is_kept_outside_shows_that_the_end_was_cut_off() {
    let directory = private_dir();
    let (data, file) = (directory.path().join("data"), directory.path().join("file"));
    let head = directory.path().join("head");
    let verify = || waystone(&data, &["audit", "verify", "--head-file", head.to_str().unwrap()]);
    for n in 0..5 {
        save(&data, &file, n);
        stdout(&verify());
    }
    let kept = std::fs::read_to_string(&head).unwrap();
    assert!(kept.starts_with("5 ") && kept.split_whitespace().count() == 3, "{kept}");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(head.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }
    // With the counters that go with it, so that the log itself holds.
    let cut = "DELETE FROM operation WHERE seq > 3;
               UPDATE space SET operation_seq = 3, operation_hash = (SELECT hash FROM operation WHERE seq = 3)";
    audit::open(&data).execute_batch(cut).unwrap();
    stdout(&waystone(&data, &["audit", "verify"]));
    let (code, said) = refused(&verify());
    assert!(code == 1 && said.contains("record 5 was kept as the head and is not in the log"), "{code}: {said}");
    // Others come in its place.
    for n in 5..8 {
        save(&data, &file, n);
    }
    let (code, said) = refused(&verify());
    assert!(code == 1 && said.contains("record 5 is another one"), "{code}: {said}");
    assert_eq!(
        std::fs::read_to_string(&head).unwrap(),
        kept,
        "a head is not replaced by one that does not follow from it"
    );

    std::fs::write(&head, "no head").unwrap();
    let (code, said) = refused(&verify());
    assert!(code == 2 && said.contains("is not what --head-file has written"), "{code}: {said}");
}

#[test]
fn an_exported_audit_is_verified_without_a_data_directory() {
    let directory = private_dir();
    let (data, file) = (directory.path().join("data"), directory.path().join("file"));
    for n in 0..3 {
        save(&data, &file, n);
    }
    let export = directory.path().join("audit.jsonl");
    let path = export.to_str().unwrap();
    let said = stdout(&waystone(&data, &["audit", "export", "--output", path]));
    assert!(said.contains("exported 3 records"), "{said}");
    assert_eq!(stdout(&waystone(&data, &["audit", "export", "-o", "-"])), std::fs::read_to_string(&export).unwrap());
    assert!(stdout(&waystone(&data, &["audit", "export"])).contains(".jsonl"));

    let nowhere = directory.path().join("nowhere");
    assert!(
        stdout(&waystone(&nowhere, &["audit", "verify", "--file", path])).contains("verified 3 records in 1 chain")
    );
    assert!(!nowhere.exists());
    let text = std::fs::read_to_string(&export).unwrap();
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    std::fs::write(&export, [&lines[..2], &lines[3..]].concat().concat()).unwrap();
    let (code, said) = refused(&waystone(&nowhere, &["audit", "verify", "--file", path]));
    assert!(code == 1 && said.contains("record 2 is missing"), "{code}: {said}");
    std::fs::write(&export, "{}").unwrap();
    let (code, said) = refused(&waystone(&nowhere, &["audit", "verify", "--file", path]));
    assert!(code == 2 && said.contains("audit.jsonl: line 1"), "{code}: {said}");
}

#[test]
fn a_head_that_was_kept_before_anything_was_done_is_no_alarm() {
    let directory = private_dir();
    let (data, head) = (directory.path().join("data"), directory.path().join("head"));
    let verify = || stdout(&waystone(&data, &["audit", "verify", "--head-file", head.to_str().unwrap()]));
    verify();
    verify();
    save(&data, &directory.path().join("file"), 1);
    assert!(verify().starts_with("verified 1 record"));
}
