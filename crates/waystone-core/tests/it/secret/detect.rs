//! What is found: planted secrets, and little else; in any text, in time that grows with it.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Map, Value, json};
use waystone_core::secret::Policy::{Off, Redact};
use waystone_core::secret::{Scan, Secrets};
use waystone_testkit::secrets::{near_misses, personal, planted};

fn all_groups() -> Secrets {
    Secrets::new(Redact, Redact, Vec::new())
}

#[test]
fn planted_secrets_are_found_each_by_its_rule() {
    let secrets = all_groups();
    let all: Vec<_> = planted(11).into_iter().chain(personal(11)).collect();
    let mut missed = Vec::new();
    for one in &all {
        let mut value = one.value.clone();
        secrets.shown().unwrap().value(&mut value);
        if one.is_in(&value) || !value.to_string().contains(&format!("[redacted:{}]", one.rule)) {
            missed.push(format!("{} in {}", one.rule, one.shape));
        }
    }
    let (count, total) = (missed.len(), all.len());
    missed.sort();
    missed.dedup();
    assert!(total > 1_000 && count * 20 <= total, "{count} of {total}:\n{}", missed.join("\n"));
}

/// In the JSON of a text the letter of an escape stands right before what begins a line.
#[test]
fn what_begins_a_line_is_found_in_the_json_of_its_text_too() {
    let secrets = Secrets::new(Redact, Off, Vec::new());
    let mut checked = 0;
    for one in planted(11) {
        let whole = one.secret.as_str();
        if !matches!(&secrets.find(whole)[..], [(_, range)] if *range == (0..whole.len())) {
            continue;
        }
        for before in ["A=1\n", "\t", "one\r\n"] {
            let written = json!(format!("{before}{whole}\nB=2")).to_string();
            let found = secrets.find(&written);
            assert!(found.iter().any(|(rule, _)| *rule == one.rule), "{}: {written}", one.rule);
            checked += 1;
        }
    }
    assert!(checked > 100, "{checked}");
}

#[test]
fn what_only_looks_like_a_secret_is_none() {
    let secrets = Secrets::new(Redact, Off, Vec::new());
    let found = |(what, text): &(&str, String)| {
        let found = secrets.find(text);
        (!found.is_empty()).then(|| format!("{what}: {found:?}"))
    };
    let mut fired: Vec<String> = near_misses(11).iter().filter_map(found).collect();
    fired.sort();
    fired.dedup();
    assert!(fired.is_empty(), "{}", fired.join("\n"));
}

#[test]
fn our_own_sources_raise_at_most_one_alarm_in_a_hundred_kilobytes() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let listed = Command::new("git").args(["ls-files"]).current_dir(&root).output().unwrap();
    let secrets = Secrets::new(Redact, Off, Vec::new());
    let (mut bytes, mut alarms) = (0, Vec::new());
    for name in String::from_utf8(listed.stdout).unwrap().lines() {
        let Ok(text) = fs::read_to_string(root.join(name)) else { continue };
        bytes += text.len();
        alarms.extend(secrets.find(&text).into_iter().map(|(rule, range)| format!("{name}: {rule} {range:?}")));
    }
    assert!(bytes > 1_000_000 && alarms.len() * 100_000 <= bytes, "in {bytes} bytes:\n{}", alarms.join("\n"));
}

/// Texts with parts that rules look for, whole and cut, among others.
fn texts() -> impl Strategy<Value = String> {
    let planted: Vec<String> = planted(3)
        .into_iter()
        .chain(personal(3))
        .map(|one| match one.value {
            Value::String(text) => text,
            other => other.to_string(),
        })
        .collect();
    let part = prop_oneof![
        any::<String>(),
        (0..planted.len(), any::<prop::sample::Index>(), any::<prop::sample::Index>()).prop_map(move |(at, a, b)| {
            let chars: Vec<char> = planted[at].chars().collect();
            let (a, b) = (a.index(chars.len()), b.index(chars.len()));
            chars[a.min(b)..=a.max(b)].iter().collect()
        }),
        prop::sample::select(vec!["password=", "\"", "://", "@", ":", "[redacted:", "]", "é", "\n", "eyJ", "=", "key"])
            .prop_map(str::to_owned),
    ];
    prop::collection::vec(part, 0..12).prop_map(|parts| parts.concat())
}

#[test]
fn in_any_text_what_is_found_can_be_cut_out_and_is_not_found_again() {
    let secrets = all_groups();
    let cover = secrets.shown().unwrap();
    let mut runner = TestRunner::new(Config { cases: 400, failure_persistence: None, ..Config::default() });
    runner
        .run(&(texts(), "[a-zA-Z_]{0,12}|password|api_key"), |(text, name)| {
            let mut end = 0;
            for (rule, range) in secrets.find(&text) {
                prop_assert!(end <= range.start && !range.is_empty() && text.get(range.clone()).is_some(), "{rule}");
                end = range.end;
            }
            let covered = cover.text(&text);
            prop_assert_eq!(covered.is_some(), end > 0);
            if let Some(covered) = covered {
                prop_assert_eq!(secrets.find(&covered), vec![]);
                prop_assert_eq!(cover.text(&covered), None);
            }
            let mut value = json!({ name: [text], "other": { "deep": text } });
            cover.value(&mut value);
            let once = value.clone();
            prop_assert_eq!(cover.value(&mut value), 0);
            prop_assert_eq!(value, once);
            Ok(())
        })
        .unwrap();
}

/// At a cost that grows with the square these would not end; how often a text is gone through is counted beside the detector.
#[test]
fn hostile_texts_are_searched_to_their_end() {
    const BYTES: usize = 1024 * 1024;
    let secrets = all_groups();
    let fill = |part: &str| part.repeat(BYTES / part.len());
    for part in [
        "A",
        "password=",
        "password=\"",
        "eyJ",
        "eyJaaaaaaaaaaaa.",
        "://",
        "a://b:",
        "-----BEGIN PRIV\u{41}TE KEY-----\n",
        "key=a1",
        "@",
        "a@b.",
        "1 ",
        "+1",
        "sk-",
        "bearer ",
        "curl ",
        "curl -u a:",
        "login a password ",
        "token: 'a1b2c3d4e5f6a7b8' ",
    ] {
        let text = fill(part);
        let found = secrets.find(&text).len();
        assert!(found <= BYTES / 8, "{part}: {found}");
    }
    let mut deep = json!("x");
    for _ in 0..120 {
        deep = json!({ "password": [deep] });
    }
    let mut scan = Scan::new(&Arc::new(all_groups()));
    scan.object("", &Map::from_iter([("deep".to_owned(), deep)]));
    assert_eq!(scan.end(), Ok(Vec::new()));
}
