//! Kills servers in the middle of turns with kill -9, right after each transition was told and at any other moment, and looks whether the next
//! process ends the turn, and whether a reader that comes back is told everything once and has the text that is stored.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use crate::contexts::Random;
use crate::model::{FakeModel, Reply};
use crate::served::{Served, Told};

pub struct Plan {
    pub binary: PathBuf,
    pub data_dir: PathBuf,
    /// How often at each transition.
    pub kills: u32,
    pub seed: u64,
}

#[derive(Debug, Default)]
pub struct Report {
    /// How many kills there were at each point.
    pub kills: BTreeMap<String, u32>,
    pub resyncs: u32,
    /// How many turns were under way when their process was killed.
    pub cut: u32,
    pub wrong: Vec<String>,
}

/// When the server is killed.
#[derive(Debug, Clone, Copy)]
enum Point {
    /// As soon as this state is told.
    State(&'static str),
    /// As soon as this part of the answer is told.
    Sequence(u64),
    /// At some moment.
    Anywhere,
}

const POINTS: [Point; 9] = [
    Point::State("ProcessingUserMessage"),
    Point::State("AwaitingLLMResponse"),
    Point::State("TransientFailure"),
    Point::State("StreamingLLMResponse"),
    Point::Sequence(1),
    Point::Sequence(7),
    Point::State("ProcessingLLMResponse"),
    Point::State("Idle"),
    Point::Anywhere,
];

/// Nothing takes longer.
const PATIENCE: Duration = Duration::from_secs(60);

pub async fn run(plan: &Plan) -> io::Result<Report> {
    let fake = FakeModel::start().await;
    let (mut report, mut random) = (Report::default(), Random::new(plan.seed));
    for round in 0..plan.kills {
        for point in POINTS {
            let name = format!("{point:?}");
            if let Err(error) = kill_at(plan, &fake, point, &mut random, &mut report).await {
                report.wrong.push(format!("{name}, round {round}: {error}"));
            }
            *report.kills.entry(name).or_default() += 1;
        }
    }
    Ok(report)
}

async fn start(plan: &Plan, fake: &FakeModel) -> io::Result<Served> {
    let environment = [("OPENAI_BASE_URL", fake.base_url()), ("OPENAI_API_KEY", "key".to_owned())];
    Served::start(&plan.binary, &plan.data_dir, &environment).await
}

/// What a reader has of everything it was told, over all its connections.
#[derive(Default)]
pub(super) struct Seen {
    durable: Vec<String>,
    pub(super) last: Option<String>,
    text: String,
    message: Value,
    resyncs: u32,
    pub(super) states: Vec<String>,
}

impl Seen {
    pub(super) fn take(&mut self, told: &Told) {
        match told.kind.as_str() {
            "ContentDelta" => {
                if told.data["message_id"] != self.message || told.data["sequence"] == 1 {
                    self.text.clear();
                }
                self.message = told.data["message_id"].clone();
                self.text += told.data["delta"].as_str().unwrap_or_default();
            }
            "Resync" => {
                self.resyncs += 1;
                self.message = told.data.get("message_id").cloned().unwrap_or_default();
                self.text = told.data["content"].as_str().unwrap_or_default().to_owned();
                // Who was told nothing before is told no more of what had ended.
                if self.last.is_none() {
                    self.states.push(told.data["current_state"].as_str().unwrap_or_default().to_owned());
                }
            }
            "Heartbeat" => return,
            kind => {
                self.durable.push(told.id.clone());
                if kind == "StateChanged" {
                    self.states.push(told.data["new_state"].as_str().unwrap_or_default().to_owned());
                }
            }
        }
        self.last = Some(told.id.clone());
    }

    pub(super) fn is_over(&self) -> bool {
        self.states.last().is_some_and(|state| state == "Idle")
    }

    /// Someone has to decide.
    pub(super) fn is_waiting(&self) -> bool {
        self.states.last().is_some_and(|state| state == "AwaitingToolApproval")
    }

    fn is_at(&self, told: &Told, point: Point) -> bool {
        match point {
            Point::State(state) => told.data.get("new_state").is_some_and(|new| new == state),
            Point::Sequence(sequence) => told.data.get("sequence").is_some_and(|told| *told == sequence),
            Point::Anywhere => false,
        }
    }
}

async fn kill_at(
    plan: &Plan,
    fake: &FakeModel,
    point: Point,
    random: &mut Random,
    report: &mut Report,
) -> io::Result<()> {
    if let Point::State("TransientFailure") = point {
        fake.then(Reply::text("busy").status(503));
    }
    let words: Vec<String> = (0..12).map(|at| format!("w{at} é{} ", random.below(1000))).collect();
    let answer = Reply::chunks(words).pause(Duration::from_millis(3));
    fake.otherwise(answer);
    let mut server = start(plan, fake).await?;
    let context = server.post("/api/contexts", json!({ "model_id": "fake" })).await?.1;
    let id = context["id"].as_str().ok_or_else(|| io::Error::other("no context was made"))?.to_owned();
    let mut events = server.follow(&id, None).await?;
    let mut seen = Seen::default();
    let said = server.post(&format!("/api/contexts/{id}/messages"), json!({ "content": "Hi" })).await?;
    if said.0 != 201 {
        return Err(io::Error::other(format!("the message was not taken: {said:?}")));
    }
    let deadline = tokio::time::sleep(Duration::from_millis(random.below(80)));
    tokio::pin!(deadline);
    loop {
        tokio::select! {
            told = events.next() => {
                let Some(told) = told? else { return Err(io::Error::other("the stream ended")) };
                seen.take(&told);
                if seen.is_at(&told, point) || seen.is_over() {
                    break;
                }
            }
            () = &mut deadline, if matches!(point, Point::Anywhere) => break,
        }
    }
    server.kill()?;
    report.cut += u32::from(!seen.is_over());
    let server = start(plan, fake).await?;
    let ended = tokio::time::timeout(PATIENCE, read_to_end(&server, &id, &mut seen)).await;
    ended.map_err(|_| io::Error::other(format!("the turn did not end; {:?}", seen.states)))??;
    report.resyncs += seen.resyncs;
    check(&server, &id, &seen).await
}

/// Comes back with the last id that was seen, until the turn has ended.
async fn read_to_end(server: &Served, id: &str, seen: &mut Seen) -> io::Result<()> {
    // Who was told nothing yet asks for what is written.
    let mut events = server.follow(id, Some(seen.last.as_deref().unwrap_or("nothing"))).await?;
    // What had ended before says nothing more.
    while !seen.is_over() {
        let told = events.next().await?.ok_or_else(|| io::Error::other("the stream ended"))?;
        seen.take(&told);
    }
    Ok(())
}

async fn check(server: &Served, id: &str, seen: &Seen) -> io::Result<()> {
    let wrong = |what: String| Err(io::Error::other(what));
    let messages = server.get(&format!("/api/contexts/{id}/messages")).await?.1;
    let stored: Vec<&str> = messages["messages"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|message| message["content"][0]["text"].as_str())
        .collect();
    if stored.len() != 2 || stored[1] != seen.text {
        return wrong(format!("stored {stored:?}, read {:?}", seen.text));
    }
    check_told(server, id, seen).await
}

/// No event is missing, and none was told twice.
pub(super) async fn check_told(server: &Served, id: &str, seen: &Seen) -> io::Result<()> {
    let wrong = |what: String| Err(io::Error::other(what));
    if seen.resyncs > 1 {
        return wrong(format!("{} resyncs", seen.resyncs));
    }
    let once: BTreeSet<&String> = seen.durable.iter().collect();
    if once.len() != seen.durable.len() {
        return wrong(format!("something was told twice: {:?}", seen.durable));
    }
    let Some(first) = seen.durable.first() else { return Ok(()) };
    let mut all = vec![first.clone()];
    let mut events = server.follow(id, Some(first)).await?;
    while all.last() != seen.durable.last() {
        let told = tokio::time::timeout(PATIENCE, events.next()).await.map_err(io::Error::other)??;
        let told = told.ok_or_else(|| io::Error::other("the stream ended"))?;
        if told.kind == "Resync" {
            return wrong(format!("the log does not have {first}"));
        }
        if told.kind != "ContentDelta" && told.kind != "Heartbeat" {
            all.push(told.id);
        }
    }
    if all != seen.durable {
        return wrong(format!("told {:?}, in the log {all:?}", seen.durable));
    }
    Ok(())
}

/// A plan for a directory that is there.
pub fn plan(binary: PathBuf, data_dir: &Path, kills: u32, seed: u64) -> Plan {
    Plan { binary, data_dir: data_dir.to_owned(), kills, seed }
}
