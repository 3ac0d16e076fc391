//! Cuts the power: the process is killed, and of its files only what was synced remains.
//!
//! A library loaded before all others ([`crate::shim`]) copies each file at the moment it is synced. After the kill the data
//! directory is replaced by these copies: no byte that was not synced is left, and no renaming or unlinking either unless its
//! directory was synced. (A name is taken to be durable with its file, as on ext4 and XFS.)

pub mod image;

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::contexts::Random;
use crate::fault::kill::{Acknowledged, Plan, Report, list_all, save_until_killed, start, verify};
use crate::harness::make_private;
use crate::process::{McpProcess, command, run as run_command};
use crate::shim;

/// What the disk does with a sync.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disk {
    Honest,
    /// It answers a sync of the write-ahead log at once and keeps nothing, as with `synchronous=OFF`.
    IgnoresSync,
}

pub fn run(plan: &Plan, disk: Disk) -> io::Result<Report> {
    let shadow = plan.data_dir.with_extension("synced");
    let mut plan = plan.clone();
    plan.preload = shim::settings(&plan.data_dir, &shadow, disk == Disk::IgnoresSync)?;
    let mut random = Random::new(plan.seed);
    let mut report = Report::default();
    let (mut saved, mut n): (Vec<Acknowledged>, u64) = (Vec::new(), 0);
    for _ in 0..plan.kills {
        make_private(&shadow)?;
        let mut process = start(&plan)?;
        let delay = Duration::from_micros(20_000 + random.below(80_000));
        save_until_killed(&mut process, &plan, 0, &mut n, delay, &mut saved)?;
        report.kills += 1;
        lose_unsynced(&plan.data_dir, &shadow)?;
    }
    verify(&plan, &saved, &mut report)?;
    Ok(report)
}

/// Saves and deletes, cuts the power, and loses the database as well: what was mirrored at a clean end, and every deletion that
/// was acknowledged, must be in the files. Returns what is not so.
pub fn lose_database(binary: &Path, folder: &Path) -> io::Result<Vec<String>> {
    let (data_dir, shadow) = (folder.join("data"), folder.join("data.synced"));
    make_private(&data_dir)?;
    make_private(&shadow)?;
    let preload = shim::settings(&data_dir, &shadow, false)?;
    let start = || McpProcess::start_with(command(binary, &data_dir).arg("mcp").envs(preload.iter().cloned()));
    let (mut process, mut ids) = (start()?, Vec::new());
    for n in 0..6 {
        let saved = process.call("workflow_checkpoint_save", json!({ "sessionId": "s", "context": { "n": n } }))?;
        ids.push(saved.map_err(|error| io::Error::other(error.to_string()))?["checkpointId"].clone());
    }
    process.finish()?;
    let mut delete = command(binary, &data_dir);
    let deleted = ids.remove(2);
    let arguments = ["checkpoint", "delete", deleted.as_str().unwrap_or_default(), "--yes"];
    run_command(delete.args(arguments).envs(preload.iter().cloned()))?;

    lose_unsynced(&data_dir, &shadow)?;
    for name in ["waystone.db", "waystone.db-wal", "waystone.db-shm"] {
        let _ = fs::remove_file(data_dir.join(name));
    }
    run_command(command(binary, &data_dir).args(["doctor", "--repair"]))?;
    let mut process = McpProcess::start(binary, &data_dir)?;
    let listed = list_all(&mut process)?;
    process.finish()?;
    let missing = ids.iter().filter_map(Value::as_str).filter(|id| !listed.iter().any(|listed| listed == id));
    let mut wrong: Vec<String> = missing.map(|id| format!("{id} was mirrored and is gone")).collect();
    if listed.iter().any(|listed| deleted == listed.as_str()) {
        wrong.push(format!("{deleted} was deleted and is back"));
    }
    Ok(wrong)
}

/// Leaves of `data_dir` what is in `shadow`.
pub(crate) fn lose_unsynced(data_dir: &Path, shadow: &Path) -> io::Result<()> {
    fs::remove_dir_all(data_dir)?;
    copy_synced(shadow, data_dir)
}

fn copy_synced(from: &Path, to: &Path) -> io::Result<()> {
    make_private(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (name, target) = (entry.file_name(), to.join(entry.file_name()));
        let is_pending = [".copying", ".renamed"].iter().any(|end| name.to_string_lossy().ends_with(end));
        if entry.file_type()?.is_dir() {
            copy_synced(&entry.path(), &target)?;
        } else if !is_pending {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
