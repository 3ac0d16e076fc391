//! Sessions that grow as an agent's run does: how much smaller they are kept than the contexts that were sent.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, ensure};

use super::client::{Ground, answered, content, save_text_line};
use super::report::Report;
use super::trajectory::{self, Trajectory};
use super::{Options, Programs};

const SESSIONS: usize = 20;
/// A long session: runs one after another, as if they were one.
const LONG_STEPS: usize = 150;
/// What a session keeps unless a user sets it.
const CHECKPOINTS_MAX: usize = 100;
const MIB: f64 = 1024.0 * 1024.0;

pub(super) fn measure(programs: &Programs, options: &Options, report: &mut Report) -> anyhow::Result<()> {
    let (source, runs) = trajectory::all(options.run.as_deref())?;
    let sessions = options.scaled(SESSIONS, 3);
    let long = [Trajectory::joined(&runs, LONG_STEPS)];
    for (name, runs) in [("a run", &runs[..]), ("runs in a row", &long)] {
        let used: Vec<&Trajectory> = runs.iter().cycle().take(sessions).collect();
        let steps = used.iter().map(|run| run.steps()).max().unwrap_or(0);
        let setting = if steps > CHECKPOINTS_MAX { format!(", MAX_CHECKPOINTS={steps}") } else { String::new() };
        let kept = keep(programs, &used, steps.max(CHECKPOINTS_MAX))?;
        let total: usize = used.iter().map(|run| run.steps()).sum();
        let described = format!("{sessions} sessions, {total} steps, at most {steps} in one{setting}");
        report.note(&format!("each session {name}, {source}"), described);
        let (raw, packed) = (kept.raw as f64, kept.packed as f64);
        report.figure(
            "  contexts, packed",
            format_args!("{:.2} MiB sent, {:.3} MiB packed: {:.1} x smaller", raw / MIB, packed / MIB, raw / packed),
            "40 x",
        );
        let [database, log, mirrors, rest] = kept.parts.map(|bytes| format!("{:.2}", bytes as f64 / MIB));
        let whole = kept.parts.iter().sum::<u64>() as f64;
        report.figure(
            "  data directory, disk blocks",
            format_args!(
                "{:.2} MiB: {:.1} x smaller (database {database}, log {log}, mirror files {mirrors}, rest {rest})",
                whole / MIB,
                raw / whole
            ),
            "12 x",
        );
    }
    Ok(())
}

struct Kept {
    raw: usize,
    packed: u64,
    /// Disk blocks, in bytes: of the database, its write-ahead log with its index, mirror files, and all others.
    parts: [u64; 4],
}

/// Saves every step of `runs`, each into a session of its own, and ends the process.
fn keep(programs: &Programs, runs: &[&Trajectory], checkpoints_max: usize) -> anyhow::Result<Kept> {
    let ground = Ground::new();
    let setting = ("WAYSTONE_MAX_CHECKPOINTS".to_owned(), checkpoints_max.to_string());
    let mut process = ground.start(&programs.waystone, "data", vec![setting])?;
    let mut kept = Kept { raw: 0, packed: 0, parts: [0; 4] };
    for (session, run) in runs.iter().enumerate() {
        let name = format!("run-{session}");
        for context in run.contexts() {
            let (_, answer) = answered(&mut process, &save_text_line(1, &name, &context))?;
            kept.raw += context.len();
            kept.packed += content(&answer)?["sizeBytes"].as_u64().context("a save without its size")?;
        }
    }
    ensure!(process.finish()?.success(), "the process failed at its end");
    add_blocks(&ground.file("data"), &ground.file("data"), &mut kept.parts)?;
    Ok(kept)
}

/// Adds what `path` and everything in it takes on disk to its part.
fn add_blocks(root: &Path, path: &Path, parts: &mut [u64; 4]) -> anyhow::Result<()> {
    let metadata = fs::symlink_metadata(path)?;
    let name = path.strip_prefix(root)?.to_string_lossy().into_owned();
    let part = match name.as_str() {
        "waystone.db" => 0,
        "waystone.db-wal" | "waystone.db-shm" => 1,
        _ if name.starts_with("contexts") => 2,
        _ => 3,
    };
    parts[part] += metadata.blocks() * 512;
    if metadata.is_dir() {
        for entry in fs::read_dir(path)? {
            add_blocks(root, &entry?.path(), parts)?;
        }
    }
    Ok(())
}
