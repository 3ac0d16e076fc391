//! Labelled keys, as the rules see them.

use std::fs;
use std::time::Instant;

use anyhow::Context;
use serde_json::Value;
use waystone_core::classify::{Rules, classify};

use crate::{root, say};

pub(super) fn run() -> anyhow::Result<()> {
    let mut all = Vec::new();
    for set in ["dev", "held"] {
        let path = root().join(format!("crates/waystone-testkit/labels/classes-{set}.jsonl"));
        let text = fs::read_to_string(&path).with_context(|| format!("{} cannot be read", path.display()))?;
        let labelled = text.lines().map(serde_json::from_str).collect::<Result<Vec<Value>, _>>()?;
        let right = labelled.iter().filter(|entry| is_right(entry)).count();
        let share = 100.0 * right as f64 / labelled.len() as f64;
        say(format_args!("{set}: {right} of {} right, {share:.1} %", labelled.len()));
        all.extend(labelled);
    }
    let rules = Rules::default();
    let started = Instant::now();
    for entry in &all {
        std::hint::black_box(classify(key(entry), &entry["value"], &rules));
    }
    let micros = started.elapsed().as_micros() as f64 * 200.0 / all.len() as f64;
    say(format_args!("200 keys in {micros:.0} µs; goal 1000"));
    Ok(())
}

fn key(entry: &Value) -> &str {
    entry["key"].as_str().unwrap_or_default()
}

fn is_right(entry: &Value) -> bool {
    let class = classify(key(entry), &entry["value"], &Rules::default()).class;
    serde_json::to_value(class).is_ok_and(|class| class == entry["class"])
}
