//! Kills servers with kill -9 in the middle of turns in which two tools run side by side, each of which leaves a trace, and looks whether one
//! was run twice, or was not run and is said to have been.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use super::turn::{Seen, check_told};
use crate::contexts::Random;
use crate::model::{FakeModel, Reply};
use crate::served::{Served, Told};

pub struct Plan {
    pub binary: PathBuf,
    /// `waystone-witness`.
    pub witness: PathBuf,
    pub data_dir: PathBuf,
    /// How often at each point.
    pub kills: u32,
    pub seed: u64,
}

#[derive(Debug, Default)]
pub struct Report {
    /// How many kills there were at each point.
    pub kills: BTreeMap<String, u32>,
    /// How many turns were under way when their process was killed.
    pub cut: u32,
    /// How many calls were approved before, and waited for it again afterwards.
    pub survived: u32,
    /// How many calls were begun by a process that was killed, and asked about by the next.
    pub unknown: u32,
    pub wrong: Vec<String>,
}

/// When the server is killed: as soon as this is told so often, or at some moment.
#[derive(Debug, Clone, Copy)]
enum Point {
    State(&'static str, usize),
    Event(&'static str, usize),
    Anywhere,
}

const POINTS: [Point; 12] = [
    Point::State("ProcessingUserMessage", 1),
    Point::State("AwaitingLLMResponse", 1),
    Point::State("StreamingLLMResponse", 1),
    Point::State("ProcessingLLMResponse", 1),
    Point::Event("ToolCallRequested", 1),
    Point::State("AwaitingToolApproval", 1),
    Point::State("ExecutingTools", 1),
    Point::Event("ToolCallCompleted", 1),
    Point::Event("ToolCallCompleted", 2),
    Point::State("AwaitingLLMResponse", 2),
    Point::State("Idle", 1),
    Point::Anywhere,
];

/// Nothing takes longer.
const PATIENCE: Duration = Duration::from_secs(60);
const LINES: [&str; 2] = ["one", "two"];

pub async fn run(plan: &Plan) -> io::Result<Report> {
    let fake = FakeModel::start().await;
    let (mut report, mut random) = (Report::default(), Random::new(plan.seed));
    for round in 0..plan.kills {
        for point in POINTS {
            let name = format!("{point:?}");
            // Every other time nobody is asked.
            let run = Run { plan, fake: &fake, point, is_asked: round % 2 == 0 };
            if let Err(error) = run.kill(&mut random, &mut report).await {
                report.wrong.push(format!("{name}, round {round}: {error}"));
            }
            *report.kills.entry(name).or_default() += 1;
        }
    }
    Ok(report)
}

struct Run<'a> {
    plan: &'a Plan,
    fake: &'a FakeModel,
    point: Point,
    is_asked: bool,
}

impl Run<'_> {
    async fn start(&self, trace: &Path) -> io::Result<Served> {
        let servers = json!({ "witness": { "command": self.plan.witness, "args": [trace] } });
        let allowed = if self.is_asked { "" } else { "witness__*" };
        let environment = [
            ("OPENAI_BASE_URL", self.fake.base_url()),
            ("OPENAI_API_KEY", "key".to_owned()),
            ("WAYSTONE_MCP_SERVERS", servers.to_string()),
            ("WAYSTONE_ALLOWED_TOOLS", allowed.to_owned()),
        ];
        Served::start(&self.plan.binary, &self.plan.data_dir, &environment).await
    }

    async fn kill(&self, random: &mut Random, report: &mut Report) -> io::Result<()> {
        let trace = tempfile::NamedTempFile::new()?;
        let calls = LINES.map(|line| ("witness__append", json!({ "line": line })));
        let done = Reply::text("Both are there.");
        self.fake.otherwise(Reply::text("I add two lines.").tool_calls(calls).after_results(done));
        let mut server = self.start(trace.path()).await?;
        let context = server.post("/api/contexts", json!({ "model_id": "fake" })).await?.1;
        let id = context["id"].as_str().ok_or_else(|| io::Error::other("no context was made"))?.to_owned();
        let mut seen = Seen::default();
        let mut events = server.follow(&id, None).await?;
        let said = server.post(&format!("/api/contexts/{id}/messages"), json!({ "content": "Add two." })).await?;
        if said.0 != 201 {
            return Err(io::Error::other(format!("the message was not taken: {said:?}")));
        }
        let deadline = tokio::time::sleep(Duration::from_millis(random.below(150)));
        tokio::pin!(deadline);
        let mut met = 0;
        loop {
            tokio::select! {
                told = events.next() => {
                    let told = told?.ok_or_else(|| io::Error::other("the stream ended"))?;
                    seen.take(&told);
                    met += usize::from(self.is_met(&told));
                    if met == self.times() || seen.is_over() {
                        break;
                    }
                    if seen.is_waiting() {
                        decide(&server, &id).await?;
                    }
                }
                () = &mut deadline, if matches!(self.point, Point::Anywhere) => break,
            }
        }
        let before = pending(&server, &id).await?.len();
        server.kill()?;
        report.cut += u32::from(!seen.is_over());
        let server = self.start(trace.path()).await?;
        // What was decided and begun may be asked about anew; what waited must go on waiting.
        if before > 0 {
            let after = pending(&server, &id).await?.len();
            report.survived += u32::from(before == after);
            if before != after {
                return Err(io::Error::other(format!("{before} calls waited, and {after} do afterwards")));
            }
        }
        let ended = tokio::time::timeout(PATIENCE, read_to_end(&server, &id, &mut seen, report)).await;
        ended.map_err(|_| io::Error::other(format!("the turn did not end; {:?}", seen.states)))??;
        check(&server, &id, trace.path()).await?;
        check_told(&server, &id, &seen).await
    }

    fn is_met(&self, told: &Told) -> bool {
        match self.point {
            Point::State(state, _) => told.data.get("new_state").is_some_and(|new| new == state),
            Point::Event(kind, _) => told.kind == kind,
            Point::Anywhere => false,
        }
    }

    fn times(&self) -> usize {
        match self.point {
            Point::State(_, times) | Point::Event(_, times) => times,
            Point::Anywhere => usize::MAX,
        }
    }
}

async fn pending(server: &Served, id: &str) -> io::Result<Vec<Value>> {
    let mut state = server.get(&format!("/api/contexts/{id}/state")).await?.1;
    Ok(serde_json::from_value(state["pending_tool_calls"].take()).unwrap_or_default())
}

/// Approves what was never begun, and denies what was: how often that ran then is known. Returns how many were begun before.
async fn decide(server: &Served, id: &str) -> io::Result<u32> {
    let waiting = pending(server, id).await?;
    let (begun, fresh): (Vec<_>, Vec<_>) =
        waiting.iter().partition(|call| call.get("outcome").is_some_and(|outcome| outcome == "outcome_unknown"));
    for (calls, how) in [(&begun, "deny"), (&fresh, "approve")] {
        let ids: Vec<&Value> = calls.iter().map(|call| &call["id"]).collect();
        if !ids.is_empty() {
            let decided =
                server.post(&format!("/api/contexts/{id}/tools/{how}"), json!({ "tool_call_ids": ids })).await?;
            if decided.0 != 200 {
                return Err(io::Error::other(format!("{how}: {decided:?}")));
            }
        }
    }
    Ok(u32::try_from(begun.len()).unwrap_or(u32::MAX))
}

/// Comes back with the last id that was seen, and decides what is to be decided, until the turn has ended.
async fn read_to_end(server: &Served, id: &str, seen: &mut Seen, report: &mut Report) -> io::Result<()> {
    let mut events = server.follow(id, Some(seen.last.as_deref().unwrap_or("nothing"))).await?;
    while !seen.is_over() {
        if seen.is_waiting() {
            report.unknown += decide(server, id).await?;
            seen.states.push("decided".to_owned());
        }
        let told = events.next().await?.ok_or_else(|| io::Error::other("the stream ended"))?;
        seen.take(&told);
    }
    Ok(())
}

/// What ran is there once; what did not is not there, unless it was begun and how it ended is not known.
async fn check(server: &Served, id: &str, trace: &Path) -> io::Result<()> {
    let written = std::fs::read_to_string(trace)?;
    let messages = server.get(&format!("/api/contexts/{id}/messages")).await?.1;
    let parts = messages["messages"].as_array().into_iter().flatten();
    let calls = parts.flat_map(|message| message["content"].as_array().into_iter().flatten());
    for call in calls.filter(|part| part["type"] == "tool_call") {
        let kept =
            server.get(&format!("/api/contexts/{id}/tools/{}", call["id"].as_str().unwrap_or_default())).await?.1;
        let line = call["arguments"]["line"].as_str().unwrap_or_default();
        let count = written.lines().filter(|written| *written == line).count();
        let is_right = match kept["outcome"].as_str() {
            Some("succeeded") => count == 1,
            Some("denied") => count <= 1,
            _ => false,
        };
        if !is_right {
            return Err(io::Error::other(format!("{line} is there {count} times: {kept}")));
        }
    }
    Ok(())
}
