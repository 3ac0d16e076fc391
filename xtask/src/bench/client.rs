//! The client side: lines made before the clock starts, and looked at no closer than needed after it has stopped. What this
//! program does while others are measured is in the figures.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;
use waystone_testkit::contexts::Random;
use waystone_testkit::harness::make_private;
use waystone_testkit::harness::private_dir;
use waystone_testkit::process::{McpProcess, command};

/// A directory that goes when the measurement ends, with a data directory for each process.
pub(super) struct Ground(TempDir);

impl Ground {
    pub(super) fn new() -> Self {
        Self(private_dir())
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Starts `waystone mcp` on the data directory `name`, with variables besides.
    pub(super) fn start(
        &self,
        binary: &Path,
        name: &str,
        variables: Vec<(String, String)>,
    ) -> anyhow::Result<McpProcess> {
        let data_dir = self.file(name);
        if !data_dir.exists() {
            make_private(&data_dir)?;
        }
        Ok(McpProcess::start_with(command(binary, &data_dir).arg("mcp").envs(variables))?)
    }
}

/// A context of which one line changes from save to save.
pub(super) struct Changing {
    random: Random,
    context: Value,
    lines: usize,
    step: usize,
}

impl Changing {
    pub(super) fn new(seed: u64, lines: usize) -> Self {
        let mut random = Random::new(seed);
        let steps: Vec<String> = (0..lines).map(|_| random.text(90)).collect();
        Self { random, context: json!({ "goal": "keep going", "step": 0, "steps": steps }), lines, step: 0 }
    }

    /// 355 lines make 33 KB.
    pub(super) fn of_33_kb() -> Self {
        Self::new(1, 355)
    }

    pub(super) fn next(&mut self) -> &Value {
        self.step += 1;
        self.context["step"] = json!(self.step);
        self.context["steps"][self.step % self.lines] = json!(self.random.text(90));
        &self.context
    }
}

pub(crate) fn call_line(id: usize, tool: &str, arguments: &Value) -> String {
    let params = json!({ "name": tool, "arguments": arguments });
    json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params }).to_string()
}

pub(super) fn save_line(id: usize, session: &str, context: &Value) -> String {
    call_line(id, "workflow_checkpoint_save", &json!({ "sessionId": session, "context": context }))
}

/// A save of a context that is JSON text already.
pub(super) fn save_text_line(id: usize, session: &str, context: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"workflow_checkpoint_save","arguments":{{"sessionId":"{session}","context":{context}}}}}}}"#
    )
}

pub(super) fn load_latest_line(session: &str) -> String {
    call_line(1, "workflow_checkpoint_load", &json!({ "sessionId": session }))
}

pub(super) fn list_line(session: &str) -> String {
    call_line(1, "workflow_checkpoint_list", &json!({ "sessionId": session, "limit": 20 }))
}

/// Sends `line` and waits for its answer.
pub(crate) fn answered(process: &mut McpProcess, line: &str) -> anyhow::Result<(Duration, String)> {
    let started = Instant::now();
    process.send_line(line)?;
    let answer = process.receive_line()?;
    let elapsed = started.elapsed();
    check(&answer)?;
    Ok((elapsed, answer))
}

pub(super) fn timed(process: &mut McpProcess, line: &str) -> anyhow::Result<Duration> {
    answered(process, line).map(|(elapsed, _)| elapsed)
}

/// What the tool returned.
pub(crate) fn content(answer: &str) -> anyhow::Result<Value> {
    let mut answer: Value = serde_json::from_str(answer)?;
    Ok(answer["result"]["structuredContent"].take())
}

fn check(answer: &str) -> anyhow::Result<()> {
    let is_good = answer.contains("\"result\":") && !answer.contains("\"isError\":true");
    ensure!(is_good, "a call failed: {answer}");
    Ok(())
}

/// Sends what is in `lanes`, of each the next line when the one before is answered: as many are in flight as there are lanes.
/// Ids of lines are numbers that say the lane: the lane itself, or any number of times the number of lanes more.
pub(super) fn send_all(process: &mut McpProcess, mut lanes: Vec<VecDeque<String>>) -> anyhow::Result<Duration> {
    let count = lanes.len();
    let mut left: usize = lanes.iter().map(VecDeque::len).sum();
    let started = Instant::now();
    for line in lanes.iter_mut().filter_map(VecDeque::pop_front) {
        process.send_line(&line)?;
    }
    while left > 0 {
        let answer = process.receive_line()?;
        check(&answer)?;
        let lane = id_of(&answer).with_context(|| format!("an answer without its id: {answer}"))? % count;
        left -= 1;
        if let Some(line) = lanes[lane].pop_front() {
            process.send_line(&line)?;
        }
    }
    Ok(started.elapsed())
}

/// The id of an answer, without parsing the rest.
fn id_of(answer: &str) -> Option<usize> {
    let (_, rest) = answer.split_once("\"id\":")?;
    rest.split(|other: char| !other.is_ascii_digit()).next()?.parse().ok()
}
