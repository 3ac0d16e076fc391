//! What the fake model says, and how.

use std::time::Duration;

use serde_json::Value;

use super::{Wire, anthropic, openai};

/// A reply to one request, or to each.
#[derive(Debug, Clone)]
pub struct Reply {
    says: Says,
    tool_calls: Vec<(String, Value)>,
    /// What is said instead when tools have returned.
    after_results: Option<Box<Reply>>,
    /// What is said instead, by what is asked.
    chosen: Option<fn(&Value) -> Reply>,
    /// How many characters of arguments come at once; half of them if none.
    piece_chars: Option<usize>,
    cached: (u64, u64),
    pause: Duration,
    split_bytes: Option<usize>,
    status: u16,
    /// Of what went wrong, as OpenAI has them.
    code: Option<&'static str>,
    retry_after: Option<String>,
    content_type: Option<String>,
    /// Whether anything is sent before it stops.
    has_head: bool,
    /// After how many chunks it stops, and how.
    stops: Option<(usize, Ending)>,
    is_gated: bool,
}

#[derive(Debug, Clone)]
enum Says {
    /// The last user message: all its words, or as many.
    Echo(Option<usize>),
    Chunks(Vec<String>),
    /// The data of events; nothing is added to them.
    Events(Vec<String>),
}

/// How an answer ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    Whole,
    /// The connection is closed.
    Cut,
    /// Nothing more comes.
    Hang,
}

/// A reply to one request, as bytes.
pub(super) struct Script {
    pub(super) head: Option<String>,
    /// What comes before the chunks, and waits for nothing.
    pub(super) opening: Vec<u8>,
    pub(super) chunks: Vec<Vec<u8>>,
    pub(super) closing: Vec<u8>,
    pub(super) ending: Ending,
    pub(super) pause: Duration,
    pub(super) split_bytes: Option<usize>,
    pub(super) is_gated: bool,
}

impl Reply {
    fn new(says: Says) -> Self {
        Self {
            says,
            tool_calls: Vec::new(),
            after_results: None,
            chosen: None,
            piece_chars: None,
            cached: (0, 0),
            pause: Duration::ZERO,
            split_bytes: None,
            status: 200,
            code: None,
            retry_after: None,
            content_type: None,
            has_head: true,
            stops: None,
            is_gated: false,
        }
    }

    /// The last user message, word by word.
    pub fn echo() -> Self {
        Self::new(Says::Echo(None))
    }

    /// The words of the last user message, over and over, until there are `chunks`.
    pub fn echo_chunks(chunks: usize) -> Self {
        Self::new(Says::Echo(Some(chunks)))
    }

    /// `text`, word by word. With a status that is no success, what went wrong.
    pub fn text(text: &str) -> Self {
        Self::new(Says::Chunks(words(text)))
    }

    pub fn chunks<T: Into<String>>(chunks: impl IntoIterator<Item = T>) -> Self {
        Self::new(Says::Chunks(chunks.into_iter().map(Into::into).collect()))
    }

    /// The data of each event as it is, each a chunk; without `[DONE]`, unless it is among them.
    pub fn events<T: Into<String>>(events: impl IntoIterator<Item = T>) -> Self {
        Self::new(Says::Events(events.into_iter().map(Into::into).collect()))
    }

    /// Calls of tools, and no text.
    pub fn calls<T: Into<String>>(calls: impl IntoIterator<Item = (T, Value)>) -> Self {
        Self::new(Says::Chunks(Vec::new())).tool_calls(calls)
    }

    /// Calls of tools after the text, all at once: a chunk begins each, and two more bring its arguments.
    pub fn tool_calls<T: Into<String>>(mut self, calls: impl IntoIterator<Item = (T, Value)>) -> Self {
        self.tool_calls = calls.into_iter().map(|(name, arguments)| (name.into(), arguments)).collect();
        self
    }

    /// This instead, when what was said last is what a tool returned.
    pub fn after_results(mut self, reply: Self) -> Self {
        self.after_results = Some(Box::new(reply));
        self
    }

    /// What is said follows from the request, as an agent's does.
    pub fn by(choose: fn(&Value) -> Self) -> Self {
        Self { chosen: Some(choose), ..Self::new(Says::Chunks(Vec::new())) }
    }

    /// The arguments of calls come so many characters at a time, and those of several calls in turn.
    pub fn split_calls(mut self, chars: usize) -> Self {
        self.piece_chars = Some(chars);
        self
    }

    /// So much of the prompt came from a cache, and so much went into one.
    pub fn cached(mut self, read: u64, written: u64) -> Self {
        self.cached = (read, written);
        self
    }

    /// The time between two chunks.
    pub fn pause(mut self, pause: Duration) -> Self {
        self.pause = pause;
        self
    }

    /// The client gets the body `bytes` at a time, whatever that cuts.
    pub fn split_bytes(mut self, bytes: usize) -> Self {
        self.split_bytes = Some(bytes);
        self
    }

    /// Other than 200, the text is said in an error object.
    pub fn status(mut self, status: u16) -> Self {
        self.status = status;
        self
    }

    pub(super) fn code(mut self, code: Option<&'static str>) -> Self {
        self.code = code;
        self
    }

    pub fn retry_after(mut self, value: impl ToString) -> Self {
        self.retry_after = Some(value.to_string());
        self
    }

    /// Instead of the usual one. Of what is no event stream, the text is the body.
    pub fn content_type(mut self, content_type: &str) -> Self {
        self.content_type = Some(content_type.to_owned());
        self
    }

    /// Takes the request, and nothing more.
    pub fn hang(mut self) -> Self {
        self.has_head = false;
        self.hang_after(0)
    }

    /// Headers and `chunks` chunks, then nothing until the client goes away.
    pub fn hang_after(mut self, chunks: usize) -> Self {
        self.stops = Some((chunks, Ending::Hang));
        self
    }

    /// Takes the request and closes the connection.
    pub fn cut(mut self) -> Self {
        self.has_head = false;
        self.cut_after(0)
    }

    /// Headers and `chunks` chunks, then the connection is closed without an end.
    pub fn cut_after(mut self, chunks: usize) -> Self {
        self.stops = Some((chunks, Ending::Cut));
        self
    }

    /// Each chunk waits for `FakeModel::release`.
    pub fn gated(mut self) -> Self {
        self.is_gated = true;
        self
    }

    /// As bytes, for a request whose prompt is so long.
    pub(super) fn script(mut self, wire: Wire, request: &Value, prompt: u64) -> Script {
        if let Some(choose) = self.chosen {
            return choose(request).script(wire, request, prompt);
        }
        let is_result = |message: &Value| message["role"] == "tool" || message["content"][0]["type"] == "tool_result";
        if request["messages"].as_array().and_then(|all| all.last()).is_some_and(is_result)
            && let Some(instead) = self.after_results.take()
        {
            return instead.script(wire, request, prompt);
        }
        let document = self.document(wire, request);
        let Parts { mut opening, mut chunks, mut closing } = match (&document, &self.says) {
            (Some(document), _) => Parts { opening: document.clone().into_bytes(), ..Parts::default() },
            (None, Says::Events(events)) => {
                Parts { chunks: events.iter().map(|data| openai::event(data)).collect(), ..Parts::default() }
            }
            (None, _) => match wire {
                Wire::OpenAi => openai::answer(&self.spoken(request, prompt), request),
                Wire::Anthropic => anthropic::answer(&self.spoken(request, prompt), request),
            },
        };
        let mut ending = Ending::Whole;
        if let Some((count, stop)) = self.stops {
            chunks.truncate(count);
            closing.clear();
            ending = stop;
        }
        if !self.has_head {
            opening.clear();
        }
        let head = self.has_head.then(|| self.head(document.is_some()));
        let Self { pause, split_bytes, is_gated, .. } = self;
        Script { head, opening, chunks, closing, ending, pause, split_bytes, is_gated }
    }

    /// The body, if it is no stream.
    fn document(&self, wire: Wire, request: &Value) -> Option<String> {
        let said = || self.said(request).concat();
        if self.content_type.as_ref().is_some_and(|kind| !kind.starts_with("text/event-stream")) {
            return Some(said());
        }
        let failure = || match wire {
            Wire::OpenAi => openai::failure(&said(), self.code),
            Wire::Anthropic => anthropic::failure(&said()),
        };
        (self.status != 200).then(|| failure().to_string())
    }

    fn head(&self, is_document: bool) -> String {
        let usual = if is_document { "application/json" } else { "text/event-stream" };
        let kind = self.content_type.as_deref().unwrap_or(usual);
        let retry_after = self.retry_after.iter().map(|value| format!("Retry-After: {value}\r\n")).collect::<String>();
        let status = self.status;
        format!("HTTP/1.1 {status} Fake\r\nContent-Type: {kind}\r\n{retry_after}Transfer-Encoding: chunked\r\n\r\n")
    }

    fn spoken(&self, request: &Value, prompt: u64) -> Spoken {
        Spoken {
            texts: self.said(request),
            calls: self.tool_calls.clone(),
            piece_chars: self.piece_chars,
            prompt,
            cached: self.cached,
        }
    }

    fn said(&self, request: &Value) -> Vec<String> {
        match &self.says {
            Says::Chunks(chunks) | Says::Events(chunks) => chunks.clone(),
            Says::Echo(None) => words(&last_user_message(request)),
            Says::Echo(Some(count)) => words(&last_user_message(request)).into_iter().cycle().take(*count).collect(),
        }
    }
}

/// What is said, whichever wire it is said over.
pub(super) struct Spoken {
    pub(super) texts: Vec<String>,
    pub(super) calls: Vec<(String, Value)>,
    piece_chars: Option<usize>,
    /// How long the prompt is, in words, or in tokens where those are counted.
    pub(super) prompt: u64,
    /// How much of the prompt was read from a cache, and written into one.
    pub(super) cached: (u64, u64),
}

impl Spoken {
    /// Arguments in the pieces in which they come.
    pub(super) fn pieces(&self, arguments: &Value) -> Vec<String> {
        let text: Vec<char> = arguments.to_string().chars().collect();
        let (first, second) = text.split_at(text.len() / 2);
        let pieces = match self.piece_chars {
            Some(chars) => text.chunks(chars).collect(),
            None => vec![first, second],
        };
        pieces.into_iter().map(|piece| piece.iter().collect()).collect()
    }
}

/// An answer as it is sent: what comes before the chunks, the chunks, and what comes after them.
#[derive(Default)]
pub(super) struct Parts {
    pub(super) opening: Vec<u8>,
    pub(super) chunks: Vec<Vec<u8>>,
    pub(super) closing: Vec<u8>,
}

/// Words, each with the space after it.
fn words(text: &str) -> Vec<String> {
    text.split_inclusive(' ').map(str::to_owned).collect()
}

fn last_user_message(request: &Value) -> String {
    let messages = request["messages"].as_array();
    let last = messages.into_iter().flatten().rfind(|message| message["role"] == "user");
    last.map(|message| text_of(&message["content"])).unwrap_or_default()
}

pub(super) fn prompt_words(request: &Value) -> u64 {
    let messages = request["messages"].as_array().into_iter().flatten();
    let texts = messages.map(|message| text_of(&message["content"])).chain([text_of(&request["system"])]);
    texts.map(|text| text.split_whitespace().count() as u64).sum()
}

/// A text, or the text of blocks.
fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => blocks.iter().filter_map(|block| block["text"].as_str()).collect(),
        _ => String::new(),
    }
}
