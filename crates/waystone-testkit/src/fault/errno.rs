//! Lets each call that touches the disk fail once, one after the other, and looks whether what was promised holds nevertheless.
//!
//! A fault comes in through the C library ([`crate::shim`]). A run is one play of a [`Scenario`] on a fresh copy of a prepared data
//! directory; runs of a kind of call end with the first in which there was no such call left. What happens in a run is in
//! [`save`] and [`delete`], and what must be true afterwards in [`check`].

mod check;
mod delete;
mod save;
mod stage;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::harness::make_private;
use crate::shim::Call;
use stage::{Prepared, Stage};

/// After this long a process hangs. A start may wait five seconds for a lock, and so may a write.
const PROCESS_MAX: Duration = Duration::from_secs(30);

const EIO: (&str, i32) = ("EIO", 5);
const ENOSPC: (&str, i32) = ("ENOSPC", 28);
const EDQUOT: (&str, i32) = ("EDQUOT", 122);
const SHORT: (&str, i32) = ("short", 0);

const FAULTS: [(&str, &[(&str, i32)]); 6] = [
    ("write", &[EIO, ENOSPC, EDQUOT, SHORT]),
    ("fsync", &[EIO, ENOSPC, EDQUOT]),
    ("open", &[EIO, ENOSPC, EDQUOT]),
    ("mkdir", &[EIO, ENOSPC, EDQUOT]),
    ("rename", &[EIO, ENOSPC, EDQUOT]),
    ("unlink", &[EIO, ENOSPC, EDQUOT]),
];

/// What processes do while a call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scenario {
    /// An agent saves and loads, and ends.
    Save,
    DeleteCheckpoint,
    DeleteSession,
    PurgeCheckpoint,
    PurgeSession,
}

impl Scenario {
    pub const ALL: [Self; 5] =
        [Self::Save, Self::DeleteCheckpoint, Self::DeleteSession, Self::PurgeCheckpoint, Self::PurgeSession];

    fn is_purge(self) -> bool {
        matches!(self, Self::PurgeCheckpoint | Self::PurgeSession)
    }
}

#[derive(Debug, Clone)]
pub struct Plan {
    /// The program whose calls fail.
    pub binary: PathBuf,
    /// An empty directory for all that is made on the way.
    pub folder: PathBuf,
    /// The calls that fail: this one and every `step`-th after it.
    pub first: u32,
    pub step: usize,
    pub scenarios: Vec<Scenario>,
    /// Only calls of this kind.
    pub kind: Option<String>,
    /// Only with this error.
    pub error: Option<String>,
}

impl Plan {
    fn faults(&self, is_cut: bool) -> impl Iterator<Item = (&'static str, &'static str, i32)> {
        // A power cut only shows something new when a sync failed before it.
        let kinds = FAULTS.iter().filter(move |(kind, _)| is_one(&self.kind, kind) && (!is_cut || *kind == "fsync"));
        let all = kinds.flat_map(|(kind, errors)| errors.iter().map(|(name, errno)| (*kind, *name, *errno)));
        all.filter(|(_, name, _)| is_one(&self.error, name))
    }
}

fn is_one(wanted: &Option<String>, name: &str) -> bool {
    wanted.as_deref().is_none_or(|wanted| wanted == name)
}

#[derive(Debug, Default)]
pub struct Report {
    pub runs: u32,
    /// Faults by kind of call and error.
    pub injected: BTreeMap<(&'static str, &'static str), u32>,
    /// Answers by what they said.
    pub answers: BTreeMap<String, u32>,
    pub acknowledged: usize,
    /// Acknowledged, but gone or different; or deleted, but back.
    pub lost: Vec<String>,
    pub panics: Vec<String>,
    pub hangs: Vec<String>,
    /// Everything else that must not be: an answer without a code, a process that ended, a fault that goes on after it is over.
    pub wrong: Vec<String>,
}

impl Report {
    /// Everything that must not be.
    pub fn problems(&self) -> Vec<&String> {
        self.lost.iter().chain(&self.panics).chain(&self.hangs).chain(&self.wrong).collect()
    }

    fn and(mut self, other: Self) -> Self {
        self.runs += other.runs;
        self.acknowledged += other.acknowledged;
        other.injected.into_iter().for_each(|(fault, count)| *self.injected.entry(fault).or_default() += count);
        other.answers.into_iter().for_each(|(answer, count)| *self.answers.entry(answer).or_default() += count);
        self.lost.extend(other.lost);
        self.panics.extend(other.panics);
        self.hangs.extend(other.hangs);
        self.wrong.extend(other.wrong);
        self
    }

    fn count(&mut self, answer: &str) {
        *self.answers.entry(answer.to_owned()).or_default() += 1;
    }

    /// Counts a failure, and notes it when it does not say what it is.
    fn count_error(&mut self, stage: &Stage, error: &Value) {
        match error["error"]["code"].as_str() {
            Some("STORAGE_UNAVAILABLE") => {
                let reason = error["error"]["details"]["reason"].as_str().unwrap_or("no reason");
                self.count(&format!("STORAGE_UNAVAILABLE, {reason}"));
            }
            Some(code @ ("CHECKPOINT_NOT_FOUND" | "SESSION_NOT_FOUND")) => self.count(code),
            _ => self.wrong.push(format!("{stage}: an error that is none of ours: {error}")),
        }
    }
}

/// What a run acknowledged.
#[derive(Debug, Clone, Default)]
struct Promises {
    /// Checkpoints by id, and their contexts.
    saved: Vec<(String, Value)>,
    /// Checkpoints that must not be listed.
    deleted: Vec<String>,
}

/// One kind of fault in one scenario: a run for each of its calls.
#[derive(Debug, Clone, Copy)]
struct Job {
    scenario: Scenario,
    is_cut: bool,
    kind: &'static str,
    name: &'static str,
    errno: i32,
}

impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scenario, kind, name, .. } = self;
        write!(f, "{scenario:?}, {kind} with {name}{}", if self.is_cut { ", power cut" } else { "" })
    }
}

/// Goes through all of `plan`, on as many threads as there are cores; `tell` hears of each kind of fault that is done.
pub fn run(plan: &Plan, tell: impl Fn(&str) + Sync) -> io::Result<Report> {
    let both = plan.scenarios.iter().flat_map(|scenario| [(*scenario, false), (*scenario, true)]);
    let jobs: Vec<Job> = both
        .flat_map(|(scenario, is_cut)| {
            plan.faults(is_cut).map(move |(kind, name, errno)| Job { scenario, is_cut, kind, name, errno })
        })
        .collect();
    let next = AtomicUsize::new(0);
    let work = |worker: usize| -> io::Result<Report> {
        let folder = plan.folder.join(worker.to_string());
        make_private(&folder)?;
        let (prepared, mut report) = (Prepared::make(&folder)?, Report::default());
        while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let runs = fail_each(plan, &prepared, job, &mut report)?;
            tell(&format!(
                "{} of {} kinds of faults: {runs} runs of {job}",
                next.load(Ordering::Relaxed).min(jobs.len()),
                jobs.len()
            ));
        }
        Ok(report)
    };
    let workers = thread::available_parallelism()?.get().min(jobs.len());
    thread::scope(|scope| {
        let running: Vec<_> = (0..workers).map(|worker| scope.spawn(move || work(worker))).collect();
        running.into_iter().try_fold(Report::default(), |all, running| {
            Ok(all.and(running.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?))
        })
    })
}

/// Lets each of the job's calls fail, one after the other, until there is none left.
fn fail_each(plan: &Plan, prepared: &Prepared, job: &Job, report: &mut Report) -> io::Result<u32> {
    let before = report.runs;
    for at in (plan.first..).step_by(plan.step) {
        let call = Call { kind: job.kind, errno: job.errno, at };
        let stage = Stage::set(prepared, job.scenario, call, job.is_cut)?;
        play(plan, prepared, &stage, report)?;
        if stage.fault().is_none() {
            break;
        }
        *report.injected.entry((job.kind, job.name)).or_default() += 1;
    }
    Ok(report.runs - before)
}

fn play(plan: &Plan, prepared: &Prepared, stage: &Stage, report: &mut Report) -> io::Result<()> {
    let promises = match stage.scenario {
        Scenario::Save => save::play(plan, prepared, stage, report)?,
        _ => delete::play(plan, prepared, stage, report)?,
    };
    report.runs += 1;
    report.acknowledged += promises.saved.len() + promises.deleted.len();
    if let Some(line) = stage.said().lines().find(|line| line.contains("panicked")) {
        report.panics.push(format!("{stage}: {line}"));
    }
    check::everything_holds(prepared, stage, &promises, report)
}
