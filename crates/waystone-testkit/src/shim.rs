//! The library that stands between a program and the disk. It is C, because it replaces functions of the C library; it is
//! built when first needed, with the compiler that SQLite is built with.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use waystone_core::canon::Hash;

/// The variables that load the library into a child and tell it what to do.
pub fn settings(data_dir: &Path, shadow: &Path, ignore_sync: bool) -> io::Result<Vec<(String, String)>> {
    let library = library("disk", &["disk.c"])?;
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
        ("LD_PRELOAD".to_owned(), shown(&library("disk", &["disk.c"])?)),
        ("SHIM_SYNC_LOG".to_owned(), shown(log)),
        ("SHIM_SYNC_SUFFIX".to_owned(), "-wal".to_owned()),
        ("SHIM_SYNC_THREAD".to_owned(), "writer".to_owned()),
    ])
}

/// The variables that make every sync of a child do nothing.
pub fn no_syncs() -> io::Result<Vec<(String, String)>> {
    let library = library("disk", &["disk.c"])?.to_string_lossy().into_owned();
    Ok(vec![("LD_PRELOAD".to_owned(), library), ("SHIM_NO_SYNC".to_owned(), "1".to_owned())])
}

/// The syncs that were written down so far: how many, and how long they took together.
pub fn synced(log: &Path) -> io::Result<(usize, Duration)> {
    let lines = std::fs::read_to_string(log)?;
    let times: Vec<u64> = lines.lines().filter_map(|line| line.parse().ok()).collect();
    Ok((times.len(), Duration::from_nanos(times.iter().sum())))
}

/// A call that fails once.
#[derive(Debug, Clone, Copy)]
pub struct Call {
    pub kind: &'static str,
    /// The error's number; 0 makes a write short, -1 kills the process instead.
    pub errno: i32,
    /// Which call of that kind, counted from one.
    pub at: u32,
}

/// The variables that make one call of a child on files in `data_dir` fail. The file it was on is written into `log`. With `shadow`,
/// files are copied there as they are synced.
pub fn fail(call: Call, data_dir: &Path, log: &Path, shadow: Option<&Path>) -> io::Result<Vec<(String, String)>> {
    let shown = |path: &Path| path.to_string_lossy().into_owned();
    let library = library("errno", &["disk.c", "errno.c"])?;
    let mut settings = vec![
        ("LD_PRELOAD".to_owned(), shown(&library)),
        ("SHIM_ROOT".to_owned(), shown(&data_dir.canonicalize()?)),
        ("SHIM_FAULT_KIND".to_owned(), call.kind.to_owned()),
        ("SHIM_FAULT_ERRNO".to_owned(), call.errno.to_string()),
        ("SHIM_FAULT_AT".to_owned(), call.at.to_string()),
        ("SHIM_FAULT_LOG".to_owned(), shown(log)),
    ];
    settings.extend(shadow.map(|shadow| ("SHIM_SHADOW".to_owned(), shown(shadow))));
    Ok(settings)
}

/// Builds a library unless it is there. Its name says what it was built from, and it gets that name when it is whole:
/// another process may be building it at the same moment, or loading it.
fn library(name: &str, sources: &[&str]) -> io::Result<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("shim");
    let sources: Vec<PathBuf> = sources.iter().map(|source| folder.join(source)).collect();
    let text: Vec<Vec<u8>> = sources.iter().map(std::fs::read).collect::<io::Result<_>>()?;
    let hash = Hash::of(&text.concat()).to_string();
    let own = std::env::current_exe()?;
    let target = own.with_file_name(format!("waystone-{name}-{}.so", &hash[..16]));
    if target.is_file() {
        return Ok(target);
    }
    let building = tempfile::Builder::new().prefix("waystone-").tempdir_in(own.parent().unwrap_or(Path::new(".")))?;
    let built = building.path().join("built.so");
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-O1", "-U_FORTIFY_SOURCE", "-o"]).arg(&built).args(sources).arg("-ldl");
    if !compiler.status()?.success() {
        return Err(io::Error::other("the disk shim could not be compiled"));
    }
    std::fs::rename(built, &target)?;
    Ok(target)
}
