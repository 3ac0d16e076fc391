//! Windows: how long it takes from a message to the model being asked on a branch of ten thousand messages, beside branches of
//! twenty, and what it takes to look at such a window.
//!
//! The model is asked when its request begins to come, so that neither its way nor what the fake does with it counts; that it has to be
//! written is in the time of one of the short branches too, whose few messages fill as much of the window.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use waystone_testkit::harness::private_dir;
use waystone_testkit::model::{FakeModel, Reply};
use waystone_testkit::served::{Served, request};
use waystone_testkit::shim;

use super::conversation::{serve, until_idle};
use super::report::{Report, Sample, ratio, shown};
use super::{Options, Programs};

/// Those whose windows are looked at. What one leaves out is put back for the other, and cut anew.
const MODELS: [(&str, u64); 2] = [("gpt-4o", 128_000), ("gpt-4.1", 120_000)];
/// The one with which branches grow: it is told little, so that they do so fast.
const FILLER: (&str, u64) = ("gpt-4o-mini", 8_000);
const FEW: usize = 20;
/// So often the same short branch is gone on with, before there is a new one.
const TURNS: usize = 10;
/// A message has so many, and one of a few that fill the window as much as many do so many.
const SENTENCES: usize = 4;
const SENTENCES_FULL: usize = 250;
/// Of some 35 tokens.
const SENTENCE: &str = "The reader keeps the newest page of every list at hand, asks for the next one before it is needed, and says \
                        in a line of its log how long that took and whether someone waited for it. ";

pub(super) fn measure(programs: &Programs, options: &Options, report: &mut Report) -> anyhow::Result<()> {
    Runtime::new()?.block_on(run(programs, options, report))
}

async fn run(programs: &Programs, options: &Options, report: &mut Report) -> anyhow::Result<()> {
    let ground = private_dir();
    let mut bench = Bench::start(programs, &ground.path().join("data")).await?;
    let many = options.scaled(10_000, 1000);
    let started = Instant::now();
    let long = bench.grow(FILLER.0, many, SENTENCES).await?;
    let filling = started.elapsed();
    bench.ask_by(&long, MODELS[0].0).await?;
    bench.turn(&long).await?;
    let at = At { bench: &bench, options, long: &long, many };
    measure_turns(&at, report).await?;
    measure_cuts(&at, report).await?;
    measure_looks(&at, report).await?;
    measure_starts(&mut bench, programs, &long, many, report).await?;
    report.note("filling the long branch", shown(filling));
    Ok(())
}

/// What is measured: the long branch, and how long it is.
#[derive(Clone, Copy)]
struct At<'a> {
    bench: &'a Bench,
    options: &'a Options,
    long: &'a str,
    many: usize,
}

/// A new turn on each of the branches, one after the other.
async fn measure_turns(at: &At<'_>, report: &mut Report) -> anyhow::Result<()> {
    let At { bench, options, long, many } = *at;
    let (mut at_many, mut at_few, mut as_full) = (Sample::default(), Sample::default(), Sample::default());
    for _ in 0..options.scaled(200, 20).div_ceil(TURNS) {
        let (few, full) = (bench.few().await?, bench.grow(MODELS[0].0, FEW, SENTENCES_FULL).await?);
        for _ in 0..TURNS {
            for (context, sample) in [(long, &mut at_many), (&few, &mut at_few), (&full, &mut as_full)] {
                sample.push(bench.turn(context).await?);
            }
        }
    }
    report.note(&format!("a message until the model is asked at {FEW}"), &at_few);
    report.note(&format!("at {FEW} that fill as much of the window"), &as_full);
    report.figure(
        &format!("at {many}, one turn is new"),
        format_args!(
            "{at_many}; {} more, {} beside a window as full",
            more(&at_many, &at_few),
            more(&at_many, &as_full)
        ),
        "2 ms more",
    );
    Ok(())
}

/// The same after the conversation has got another model, so that nothing is known of how its branch was cut.
async fn measure_cuts(at: &At<'_>, report: &mut Report) -> anyhow::Result<()> {
    let At { bench, options, long, many } = *at;
    let (mut at_many, mut at_few) = (Sample::default(), Sample::default());
    let few = bench.few().await?;
    for round in 0..options.scaled(20, 4) {
        for (context, sample) in [(long, &mut at_many), (&few, &mut at_few)] {
            bench.ask_by(context, MODELS[(round + 1) % MODELS.len()].0).await?;
            sample.push(bench.turn(context).await?);
        }
    }
    bench.ask_by(long, MODELS[0].0).await?;
    bench.turn(long).await?;
    report.figure(
        &format!("at {many}, all of it cut anew"),
        format_args!("{at_many}; {} more than at {FEW} ({at_few})", more(&at_many, &at_few)),
        "20 ms more",
    );
    Ok(())
}

/// The next window, looked at by someone.
async fn measure_looks(at: &At<'_>, report: &mut Report) -> anyhow::Result<()> {
    let At { bench, options, long, many } = *at;
    let (mut at_many, mut at_few) = (Sample::default(), Sample::default());
    let (mut bytes, few) = (0, bench.few().await?);
    for _ in 0..options.scaled(100, 20) {
        for (context, sample) in [(long, &mut at_many), (&few, &mut at_few)] {
            let path = format!("/api/contexts/{context}/window?next=true");
            let started = Instant::now();
            let reply = read(&bench.server, &path).await?;
            sample.push(started.elapsed());
            bytes = reply.max(bytes);
        }
    }
    report.figure(
        &format!("GET /window?next=true at {many}"),
        format_args!("{at_many}, {} KB; {} more than at {FEW} ({at_few})", bytes / 1000, more(&at_many, &at_few)),
        "20 ms more",
    );
    Ok(())
}

/// The first message to a server that has just begun; what it loads once is in the time of both.
async fn measure_starts(
    bench: &mut Bench,
    programs: &Programs,
    long: &str,
    many: usize,
    report: &mut Report,
) -> anyhow::Result<()> {
    let (mut at_many, mut at_few) = (Sample::default(), Sample::default());
    let few = bench.few().await?;
    for _ in 0..5 {
        for (context, sample) in [(long, &mut at_many), (&few, &mut at_few)] {
            bench.restart(programs).await?;
            sample.push(bench.turn(context).await?);
        }
    }
    let relative = ratio(&at_many, &at_few);
    report.figure(
        &format!("the first after a start, at {many}"),
        format_args!("{at_many}; {} more than at {FEW} ({at_few}), {relative}", more(&at_many, &at_few)),
        "20 ms more",
    );
    Ok(())
}

/// By how much the median of one is longer.
fn more(sample: &Sample, reference: &Sample) -> String {
    let (one, other) = (sample.median(), reference.median());
    if one < other { format!("-{}", shown(other - one)) } else { shown(one - other) }
}

/// How many bytes the reply has: it is not taken apart.
async fn read(server: &Served, path: &str) -> anyhow::Result<usize> {
    let mut stream = TcpStream::connect(&server.address).await?;
    let head = format!("GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", server.address);
    stream.write_all(head.as_bytes()).await?;
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply).await?;
    ensure!(reply.starts_with(b"HTTP/1.1 200 "), "{path} was refused: {}", String::from_utf8_lossy(&reply));
    Ok(reply.len())
}

/// A server whose syncs are made no-ops, and the model that it asks.
struct Bench {
    server: Served,
    fake: FakeModel,
    data_dir: std::path::PathBuf,
}

impl Bench {
    async fn start(programs: &Programs, data_dir: &Path) -> anyhow::Result<Self> {
        let fake = FakeModel::start_forgetful(Reply::chunks([SENTENCE.repeat(SENTENCES)])).await;
        let server = Self::serve(programs, data_dir, &fake).await?;
        Ok(Self { server, fake, data_dir: data_dir.to_owned() })
    }

    async fn serve(programs: &Programs, data_dir: &Path, fake: &FakeModel) -> anyhow::Result<Served> {
        let limits: serde_json::Map<_, _> =
            MODELS.into_iter().chain([FILLER]).map(|(model, limit)| (model.to_owned(), json!(limit))).collect();
        let mut more = shim::no_syncs()?;
        more.push(("WAYSTONE_MODEL_LIMITS".to_owned(), json!(limits).to_string()));
        serve(programs, data_dir, fake, more).await
    }

    /// Another process on the same data, after kill -9.
    async fn restart(&mut self, programs: &Programs) -> anyhow::Result<()> {
        self.server.kill()?;
        self.server = Self::serve(programs, &self.data_dir, &self.fake).await?;
        Ok(())
    }

    async fn create(&self, model: &str) -> anyhow::Result<String> {
        let made = self.server.post("/api/contexts", json!({ "model_id": model })).await?.1;
        Ok(made["id"].as_str().context("no context was made")?.to_owned())
    }

    /// A conversation with so many messages, of which half have so many sentences.
    async fn grow(&self, model: &str, messages: usize, sentences: usize) -> anyhow::Result<String> {
        let context = self.create(model).await?;
        let mut events = self.server.follow(&context, None).await?;
        for _ in 0..messages / 2 {
            self.say(&context, sentences).await?;
            until_idle(&mut events).await?;
        }
        Ok(context)
    }

    async fn few(&self) -> anyhow::Result<String> {
        self.grow(MODELS[0].0, FEW, SENTENCES).await
    }

    async fn ask_by(&self, context: &str, model: &str) -> anyhow::Result<()> {
        let (path, body) = (format!("/api/contexts/{context}"), json!({ "model_id": model }));
        let (status, reply) = request(&self.server.address, "PUT", &path, Some(body)).await?;
        ensure!(status == 200, "the model was not changed: {status} {reply}");
        Ok(())
    }

    async fn say(&self, context: &str, sentences: usize) -> anyhow::Result<()> {
        let path = format!("/api/contexts/{context}/messages");
        let (status, reply) = self.server.post(&path, json!({ "content": SENTENCE.repeat(sentences) })).await?;
        ensure!(status == 201, "a message was not taken: {status} {reply}");
        Ok(())
    }

    /// How long it takes from a message to the model being asked. The turn is over then.
    async fn turn(&self, context: &str) -> anyhow::Result<Duration> {
        let mut events = self.server.follow(context, None).await?;
        let started = Instant::now();
        self.say(context, SENTENCES).await?;
        until_idle(&mut events).await?;
        let asked = self.fake.asked_at().filter(|asked| *asked > started);
        Ok(asked.context("the model was not asked")? - started)
    }
}
