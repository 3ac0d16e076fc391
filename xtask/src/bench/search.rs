//! Search: what a question costs among a hundred thousand segments, of which half are stashed, and how much memory it takes.
//!
//! Texts are made up in [`text`]. The process that is measured is not the one that put them: it has counted no tokens.

pub(super) mod peer;
mod text;

use std::time::Instant;

use serde_json::json;
use waystone_testkit::contexts::Random;
use waystone_testkit::process::McpProcess;
use waystone_testkit::shim;

use super::client::{Ground, call_line, timed};
use super::growth::settle;
use super::process::resident_mb;
use super::report::{Report, Sample, shown};
use super::{Options, Programs};
use crate::say;
use text::Language;

const PROJECT: &str = "bench";
const SEGMENTS: usize = 100_000;
const BATCH: usize = 1_000;
const TASKS: usize = 20;
const QUESTIONS: usize = 200;
const WARM_UP: usize = 20;

pub(super) fn measure(programs: &Programs, options: &Options, report: &mut Report) -> anyhow::Result<()> {
    let (ground, language, mut random) = (Ground::new(), Language::read()?, Random::new(1));
    let segments = options.scaled(SEGMENTS, 2 * BATCH);
    say(format_args!("  filling a project with {segments} segments"));
    let texts: Vec<String> = (0..segments).map(|_| language.text(&mut random)).collect();
    let started = Instant::now();
    let mut process = ground.start(&programs.waystone, "search", shim::no_syncs()?)?;
    put_all(&mut process, &texts, |batch| batch % 2 == 0)?;
    process.finish()?;
    let filled_in = started.elapsed().as_secs_f64();

    let mut process = ground.start(&programs.waystone, "search", Vec::new())?;
    settle(process.pid())?;
    let mut ask = |process: &mut McpProcess| timed(process, &search_line(&language.question(&mut random, &texts)));
    let first = ask(&mut process)?;
    for _ in 0..WARM_UP {
        ask(&mut process)?;
    }
    let mut sample = Sample::default();
    for _ in 0..options.scaled(QUESTIONS, 20) {
        sample.push(ask(&mut process)?);
    }
    let searched = resident_mb(process.pid())?;
    timed(&mut process, &call_line(1, "context_put", &json!({ "project_id": PROJECT, "text": "one more" })))?;
    let counted = resident_mb(process.pid())?;

    let value = format!("{sample}, max {}", shown(sample.percentile(100)));
    report.figure(&format!("a question of 7 words, {segments} segments"), value, "6 ms, p95 15 ms");
    report.note("  the first one, which reads them all", shown(first));
    report.figure("  memory after all of them", format_args!("{searched:.1} MB resident"), "60 MB");
    report.figure("  and after a put, which counts tokens", format_args!("{counted:.1} MB resident"), "110 MB");
    report.note("filling the project", format_args!("{filled_in:.0} s, in batches of {BATCH}, syncs made no-ops"));
    Ok(())
}

/// Puts texts in batches, each into one of some tasks; `is_stashed` says which batches are stashed at once.
fn put_all(process: &mut McpProcess, texts: &[String], is_stashed: impl Fn(usize) -> bool) -> anyhow::Result<()> {
    for (batch, texts) in texts.chunks(BATCH).enumerate() {
        // Both tiers are in every task.
        let task = format!("task-{}", batch / 2 % TASKS);
        let arguments = json!({ "project_id": PROJECT, "task_id": task, "texts": texts, "stash": is_stashed(batch) });
        timed(process, &call_line(1, "context_put", &arguments))?;
    }
    Ok(())
}

fn search_line(question: &str) -> String {
    call_line(1, "context_search_stashed", &json!({ "project_id": PROJECT, "query": question, "limit": 10 }))
}
