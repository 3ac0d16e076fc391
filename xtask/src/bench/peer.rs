//! The same contexts in LangGraph's SqliteSaver. It is called inside its own process and timed there, with no pipe and no JSON in
//! between; ours is timed at the client.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::Context;
use serde_json::json;
use waystone_testkit::contexts::Random;

use super::client::{
    Changing, Ground, answered, call_line, content, list_line, load_latest_line, save_text_line, timed,
};
use super::report::{Report, Sample, ratio};
use super::trajectory::{self, Trajectory};
use super::{Options, Programs};
use crate::root;
use crate::tools::python;

/// As many as a session keeps.
const CHECKPOINTS: usize = 100;
const WARM_UP: usize = 20;

/// Ours and theirs.
type Pair = (Sample, Sample);

pub(super) fn measure(programs: &Programs, options: &Options, report: &mut Report) -> anyhow::Result<()> {
    let mut changing = Changing::of_33_kb();
    let changing: Vec<String> = (0..CHECKPOINTS).map(|_| changing.next().to_string()).collect();
    let (source, runs) = trajectory::all(options.run.as_deref())?;
    let growing: Vec<String> = Trajectory::joined(&runs, CHECKPOINTS).contexts().collect();
    for (name, contexts) in [("of 33 KB".to_owned(), changing), (format!("of a run that grows, {source}"), growing)] {
        let largest = contexts.iter().map(String::len).max().unwrap_or(0) / 1000;
        report.note(
            &format!("contexts {name}"),
            format_args!("{} checkpoints, the largest {largest} KB", contexts.len()),
        );
        beside(programs, options.rounds, &contexts, report)?;
    }
    Ok(())
}

fn beside(programs: &Programs, rounds: usize, contexts: &[String], report: &mut Report) -> anyhow::Result<()> {
    let ground = Ground::new();
    let mut ours = ground.start(&programs.waystone, "data", Vec::new())?;
    let mut theirs = Saver::start(&ground)?;
    let (mut save, mut latest, mut by_id, mut list) = <(Pair, Pair, Pair, Pair)>::default();
    let mut ids = Vec::new();
    for context in contexts {
        let (time, answer) = answered(&mut ours, &save_text_line(1, "bench", context))?;
        save.0.push(time);
        save.1.push(theirs.call(&format!("[\"put\",{context}]"))?);
        ids.push(content(&answer)?["checkpointId"].clone());
    }
    let (latest_line, list_line, mut random) = (load_latest_line("bench"), list_line("bench"), Random::new(1));
    for n in 0..rounds + WARM_UP {
        if n == WARM_UP {
            (latest, by_id, list) = Default::default();
        }
        latest.0.push(timed(&mut ours, &latest_line)?);
        latest.1.push(theirs.call("[\"latest\"]")?);
        let older = random.below(contexts.len() as u64 - 1) as usize;
        let by_id_line = call_line(1, "workflow_checkpoint_load", &json!({ "checkpointId": ids[older] }));
        by_id.0.push(timed(&mut ours, &by_id_line)?);
        by_id.1.push(theirs.call(&format!("[\"by_id\",{older}]"))?);
        list.0.push(timed(&mut ours, &list_line)?);
        list.1.push(theirs.call("[\"list\",20]")?);
    }
    let beside = |(ours, theirs): &Pair| format!("{ours}; theirs {theirs}; {}", ratio(ours, theirs));
    report.note("  save", beside(&save));
    report.figure("  load the latest", beside(&latest), "1.0 x");
    report.figure("  load an older one by its id", beside(&by_id), "2 x");
    report.figure("  list 20", beside(&list), "0.025 x (1/40)");
    Ok(())
}

/// The script that keeps contexts with SqliteSaver.
struct Saver {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Saver {
    fn start(ground: &Ground) -> anyhow::Result<Self> {
        let python = python("peers", "tests/clients/peers.txt")?;
        let script = root().join("tests/clients/langgraph_saver.py");
        let mut command = Command::new(python);
        command.arg(script).arg(ground.file("langgraph.db")).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let stdin = child.stdin.take().context("its standard input is a pipe")?;
        let stdout = BufReader::new(child.stdout.take().context("its standard output is a pipe")?);
        Ok(Self { child, stdin, stdout })
    }

    fn call(&mut self, command: &str) -> anyhow::Result<Duration> {
        self.stdin.write_all(format!("{command}\n").as_bytes())?;
        let mut answer = String::new();
        self.stdout.read_line(&mut answer)?;
        let nanos = answer.trim().parse().context("the peer did not answer with a number")?;
        Ok(Duration::from_nanos(nanos))
    }
}

impl Drop for Saver {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
