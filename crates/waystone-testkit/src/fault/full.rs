//! Fills the disk again and again under many writers. Reads go on, what was acknowledged stays, and writes that were refused work
//! again as soon as there is room, without a restart.
//!
//! The disk is a small file system in memory, mounted for the run ([`disk`]). A filler takes what is left of it.

mod disk;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::house;
use crate::audit::audit;
use crate::contexts::Random;
use crate::process::{McpProcess, command};
use disk::SmallDisk;

/// How long anything may take that is waited for, also while others use the machine.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// Between two calls of a process. Each is a record, loads too.
const PAUSE: Duration = Duration::from_millis(3);
const POLL: Duration = Duration::from_micros(200);
/// Saves of each writer between two fills: with the pages of a commit the log comes to the size where it is folded back. There are no more
/// of a writer that is faster than the others: nothing that was saved is ever removed, and the disk is small.
const SAVES: u64 = 8;
/// What is set aside before a process starts on a full disk.
const RESERVE_BYTES: usize = 1024 * 1024;
/// Reads that each time of a full disk must see.
const READS: u64 = 20;

#[derive(Debug, Clone)]
pub struct Plan {
    pub binary: PathBuf,
    /// An empty directory to mount the disk on.
    pub folder: PathBuf,
    /// An empty directory on another disk, for backups.
    pub aside: PathBuf,
    pub fills: u32,
    pub writers: usize,
}

#[derive(Debug, Default)]
pub struct Report {
    pub fills: u32,
    pub acknowledged: usize,
    /// Refused saves by reason.
    pub refused: BTreeMap<String, u64>,
    pub lost: Vec<String>,
    pub reads: u64,
    pub failed_reads: Vec<String>,
    /// Everything else that must not be.
    pub wrong: Vec<String>,
    /// From freeing the disk to the next save that was acknowledged.
    pub pauses: Vec<Duration>,
    /// How often house was kept beside them, and what of it the disk had no room for.
    pub rounds_of_house: u32,
    pub refused_house: u32,
    pub data_bytes: u64,
}

/// What the threads of a run tell each other.
#[derive(Default)]
struct Run {
    is_over: AtomicBool,
    /// The disk is being filled: whoever saves is to be refused.
    is_filling: AtomicBool,
    /// Of which writers save no more until the disk is filled. By writer.
    enough: Vec<AtomicU64>,
    acknowledged: Vec<AtomicU64>,
    refused: Vec<AtomicU64>,
    reads: AtomicU64,
    /// Checkpoints by id, and their contexts.
    saved: Mutex<Vec<(String, Value)>>,
    report: Mutex<Report>,
}

impl Run {
    fn report(&self, add: impl FnOnce(&mut Report)) {
        add(&mut self.report.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn is_to_wait(&self, writer: usize) -> bool {
        let read = |counters: &[AtomicU64]| counters[writer].load(Ordering::SeqCst);
        let has_enough = read(&self.acknowledged) >= read(&self.enough);
        has_enough && !self.is_filling.load(Ordering::SeqCst) && !self.is_over()
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }
}

pub fn run(plan: &Plan) -> io::Result<Report> {
    let disk = SmallDisk::mount(&plan.folder)?;
    let counters = || (0..plan.writers).map(|_| AtomicU64::new(0)).collect();
    let run = Run { acknowledged: counters(), refused: counters(), enough: counters(), ..Run::default() };
    let filled = std::thread::scope(|scope| {
        let run = &run;
        let threads: Vec<_> = (0..plan.writers).map(|writer| scope.spawn(move || write(plan, run, writer))).collect();
        let reader = scope.spawn(move || read(plan, run));
        let keeper = scope.spawn(|| house::keep(&plan.binary, &plan.folder, &plan.aside, true, &run.is_over));
        let filled = fill_and_free(plan, run, &disk);
        run.is_over.store(true, Ordering::SeqCst);
        let ended = threads.into_iter().chain([reader]).try_for_each(|thread| thread.join().unwrap());
        let house = keeper.join().unwrap()?;
        run.report(|report| {
            (report.rounds_of_house, report.refused_house) = (house.rounds, house.refused);
            report.wrong.extend(house.wrong);
        });
        filled.and(ended)
    });
    filled?;
    let Run { saved, report, reads, .. } = run;
    let mut report = report.into_inner().unwrap_or_else(PoisonError::into_inner);
    report.reads = reads.into_inner();
    let saved = saved.into_inner().unwrap_or_else(PoisonError::into_inner);
    start_on_full(plan, &saved, &disk, &mut report)?;
    verify(plan, &saved, &mut report)?;
    report.data_bytes = disk.used_bytes()?;
    Ok(report)
}

fn start(plan: &Plan) -> io::Result<McpProcess> {
    let mut command = command(&plan.binary, &plan.folder);
    McpProcess::start_with(command.arg("mcp").env("WAYSTONE_MAX_CHECKPOINTS", "1000000"))
}

fn write(plan: &Plan, run: &Run, writer: usize) -> io::Result<()> {
    let mut process = start(plan)?;
    let mut random = Random::new(writer as u64);
    for n in 0.. {
        while run.is_to_wait(writer) {
            std::thread::sleep(POLL);
        }
        if run.is_over() {
            break;
        }
        let context = json!({ "writer": writer, "n": n, "text": random.text(40) });
        let arguments = json!({ "sessionId": format!("writer-{writer}"), "context": context });
        match process.call("workflow_checkpoint_save", arguments)? {
            Ok(reply) if reply["status"] == "SAVED" => {
                let id = reply["checkpointId"].as_str().unwrap().to_owned();
                run.saved.lock().unwrap_or_else(PoisonError::into_inner).push((id, context));
                run.acknowledged[writer].fetch_add(1, Ordering::SeqCst);
            }
            Err(error) if error["error"]["code"] == "STORAGE_UNAVAILABLE" => {
                let reason = error["error"]["details"]["reason"].as_str().unwrap_or("no reason").to_owned();
                run.report(|report| *report.refused.entry(reason).or_default() += 1);
                run.refused[writer].fetch_add(1, Ordering::SeqCst);
            }
            Ok(answer) | Err(answer) => run.report(|report| report.wrong.push(format!("a save: {answer}"))),
        }
        std::thread::sleep(PAUSE);
    }
    let status = process.finish()?;
    if !status.success() {
        run.report(|report| report.wrong.push(format!("writer {writer} ended with {status}")));
    }
    Ok(())
}

fn read(plan: &Plan, run: &Run) -> io::Result<()> {
    let mut process = start(plan)?;
    let mut random = Random::new(1);
    while !run.is_over() {
        std::thread::sleep(PAUSE);
        let known = run.saved.lock().unwrap_or_else(PoisonError::into_inner);
        if known.is_empty() {
            continue;
        }
        let (id, context) = known[random.below(known.len() as u64) as usize].clone();
        drop(known);
        match process.call("workflow_checkpoint_load", json!({ "checkpointId": id }))? {
            Ok(loaded) if loaded["context"] == context => {}
            Ok(loaded) => run.report(|report| report.lost.push(format!("{id} loads as {loaded}"))),
            Err(error) => run.report(|report| report.failed_reads.push(format!("{id}: {error}"))),
        }
        run.reads.fetch_add(1, Ordering::SeqCst);
    }
    process.finish().map(drop)
}

fn fill_and_free(plan: &Plan, run: &Run, disk: &SmallDisk) -> io::Result<()> {
    let read = |counters: &[AtomicU64]| -> Vec<u64> { counters.iter().map(|one| one.load(Ordering::SeqCst)).collect() };
    let mut freed: Option<(Instant, u64)> = None;
    let mut before = read(&run.acknowledged);
    let go_on = |before: &[u64]| {
        run.enough.iter().zip(before).for_each(|(enough, before)| enough.store(before + SAVES, Ordering::SeqCst));
        run.is_filling.store(false, Ordering::SeqCst);
    };
    go_on(&before);
    for _ in 0..plan.fills {
        wait_until("every writer saved", || {
            let now = read(&run.acknowledged);
            if let Some((at, _)) = freed.take_if(|(_, count)| now.iter().sum::<u64>() > *count) {
                run.report(|report| report.pauses.push(at.elapsed()));
            }
            Ok(now.iter().zip(&before).all(|(now, before)| *now >= before + SAVES))
        })?;
        run.is_filling.store(true, Ordering::SeqCst);
        let (refused, reads) = (read(&run.refused), run.reads.load(Ordering::SeqCst));
        wait_until("every writer was refused", || {
            // Others give back what they used for a while, and that is taken as well.
            disk.fill()?;
            let were_refused = read(&run.refused).iter().zip(&refused).all(|(now, before)| now > before);
            Ok(were_refused && run.reads.load(Ordering::SeqCst) >= reads + READS)
        })?;
        before = read(&run.acknowledged);
        go_on(&before);
        disk.free()?;
        freed = Some((Instant::now(), before.iter().sum()));
        run.report(|report| report.fills += 1);
    }
    wait_until("every writer saved at the end", || {
        Ok(read(&run.acknowledged).iter().zip(&before).all(|(now, before)| now > before))
    })
}

/// A process that starts when no page is free reads what was saved: for that, what was set aside is given up.
fn start_on_full(plan: &Plan, saved: &[(String, Value)], disk: &SmallDisk, report: &mut Report) -> io::Result<()> {
    let Some((id, context)) = saved.first() else { return Ok(()) };
    // The store itself sets nothing aside on a disk that is so small.
    fs::write(plan.folder.join("reserve"), vec![0; RESERVE_BYTES])?;
    disk.fill()?;
    let loaded = start(plan).and_then(|mut process| {
        let loaded = process.call("workflow_checkpoint_load", json!({ "checkpointId": id }))?;
        process.finish().map(|_| loaded)
    });
    match loaded {
        Ok(Ok(loaded)) if loaded["context"] == *context => {}
        other => report.wrong.push(format!("a start on a full disk: {other:?}")),
    }
    disk.free()
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> io::Result<bool>) -> io::Result<()> {
    let started = Instant::now();
    while !is_so()? {
        if started.elapsed() > WAIT_MAX {
            return Err(io::Error::other(format!("it took too long until {what}")));
        }
        std::thread::sleep(POLL);
    }
    Ok(())
}

fn verify(plan: &Plan, saved: &[(String, Value)], report: &mut Report) -> io::Result<()> {
    report.acknowledged = saved.len();
    let mut process = start(plan)?;
    for (id, context) in saved {
        match process.call("workflow_checkpoint_load", json!({ "checkpointId": id }))? {
            Ok(loaded) if loaded["context"] == *context => {}
            Ok(_) => report.lost.push(format!("{id} is another context than was saved")),
            Err(error) => report.lost.push(format!("{id}: {error}")),
        }
    }
    process.finish()?;
    report.lost.extend(audit(&plan.folder));
    let doctor = command(&plan.binary, &plan.folder).args(["--json", "doctor"]).output()?;
    if !doctor.status.success() {
        report.lost.push(format!("doctor says {}", String::from_utf8_lossy(&doctor.stdout)));
    }
    Ok(())
}
