//! The built-in demo model: it answers without a key or a network, and the same to the same.

use std::collections::VecDeque;
use std::time::Duration;

use async_trait::async_trait;
use waystone_core::api::Role;
use waystone_core::model::{Answer, Chunk, ModelCall, ModelError, Said, Usage};

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
        let text = format!("{} {WHAT_IT_IS}", about_last_message(call));
        let mut chunks: VecDeque<Chunk> = text.split_inclusive(' ').map(|word| Chunk::Text(word.to_owned())).collect();
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

fn about_last_message(call: &ModelCall) -> String {
    let of_user = |said: &&Said| matches!(said, Said::Text { role: Role::User, .. });
    let Some(said) = call.messages.iter().rfind(of_user).map(Said::text) else {
        return "You said nothing yet.".to_owned();
    };
    let count = words(said);
    let unit = if count == 1 { "word" } else { "words" };
    format!("You said \"{}\" ({count} {unit}).", quote(said))
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
