//! The built-in demo model: it answers without a key or a network, and the same to the same.
//!
//! Lines `call NAME {json}` at the beginning of a message make it call tools, all at once; what comes of them it quotes.

use std::collections::VecDeque;
use std::time::Duration;

use async_trait::async_trait;
use waystone_core::api::Role;
use waystone_core::model::{Answer, Call, Chunk, ModelCall, ModelError, Said, Usage};

use crate::call::{count_calls, read_arguments};

/// Between two words, so that a person sees the answer grow.
const PAUSE: Duration = Duration::from_millis(15);
const QUOTED_CHARS_MAX: usize = 60;
const WHAT_IT_IS: &str =
    "This is the built-in demo model: it streams an answer like any other, and needs no key or network.";

pub(crate) struct Demo {
    chunks: VecDeque<Chunk>,
    has_begun: bool,
}

impl Demo {
    pub(crate) fn new(call: &ModelCall) -> Self {
        let (text, calls) = answer(call);
        let mut chunks: VecDeque<Chunk> = text.split_inclusive(' ').map(|word| Chunk::Text(word.to_owned())).collect();
        chunks.extend(calls.into_iter().map(Chunk::Call));
        let said = call.messages.iter().map(Said::text);
        let prompt = said.chain([call.system.as_str()]).map(words).sum();
        chunks.push_back(Chunk::Usage(Usage { prompt, completion: words(&text), ..Usage::default() }));
        Self { chunks, has_begun: false }
    }
}

#[async_trait]
impl Answer for Demo {
    async fn next(&mut self) -> Option<Result<Chunk, ModelError>> {
        if self.has_begun && matches!(self.chunks.front(), Some(Chunk::Text(_))) {
            tokio::time::sleep(PAUSE).await;
        }
        self.has_begun = true;
        self.chunks.pop_front().map(Ok)
    }
}

fn answer(call: &ModelCall) -> (String, Vec<Call>) {
    if let Some(results) = about_results(call) {
        return (results, Vec::new());
    }
    let of_user = |said: &&Said| matches!(said, Said::Text { role: Role::User, .. });
    let Some(said) = call.messages.iter().rfind(of_user).map(Said::text) else {
        return (format!("You said nothing yet. {WHAT_IT_IS}"), Vec::new());
    };
    let wanted: Vec<_> = said.lines().map_while(wanted_call).collect();
    if !wanted.is_empty() {
        return call_tools(call, &wanted);
    }
    let count = words(said);
    let unit = if count == 1 { "word" } else { "words" };
    (format!("You said \"{}\" ({count} {unit}). {WHAT_IT_IS}", quote(said)), Vec::new())
}

/// A sentence on each result that nothing was said since.
fn about_results(call: &ModelCall) -> Option<String> {
    let sentence = |said: &Said| match said {
        Said::Result { tool, text, is_error, .. } => {
            let did = if *is_error { "failed" } else { "said" };
            Some(format!("The tool `{tool}` {did}: \"{}\".", quote(text)))
        }
        Said::Text { .. } | Said::Calls { .. } => None,
    };
    let mut sentences: Vec<_> = call.messages.iter().rev().map_while(sentence).collect();
    sentences.reverse();
    (!sentences.is_empty()).then(|| sentences.join(" "))
}

/// The tool that a line asks to call, and its arguments. Words that are no JSON are a sentence.
fn wanted_call(line: &str) -> Option<(&str, &str)> {
    let rest = line.trim().strip_prefix("call ")?.trim_start();
    let (name, arguments) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    let arguments = arguments.trim_start();
    (arguments.is_empty() || arguments.starts_with('{')).then_some((name, arguments))
}

fn call_tools(call: &ModelCall, wanted: &[(&str, &str)]) -> (String, Vec<Call>) {
    let is_offered = |name: &str| call.tools.iter().any(|tool| tool.name == name);
    if let Some((missing, _)) = wanted.iter().find(|(name, _)| !is_offered(name)) {
        let there_are = match call.tools.as_slice() {
            [] => "there are none at all".to_owned(),
            tools => format!("there are {}", list(tools.iter().map(|tool| tool.name.as_str()))),
        };
        return (format!("There is no tool `{}`: {there_are}.", quote(missing)), Vec::new());
    }
    if call.is_last {
        return ("No more tools can be called in this turn.".to_owned(), Vec::new());
    }
    let numbered = wanted.iter().zip(count_calls(call) + 1..);
    let calls = numbered.map(|((name, arguments), number)| Call {
        id: format!("demo-{number}"),
        tool: (*name).to_owned(),
        arguments: read_arguments(arguments),
    });
    (format!("Calling {}.", list(wanted.iter().map(|(name, _)| *name))), calls.collect())
}

fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// The beginning of `text`, on one line.
fn quote(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(QUOTED_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

fn words(text: &str) -> u64 {
    text.split_whitespace().count() as u64
}
