//! Kills writers with `kill -9` again and again, and then looks whether what they were promised is there.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::contexts::{Random, numbered};
use crate::fault::house;
use crate::harness::make_private;
use crate::process::{McpProcess, command, outcome};
use crate::shim::{self, Call};

/// How many saves a writer has under way at once.
const IN_FLIGHT: usize = 3;

#[derive(Debug, Clone)]
pub struct Plan {
    pub binary: PathBuf,
    pub data_dir: PathBuf,
    pub kills: u32,
    pub writers: u64,
    pub seed: u64,
    /// A library to load before all others, and what to tell it.
    pub preload: Vec<(String, String)>,
}

/// A save that was acknowledged: who sent it, its number, and the id it was given.
pub type Acknowledged = (u64, u64, String);

#[derive(Debug, Default)]
pub struct Report {
    pub kills: u32,
    /// Those that met a process that was writing a mirror file.
    pub kills_at_end: u32,
    pub acknowledged: usize,
    /// How often house was kept beside them.
    pub rounds_of_house: u32,
    /// Acknowledged, but gone or different.
    pub lost: Vec<String>,
    /// There, but not a context that anyone sent; or what went wrong in keeping house.
    pub torn: Vec<String>,
    /// From the start of a process to its first answer.
    pub starts: Vec<Duration>,
}

/// Runs the whole plan.
pub fn run(plan: &Plan) -> io::Result<Report> {
    let (kills, is_over) = (AtomicU32::new(0), AtomicBool::new(false));
    let mut report = Report::default();
    let mut acknowledged = Vec::new();
    std::thread::scope(|scope| {
        let kills = &kills;
        let writers: Vec<_> =
            (0..plan.writers).map(|writer| scope.spawn(move || write_and_die(plan, writer, kills))).collect();
        let keeper = scope.spawn(|| {
            let aside = plan.data_dir.with_extension("aside");
            fs::create_dir_all(&aside)?;
            house::keep(&plan.binary.with_file_name("waystone"), &plan.data_dir, &aside, false, &is_over)
        });
        for writer in writers {
            let (saved, of_one) = writer.join().unwrap()?;
            acknowledged.extend(saved);
            report.starts.extend(of_one.starts);
            report.kills_at_end += of_one.kills_at_end;
        }
        is_over.store(true, Ordering::SeqCst);
        let house = keeper.join().unwrap()?;
        (report.rounds_of_house, report.torn) = (house.rounds, house.wrong);
        Ok::<_, io::Error>(())
    })?;
    report.kills = kills.load(Ordering::SeqCst);
    verify(plan, &acknowledged, &mut report)?;
    Ok(report)
}

fn session_of(writer: u64, n: u64) -> String {
    if n.is_multiple_of(4) { "shared".to_owned() } else { format!("writer-{writer}") }
}

/// One writer: starts the binary, saves until it is killed at some moment, and starts over. Every third time it is
/// killed when it writes a mirror file: it does so when it ends, and otherwise only after a second.
fn write_and_die(plan: &Plan, writer: u64, kills: &AtomicU32) -> io::Result<(Vec<Acknowledged>, Report)> {
    let mut random = Random::new(plan.seed ^ (writer + 1));
    let (mut saved, mut report, mut n) = (Vec::new(), Report::default(), 0);
    for turn in 1.. {
        if kills.fetch_add(1, Ordering::SeqCst) >= plan.kills {
            break;
        }
        if turn % 3 == 0 {
            let kind = ["open", "write", "fsync", "rename"][random.below(4) as usize];
            let call = Call { kind, errno: -1, at: 1 + random.below(2) as u32 };
            let is_killed = save_and_end(plan, writer, call, &mut n, &mut saved)?;
            report.kills_at_end += u32::from(is_killed);
            kills.fetch_sub(u32::from(!is_killed), Ordering::SeqCst);
            continue;
        }
        let started = Instant::now();
        let mut process = start(plan)?;
        report.starts.push(started.elapsed());
        let delay = Duration::from_micros(5_000 + random.below(60_000));
        save_until_killed(&mut process, plan, writer, &mut n, delay, &mut saved)?;
    }
    kills.fetch_sub(1, Ordering::SeqCst);
    Ok((saved, report))
}

/// Saves a few contexts and lets the process end, which is killed before it makes `call` on a mirror file. It may make
/// none: another process may be keeping house.
fn save_and_end(plan: &Plan, writer: u64, call: Call, n: &mut u64, saved: &mut Vec<Acknowledged>) -> io::Result<bool> {
    let contexts = plan.data_dir.join("contexts");
    make_private(&contexts)?;
    let preload = shim::fail(call, &contexts, &plan.data_dir.with_extension("faults"), None)?;
    let mut process = start(&Plan { preload, ..plan.clone() })?;
    for _ in 0..IN_FLIGHT {
        *n += 1;
        let arguments = json!({ "sessionId": session_of(writer, *n), "context": numbered(plan.seed, writer, *n) });
        match process.call("workflow_checkpoint_save", arguments) {
            Ok(Ok(reply)) => saved.push((writer, *n, reply["checkpointId"].as_str().unwrap().to_owned())),
            Ok(Err(error)) => panic!("a save failed: {error}"),
            Err(_) => break,
        }
    }
    Ok(!process.finish()?.success())
}

pub fn start(plan: &Plan) -> io::Result<McpProcess> {
    let mut command = command(&plan.binary, &plan.data_dir);
    command.arg("mcp").env("WAYSTONE_MAX_CHECKPOINTS", "1000000").envs(plan.preload.iter().cloned());
    McpProcess::start_with(&mut command)
}

/// Saves one context after the other, several under way, until the process is killed `delay` from now.
pub fn save_until_killed(
    process: &mut McpProcess,
    plan: &Plan,
    writer: u64,
    n: &mut u64,
    delay: Duration,
    saved: &mut Vec<Acknowledged>,
) -> io::Result<()> {
    let end = |pid| kill_process(pid, Signal::KILL).unwrap();
    save_until(process, plan, writer, n, delay, saved, End::Killed, end)
}

/// What ends a writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The process is killed: what it acknowledged counts, whenever that arrived.
    Killed,
    /// Its file system is shut down, which takes a while. What is acknowledged in that while is in doubt: the kernel lets a sync
    /// succeed whose data is lost then, for a bare append too. Saves may be refused.
    ShutDown,
}

/// Saves one context after the other, several under way, until `end` has ended the process, `delay` from now.
#[expect(
    clippy::too_many_arguments,
    reason = "the state of one writer, which its caller keeps from process to process"
)]
pub fn save_until(
    process: &mut McpProcess,
    plan: &Plan,
    writer: u64,
    n: &mut u64,
    delay: Duration,
    saved: &mut Vec<Acknowledged>,
    kind: End,
    end: impl FnOnce(Pid) + Send,
) -> io::Result<()> {
    let pid = Pid::from_raw(i32::try_from(process.pid()).unwrap()).unwrap();
    let is_ending = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            std::thread::sleep(delay);
            is_ending.store(kind == End::ShutDown, Ordering::SeqCst);
            end(pid);
        });
        let mut under_way = BTreeMap::new();
        loop {
            while under_way.len() < IN_FLIGHT {
                *n += 1;
                let arguments =
                    json!({ "sessionId": session_of(writer, *n), "context": numbered(plan.seed, writer, *n) });
                match process.send_call("workflow_checkpoint_save", arguments) {
                    Ok(id) => under_way.insert(id, *n),
                    Err(_) => break,
                };
            }
            let Ok(answer) = process.receive() else { return };
            let Some(n) = answer["id"].as_u64().and_then(|id| under_way.remove(&id)) else { continue };
            match outcome(answer) {
                Ok(_) if is_ending.load(Ordering::SeqCst) => {}
                Ok(reply) => saved.push((writer, n, reply["checkpointId"].as_str().unwrap().to_owned())),
                Err(error) if kind == End::Killed => panic!("a save failed: {error}"),
                Err(error) => assert!(error["error"]["code"].is_string(), "a refusal without a code: {error}"),
            }
        }
    });
    process.child.wait().map(drop)
}

/// Loads everything: each acknowledged save must be there and equal, and everything listed must be something that was sent.
pub fn verify(plan: &Plan, acknowledged: &[Acknowledged], report: &mut Report) -> io::Result<()> {
    let mut process = start(&Plan { preload: Vec::new(), ..plan.clone() })?;
    report.acknowledged += acknowledged.len();
    for (writer, n, id) in acknowledged {
        let loaded = process.call("workflow_checkpoint_load", json!({ "checkpointId": id }))?;
        match loaded {
            Ok(loaded) if loaded["context"] == numbered(plan.seed, *writer, *n) => {}
            Ok(_) => report.lost.push(format!("{id}: another context than was saved")),
            Err(error) => report.lost.push(format!("{id}: {}", error["error"]["message"])),
        }
    }
    let known: std::collections::BTreeSet<&str> = acknowledged.iter().map(|(_, _, id)| id.as_str()).collect();
    for id in list_all(&mut process)? {
        if !known.contains(id.as_str()) {
            let loaded = process.call("workflow_checkpoint_load", json!({ "checkpointId": id }))?;
            let whole = loaded.as_ref().is_ok_and(|loaded| is_ours(plan.seed, &loaded["context"]));
            if !whole {
                report.torn.push(id);
            }
        }
    }
    process.finish()?;
    report.lost.extend(crate::audit::audit(&plan.data_dir));
    report.torn.extend(torn_files(plan)?);
    Ok(())
}

/// Mirror files that are not what was written. One that lags behind is not among them; one that the next process found
/// torn was set aside by it. The program under test may be one that only saves, so the real one beside it is asked.
fn torn_files(plan: &Plan) -> io::Result<Vec<String>> {
    let doctor = plan.binary.with_file_name("waystone");
    let done = command(&doctor, &plan.data_dir).args(["doctor", "--json"]).output()?;
    let checkup: Value = serde_json::from_slice(&done.stdout).map_err(io::Error::other)?;
    let mut torn: Vec<String> = checkup["findings"].as_array().into_iter().flatten().map(Value::to_string).collect();
    if plan.data_dir.join("damaged").exists() {
        torn.push("files were torn and set aside".to_owned());
    }
    Ok(torn)
}

fn is_ours(seed: u64, context: &Value) -> bool {
    let number = |key: &str| context[key].as_u64();
    number("writer").zip(number("n")).is_some_and(|(writer, n)| *context == numbered(seed, writer, n))
}

pub fn list_all(process: &mut McpProcess) -> io::Result<Vec<String>> {
    let mut ids = Vec::new();
    let mut arguments = json!({ "limit": 1000 });
    loop {
        let page = process
            .call("workflow_checkpoint_list", arguments.clone())?
            .map_err(|error| io::Error::other(error.to_string()))?;
        let page_ids = page["checkpoints"].as_array().into_iter().flatten();
        ids.extend(page_ids.filter_map(|checkpoint| checkpoint["checkpointId"].as_str().map(str::to_owned)));
        match page.get("nextCursor") {
            Some(cursor) => arguments["cursor"] = cursor.clone(),
            None => return Ok(ids),
        }
    }
}
