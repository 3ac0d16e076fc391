//! A fresh copy of a prepared data directory for each run, and the process that is to fail on it.

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use super::Scenario;
use crate::contexts::Random;
use crate::fault::power::lose_unsynced;
use crate::harness::{copy_dir, make_private};
use crate::process::{McpProcess, binary, command};
use crate::shim::{self, Call};

/// The session that is saved to, and the one that is deleted from.
pub(super) const SESSIONS: [&str; 2] = ["old", "other"];

/// A data directory as a process left it, with some checkpoints in two sessions.
pub(super) struct Prepared {
    folder: PathBuf,
    data_dir: PathBuf,
    /// Session, id and context.
    pub(super) saved: Vec<(&'static str, String, Value)>,
}

impl Prepared {
    pub(super) fn make(folder: &Path) -> io::Result<Self> {
        let data_dir = folder.join("prepared");
        make_private(&data_dir)?;
        let mut process = McpProcess::start(&binary("waystone"), &data_dir)?;
        let mut saved = Vec::new();
        for n in 0..6 {
            let (session, context) = (SESSIONS[n % 2], json!({ "n": n, "text": Random::new(n as u64).text(2000) }));
            let reply = process
                .call("workflow_checkpoint_save", json!({ "sessionId": session, "context": context }))?
                .map_err(|error| io::Error::other(error.to_string()))?;
            saved.push((session, reply["checkpointId"].as_str().unwrap().to_owned(), context));
        }
        process.finish()?;
        Ok(Self { folder: folder.to_owned(), data_dir, saved })
    }
}

/// One run: what fails in it, and where.
pub(super) struct Stage {
    pub(super) scenario: Scenario,
    call: Call,
    is_cut: bool,
    pub(super) data_dir: PathBuf,
    shadow: PathBuf,
    log: PathBuf,
    stderr: PathBuf,
}

impl Stage {
    pub(super) fn set(prepared: &Prepared, scenario: Scenario, call: Call, is_cut: bool) -> io::Result<Self> {
        let inside = |name: &str| prepared.folder.join(name);
        let stage = Self {
            scenario,
            call,
            is_cut,
            data_dir: inside("data"),
            shadow: inside("data.synced"),
            log: inside("faults"),
            stderr: inside("stderr"),
        };
        for left in [&stage.data_dir, &stage.shadow].into_iter().filter(|left| left.exists()) {
            fs::remove_dir_all(left)?;
        }
        fs::write(&stage.log, "")?;
        fs::write(&stage.stderr, "")?;
        copy_dir(&prepared.data_dir, &stage.data_dir);
        if is_cut {
            // What a process left that ended well was synced by it.
            copy_dir(&prepared.data_dir, &stage.shadow);
        }
        Ok(stage)
    }

    /// A command whose process meets the fault.
    pub(super) fn command(&self, binary: &Path) -> io::Result<Command> {
        let shadow = self.is_cut.then_some(self.shadow.as_path());
        let mut command = command(binary, &self.data_dir);
        command.envs(shim::fail(self.call, &self.data_dir, &self.log, shadow)?);
        command.stderr(File::options().append(true).open(&self.stderr)?);
        Ok(command)
    }

    /// The file on which a call failed, if one did.
    pub(super) fn fault(&self) -> Option<String> {
        let path = fs::read_to_string(&self.log).unwrap().lines().next()?.to_owned();
        let inside = path.strip_prefix(self.data_dir.to_str()?).map(|inside| inside.trim_start_matches('/').to_owned());
        Some(inside.unwrap_or(path))
    }

    /// What processes said to people: their standard error and their log.
    pub(super) fn said(&self) -> String {
        let log = fs::read_to_string(self.data_dir.join("logs/waystone.log")).unwrap_or_default();
        format!("{}\n{log}", fs::read_to_string(&self.stderr).unwrap_or_default())
    }

    /// Whether the power is cut when the process has answered everything.
    pub(super) fn is_cut(&self) -> bool {
        self.is_cut
    }

    pub(super) fn cut_power(&self) -> io::Result<()> {
        lose_unsynced(&self.data_dir, &self.shadow)
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Call { kind, errno, at } = self.call;
        let (cut, file) = (if self.is_cut { ", power cut" } else { "" }, self.fault().unwrap_or_default());
        write!(f, "{:?}{cut}, {kind} {at} with {errno} on {file:?}", self.scenario)
    }
}
