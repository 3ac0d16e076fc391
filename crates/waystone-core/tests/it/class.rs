//! Classes beside what people say they should be.

use std::fs;
use std::path::Path;

use serde_json::Value;
use waystone_core::classify::{Rules, classify};

/// Of the labelled keys in a file, those that get another class, as lines to read.
fn wrong(set: &str) -> (Vec<String>, usize) {
    let labels = Path::new(env!("CARGO_MANIFEST_DIR")).join("../waystone-testkit/labels");
    let text = fs::read_to_string(labels.join(format!("classes-{set}.jsonl"))).unwrap();
    let entries: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let wrong = entries.iter().filter_map(|entry| {
        let verdict = classify(entry["key"].as_str().unwrap(), &entry["value"], &Rules::default());
        let class = serde_json::to_value(verdict.class).unwrap();
        (class != entry["class"]).then(|| format!("{} is {class} by `{}`", entry["key"], verdict.rule))
    });
    (wrong.collect(), entries.len())
}

#[test]
fn labelled_keys_get_the_class_that_people_gave_them() {
    for set in ["dev", "held"] {
        let (wrong, all) = wrong(set);
        assert!(all > 100 && wrong.len() * 20 <= all, "{set}: {} of {all}:\n{}", wrong.len(), wrong.join("\n"));
    }
}
