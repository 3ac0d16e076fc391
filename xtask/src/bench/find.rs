//! Finding checkpoints by name, tag or word in a store a hundred times larger. As many fit in both: what is found costs what it costs,
//! and what is not found should cost nothing.

use std::collections::VecDeque;
use std::path::Path;
use std::time::Instant;

use anyhow::ensure;
use serde_json::{Value, json};
use waystone_testkit::process::McpProcess;
use waystone_testkit::shim;

use super::client::{Ground, answered, call_line, content, send_all};
use super::growth::settle;
use super::report::{Report, Sample, ratio, shown};
use super::{Options, Programs};
use crate::say;

const SESSION_CHECKPOINTS: usize = 20;
const SMALL: usize = 1_000;
const LARGE: usize = 100_000;
const IN_FLIGHT: usize = 20;
/// So many checkpoints have a tag and a word that are looked for, from all over the store.
const RARE: usize = 10;
const AREAS: [&str; 10] =
    ["parser", "billing", "search", "login", "deploy", "export", "layout", "cache", "queue", "report"];

/// What is asked in a round.
type Query = fn(usize) -> Value;

pub(super) fn measure(programs: &Programs, options: &Options, report: &mut Report) -> anyhow::Result<()> {
    let ground = Ground::new();
    let large = options.scaled(LARGE, 2 * SMALL);
    let mut small = Store::fill(&ground, &programs.waystone, "small", SMALL)?;
    let mut big = Store::fill(&ground, &programs.waystone, "large", large)?;
    let queries: [(&str, Query, usize); 4] = [
        ("by name", |n| json!({ "query": format!("mended-{n}.") }), 1),
        ("by tag", |n| json!({ "tags": [format!("ticket-{n}")] }), RARE),
        ("by a part of a word", |n| json!({ "query": format!("zyx{n}q") }), RARE),
        ("by tag and words", |n| json!({ "tags": [format!("ticket-{n}")], "query": "the step" }), RARE),
    ];
    for (name, query, found) in queries {
        let (mut before, mut after) = (Sample::default(), Sample::default());
        for round in 0..options.rounds {
            let line = call_line(1, "workflow_checkpoint_list", &query(round % RARE));
            before.push(small.ask(&line, found)?);
            after.push(big.ask(&line, found)?);
        }
        let value = format!(
            "{} with {SMALL} checkpoints, {} with {large}; {}",
            shown(before.median()),
            shown(after.median()),
            ratio(&after, &before)
        );
        report.figure(&format!("find {found}, {name}"), value, "2 x");
    }
    let mut common = Sample::default();
    for _ in 0..options.scaled(20, 3) {
        common.push(big.ask(&call_line(1, "workflow_checkpoint_list", &json!({ "tags": ["billing"] })), large / 10)?);
    }
    report.note(
        "find a tag that a tenth have",
        format_args!("{}, of which {} are counted", shown(common.median()), large / 10),
    );
    report.note("filling the larger store", format_args!("{:.0} s, syncs made no-ops", big.filled_in));
    Ok(())
}

struct Store {
    process: McpProcess,
    filled_in: f64,
}

impl Store {
    fn fill(ground: &Ground, binary: &Path, name: &str, checkpoints: usize) -> anyhow::Result<Self> {
        say(format_args!("  filling a store with {checkpoints} checkpoints that have names and tags"));
        let started = Instant::now();
        let mut process = ground.start(binary, name, shim::no_syncs()?)?;
        let sessions = checkpoints / SESSION_CHECKPOINTS;
        for first in (0..sessions).step_by(IN_FLIGHT) {
            let lanes = first..sessions.min(first + IN_FLIGHT);
            let count = lanes.len();
            send_all(&mut process, lanes.map(|session| lane(session, session - first, count, checkpoints)).collect())?;
        }
        process.finish()?;
        let filled_in = started.elapsed().as_secs_f64();
        let process = ground.start(binary, name, Vec::new())?;
        settle(process.pid())?;
        Ok(Self { process, filled_in })
    }

    fn ask(&mut self, line: &str, expected: usize) -> anyhow::Result<std::time::Duration> {
        let (time, answer) = answered(&mut self.process, line)?;
        let total = content(&answer)?["total"].take();
        ensure!(total == expected, "{total} were found, not {expected}: {line}");
        Ok(time)
    }
}

/// The saves of one session. Every so many checkpoints one has a rare tag and a rare word.
fn lane(session: usize, at: usize, lanes: usize, checkpoints: usize) -> VecDeque<String> {
    let every = checkpoints / (RARE * RARE);
    let save = |n: usize| {
        let number = session * SESSION_CHECKPOINTS + n;
        let rare = number / every;
        let (mut tags, mut note) = (vec![AREAS[number % AREAS.len()].to_owned()], "the step is done".to_owned());
        if number.is_multiple_of(every) {
            tags.push(format!("ticket-{}", rare % RARE));
            note = format!("the step wzyx{}qr is done", rare % RARE);
        }
        let metadata = json!({ "name": format!("mended-{number}. part of it"), "tags": tags, "note": note });
        let arguments =
            json!({ "sessionId": format!("session-{session}"), "context": { "n": n }, "metadata": metadata });
        call_line(n * lanes + at, "workflow_checkpoint_save", &arguments)
    };
    (0..SESSION_CHECKPOINTS).map(save).collect()
}
