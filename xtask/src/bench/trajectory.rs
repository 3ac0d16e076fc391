//! Agent runs that sessions are grown from: read from a file, or made up in the same shape.
//!
//! What is made up repeats itself as real runs do: an agent looks at parts of the same few files again and again, edits a line,
//! runs the same tests, and talks about the names it saw.

use std::fs;
use std::path::Path;

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use waystone_testkit::contexts::Random;

const INVENTED: u64 = 20;
/// A whole run of an agent that has something to solve; the first parts of such runs are shorter.
const INVENTED_STEPS: usize = 60;

/// A goal, and the messages that came one after another, all as JSON text.
pub(super) struct Trajectory {
    goal: String,
    messages: Vec<String>,
}

impl Trajectory {
    /// The contexts an agent would save, one after each message: the goal and the messages so far.
    pub(super) fn contexts(&self) -> impl Iterator<Item = String> {
        (1..=self.messages.len())
            .map(|steps| format!("{{\"userGoal\":{},\"messages\":[{}]}}", self.goal, self.messages[..steps].join(",")))
    }

    pub(super) fn steps(&self) -> usize {
        self.messages.len()
    }

    /// One run after another as if they were one, up to `steps_max`.
    pub(super) fn joined(runs: &[Self], steps_max: usize) -> Self {
        let messages = runs.iter().flat_map(|run| run.messages.iter().cloned());
        Self { goal: runs[0].goal.clone(), messages: messages.take(steps_max).collect() }
    }
}

/// Those in `file`, or made up, and which of both.
pub(super) fn all(file: Option<&Path>) -> anyhow::Result<(&'static str, Vec<Trajectory>)> {
    Ok(match file {
        Some(path) => ("from the file", read(path)?),
        None => ("made up", (0..INVENTED).map(|seed| invent(seed, INVENTED_STEPS)).collect()),
    })
}

/// Reads JSON lines, each with a text `goal` and an array `messages`.
fn read(path: &Path) -> anyhow::Result<Vec<Trajectory>> {
    let text = fs::read_to_string(path).with_context(|| format!("{} cannot be read", path.display()))?;
    let runs: Vec<Trajectory> = text.lines().map(read_line).collect::<Result<_, _>>()?;
    ensure!(!runs.is_empty(), "{} is empty", path.display());
    Ok(runs)
}

fn read_line(line: &str) -> anyhow::Result<Trajectory> {
    let run: Value = serde_json::from_str(line)?;
    let messages = run["messages"].as_array().context("a run has no messages")?;
    Ok(Trajectory { goal: run["goal"].to_string(), messages: messages.iter().map(Value::to_string).collect() })
}

/// Makes up a run of `steps` messages.
fn invent(seed: u64, steps: usize) -> Trajectory {
    let mut agent = Agent::new(seed);
    let goal = json!((0..40).map(|_| agent.sentence()).collect::<Vec<_>>().join(" ")).to_string();
    let messages = (0..steps).map(|n| if n % 2 == 0 { agent.thought() } else { agent.observation() });
    Trajectory { goal, messages: messages.map(|message| message.to_string()).collect() }
}

struct Agent {
    random: Random,
    words: Vec<String>,
    /// Source files, each as its lines.
    files: Vec<Vec<String>>,
    file: usize,
    at: usize,
}

impl Agent {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let words = (0..600).map(|_| word(&mut random)).collect();
        let mut agent = Self { random, words, files: Vec::new(), file: 0, at: 0 };
        agent.files = (0..4).map(|_| (0..400).map(|_| agent.code()).collect()).collect();
        agent
    }

    /// A few words are used often, most of them seldom.
    fn word(&mut self) -> String {
        let bound = 1 + self.random.below(self.words.len() as u64);
        self.words[self.random.below(bound) as usize].clone()
    }

    fn sentence(&mut self) -> String {
        let words: Vec<String> = (0..6 + self.random.below(10)).map(|_| self.word()).collect();
        format!("{}.", words.join(" "))
    }

    fn code(&mut self) -> String {
        let (a, b, c) = (self.word(), self.word(), self.word());
        match self.random.below(5) {
            0 => format!("    def {a}_{b}(self, {c}):"),
            1 => format!("        self.{a} = {b}({c})"),
            2 => format!("        if {a} is not None and {b}.{c}:"),
            3 => format!("            return {a}.{b}({c}=self.{a})"),
            _ => String::new(),
        }
    }

    fn thought(&mut self) -> Value {
        let thought: Vec<String> = (0..2 + self.random.below(4)).map(|_| self.sentence()).collect();
        let command = match self.random.below(3) {
            0 => {
                self.file = self.random.below(self.files.len() as u64) as usize;
                self.at = self.random.below(300) as usize;
                format!("open src/{}.py {}", self.words[self.file], self.at)
            }
            1 => {
                self.files[self.file][self.at + 20] = self.code();
                format!("edit {}:{}\n{}\nend_of_edit", self.at + 20, self.at + 20, self.files[self.file][self.at + 20])
            }
            _ => format!("python -m pytest tests/test_{}.py", self.words[self.file]),
        };
        json!({ "role": "assistant", "content": format!("{}\n```\n{command}\n```", thought.join(" ")) })
    }

    fn observation(&mut self) -> Value {
        let shown = |(n, line): (usize, &String)| format!("{}:{line}", n + 1);
        let length = 20 + self.random.below(60) as usize;
        let window = self.files[self.file].iter().enumerate().skip(self.at).take(length).map(shown);
        let header = format!("[File: src/{}.py (400 lines total)]", self.words[self.file]);
        json!({ "role": "obs", "content": format!("{header}\n{}", window.collect::<Vec<_>>().join("\n")) })
    }
}

fn word(random: &mut Random) -> String {
    let syllables = ["co", "de", "ser", "field", "val", "ta", "re", "mi", "lo", "name", "in", "ex", "un", "get", "set"];
    (0..1 + random.below(3)).map(|_| syllables[random.below(syllables.len() as u64) as usize]).collect()
}
