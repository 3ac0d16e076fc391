//! Kills `doctor --repair` before each of its calls that touch the disk, in turn, and looks whether the next repair
//! ends what it began.
//!
//! A run begins with a fresh copy of a directory whose database is gone, or is damaged and holds a checkpoint that no
//! file has.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use serde_json::{Value, json};
use tempfile::TempDir;
use waystone_core::clock::Clock;

use crate::Harness;
use crate::clock::ManualClock;
use crate::contexts::Random;
use crate::harness::{copy_dir, private_dir};
use crate::process::command;
use crate::shim::{self, Call};
use crate::{audit, golden};

#[derive(Debug, Clone)]
pub struct Plan {
    pub binary: PathBuf,
    /// Kinds of calls, and of each the first that is not made and how many come between two of them.
    pub calls: Vec<(&'static str, u32, usize)>,
}

#[derive(Debug, Default)]
pub struct Report {
    pub kills: u32,
    /// Everything that must not be.
    pub wrong: Vec<String>,
}

pub async fn run(plan: &Plan) -> io::Result<Report> {
    let prepared = prepare().await;
    let mut report = Report::default();
    for (kind, first, step) in &plan.calls {
        for at in (*first..).step_by(*step) {
            let before = report.kills;
            for directory in &prepared {
                let is_killed = kill_one(plan, directory, Call { kind, errno: -1, at }, &mut report).await?;
                report.kills += u32::from(is_killed);
            }
            if report.kills == before {
                break;
            }
        }
    }
    Ok(report)
}

/// A directory to repair, and what a client must see afterwards.
struct Prepared {
    what: &'static str,
    directory: TempDir,
    expected: Value,
}

/// Two sessions with some checkpoints, a deleted one among them.
async fn prepare() -> [Prepared; 2] {
    let mut h = Harness::new();
    let mut random = Random::new(3);
    for n in 0..12 {
        let saved = h.save(["a", "b"][n % 2], json!({ "n": n, "text": random.text(2000) })).await;
        if n == 5 {
            h.engine.delete_checkpoint(&h.scope, &saved.checkpoint_id, Default::default()).await.unwrap();
        }
    }
    h.restart_mirrored().await;
    let lost = copy_of(&h, "lost").await;
    for name in ["waystone.db", "waystone.db-wal", "waystone.db-shm"] {
        let _ = fs::remove_file(lost.directory.path().join(name));
    }
    // As long as someone else writes files, what is saved is in the database alone.
    let turn = fs::File::open(h.data_dir().join("mirror.lock")).unwrap();
    turn.lock().unwrap();
    h.save("a", json!({ "n": 12 })).await;
    let damaged = copy_of(&h, "damaged").await;
    drop(turn);
    h.engine.close().await;
    spoil(damaged.directory.path());
    [lost, damaged]
}

/// A copy as a crash at this moment would leave it.
async fn copy_of(h: &Harness, what: &'static str) -> Prepared {
    let directory = private_dir();
    copy_dir(h.data_dir(), directory.path());
    Prepared { what, directory, expected: golden::without_keeping(golden::contents(&h.engine).await) }
}

/// Overwrites a page of the log of events.
fn spoil(root: &Path) {
    let db = audit::open(root);
    let page: usize =
        db.query_row("SELECT rootpage FROM sqlite_schema WHERE name = 'event'", [], |row| row.get(0)).unwrap();
    db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    drop(db);
    let mut bytes = fs::read(root.join("waystone.db")).unwrap();
    bytes[(page - 1) * 4096..page * 4096].fill(0xa5);
    fs::write(root.join("waystone.db"), bytes).unwrap();
}

/// Whether there was such a call.
async fn kill_one(plan: &Plan, prepared: &Prepared, call: Call, report: &mut Report) -> io::Result<bool> {
    let (directory, folder) = (private_dir(), private_dir());
    let (root, log) = (directory.path(), folder.path().join("faults"));
    copy_dir(prepared.directory.path(), root);
    fs::write(&log, "")?;
    let mut repair = command(&plan.binary, root);
    repair.args(["doctor", "--repair"]).envs(shim::fail(call, root, &log, None)?);
    let status = repair.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status()?;
    let (fault, clock) = (fs::read_to_string(&log)?, Arc::new(ManualClock::unique()));
    let case = format!("{}, {} {} on {:?}", prepared.what, call.kind, call.at, fault.trim());
    let is_killed = !fault.is_empty();
    if status.success() == is_killed {
        report.wrong.push(format!("{case}: it ended with {status}"));
    }
    let shared: Arc<dyn Clock> = clock.clone();
    if let Err(error) = waystone_store::repair(root, &shared, &mut |_, _| {}) {
        report.wrong.push(format!("{case}: {error}"));
        return Ok(is_killed);
    }
    let h = Harness::on(directory);
    let contents = golden::without_keeping(golden::contents(&h.engine).await);
    let (findings, problems) = (h.check_copies().await.findings, audit::audit(h.data_dir()));
    if contents != prepared.expected || !findings.is_empty() || !problems.is_empty() {
        let count = |contents: &Value| contents.as_array().map_or(0, Vec::len);
        let (found, expected) = (count(&contents), count(&prepared.expected));
        report.wrong.push(format!("{case}: {findings:?}, {problems:?}, {found} checkpoints of {expected}"));
    }
    h.engine.close().await;
    Ok(is_killed)
}
