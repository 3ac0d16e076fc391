//! Kills processes in the middle of what they do to segments, and then looks whether each thing that was under way is there in whole or
//! not at all, and all that was acknowledged before it is as it was.
//!
//! A writer has one call under way at a time, so that one is in doubt when it is killed. It knows where every segment must be before and
//! after it. Every third time the process is killed by the disk shim before one of its calls to the disk, else at some moment. Directories
//! are changed often: every one is looked at in whole after every kill.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use waystone_core::api::Tier;

use super::kill::{Plan, start};
use crate::audit::audit;
use crate::contexts::Random;
use crate::harness::make_private;
use crate::process::McpProcess;
use crate::shim::{self, Call};

const PROJECT: &str = "project";
const TASK: &str = "task";
const BATCH: usize = 50;
const DIRECTORY_KILLS: u32 = 25;
/// After so many calls a process is killed that the disk shim did not kill.
const CALLS_MAX: usize = 30;

#[derive(Debug, Default)]
pub struct Report {
    pub kills: u32,
    /// Those that met a process before a call to the disk.
    pub kills_at_call: u32,
    pub acknowledged: u32,
    /// What was under way when a process was killed, and how often it was found done.
    pub under_way: BTreeMap<&'static str, (u32, u32)>,
    /// Acknowledged, but gone or elsewhere; or refused; or the database contradicts itself.
    pub lost: Vec<String>,
    /// Done to some of its segments.
    pub half_applied: Vec<String>,
}

/// Runs the whole plan; each writer has directories of its own in the plan's.
pub fn run(plan: &Plan) -> io::Result<Report> {
    let kills = AtomicU32::new(0);
    let mut report = Report::default();
    std::thread::scope(|scope| {
        let kills = &kills;
        let writers: Vec<_> =
            (0..plan.writers).map(|number| scope.spawn(move || write_and_die(plan, number, kills))).collect();
        for writer in writers {
            let one = writer.join().unwrap()?;
            report.kills += one.kills;
            report.kills_at_call += one.kills_at_call;
            report.acknowledged += one.acknowledged;
            for (kind, (times, done)) in one.under_way {
                let all = report.under_way.entry(kind).or_default();
                *all = (all.0 + times, all.1 + done);
            }
            report.lost.extend(one.lost);
            report.half_applied.extend(one.half_applied);
        }
        Ok(report)
    })
}

/// Where every segment is, by its text. What is deleted is not in it.
type Tiers = BTreeMap<String, Tier>;

enum Step {
    Put(Vec<String>),
    /// All that begin with a word, or all.
    Stash(Option<String>),
    Prune(Vec<String>, bool),
    Undo,
    Snapshot,
    Restore,
}

impl Step {
    fn name(&self) -> &'static str {
        match self {
            Self::Put(texts) if texts.len() == 1 => "put",
            Self::Put(_) => "put of many",
            Self::Stash(_) => "stash",
            Self::Prune(_, true) => "prune, delete",
            Self::Prune(..) => "prune, stash",
            Self::Undo => "undo",
            Self::Snapshot => "snapshot",
            Self::Restore => "restore",
        }
    }
}

struct Writer<'a> {
    plan: &'a Plan,
    number: u64,
    random: Random,
    report: Report,
    tiers: Tiers,
    ids: BTreeMap<String, String>,
    /// What can be undone, newest last: the operation, and where segments were before it.
    history: Vec<(String, Tiers)>,
    snapshot: Option<(String, Tiers)>,
    texts: u64,
}

fn write_and_die(plan: &Plan, number: u64, kills: &AtomicU32) -> io::Result<Report> {
    let random = Random::new(plan.seed ^ (number + 1));
    let report = Report::default();
    let (tiers, ids, history, snapshot) = Default::default();
    let mut writer = Writer { plan, number, random, report, tiers, ids, history, snapshot, texts: 0 };
    while kills.fetch_add(1, Ordering::SeqCst) < plan.kills {
        let turn = writer.report.kills;
        let data_dir = plan.data_dir.join(format!("{number}-{}", turn / DIRECTORY_KILLS));
        if turn.is_multiple_of(DIRECTORY_KILLS) {
            make_private(&data_dir)?;
            writer.forget(Tiers::new());
        }
        writer.live(&data_dir, turn % 3 == 2)?;
        writer.report.kills += 1;
    }
    Ok(writer.report)
}

impl Writer<'_> {
    /// Starts a process, kills it, and looks with another one what is there.
    fn live(&mut self, data_dir: &Path, by_call: bool) -> io::Result<()> {
        let started = if by_call {
            let (kind, most) = [("write", 60), ("fsync", 10)][self.random.below(2) as usize];
            let call = Call { kind, errno: -1, at: 1 + self.random.below(most) as u32 };
            self.start(data_dir, shim::fail(call, data_dir, &data_dir.with_extension("faults"), None)?)
        } else {
            self.start(data_dir, Vec::new())
        };
        // The shim may kill it before it answers at all.
        let under_way = match started {
            Ok(mut process) => self.work(&mut process, by_call)?,
            Err(_) if by_call => {
                self.report.kills_at_call += 1;
                None
            }
            Err(error) => return Err(error),
        };
        self.look(data_dir, under_way)
    }

    fn start(&self, data_dir: &Path, preload: Vec<(String, String)>) -> io::Result<McpProcess> {
        start(&Plan { preload, data_dir: data_dir.to_owned(), ..self.plan.clone() })
    }

    /// Makes one call after the other until the process is gone. Returns the one that was not answered.
    fn work(&mut self, process: &mut McpProcess, by_call: bool) -> io::Result<Option<Step>> {
        let pid = Pid::from_raw(i32::try_from(process.pid()).unwrap()).unwrap();
        // The first call is long: it loads the tokenizer.
        let warm_up = self.put(1);
        let mut unanswered = self.call(process, warm_up);
        let delay = Duration::from_micros(500 + self.random.below(60_000));
        let mut is_at_call = by_call;
        std::thread::scope(|scope| {
            if !by_call {
                scope.spawn(move || {
                    std::thread::sleep(delay);
                    kill_process(pid, Signal::KILL).unwrap();
                });
            }
            for n in 0.. {
                if unanswered.is_some() {
                    break;
                }
                if by_call && n == CALLS_MAX {
                    is_at_call = false;
                    kill_process(pid, Signal::KILL).unwrap();
                }
                let step = self.choose();
                unanswered = self.call(process, step);
            }
        });
        process.child.wait()?;
        self.report.kills_at_call += u32::from(is_at_call);
        Ok(unanswered)
    }

    fn put(&mut self, count: usize) -> Step {
        let texts = (0..count).map(|_| {
            self.texts += 1;
            let (word, length) = (self.random.below(5), 20 + self.random.below(2000) as usize);
            format!("word{word} of {} {} {}", self.number, self.texts, self.random.text(length))
        });
        Step::Put(texts.collect())
    }

    fn choose(&mut self) -> Step {
        match self.random.below(10) {
            0 | 1 => self.put(1),
            2 | 3 => self.put(BATCH),
            4 => Step::Stash(None),
            5 => Step::Stash(Some(format!("word{}", self.random.below(5)))),
            6 => {
                let known =
                    self.tiers.iter().filter(|(text, tier)| **tier == Tier::Working && self.ids.contains_key(*text));
                let texts: Vec<String> = known.map(|(text, _)| text.clone()).take(BATCH).collect();
                if texts.is_empty() { self.put(BATCH) } else { Step::Prune(texts, self.random.below(2) == 0) }
            }
            7 | 8 if !self.history.is_empty() => Step::Undo,
            8 if self.snapshot.is_some() => Step::Restore,
            _ if self.snapshot.is_some() && self.random.below(2) == 0 => Step::Restore,
            _ => Step::Snapshot,
        }
    }

    fn request(&self, step: &Step) -> (&'static str, Value) {
        match step {
            Step::Put(texts) if texts.len() == 1 => {
                ("context_put", json!({ "project_id": PROJECT, "task_id": TASK, "text": texts[0] }))
            }
            Step::Put(texts) => ("context_put", json!({ "project_id": PROJECT, "task_id": TASK, "texts": texts })),
            Step::Stash(word) => {
                ("context_stash", json!({ "project_id": PROJECT, "filters": { "task_id": TASK }, "query": word }))
            }
            Step::Prune(texts, delete) => {
                let ids: Vec<&String> = texts.iter().map(|text| &self.ids[text]).collect();
                let action = if *delete { "delete" } else { "stash" };
                let arguments = json!({ "project_id": PROJECT, "segment_ids": ids, "action": action, "confirm": true });
                ("context_gc_prune", arguments)
            }
            Step::Undo => {
                let operation = &self.history.last().unwrap().0;
                ("context_undo", json!({ "project_id": PROJECT, "operation_id": operation }))
            }
            Step::Snapshot => ("context_create_task_snapshot", json!({ "project_id": PROJECT, "task_id": TASK })),
            Step::Restore => {
                let id = &self.snapshot.as_ref().unwrap().0;
                ("context_restore_task_snapshot", json!({ "project_id": PROJECT, "snapshot_id": id }))
            }
        }
    }

    /// Where segments are when a step is done.
    fn after(&self, step: &Step) -> Tiers {
        let mut after = self.tiers.clone();
        match step {
            Step::Put(texts) => after.extend(texts.iter().map(|text| (text.clone(), Tier::Working))),
            Step::Stash(word) => {
                let word = word.as_deref().unwrap_or_default();
                after.iter_mut().filter(|(text, _)| text.starts_with(word)).for_each(|(_, tier)| *tier = Tier::Stashed);
            }
            Step::Prune(texts, true) => after.retain(|text, _| !texts.contains(text)),
            Step::Prune(texts, false) => after.extend(texts.iter().map(|text| (text.clone(), Tier::Stashed))),
            Step::Undo => after.clone_from(&self.history.last().unwrap().1),
            Step::Snapshot => {}
            Step::Restore => {
                after.values_mut().for_each(|tier| *tier = Tier::Stashed);
                after.extend(self.snapshot.clone().unwrap().1);
            }
        }
        after
    }

    /// Makes a call and takes note of its answer. Returns the step if there is none.
    fn call(&mut self, process: &mut McpProcess, step: Step) -> Option<Step> {
        let (tool, arguments) = self.request(&step);
        match process.call(tool, arguments) {
            Err(_) => return Some(step),
            Ok(Err(error)) => self.report.lost.push(format!("{} was refused: {error}", step.name())),
            Ok(Ok(reply)) => {
                self.report.acknowledged += 1;
                self.done(&step, &reply);
            }
        }
        None
    }

    fn done(&mut self, step: &Step, reply: &Value) {
        let after = self.after(step);
        let before = std::mem::replace(&mut self.tiers, after);
        match step {
            Step::Undo => drop(self.history.pop()),
            Step::Snapshot => self.snapshot = reply["snapshot_id"].as_str().map(|id| (id.to_owned(), before)),
            _ if before == self.tiers => {}
            _ => match reply["operation_id"].as_str() {
                Some(id) => self.history.push((id.to_owned(), before)),
                None => self.history.clear(),
            },
        }
        if let Step::Put(texts) = step {
            let ids = reply["segment_ids"].as_array().into_iter().flatten().filter_map(Value::as_str);
            self.ids.extend(texts.iter().cloned().zip(ids.map(str::to_owned)));
        }
    }

    /// Compares what is there with what must be, the step that was not answered being done or not.
    fn look(&mut self, data_dir: &Path, under_way: Option<Step>) -> io::Result<()> {
        let mut process = self.start(data_dir, Vec::new())?;
        let found = self.list(&mut process)?;
        self.report.lost.extend(audit(data_dir));
        process.finish()?;
        let Some(step) = under_way else {
            if found != self.tiers {
                self.report.lost.push(difference(&self.tiers, &found));
                self.forget(found);
            }
            return Ok(());
        };
        let after = self.after(&step);
        let seen = self.report.under_way.entry(step.name()).or_default();
        seen.0 += 1;
        if found == after {
            seen.1 += u32::from(after != self.tiers);
            match step {
                Step::Undo => drop(self.history.pop()),
                _ if after == self.tiers => {}
                // Its number is not known.
                _ => self.history.clear(),
            }
            self.tiers = after;
        } else if found != self.tiers {
            let is_kept =
                |(text, tier): (&String, &Tier)| after.get(text) != Some(tier) || found.get(text) == Some(tier);
            let problem = format!("{}: {}", step.name(), difference(&self.tiers, &found));
            let is_half = self.tiers.iter().all(is_kept);
            if is_half { &mut self.report.half_applied } else { &mut self.report.lost }.push(problem);
            self.forget(found);
        }
        Ok(())
    }

    fn list(&mut self, process: &mut McpProcess) -> io::Result<Tiers> {
        let mut arguments = json!({ "project_id": PROJECT, "task_id": TASK, "limit": 1000, "full": true });
        let mut found = Tiers::new();
        loop {
            let page = process.call("context_get_task_context", arguments.clone())?;
            let page = page.map_err(|error| io::Error::other(error.to_string()))?;
            for segment in page["segments"].as_array().into_iter().flatten() {
                let text = segment["text"].as_str().unwrap_or_default().to_owned();
                let tier = if segment["tier"] == "working" { Tier::Working } else { Tier::Stashed };
                self.ids.insert(text.clone(), segment["segment_id"].as_str().unwrap_or_default().to_owned());
                found.insert(text, tier);
            }
            match page.get("next_cursor") {
                Some(cursor) => arguments["cursor"] = cursor.clone(),
                None => return Ok(found),
            }
        }
    }

    /// Goes on from what is there.
    fn forget(&mut self, found: Tiers) {
        self.tiers = found;
        self.history.clear();
        self.snapshot = None;
    }
}

fn difference(expected: &Tiers, found: &Tiers) -> String {
    let gone = expected.keys().filter(|text| !found.contains_key(*text)).count();
    let come = found.keys().filter(|text| !expected.contains_key(*text)).count();
    let moved = expected.iter().filter(|(text, tier)| found.get(*text).is_some_and(|there| there != *tier)).count();
    format!("of {} segments {gone} are gone and {moved} elsewhere, {come} came", expected.len())
}
