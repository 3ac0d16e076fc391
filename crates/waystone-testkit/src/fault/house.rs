//! Keeps house beside a run: backs up what is kept, deletes and removes what nobody else uses, and has a process with far too little room
//! remove what it may. Nothing that others were promised is among that.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::json;

use crate::process::{McpProcess, command};

/// A process keeps house for the first time after a second.
const ROUND: Duration = Duration::from_millis(1200);

/// What a command ends with that the disk has no room for.
const FULL: i32 = 3;

#[derive(Debug, Default)]
pub(super) struct House {
    pub(super) rounds: u32,
    /// What the disk had no room for.
    pub(super) refused: u32,
    pub(super) wrong: Vec<String>,
    /// Whether the disk is full at times.
    may_be_full: bool,
}

/// Goes on until `is_over`, at least once; then the newest backup is restored beside it, in `aside`, and must be sound.
pub(super) fn keep(
    binary: &Path,
    data_dir: &Path,
    aside: &Path,
    may_be_full: bool,
    is_over: &AtomicBool,
) -> io::Result<House> {
    let mut house = House { may_be_full, ..House::default() };
    let copy = aside.join("backup");
    while house.rounds == 0 || !is_over.load(Ordering::SeqCst) {
        house.rounds += 1;
        let spare = format!("spare-{}", house.rounds);
        let mut process = McpProcess::start(binary, data_dir)?;
        let mut is_saved = false;
        for n in 0..3 {
            let request = json!({ "sessionId": spare, "context": { "n": n } });
            match process.call("workflow_checkpoint_save", request)? {
                Ok(_) => is_saved = true,
                Err(error) if may_be_full && error["error"]["code"] == "STORAGE_UNAVAILABLE" => house.refused += 1,
                Err(error) => house.wrong.push(format!("{spare}: {error}")),
            }
        }
        process.finish()?;
        let purge = house.rounds.is_multiple_of(2).then_some("--purge");
        let delete: Vec<&str> = ["session", "delete", spare.as_str(), "--yes"].into_iter().chain(purge).collect();
        if is_saved {
            house.run(binary, data_dir, &delete)?;
        }
        let newer = aside.join("newer");
        if house.run(binary, data_dir, &["backup", &newer.to_string_lossy()])? {
            if copy.exists() {
                fs::remove_dir_all(&copy)?;
            }
            fs::rename(&newer, &copy)?;
        }
        make_room(binary, data_dir)?;
    }
    house.restore(binary, &copy)?;
    Ok(house)
}

/// Lets a process keep house that may keep next to nothing. What was saved within the hour it leaves alone.
fn make_room(binary: &Path, data_dir: &Path) -> io::Result<()> {
    let mut keeper = command(binary, data_dir);
    let keeper = McpProcess::start_with(keeper.arg("mcp").env("WAYSTONE_MAX_TOTAL_BYTES", "1000"))?;
    std::thread::sleep(ROUND);
    keeper.finish().map(drop)
}

impl House {
    /// Whether the command did what it was told.
    fn run(&mut self, binary: &Path, data_dir: &Path, arguments: &[&str]) -> io::Result<bool> {
        let done = command(binary, data_dir).args(arguments).output()?;
        if self.may_be_full && done.status.code() == Some(FULL) {
            self.refused += 1;
        } else if !done.status.success() {
            self.wrong.push(format!("{arguments:?}: {}", String::from_utf8_lossy(&done.stderr)));
        }
        Ok(done.status.success())
    }

    fn restore(&mut self, binary: &Path, copy: &Path) -> io::Result<()> {
        let elsewhere: PathBuf = copy.with_extension("restored");
        self.run(binary, &elsewhere, &["restore-from", &copy.to_string_lossy(), "--yes"])?;
        self.run(binary, &elsewhere, &["doctor"]).map(drop)
    }
}
