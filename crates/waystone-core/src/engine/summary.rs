//! Summaries: a model is asked what a text says, in as many rounds as that takes. What it is asked is in [`crate::summary`]; where there is no
//! model, or it fails, whoever asks goes on with lines that are chosen, and says so.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Map;
use tokio::task::JoinSet;

use super::Engine;
use super::conversation::NoModel;
use crate::api::{Origin, Role};
use crate::compress::extract;
use crate::model::{Chunk, Model, ModelCall, Said, Usage};
use crate::offload::offload_unless;
use crate::summary::{instruction, parts, question};
use crate::tokens;

/// So much is told at once, and no more than half of what a model's window holds.
const PART_TOKENS_MAX: u64 = 16_000;
/// A part that is not the last becomes so many times smaller.
const PART_RATIO: u64 = 4;
/// So often a model is asked for one summary, so many times at once, and for so long.
const CALLS_MAX: usize = 64;
const CALLS_AT_ONCE: usize = 4;
pub(super) const TIME_MAX: Duration = Duration::from_secs(60);
/// An answer that goes on and on is not read to its end.
const ANSWER_BYTES_MAX: usize = 256 * 1024;

/// Who writes summaries, and when.
#[derive(Clone)]
pub struct Summaries {
    pub model: Arc<dyn Model>,
    /// Which one; without it nobody does.
    pub model_id: Option<String>,
    /// Whether views and windows have them unless someone says otherwise.
    pub is_default: bool,
}

impl Default for Summaries {
    fn default() -> Self {
        Self { model: Arc::new(NoModel), model_id: None, is_default: false }
    }
}

/// What is to be summed up.
pub(super) struct Text<'a> {
    /// What it is called.
    pub(super) what: &'a str,
    pub(super) origin: Origin,
    pub(super) text: String,
    pub(super) goal: Option<&'a str>,
    pub(super) tokens_max: u64,
}

/// What summaries took.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Spent {
    pub(super) calls: u64,
    pub(super) usage: Usage,
}

impl Engine {
    /// The same engine, which can have summaries written.
    pub fn with_summaries(self, summaries: Summaries) -> Self {
        Self { summaries: Arc::new(summaries), ..self }
    }

    /// The model that writes summaries; an error says why there is none.
    pub(super) fn summarizer(&self) -> Result<&str, String> {
        match self.summaries.model_id.as_deref() {
            None => Err("no model is set for summaries (compressionModel)".to_owned()),
            Some("demo") => Err("the demo model writes no summaries; set another one (compressionModel)".to_owned()),
            Some(id) => Ok(id),
        }
    }

    /// What a text says, in at most so many tokens; an error says why no one could tell.
    pub(super) async fn summarize(&self, asked: Text<'_>, spent: &mut Spent) -> Result<String, String> {
        let model_id = self.summarizer()?.to_owned();
        let Text { what, origin, mut text, goal, tokens_max } = asked;
        let part_max = (self.summaries.model.describe(&model_id).limit / 2).clamp(1, PART_TOKENS_MAX);
        let mut calls = 0;
        loop {
            let cut = move || parts(&text, part_max).into_iter().map(str::to_owned).collect::<Vec<_>>();
            let parts = offload_unless(false, cut).await.map_err(|error| error.to_string())?;
            calls += parts.len();
            if calls > CALLS_MAX {
                return Err(format!("{what} is too long, it would take more than {CALLS_MAX} calls"));
            }
            let is_last = parts.len() <= 1;
            let most = if is_last { tokens_max } else { part_max / PART_RATIO };
            let system = instruction(most, goal);
            let questions = parts.iter().map(|part| question(what, origin, part));
            let calls = questions.map(|question| ModelCall {
                model: model_id.clone(),
                system: system.clone(),
                messages: vec![Said::Text { role: Role::User, text: question }],
                tools: Vec::new(),
                is_last: false,
                parameters: Map::new(),
                answer_tokens: super::model::answer_tokens(&Map::new(), self.summaries.model.describe(&model_id).limit),
            });
            let answers = self.ask_all(calls.collect(), spent).await?;
            let shorten = move || answers.into_iter().filter_map(|answer| at_most(answer, most)).collect::<Vec<_>>();
            text = offload_unless(false, shorten).await.map_err(|error| error.to_string())?.join("\n\n");
            if text.is_empty() {
                return Err(format!("{model_id} wrote nothing that is short enough"));
            }
            if is_last {
                return Ok(text);
            }
        }
    }

    /// The answers to some questions, in their order.
    async fn ask_all(&self, calls: Vec<ModelCall>, spent: &mut Spent) -> Result<Vec<String>, String> {
        let mut answers = Vec::with_capacity(calls.len());
        let mut calls = calls.into_iter().peekable();
        while calls.peek().is_some() {
            let mut asked = JoinSet::new();
            for (at, call) in calls.by_ref().take(CALLS_AT_ONCE).enumerate() {
                let model = Arc::clone(&self.summaries.model);
                asked.spawn(async move { (at, read(&*model, call).await) });
            }
            let mut some = asked.join_all().await;
            some.sort_by_key(|(at, _)| *at);
            for (_, answer) in some {
                let (text, usage) = answer?;
                spent.calls += 1;
                spent.usage.prompt += usage.prompt;
                spent.usage.completion += usage.completion;
                spent.usage.cache_read += usage.cache_read;
                spent.usage.cache_write += usage.cache_write;
                answers.push(text);
            }
        }
        Ok(answers)
    }
}

/// A whole answer.
async fn read(model: &dyn Model, call: ModelCall) -> Result<(String, Usage), String> {
    let name = call.model.clone();
    let failed = |error: crate::model::ModelError| format!("{name}: {}", error.error.message);
    let mut answer = model.call(call).await.map_err(failed)?;
    let (mut text, mut usage) = (String::new(), Usage::default());
    while let Some(part) = answer.next().await {
        match part.map_err(failed)? {
            Chunk::Text(more) if text.len() + more.len() <= ANSWER_BYTES_MAX => text.push_str(&more),
            Chunk::Text(_) => return Err(format!("{name} wrote more than {ANSWER_BYTES_MAX} bytes")),
            Chunk::Usage(counted) => usage = counted,
            Chunk::Call(_) | Chunk::Cut(_) => {}
        }
    }
    Ok((text.trim().to_owned(), usage))
}

/// What a model wrote, the most telling lines of it where that is more than it was asked for.
fn at_most(text: String, tokens_max: u64) -> Option<String> {
    if tokens::count(&text) as u64 <= tokens_max {
        return Some(text).filter(|text| !text.is_empty());
    }
    extract(&text, usize::try_from(tokens_max).unwrap_or(usize::MAX))
}
