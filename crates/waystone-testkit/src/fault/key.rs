//! Kills `key rotate` and `key encrypt-store` before each of their calls that touch the disk, in turn, and looks whether one key or the
//! other opens everything, and whether doing it once more ends it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::json;
use tempfile::TempDir;

use super::repair::{Plan, Report};
use crate::contexts::Random;
use crate::harness::{copy_dir, private_dir};
use crate::process::{McpProcess, command, run as finish};
use crate::shim::{self, Call};

/// What stands in every text.
const CANARY: &str = "kanarienvogel";

pub fn run(plan: &Plan) -> io::Result<Report> {
    let prepared = [Prepared::new(plan, Change::Seal)?, Prepared::new(plan, Change::Rotate)?];
    let mut report = Report::default();
    for (kind, first, step) in &plan.calls {
        for at in (*first..).step_by(*step) {
            let before = report.kills;
            for prepared in &prepared {
                report.kills += u32::from(prepared.kill(plan, Call { kind, errno: -1, at }, &mut report)?);
            }
            if report.kills == before {
                break;
            }
        }
    }
    Ok(report)
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Change {
    Seal,
    Rotate,
}

/// A data directory in `data` and a key beside it, and what is read of it.
struct Prepared {
    change: Change,
    directory: TempDir,
    documents: Vec<Vec<u8>>,
}

impl Prepared {
    fn new(plan: &Plan, change: Change) -> io::Result<Self> {
        let directory = private_dir();
        let place = Place { root: directory.path(), plan };
        finish(place.command(None).args(["key", "generate", "--output"]).arg(place.key("old")))?;
        let key = (change == Change::Rotate).then_some("old");
        let mut server = place.command(key);
        let mut process = McpProcess::start_with(
            server.arg("mcp").env("WAYSTONE_ENCRYPTION", if key.is_some() { "1" } else { "0" }),
        )?;
        let mut random = Random::new(5);
        for n in 0..6 {
            let context = json!({ "n": n, "text": format!("{CANARY} {}", random.text(500)) });
            let session = ["a", "b"][n % 2];
            let save = json!({ "sessionId": session, "context": context, "metadata": { "name": CANARY } });
            process.call("workflow_checkpoint_save", save)?.map_err(|error| io::Error::other(error.to_string()))?;
        }
        process.finish()?;
        finish(place.command(key).arg("backup"))?;
        let documents = place.documents(key)?;
        Ok(Self { change, directory, documents })
    }

    /// Whether there was such a call.
    fn kill(&self, plan: &Plan, call: Call, report: &mut Report) -> io::Result<bool> {
        let (directory, folder) = (private_dir(), private_dir());
        copy_dir(self.directory.path(), directory.path());
        let (place, log) = (Place { root: directory.path(), plan }, folder.path().join("faults"));
        fs::write(&log, "")?;
        let status = self
            .changing(&place, "old", "new")
            .envs(shim::fail(call, &place.data(), &log, None)?)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()?;
        let fault = fs::read_to_string(&log)?;
        let (case, is_killed) =
            (format!("{:?}, {} {} on {:?}", self.change, call.kind, call.at, fault.trim()), !fault.is_empty());
        if status.success() == is_killed {
            report.wrong.push(format!("{case}: it ended with {status}"));
        }
        if let Err(error) = self.check(&place) {
            report.wrong.push(format!("{case}: {error}"));
        }
        Ok(is_killed)
    }

    fn changing(&self, place: &Place<'_>, key: &str, new: &str) -> Command {
        let mut command = place.command(Some(key));
        match self.change {
            Change::Seal => command.args(["key", "encrypt-store", "--yes"]),
            Change::Rotate => command.args(["key", "rotate", "--output"]).arg(place.key(new)),
        };
        command
    }

    /// Ends what was begun, with whichever key it has, and looks at everything.
    fn check(&self, place: &Place<'_>) -> io::Result<()> {
        let has_new = place.key("new").exists() && place.is_opened_by("new");
        let key = match (self.change, has_new) {
            (Change::Rotate, true) => "new",
            (Change::Rotate, false) if !place.is_opened_by("old") => return Err(io::Error::other("no key opens it")),
            _ => "old",
        };
        finish(&mut self.changing(place, key, "last"))?;
        let key = if self.change == Change::Seal { "old" } else { "last" };
        if place.documents(Some(key))? != self.documents {
            return Err(io::Error::other("not everything is there"));
        }
        finish(place.command(Some(key)).arg("doctor"))?;
        if let Some(path) = find_plain(&place.data())? {
            return Err(io::Error::other(format!("{} is not sealed", path.display())));
        }
        // The files alone bring it back, so they are all under the key, and nothing is plain.
        fs::remove_dir_all(place.data().join("backups"))?;
        for name in ["waystone.db", "waystone.db-wal", "waystone.db-shm"] {
            let _ = fs::remove_file(place.data().join(name));
        }
        finish(place.command(Some(key)).args(["doctor", "--repair"]))?;
        if place.documents(Some(key))? != self.documents {
            return Err(io::Error::other("not every file is under the key"));
        }
        Ok(())
    }
}

/// A file in which the word stands.
fn find_plain(folder: &Path) -> io::Result<Option<PathBuf>> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let found = match path.is_dir() {
            true => find_plain(&path)?,
            false => {
                let bytes = fs::read(&path)?;
                bytes.windows(CANARY.len()).any(|window| window == CANARY.as_bytes()).then_some(path)
            }
        };
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

struct Place<'a> {
    root: &'a Path,
    plan: &'a Plan,
}

impl Place<'_> {
    fn data(&self) -> PathBuf {
        self.root.join("data")
    }

    fn key(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    fn command(&self, key: Option<&str>) -> Command {
        let mut command = command(&self.plan.binary, &self.data());
        command.env("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nonexistent");
        if let Some(key) = key {
            command.env("WAYSTONE_KEY_FILE", self.key(key));
        }
        command
    }

    fn is_opened_by(&self, key: &str) -> bool {
        self.command(Some(key)).arg("status").output().is_ok_and(|output| output.status.success())
    }

    /// What is exported of all sessions, but for when it was.
    fn documents(&self, key: Option<&str>) -> io::Result<Vec<Vec<u8>>> {
        let export = |session: &str| {
            let output = self.command(key).args(["--json", "checkpoint", "show", "--latest", session]).output()?;
            match output.status.success() {
                true => Ok(output.stdout),
                false => Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned())),
            }
        };
        ["a", "b"].into_iter().map(export).collect()
    }
}
