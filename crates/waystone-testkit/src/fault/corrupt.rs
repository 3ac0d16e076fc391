//! Damages each copy of a store in every way, and looks whether it is noticed and healed from the other.
//!
//! Everything runs in this process, on a directory in memory where there is one: what is tested is not the disk.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;
use waystone_core::api::{FindingKind, ListSessions};

use crate::contexts::Random;
use crate::harness::{Harness, private_dir, private_dir_in};
use crate::{audit, golden};

/// What was damaged, and what came of it.
#[derive(Debug, Default)]
pub struct Report {
    pub cases: usize,
    pub unnoticed: Vec<String>,
    pub unhealed: Vec<String>,
}

impl Report {
    /// With what came of another part.
    pub fn and(mut self, other: Self) -> Self {
        self.cases += other.cases;
        self.unnoticed.extend(other.unnoticed);
        self.unhealed.extend(other.unhealed);
        self
    }
}

fn directory() -> TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { private_dir_in(memory) } else { private_dir() }
}

fn files(root: &Path) -> Vec<PathBuf> {
    let entries = |path: &Path| fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
    let mut files: Vec<_> = entries(&root.join("contexts")).iter().flat_map(|folder| entries(folder)).collect();
    files.sort();
    files
}

/// A store with one session whose file has about `bytes` bytes.
async fn one_file(bytes: usize) -> (Harness, PathBuf) {
    let mut h = Harness::on(directory());
    let mut random = Random::new(bytes as u64);
    for n in 0..4 {
        h.save("s", json!({ "n": n, "text": random.text(bytes.saturating_sub(400) / 3) })).await;
    }
    h.restart_mirrored().await;
    let path = files(h.data_dir()).remove(0);
    (h, path)
}

/// Damages a mirror file of about `bytes` bytes in every range of `step` bytes, in each of three ways. Of `parts` runs side by side each takes its share of the ranges.
pub async fn mirrors(bytes: usize, step: usize, (part, parts): (usize, usize)) -> Report {
    let (h, path) = one_file(bytes).await;
    let whole = fs::read(&path).unwrap();
    let mut report = Report::default();
    for at in (0..whole.len()).step_by(step).skip(part).step_by(parts) {
        let end = (at + step).min(whole.len());
        let mut flipped = whole.clone();
        flipped[at..end].iter_mut().for_each(|byte| *byte ^= 1 << (at % 8));
        let mut zeroed = whole.clone();
        zeroed[at..end].fill(0);
        for (how, damaged) in [("flipped", flipped), ("zeroed", zeroed), ("cut", whole[..at].to_vec())] {
            if damaged != whole {
                fs::write(&path, &damaged).unwrap();
                mirror_case(&h, &path, &whole, &format!("{how} at {at} of {}", whole.len()), &mut report).await;
            }
        }
    }
    report
}

async fn mirror_case(h: &Harness, path: &Path, whole: &[u8], case: &str, report: &mut Report) {
    report.cases += 1;
    let kinds: Vec<FindingKind> = h.findings().await;
    if kinds != [FindingKind::MirrorHealed] {
        report.unnoticed.push(format!("{case}: {kinds:?}"));
    }
    // The same bytes, or, where the session's fields in it were of an earlier time, the same in all that counts.
    let is_same = fs::read(path).is_ok_and(|now| now == whole);
    if !path.is_file() || !is_same && !h.check_copies().await.findings.is_empty() {
        report.unhealed.push(case.to_owned());
    }
}

/// Puts files in each other's place, and files of an earlier state in the place of the newest.
pub async fn swapped() -> Report {
    let mut h = Harness::on(directory());
    for n in 0..40 {
        h.save("a", json!({ "n": n })).await;
        h.save("b", json!({ "m": n })).await;
    }
    h.restart_mirrored().await;
    let earlier: Vec<Vec<u8>> = files(h.data_dir()).iter().map(|path| fs::read(path).unwrap()).collect();
    h.save("a", json!({ "n": 40 })).await;
    h.save("b", json!({ "m": 40 })).await;
    h.restart_mirrored().await;
    let (paths, mut report) = (files(h.data_dir()), Report::default());
    let newest: Vec<Vec<u8>> = paths.iter().map(|path| fs::read(path).unwrap()).collect();
    for (to, path) in paths.iter().enumerate() {
        for (from, other) in newest.iter().chain(&earlier).enumerate() {
            if *other != newest[to] {
                fs::write(path, other).unwrap();
                mirror_case(&h, path, &newest[to], &format!("file {from} in the place of {to}"), &mut report).await;
            }
        }
    }
    report
}

/// Damages rows, each kind of damage in `rounds` rows.
pub async fn rows(rounds: usize) -> Report {
    let h = store().await;
    let before = contents(&h).await;
    let mut report = Report::default();
    let mut random = Random::new(5);
    let kinds = [
        "UPDATE checkpoint_bytes SET bytes = randomblob(length(bytes)) WHERE checkpoint = ?1",
        "UPDATE checkpoint_bytes SET bytes = zeroblob(length(bytes)) WHERE checkpoint = ?1",
        "UPDATE checkpoint_bytes SET bytes = substr(bytes, 1, length(bytes) / 2) WHERE checkpoint = ?1",
        "UPDATE checkpoint_bytes SET bytes = x'' WHERE checkpoint = ?1",
        "DELETE FROM checkpoint_bytes WHERE checkpoint = ?1",
        "UPDATE checkpoint SET raw_hash = randomblob(32) WHERE key = ?1",
        "UPDATE checkpoint SET context_hash = randomblob(32) WHERE key = ?1",
        "UPDATE checkpoint SET raw_bytes = raw_bytes + 1 WHERE key = ?1",
        "UPDATE checkpoint SET metadata = '{\"name\":\"other\"}' WHERE key = ?1",
        "UPDATE checkpoint SET created_at_ms = created_at_ms + 1 WHERE key = ?1",
        "UPDATE checkpoint SET agent = 'other' WHERE key = ?1",
    ];
    for sql in kinds {
        for _ in 0..rounds {
            let key = random.below(50) as i64 + 1;
            let changed = audit::open(h.data_dir()).execute(sql, [key]).unwrap();
            assert_eq!(changed, 1, "{sql} of {key}");
            report.cases += 1;
            let checkup = h.check_copies().await;
            let is_told = checkup.findings.iter().any(|finding| finding.kind == FindingKind::RowHealed);
            if !is_told || !checkup.sound {
                report.unnoticed.push(format!("{sql} of {key}: {:?}", checkup.findings));
            }
            if contents(&h).await != before {
                report.unhealed.push(format!("{sql} of {key}"));
            }
        }
    }
    report
}

/// Two sessions with names, tags and marks and two groups, and what was deleted: all mirrored.
async fn store() -> Harness {
    let mut h = Harness::on(directory());
    let (mut random, mut ids) = (Random::new(9), Vec::new());
    for n in 0..50 {
        let request = json!({
            "sessionId": if n % 5 == 4 { "b" } else { "a" }, "agentId": format!("agent-{n}"),
            "context": { "n": n, "text": random.text(1500) }, "metadata": { "name": format!("step {n}"), "tags": ["t"] },
        });
        ids.push(h.try_save(request).await.unwrap().checkpoint_id);
    }
    for n in 0..3 {
        h.save("deleted", json!({ "n": n })).await;
    }
    let renamed = serde_json::from_value(json!({ "name": "the run", "tags": ["x", "y"] })).unwrap();
    h.engine.update_session(&h.scope, &"a".parse().unwrap(), renamed).await.unwrap();
    let mark = serde_json::from_value(json!({ "sessionId": "b", "contextKey": "n" })).unwrap();
    h.engine.mark_critical(&h.scope, mark).await.unwrap();
    h.engine.delete_checkpoint(&h.scope, &ids[7], Default::default()).await.unwrap();
    h.engine.delete_session(&h.scope, &"deleted".parse().unwrap(), Default::default()).await.unwrap();
    h.restart_mirrored().await;
    h
}

/// Everything that a client sees: checkpoints in their order, and sessions with their names, tags and marks.
async fn contents(h: &Harness) -> Value {
    let page = h.engine.list_sessions(&h.scope, ListSessions::default()).await.unwrap();
    let mut sessions: Vec<Value> = page
        .sessions
        .iter()
        .map(|session| json!([session.id, session.name, session.tags, session.critical_keys, session.checkpoint_count]))
        .collect();
    sessions.sort_by_key(Value::to_string);
    let checkpoints = golden::without_keeping(golden::contents(&h.engine).await);
    json!({ "checkpoints": checkpoints, "sessions": sessions })
}

/// Deletes or garbles the database in `ways` ways, and repairs it.
pub async fn databases(ways: usize, progress: impl Fn(usize) + Send) -> Report {
    let mut h = store().await;
    let before = contents(&h).await;
    h.engine.close().await;
    let root = h.data_dir().to_owned();
    let whole = fs::read(root.join("waystone.db")).unwrap();
    let mirrors: Vec<(PathBuf, Vec<u8>)> =
        files(&root).into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect();
    let (mut random, mut report) = (Random::new(11), Report::default());
    for way in 0..ways {
        // Files and database as they were, so that no case stands on what another one left.
        mirrors.iter().for_each(|(path, bytes)| fs::write(path, bytes).unwrap());
        for name in ["waystone.db-wal", "waystone.db-shm"] {
            let _ = fs::remove_file(root.join(name));
        }
        let case = garble(&root.join("waystone.db"), &whole, way, &mut random);
        report.cases += 1;
        progress(way);
        if let Err(error) = h.try_repair() {
            report.unhealed.push(format!("{case}: {error}"));
            continue;
        }
        h.restart().await;
        let checkup = h.check_copies().await;
        if !checkup.sound {
            report.unnoticed.push(format!("{case}: {:?}", checkup.findings));
        }
        // The log of operations has no second copy: damage in it is noticed by its hashes, and stays.
        let problems: Vec<_> = audit::audit(&root).into_iter().filter(|found| !found.contains("follow")).collect();
        if contents(&h).await != before || !problems.is_empty() {
            report.unhealed.push(format!("{case}: {problems:?}"));
        }
        h.engine.close().await;
    }
    report
}

fn garble(path: &Path, whole: &[u8], way: usize, random: &mut Random) -> String {
    let mut bytes = whole.to_vec();
    let length = bytes.len() as u64;
    let at = random.below(length) as usize;
    let range = at..(at + 1 + random.below(8192) as usize).min(bytes.len());
    let case = match way % 8 {
        0 => {
            fs::remove_file(path).unwrap();
            return "deleted".to_owned();
        }
        1 => {
            bytes.truncate(at);
            "cut"
        }
        2 => {
            bytes[range.clone()].fill(0);
            "zeroed"
        }
        3 => {
            bytes[range.clone()].iter_mut().for_each(|byte| *byte = random.number() as u8);
            "overwritten"
        }
        4 => {
            bytes[at] ^= 1 << random.below(8);
            "one bit flipped"
        }
        5 => {
            let header = random.below(100) as usize;
            bytes[header] = random.number() as u8;
            "a byte of the header overwritten"
        }
        6 => {
            let page = |n: u64| (n * 4096) as usize;
            let (a, b) = (random.below(length / 4096), random.below(length / 4096));
            for offset in 0..4096 {
                bytes.swap(page(a) + offset, page(b) + offset);
            }
            "two pages exchanged"
        }
        _ => {
            bytes = (0..length).map(|_| random.number() as u8).collect();
            "all overwritten"
        }
    };
    fs::write(path, &bytes).unwrap();
    format!("{case} at {range:?}")
}
