//! What the fake model says, and how.

use std::time::Duration;

use serde_json::{Value, json};

/// A reply to one request, or to each.
#[derive(Debug, Clone)]
pub struct Reply {
    says: Says,
    tool_calls: Vec<(String, Value)>,
    pause: Duration,
    split_bytes: Option<usize>,
    status: u16,
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
            pause: Duration::ZERO,
            split_bytes: None,
            status: 200,
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

    /// Calls of tools after the text, all at once: a chunk begins each, and two more bring its arguments.
    pub fn tool_calls<T: Into<String>>(mut self, calls: impl IntoIterator<Item = (T, Value)>) -> Self {
        self.tool_calls = calls.into_iter().map(|(name, arguments)| (name.into(), arguments)).collect();
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

    pub(super) fn script(self, request: &Value) -> Script {
        let document = self.document(request);
        let (opening, mut chunks, mut closing) = match (&document, &self.says) {
            (Some(document), _) => (document.clone().into_bytes(), Vec::new(), Vec::new()),
            (None, Says::Events(events)) => (Vec::new(), events.iter().map(|data| event(data)).collect(), Vec::new()),
            (None, _) => self.answer(request),
        };
        let mut opening = opening;
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
    fn document(&self, request: &Value) -> Option<String> {
        if self.content_type.as_ref().is_some_and(|kind| !kind.starts_with("text/event-stream")) {
            return Some(self.said(request).concat());
        }
        let error =
            || json!({ "message": self.said(request).concat(), "type": "fake_error", "param": null, "code": null });
        (self.status != 200).then(|| json!({ "error": error() }).to_string())
    }

    fn head(&self, is_document: bool) -> String {
        let usual = if is_document { "application/json" } else { "text/event-stream" };
        let kind = self.content_type.as_deref().unwrap_or(usual);
        let retry_after = self.retry_after.iter().map(|value| format!("Retry-After: {value}\r\n")).collect::<String>();
        let status = self.status;
        format!("HTTP/1.1 {status} Fake\r\nContent-Type: {kind}\r\n{retry_after}Transfer-Encoding: chunked\r\n\r\n")
    }

    /// A whole answer: what opens it, its chunks, and what closes it.
    fn answer(&self, request: &Value) -> (Vec<u8>, Vec<Vec<u8>>, Vec<u8>) {
        let of = |choices: Value, usage: Value| {
            let (id, object, model) = ("chatcmpl-fake", "chat.completion.chunk", &request["model"]);
            let chunk =
                json!({ "id": id, "object": object, "created": 0, "model": model, "choices": choices, "usage": usage });
            event(&chunk.to_string())
        };
        let add = |delta: Value| of(json!([{ "index": 0, "delta": delta, "finish_reason": null }]), Value::Null);
        let said = self.said(request);
        let mut chunks: Vec<_> = said.iter().map(|text| add(json!({ "content": text }))).collect();
        chunks.extend(tool_deltas(&self.tool_calls).into_iter().map(|delta| add(json!({ "tool_calls": [delta] }))));

        let finish_reason = if self.tool_calls.is_empty() { "stop" } else { "tool_calls" };
        let mut closing = of(json!([{ "index": 0, "delta": {}, "finish_reason": finish_reason }]), Value::Null);
        if request["stream_options"]["include_usage"] == true {
            let (prompt, completion) = (prompt_words(request), chunks.len());
            let total = prompt + completion;
            let usage = json!({ "prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": total });
            closing.extend(of(json!([]), usage));
        }
        closing.extend(event("[DONE]"));
        (add(json!({ "role": "assistant", "content": "" })), chunks, closing)
    }

    fn said(&self, request: &Value) -> Vec<String> {
        match &self.says {
            Says::Chunks(chunks) | Says::Events(chunks) => chunks.clone(),
            Says::Echo(None) => words(&last_user_message(request)),
            Says::Echo(Some(count)) => words(&last_user_message(request)).into_iter().cycle().take(*count).collect(),
        }
    }
}

fn event(data: &str) -> Vec<u8> {
    format!("data: {data}\n\n").into_bytes()
}

/// The calls begin one after the other, and their arguments come in turn, as of a provider that makes them at once.
fn tool_deltas(calls: &[(String, Value)]) -> Vec<Value> {
    let calls = || calls.iter().enumerate();
    let begin = calls().map(|(index, (name, _))| {
        let function = json!({ "name": name, "arguments": "" });
        json!({ "index": index, "id": format!("call_{index}"), "type": "function", "function": function })
    });
    let halves = [0, 1].into_iter().flat_map(|half| {
        calls().map(move |(index, (_, arguments))| {
            let text: Vec<char> = arguments.to_string().chars().collect();
            let (first, second) = text.split_at(text.len() / 2);
            let part: String = [first, second][half].iter().collect();
            json!({ "index": index, "function": { "arguments": part } })
        })
    });
    begin.chain(halves).collect()
}

/// Words, each with the space after it.
fn words(text: &str) -> Vec<String> {
    text.split_inclusive(' ').map(str::to_owned).collect()
}

fn last_user_message(request: &Value) -> String {
    let messages = request["messages"].as_array();
    let last = messages.into_iter().flatten().rfind(|message| message["role"] == "user");
    last.and_then(|message| message["content"].as_str()).unwrap_or_default().to_owned()
}

fn prompt_words(request: &Value) -> usize {
    let messages = request["messages"].as_array().into_iter().flatten();
    messages.filter_map(|message| message["content"].as_str()).map(|text| text.split_whitespace().count()).sum()
}
