//! Documents that no one should import: spoilt in every way ([`fuzz`]), made to take all memory ([`bomb`]), and good ones whose
//! import is killed ([`kill`]). Documents that are good are made in [`valid`].

pub mod bomb;
pub mod kill;
pub mod valid;

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};
use waystone_core::Error;
use waystone_core::canon::hash_object;

use crate::Harness;
use crate::audit::{audit, open};
use crate::contexts::Random;

/// So many documents are imported into one store.
const PER_STORE: u32 = 100;

#[derive(Debug, Default)]
pub struct Report {
    pub cases: u32,
    pub taken: u32,
    /// How many were refused, by code.
    pub refused: BTreeMap<&'static str, u32>,
    pub panics: Vec<String>,
    /// Refused, and yet something changed; or taken, and the store is not sound.
    pub half_imported: Vec<String>,
}

/// Imports documents that were good and have been spoilt. Each is taken whole or changes nothing.
pub async fn fuzz(seed: u64, cases: u32) -> Report {
    let mut random = Random::new(seed);
    let good = valid::documents(&mut random).await;
    let (mut report, mut h) = (Report::default(), Harness::counting_from(1_000_000));
    for case in 0..cases {
        if case % PER_STORE == 0 {
            h.engine.close().await;
            h = Harness::counting_from(1_000_000);
        }
        let document = spoil(&good[random.below(good.len() as u64) as usize], &mut random);
        let before = state(h.data_dir());
        let outcome = h.import(document.clone()).await;
        let shown =
            || format!("case {case}: {}", String::from_utf8_lossy(&document).chars().take(3000).collect::<String>());
        report.cases += 1;
        match outcome {
            Ok(_) => {
                report.taken += 1;
                let problems = audit(h.data_dir());
                if !problems.is_empty() {
                    report.half_imported.push(format!("{problems:?} {}", shown()));
                }
            }
            Err(error) => {
                *report.refused.entry(error.code()).or_default() += 1;
                if is_panic(&error) {
                    report.panics.push(format!("{error} {}", shown()));
                }
                if state(h.data_dir()) != before {
                    report.half_imported.push(format!("{error} {}", shown()));
                }
            }
        }
    }
    h.engine.close().await;
    report
}

/// Work that panics on a thread of its own is an error to its caller.
fn is_panic(error: &Error) -> bool {
    matches!(error, Error::StorageUnavailable { .. })
}

/// All that an import changes: counters, and how many rows there are.
pub fn state(data_dir: &Path) -> Vec<i64> {
    const COUNTS: &str = "SELECT operation_seq FROM space UNION ALL SELECT row_seq FROM space UNION ALL SELECT event_seq FROM space
        UNION ALL SELECT size_bytes FROM space UNION ALL SELECT count(*) FROM session UNION ALL SELECT count(*) FROM checkpoint
        UNION ALL SELECT count(*) FROM checkpoint_group UNION ALL SELECT count(*) FROM checkpoint_bytes
        UNION ALL SELECT count(*) FROM project UNION ALL SELECT count(*) FROM task UNION ALL SELECT count(*) FROM segment
        UNION ALL SELECT count(*) FROM segment_text UNION ALL SELECT count(*) FROM segment_index
        UNION ALL SELECT count(*) FROM snapshot UNION ALL SELECT count(*) FROM snapshot_segment
        UNION ALL SELECT count(current_task) FROM project";
    let db = open(data_dir);
    let mut statement = db.prepare(COUNTS).unwrap();
    let counts = statement.query_map([], |row| row.get(0)).unwrap();
    counts.collect::<Result<_, _>>().unwrap()
}

/// The document with something wrong in it, or several things.
fn spoil(document: &str, random: &mut Random) -> Vec<u8> {
    let mut bytes = document.as_bytes().to_vec();
    let times = if random.below(2) == 0 { 1 } else { 1 + random.below(3) };
    for _ in 0..times {
        bytes = match random.below(9) {
            0 | 1 => flip(bytes, random),
            2 => cut(bytes, random),
            3 => repeat_line(&bytes, random),
            4 | 5 => change(&bytes, random, strange),
            _ => change(&bytes, random, |random| valid::any_value(random, 1)),
        };
    }
    bytes
}

fn flip(mut bytes: Vec<u8>, random: &mut Random) -> Vec<u8> {
    const FAVOURED: &[u8] = b"\"\\{}[],:0-eE.\x00\xff\x80 \n";
    for _ in 0..=random.below(4) {
        if let Some(length @ 1..) = Some(bytes.len() as u64) {
            let byte = match random.below(2) {
                0 => FAVOURED[random.below(FAVOURED.len() as u64) as usize],
                _ => random.below(256) as u8,
            };
            bytes[random.below(length) as usize] = byte;
        }
    }
    bytes
}

/// Takes a stretch out, or the end off.
fn cut(mut bytes: Vec<u8>, random: &mut Random) -> Vec<u8> {
    let at = random.below(bytes.len() as u64 + 1) as usize;
    match random.below(2) {
        0 => bytes.truncate(at),
        _ => drop(bytes.drain(at..(at + random.below(200) as usize).min(bytes.len()))),
    }
    bytes
}

fn repeat_line(bytes: &[u8], random: &mut Random) -> Vec<u8> {
    let mut lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
    if !lines.is_empty() {
        let (from, to) = (random.below(lines.len() as u64) as usize, random.below(lines.len() as u64) as usize);
        lines.insert(if random.below(2) == 0 { from } else { to }, lines[from]);
    }
    lines.concat()
}

/// Drops, retypes or replaces one value, wherever it is. Half of the time the hashes are those of what the contexts have become.
fn change(bytes: &[u8], random: &mut Random, other: fn(&mut Random) -> Value) -> Vec<u8> {
    let Ok(mut document) = waystone_core::json::parse_strict(bytes) else { return bytes.to_vec() };
    let levels = random.below(10);
    let value = descend(&mut document, levels, random);
    match (value, random.below(4)) {
        (Value::Object(map), 0 | 1) if !map.is_empty() => {
            let key = map.keys().nth(random.below(map.len() as u64) as usize).unwrap().clone();
            map.shift_remove(&key);
        }
        (Value::Array(items), 0 | 1) if !items.is_empty() => {
            let at = random.below(items.len() as u64) as usize;
            let item = items[at].clone();
            if random.below(2) == 0 { items.push(item) } else { drop(items.remove(at)) }
        }
        (Value::String(text), 2 | 3) => text.push('x'),
        (value, _) => *value = other(random),
    }
    if random.below(2) == 0 {
        let checkpoints = document.get_mut("checkpoints").and_then(Value::as_array_mut);
        for checkpoint in checkpoints.into_iter().flatten().filter_map(Value::as_object_mut) {
            let hash = checkpoint.get("context").and_then(Value::as_object).and_then(hash_object);
            if let (Some(hash), Some(beside)) = (hash, checkpoint.get_mut("contextHash")) {
                *beside = json!(hash.to_string());
            }
        }
    }
    serde_json::to_vec_pretty(&document).unwrap()
}

/// Some value inside of another, so many levels down or as far as it goes.
fn descend<'a>(value: &'a mut Value, levels: u64, random: &mut Random) -> &'a mut Value {
    let length = match value {
        Value::Object(map) => map.len(),
        Value::Array(items) => items.len(),
        _ => 0,
    };
    if levels == 0 || length == 0 {
        return value;
    }
    let at = random.below(length as u64) as usize;
    match value {
        Value::Object(map) => descend(map.values_mut().nth(at).unwrap(), levels - 1, random),
        Value::Array(items) => descend(&mut items[at], levels - 1, random),
        other => other,
    }
}

fn strange(random: &mut Random) -> Value {
    let deep = |levels: u64| (0..levels).fold(json!({}), |inner, _| json!({ "k": inner }));
    match random.below(16) {
        0 => Value::Null,
        1 => json!(u64::MAX),
        2 => json!(i64::MIN),
        3 => json!(-1),
        4 => json!(1e308),
        5 => json!(""),
        6 => json!("../../etc/passwd"),
        7 => json!("x".repeat(random.below(3000) as usize)),
        8 => json!([]),
        9 => json!({}),
        10 => json!(true),
        11 => json!("9999-12-31T23:59:59.999Z"),
        12 => json!("waystone.project"),
        13 => deep(100 + random.below(60)),
        14 => json!(vec!["t"; random.below(300) as usize]),
        _ => json!("\u{0}\u{1b}[31m\u{202e}é😀"),
    }
}
