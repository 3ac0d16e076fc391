//! Recall of search by words, by meaning and by both, on questions about conversations and on functions of Python's standard library
//! that are looked for by what their docstrings say. What is searched is in [`index`].

mod index;

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};
use serde::Deserialize;
use waystone_core::search::Found;

use crate::{root, say};
use index::Index;

/// Segments in order, and queries with the ids that answer them. Each is a project of its own.
#[derive(Deserialize)]
struct Talk {
    segments: Vec<Segment>,
    queries: Vec<Query>,
}

#[derive(Deserialize)]
struct Segment {
    id: String,
    /// Its task.
    session: String,
    text: String,
}

#[derive(Deserialize)]
struct Query {
    text: String,
    relevant: Vec<String>,
}

const FUNCTIONS: &str = "2500";
/// As many are asked for.
const LIMIT: usize = 10;

pub(super) fn run(data: &Path) -> anyhow::Result<()> {
    let text = fs::read_to_string(data).with_context(|| format!("{} cannot be read", data.display()))?;
    report("questions about conversations", &text)?;
    report("functions of Python's standard library, by their docstrings", &functions()?)
}

/// What `tools/functions.py` prints.
fn functions() -> anyhow::Result<String> {
    let script = root().join("tools/functions.py");
    let done = Command::new("python3").args(["-W", "ignore"]).arg(script).arg(FUNCTIONS).output();
    let done = done.context("python3 cannot be started")?;
    ensure!(done.status.success(), "functions.py failed: {}", String::from_utf8_lossy(&done.stderr));
    Ok(String::from_utf8(done.stdout)?)
}

fn report(name: &str, text: &str) -> anyhow::Result<()> {
    let talks = text.lines().map(serde_json::from_str).collect::<Result<Vec<Talk>, _>>()?;
    let mut scores: [Scores; 4] = Default::default();
    for talk in &talks {
        search(talk, &mut scores)?;
    }
    let segments: usize = talks.iter().map(|talk| talk.segments.len()).sum();
    say(format_args!("{name}: {} queries, {segments} segments", scores[0].queries));
    say("                            R@1    R@5   R@10    MRR");
    let names = ["words alone", "words and neighbours", "meaning and neighbours", "both and neighbours"];
    for (name, scores) in names.iter().zip(&scores) {
        say(format_args!("  {name:<23} {}", scores.shown()));
    }
    Ok(())
}

fn search(talk: &Talk, scores: &mut [Scores; 4]) -> anyhow::Result<()> {
    let mut index = Index::new()?;
    let mut place_of: HashMap<&str, usize> = HashMap::new();
    for segment in &talk.segments {
        place_of.insert(&segment.id, index.add(&segment.session, &segment.text)?);
    }
    let index = index.finish();
    for query in &talk.queries {
        let relevant: HashSet<usize> =
            query.relevant.iter().filter_map(|id| place_of.get(id.as_str()).copied()).collect();
        ensure!(!relevant.is_empty(), "nothing answers {:?}", query.text);
        let (words, nearest) = (index.by_words(&query.text)?, index.by_meaning(&query.text));
        let alone = |words: &[(usize, f32)]| waystone_core::search::join(words, &[], |_| [[None; 2]; 2]);
        let found = [alone(&words), index.join(&words, &[]), index.join(&[], &nearest), index.join(&words, &nearest)];
        for (scores, found) in scores.iter_mut().zip(found) {
            scores.add(&found, &relevant);
        }
    }
    Ok(())
}

/// Sums over queries.
#[derive(Default)]
struct Scores {
    queries: usize,
    /// At each of [`DEPTHS`].
    recall: [f64; 3],
    reciprocal_rank: f64,
}

const DEPTHS: [usize; 3] = [1, 5, LIMIT];

impl Scores {
    fn add(&mut self, found: &[Found], relevant: &HashSet<usize>) {
        let is_right = |found: &Found| relevant.contains(&found.place);
        self.queries += 1;
        for (sum, depth) in self.recall.iter_mut().zip(DEPTHS) {
            let right = found.iter().take(depth).filter(|found| is_right(found)).count();
            *sum += right as f64 / relevant.len() as f64;
        }
        let first = found.iter().take(LIMIT).position(is_right);
        self.reciprocal_rank += first.map_or(0.0, |at| 1.0 / (at + 1) as f64);
    }

    fn shown(&self) -> String {
        let figures = self.recall.iter().chain([&self.reciprocal_rank]);
        figures.map(|sum| format!("{:6.3}", sum / self.queries.max(1) as f64)).collect::<Vec<_>>().join(" ")
    }
}
