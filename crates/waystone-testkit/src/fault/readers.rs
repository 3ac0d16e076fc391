//! Very many readers of one conversation, some slow, some that go and come back, while an answer is streamed: whether each has the whole text in
//! the end, or was told that it must read anew, what memory that takes, and whether others are still answered.

use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::contexts::Random;
use crate::model::{FakeModel, Reply};
use crate::served::{Events, Served, request};

pub struct Plan {
    pub binary: PathBuf,
    pub data_dir: PathBuf,
    pub readers: usize,
    /// How long an answer is streamed, at 50 events a second.
    pub seconds: u64,
    pub seed: u64,
}

#[derive(Debug, Default)]
pub struct Report {
    pub readers: usize,
    pub events: u64,
    pub reconnects: u64,
    /// Connections that were not made at the first try.
    pub refused: u64,
    pub resyncs: u64,
    pub peak_kb: u64,
    /// How long another request took while everyone read.
    pub requests: Vec<Duration>,
    pub wrong: Vec<String>,
}

const EVENTS_A_SECOND: u64 = 50;
/// Of a hundred readers one is slow; of a hundred so many come back anew in each second.
const SLOW_EACH: usize = 100;
const LEAVING_PERCENT: u64 = 5;

pub async fn run(plan: &Plan) -> io::Result<Report> {
    let fake = FakeModel::start().await;
    let words: Vec<String> = (0..plan.seconds * EVENTS_A_SECOND).map(|at| format!("w{at} ")).collect();
    let whole = words.concat();
    fake.otherwise(Reply::chunks(words).pause(Duration::from_micros(1_000_000 / EVENTS_A_SECOND)));
    let server = Served::start(&plan.binary, &plan.data_dir, &[("OPENAI_BASE_URL", fake.base_url())]).await?;
    let context = server.post("/api/contexts", json!({ "model_id": "fake" })).await?.1;
    let id = context["id"].as_str().ok_or(io::ErrorKind::InvalidData)?.to_owned();
    let path = format!("/api/contexts/{id}/events");
    let mut readers = JoinSet::new();
    let (ready, mut is_ready) = watch::channel(0_usize);
    for at in 0..plan.readers {
        let (address, path, ready) = (server.address.clone(), path.clone(), ready.clone());
        let (seed, is_slow) = (plan.seed + at as u64, at % SLOW_EACH == 0);
        let events = Events::open(&address, &path, None).await?;
        readers.spawn(async move { read(&address, &path, events, &mut Random::new(seed), is_slow, &ready).await });
    }
    drop(ready);
    let _ = is_ready.wait_for(|count| *count == plan.readers).await;
    let said = server.post(&format!("/api/contexts/{id}/messages"), json!({ "content": "Hi" })).await?;
    let mut report = Report { readers: plan.readers, ..Report::default() };
    if said.0 != 201 {
        report.wrong.push(format!("the message was not taken: {said:?}"));
    }
    // Others are answered meanwhile.
    for _ in 0..plan.seconds * 10 {
        let started = Instant::now();
        request(&server.address, "GET", &format!("/api/contexts/{id}/state"), None).await?;
        report.requests.push(started.elapsed());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    while let Some(done) = readers.join_next().await {
        match done.map_err(io::Error::other)? {
            Ok(seen) => {
                report.events += seen.events;
                report.reconnects += seen.reconnects;
                report.refused += seen.refused;
                report.resyncs += seen.resyncs;
                if seen.text != whole {
                    report.wrong.push(format!("a reader has {} of {} bytes", seen.text.len(), whole.len()));
                }
                report.wrong.extend(seen.wrong);
            }
            Err(error) => report.wrong.push(format!("a reader: {error}")),
        }
    }
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid()))?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.split_whitespace().next()?.parse().ok());
    report.peak_kb = peak.unwrap_or_default();
    Ok(report)
}

#[derive(Default)]
struct Seen {
    text: String,
    /// The sequence that comes next.
    next: u64,
    last: Option<String>,
    events: u64,
    reconnects: u64,
    refused: u64,
    resyncs: u64,
    wrong: Option<String>,
}

async fn read(
    address: &str,
    path: &str,
    mut events: Events,
    random: &mut Random,
    is_slow: bool,
    ready: &watch::Sender<usize>,
) -> io::Result<Seen> {
    ready.send_modify(|count| *count += 1);
    let mut seen = Seen { next: 1, ..Seen::default() };
    loop {
        // A connection that is lost is made again, as browsers do.
        let Ok(Some(told)) = events.next().await else {
            events = come_back(address, path, &mut seen).await?;
            continue;
        };
        seen.events += 1;
        if !told.id.is_empty() {
            seen.last = Some(told.id.clone());
        }
        match told.kind.as_str() {
            "ContentDelta" => {
                let sequence = told.data["sequence"].as_u64().unwrap_or_default();
                let first = told.data.get("first_sequence").and_then(Value::as_u64).unwrap_or(sequence);
                if first != seen.next {
                    seen.wrong = Some(format!("{first} came where {} was to come", seen.next));
                }
                seen.next = sequence + 1;
                seen.text += told.data["delta"].as_str().unwrap_or_default();
            }
            "Resync" => {
                seen.resyncs += 1;
                seen.text = told.data["content"].as_str().unwrap_or_default().to_owned();
                seen.next = told.data["sequence"].as_u64().unwrap_or_default() + 1;
            }
            "StateChanged" if told.data["new_state"] == "Idle" => return Ok(seen),
            _ => {}
        }
        if is_slow {
            tokio::time::sleep(Duration::from_millis(random.below(400))).await;
        } else if random.below(EVENTS_A_SECOND * 100) < LEAVING_PERCENT {
            drop(events);
            events = come_back(address, path, &mut seen).await?;
        }
    }
}

/// So often a connection is tried before the server is thought to be gone.
const TRIES: u32 = 20;

async fn come_back(address: &str, path: &str, seen: &mut Seen) -> io::Result<Events> {
    for _ in 1..TRIES {
        seen.reconnects += 1;
        if let Ok(events) = Events::open(address, path, seen.last.as_deref()).await {
            return Ok(events);
        }
        seen.refused += 1;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Events::open(address, path, seen.last.as_deref()).await
}
