//! The library that stands between a program and the disk. It is C, because it replaces functions of the C library; it is
//! built when first needed, with the compiler that SQLite is built with.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The variables that load the library into a child and tell it what to do.
pub fn settings(data_dir: &Path, shadow: &Path, ignore_sync: bool) -> io::Result<Vec<(String, String)>> {
    let library = build()?;
    let shown = |path: &Path| path.to_string_lossy().into_owned();
    Ok(vec![
        ("LD_PRELOAD".to_owned(), shown(&library)),
        ("SHIM_ROOT".to_owned(), shown(&data_dir.canonicalize()?)),
        ("SHIM_SHADOW".to_owned(), shown(shadow)),
        ("SHIM_IGNORE_SYNC".to_owned(), if ignore_sync { "-wal".to_owned() } else { String::new() }),
    ])
}

/// The variables that make a child write down how long each sync took that a save waits for: those that its writer makes of the
/// write-ahead log. Housekeeping syncs on a thread of its own.
pub fn log_syncs(log: &Path) -> io::Result<Vec<(String, String)>> {
    std::fs::write(log, "")?;
    let shown = |path: &Path| path.to_string_lossy().into_owned();
    Ok(vec![
        ("LD_PRELOAD".to_owned(), shown(&build()?)),
        ("SHIM_SYNC_LOG".to_owned(), shown(log)),
        ("SHIM_SYNC_SUFFIX".to_owned(), "-wal".to_owned()),
        ("SHIM_SYNC_THREAD".to_owned(), "writer".to_owned()),
    ])
}

/// The variables that make every sync of a child do nothing.
pub fn no_syncs() -> io::Result<Vec<(String, String)>> {
    let library = build()?.to_string_lossy().into_owned();
    Ok(vec![("LD_PRELOAD".to_owned(), library), ("SHIM_NO_SYNC".to_owned(), "1".to_owned())])
}

/// The syncs that were written down so far: how many, and how long they took together.
pub fn synced(log: &Path) -> io::Result<(usize, Duration)> {
    let lines = std::fs::read_to_string(log)?;
    let times: Vec<u64> = lines.lines().filter_map(|line| line.parse().ok()).collect();
    Ok((times.len(), Duration::from_nanos(times.iter().sum())))
}

fn build() -> io::Result<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("shim/disk.c");
    let own = std::env::current_exe()?;
    let target = own.parent().unwrap_or(Path::new(".")).join(format!("waystone-disk-{}.so", std::process::id()));
    let built =
        Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(&target).arg(source).arg("-ldl").status()?;
    if !built.success() {
        return Err(io::Error::other("the disk shim could not be compiled"));
    }
    Ok(target)
}
