//! Survival of facts: each run is the first part of a real one, with the paths, identifiers and numbers that the agent used later. A fact
//! survives if it stands in an original line of the view, or a part of one of at least three words: a list of bare names earns nothing.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, ensure};
use serde::Deserialize;
use serde_json::{Value, json};
use waystone_core::tokens::count;
use waystone_testkit::contexts::Random;
use waystone_testkit::harness::private_dir;
use waystone_testkit::process::{McpProcess, command};

use crate::bench::client::{answered, call_line, content};
use crate::{root, say};

#[derive(Deserialize)]
struct Run {
    name: String,
    goal: String,
    messages: Vec<Value>,
    facts: Vec<String>,
    tokens: f64,
}

const RATIOS: [f64; 3] = [2.0, 5.0, 10.0];

/// Which lines of a run to keep, in the order of their worth.
type Method = fn(usize) -> Vec<usize>;

const SIMPLE: [(&str, Method); 4] = [
    ("oldest lines", |lines| (0..lines).collect()),
    ("newest lines", |lines| (0..lines).rev().collect()),
    ("oldest and newest", |lines| (0..lines).map(|n| if n % 2 == 0 { n / 2 } else { lines - 1 - n / 2 }).collect()),
    ("random lines", |lines| {
        let (mut random, mut order) = (Random::new(7), (0..lines).collect::<Vec<_>>());
        random.shuffle(&mut order);
        order
    }),
];

pub(super) fn run(data: &Path) -> anyhow::Result<()> {
    let text = fs::read_to_string(data).with_context(|| format!("{} cannot be read", data.display()))?;
    let runs = text.lines().map(serde_json::from_str).collect::<Result<Vec<Run>, _>>()?;
    let directory = private_dir();
    let binary = root().join("target/release/waystone");
    let mut process = McpProcess::start_with(command(&binary, directory.path()).arg("mcp"))?;
    say(format_args!("share of later-used facts in {} runs, at 2, 5 and 10 times smaller", runs.len()));
    report("waystone", &runs, |run, ratio| view(&mut process, run, ratio))?;
    for (name, method) in SIMPLE {
        report(name, &runs, |run, ratio| Ok(keep(run, ratio, method)))?;
    }
    Ok(())
}

fn report(name: &str, runs: &[Run], mut make: impl FnMut(&Run, f64) -> anyhow::Result<String>) -> anyhow::Result<()> {
    let mut shares = Vec::new();
    for ratio in RATIOS {
        let mut sum = 0.0;
        for run in runs {
            sum += survived(run, &make(run, ratio)?);
        }
        shares.push(format!("{:.3}", sum / runs.len() as f64));
    }
    say(format_args!("  {name:<18} {}", shares.join(" / ")));
    Ok(())
}

/// The text of the messages in the view that the product makes.
fn view(process: &mut McpProcess, run: &Run, ratio: f64) -> anyhow::Result<String> {
    let goal = json!({ "userGoal": run.goal });
    let target = count(&goal.to_string()) + (run.tokens / ratio) as usize;
    let context = json!({ "userGoal": run.goal, "messages": run.messages });
    let line = call_line(1, "workflow_context_compress", &json!({ "context": context, "targetTokens": target }));
    let view = content(&answered(process, &line)?.1)?;
    ensure!(view["context"]["userGoal"] == run.goal.as_str(), "{}: the goal is not as it was", run.name);
    ensure!(view["tokensAfter"].as_u64() <= Some(target as u64), "{}: the view is too large", run.name);
    Ok(text_of(&view["context"]["messages"]))
}

/// As many lines as fit, by a simple method.
fn keep(run: &Run, ratio: f64, method: Method) -> String {
    let text = text_of_run(run);
    let lines: Vec<&str> = text.split('\n').collect();
    let mut left = (run.tokens / ratio) as usize;
    let mut kept = Vec::new();
    for line in method(lines.len()) {
        let tokens = count(lines[line]) + 1;
        if tokens <= left {
            left -= tokens;
            kept.push(line);
        }
    }
    kept.sort_unstable();
    kept.into_iter().map(|line| lines[line]).collect::<Vec<_>>().join("\n")
}

fn text_of_run(run: &Run) -> String {
    run.messages.iter().filter_map(|message| message["content"].as_str()).collect::<Vec<_>>().join("\n")
}

fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(text_of).collect::<Vec<_>>().join("\n"),
        Value::Object(map) => map.values().map(text_of).collect::<Vec<_>>().join("\n"),
        other => other.to_string(),
    }
}

/// The share of a run's facts that stand in lines of `view` which are parts of original ones.
fn survived(run: &Run, view: &str) -> f64 {
    let original: HashSet<String> = text_of_run(run).split('\n').map(words_of).collect();
    let is_original = |line: &&str| {
        let words = words_of(line);
        words.split(' ').count() >= 3
            && (original.contains(&words) || original.iter().any(|line| line.contains(&words)))
    };
    let kept = view.split('\n').filter(is_original).collect::<Vec<_>>().join("\n");
    let alive = run.facts.iter().filter(|fact| has(fact, &kept)).count();
    alive as f64 / run.facts.len().max(1) as f64
}

/// A line without its number and punctuation.
fn words_of(line: &str) -> String {
    let trimmed = line.trim_start();
    let rest = trimmed.trim_start_matches(|c: char| c.is_ascii_digit());
    let is_number = rest.len() < trimmed.len() && rest.starts_with([':', '|']);
    let line = if is_number { &rest[1..] } else { line };
    let words = line.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join(" ")
}

/// Whether `fact` stands in `text` as a word of its own.
pub(super) fn has(fact: &str, text: &str) -> bool {
    let ends = |c: Option<char>| !c.is_some_and(|c| c.is_ascii_alphanumeric() || c == '_');
    text.match_indices(fact)
        .any(|(at, _)| ends(text[..at].chars().next_back()) && ends(text[at + fact.len()..].chars().next()))
}
