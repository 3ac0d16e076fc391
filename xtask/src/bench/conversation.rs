//! Conversations: how much later a reader has what a model says than through a bare relay, how many can read, what a message costs as there
//! are more of them, and how many requests share a sync.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use waystone_testkit::harness::{make_private, private_dir};
use waystone_testkit::model::{FakeModel, Reply};
use waystone_testkit::served::{Events, Served, request};
use waystone_testkit::shim;

use super::report::{Report, Sample, ratio, shown};
use super::{Options, Programs};

/// Clients that create and add at once.
const CLIENTS: usize = 32;

pub(super) fn measure(programs: &Programs, options: &Options, report: &mut Report) -> anyhow::Result<()> {
    let runtime = Runtime::new()?;
    runtime.block_on(delay(programs, options, report))?;
    for readers in [100, 1000] {
        runtime.block_on(fan_out(programs, options, readers, report))?;
    }
    runtime.block_on(growth(programs, options, report))?;
    runtime.block_on(many(programs, options, report))
}

/// A server that asks `fake`, on a directory of its own.
pub(super) async fn serve(
    programs: &Programs,
    data_dir: &Path,
    fake: &FakeModel,
    more: Vec<(String, String)>,
) -> anyhow::Result<Served> {
    make_private(data_dir)?;
    let more = more.iter().map(|(name, value)| (name.as_str(), value.clone()));
    let environment: Vec<(&str, String)> = [("OPENAI_BASE_URL", fake.base_url())].into_iter().chain(more).collect();
    Ok(Served::start(&programs.waystone, data_dir, &environment).await?)
}

async fn relay(programs: &Programs, fake: &FakeModel) -> anyhow::Result<Served> {
    let mut command = Command::new(&programs.relay);
    command.arg(fake.base_url());
    Ok(Served::start_with(command).await?)
}

async fn create(server: &Served) -> anyhow::Result<String> {
    let made = server.post("/api/contexts", json!({ "model_id": "fake" })).await?.1;
    Ok(made["id"].as_str().context("no context was made")?.to_owned())
}

async fn say(server: &Served, context: &str) -> anyhow::Result<()> {
    let (status, reply) = server.post(&format!("/api/contexts/{context}/messages"), json!({ "content": "Hi" })).await?;
    ensure!(status == 201, "a message was not taken: {status} {reply}");
    Ok(())
}

/// Reads until a delta with that sequence, or a later one, is there.
async fn until_sequence(events: &mut Events, sequence: u64) -> anyhow::Result<()> {
    loop {
        let told = events.next().await?.context("the stream ended")?;
        if told.data.get("sequence").and_then(Value::as_u64).is_some_and(|told| told >= sequence) {
            return Ok(());
        }
    }
}

pub(super) async fn until_idle(events: &mut Events) -> anyhow::Result<()> {
    loop {
        let told = events.next().await?.context("the stream ended")?;
        if told.data.get("new_state").is_some_and(|state| state == "Idle") {
            return Ok(());
        }
    }
}

/// One chunk at a time, through us and through the relay in turn.
async fn delay(programs: &Programs, options: &Options, report: &mut Report) -> anyhow::Result<()> {
    let ground = private_dir();
    let (ours, theirs) = (FakeModel::start().await, FakeModel::start().await);
    let chunks = options.scaled(1000, 50);
    for fake in [&ours, &theirs] {
        fake.otherwise(Reply::chunks(vec!["word "; chunks]).gated());
    }
    let (server, relay) =
        (serve(programs, &ground.path().join("data"), &ours, Vec::new()).await?, relay(programs, &theirs).await?);
    let context = create(&server).await?;
    let mut our_events = server.follow(&context, None).await?;
    let mut their_events = Events::open(&relay.address, "/events", None).await?;
    say(&server, &context).await?;
    request(&relay.address, "POST", "/ask", Some(json!({}))).await?;
    let (mut with, mut bare) = (Sample::default(), Sample::default());
    for sequence in 1..=chunks as u64 {
        for (fake, events, sample) in [(&ours, &mut our_events, &mut with), (&theirs, &mut their_events, &mut bare)] {
            let started = Instant::now();
            fake.release(1);
            until_sequence(events, sequence).await?;
            // The first comes after a step that is committed.
            if sequence > 1 {
                sample.push(started.elapsed());
            }
        }
    }
    report.note("a chunk from model to reader, relay", &bare);
    report.figure("a chunk from model to reader", format_args!("{with}; {} the relay's", ratio(&with, &bare)), "2 x");
    Ok(())
}

/// All chunks at once to many readers.
async fn fan_out(programs: &Programs, options: &Options, readers: usize, report: &mut Report) -> anyhow::Result<()> {
    let ground = private_dir();
    let fake = FakeModel::start().await;
    let chunks = options.scaled(400, 50);
    fake.otherwise(Reply::chunks(vec!["some words of an answer "; chunks]).pause(Duration::from_micros(500)));
    let server = serve(programs, &ground.path().join("data"), &fake, Vec::new()).await?;
    let relay = relay(programs, &fake).await?;
    let (mut ours, mut bare) = (Sample::default(), Sample::default());
    for _ in 0..3 {
        let context = create(&server).await?;
        let path = format!("/api/contexts/{context}/events");
        let readers_of = |address: String, path: String| async move {
            let mut all = Vec::with_capacity(readers);
            for _ in 0..readers {
                all.push(Events::open(&address, &path, None).await?);
            }
            anyhow::Ok(all)
        };
        let all = readers_of(server.address.clone(), path).await?;
        let started = Instant::now();
        say(&server, &context).await?;
        read_all(all, chunks).await?;
        ours.push(started.elapsed());
        let all = readers_of(relay.address.clone(), "/events".to_owned()).await?;
        let started = Instant::now();
        request(&relay.address, "POST", "/ask", Some(json!({}))).await?;
        read_all(all, chunks).await?;
        bare.push(started.elapsed());
    }
    let rate = |sample: &Sample| (chunks * readers) as f64 / sample.median().as_secs_f64();
    let relative = rate(&ours) / rate(&bare);
    let name = format!("deltas a second to {readers} readers");
    report.figure(&name, format_args!("{:.0}, relay {:.0}; {relative:.2} x", rate(&ours), rate(&bare)), "0.6 x");
    Ok(())
}

async fn read_all(readers: Vec<Events>, chunks: usize) -> anyhow::Result<()> {
    let mut tasks = tokio::task::JoinSet::new();
    for mut events in readers {
        let last = format!("\"sequence\":{chunks}");
        tasks.spawn(async move { events.pass(&last).await });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(())
}

/// The same message in a short and in a long conversation of one server, in turn.
async fn growth(programs: &Programs, options: &Options, report: &mut Report) -> anyhow::Result<()> {
    let ground = private_dir();
    let fake = FakeModel::start_forgetful(Reply::text("ok")).await;
    let (few, many) = (200, options.scaled(10_000, 1000));
    let server = serve(programs, &ground.path().join("data"), &fake, shim::no_syncs()?).await?;
    let (short, long) = (create(&server).await?, create(&server).await?);
    let started = Instant::now();
    for (context, messages) in [(&short, few), (&long, many)] {
        let mut events = server.follow(context, None).await?;
        for _ in 0..messages / 2 {
            say(&server, context).await?;
            until_idle(&mut events).await?;
        }
    }
    let filling = started.elapsed();
    let (mut at_few, mut at_many) = (Sample::default(), Sample::default());
    let (mut short_events, mut long_events) = (server.follow(&short, None).await?, server.follow(&long, None).await?);
    for _ in 0..options.scaled(100, 20) {
        for (context, events, sample) in
            [(&short, &mut short_events, &mut at_few), (&long, &mut long_events, &mut at_many)]
        {
            let started = Instant::now();
            say(&server, context).await?;
            sample.push(started.elapsed());
            until_idle(events).await?;
        }
    }
    report.figure(
        &format!("adding a message at {many}"),
        format_args!("{at_many}; {} that at {few} ({at_few}), syncs made no-ops", ratio(&at_many, &at_few)),
        "1.2 x",
    );
    report.note("filling the longer conversation", shown(filling));
    Ok(())
}

/// Conversations begun and messages added by many clients, with syncs and with none.
async fn many(programs: &Programs, options: &Options, report: &mut Report) -> anyhow::Result<()> {
    let ground = private_dir();
    let fake = FakeModel::start_forgetful(Reply::text("ok")).await;
    let log = ground.path().join("syncs");
    let synced = serve(programs, &ground.path().join("synced"), &fake, shim::log_syncs(&log)?).await?;
    let unsynced = serve(programs, &ground.path().join("unsynced"), &fake, shim::no_syncs()?).await?;
    let (mut with, mut without) = (Sample::default(), Sample::default());
    let (before, each, blocks) = (shim::synced(&log)?.0, 5, options.scaled(10, 2));
    for _ in 0..blocks {
        with.push(add_many(&synced, each).await?);
        without.push(add_many(&unsynced, each).await?);
    }
    let requests = CLIENTS * each * 2;
    let syncs = (shim::synced(&log)?.0 - before) as f64 / (requests * blocks) as f64;
    report.figure("syncs of a request, 32 clients", format_args!("{syncs:.3}, of turns too"), "0.125 (1/8)");
    let rate = |sample: &Sample| requests as f64 / sample.median().as_secs_f64();
    let relative = rate(&with) / rate(&without);
    report.figure(
        "contexts and messages a second",
        format_args!("{:.0}; {relative:.2} x with syncs made no-ops ({:.0})", rate(&with), rate(&without)),
        "0.4 x",
    );
    Ok(())
}

async fn add_many(server: &Served, each: usize) -> anyhow::Result<Duration> {
    let started = Instant::now();
    let mut clients = tokio::task::JoinSet::new();
    for _ in 0..CLIENTS {
        let address = server.address.clone();
        clients.spawn(async move {
            for _ in 0..each {
                let made = request(&address, "POST", "/api/contexts", Some(json!({ "model_id": "fake" }))).await?.1;
                let context = made["id"].as_str().context("no context was made")?;
                let path = format!("/api/contexts/{context}/messages");
                let (status, _) = request(&address, "POST", &path, Some(json!({ "content": "Hi" }))).await?;
                ensure!(status == 201, "a message was not taken: {status}");
            }
            anyhow::Ok(())
        });
    }
    while let Some(done) = clients.join_next().await {
        done??;
    }
    Ok(started.elapsed())
}
