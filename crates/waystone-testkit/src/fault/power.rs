//! Cuts the power: the process is killed, and of its files only what was synced remains.
//!
//! A library loaded before all others ([`crate::shim`]) copies each file at the moment it is synced. After the kill the data
//! directory is replaced by these copies: no byte that was not synced is left, and no unlinking either unless its directory was
//! synced. (A name is taken to be durable with its file, as on ext4 and XFS.)

pub mod image;

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use crate::contexts::Random;
use crate::fault::kill::{Acknowledged, Plan, Report, save_until_killed, start, verify};
use crate::harness::make_private;
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

/// Leaves of `data_dir` what is in `shadow`.
pub(crate) fn lose_unsynced(data_dir: &Path, shadow: &Path) -> io::Result<()> {
    fs::remove_dir_all(data_dir)?;
    make_private(data_dir)?;
    for entry in fs::read_dir(shadow)? {
        let entry = entry?;
        let name = entry.file_name();
        if entry.file_type()?.is_file() && !name.to_string_lossy().ends_with(".copying") {
            fs::copy(entry.path(), data_dir.join(name))?;
        }
    }
    Ok(())
}
