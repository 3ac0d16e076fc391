//! An answer under way, whichever wire it comes over.
//!
//! It is read here, with bounds on time and size; what the events of a [`Wire`] say is for that. A body that merely stops is an
//! answer that was cut, unless the wire says that it is whole.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::time::{Instant, timeout_at};
use waystone_core::model::{Answer, Call, Chunk, Cut, ModelError, Usage};

use crate::event::Events;
use crate::failure::Peer;
use crate::http::root_cause;
use crate::server::SILENCE_MAX;

/// How long the usage is waited for after the last word.
const USAGE_MAX: Duration = Duration::from_secs(10);
/// How long a server may go on without an event, though it shows that it is there.
const EVENTLESS_MAX: Duration = Duration::from_secs(600);

/// How events are read.
pub(crate) trait Wire: Send {
    /// Takes in the data of one event.
    fn hear(&mut self, data: &[u8], peer: &Peer) -> Result<Heard, ModelError>;

    /// Whether nothing of the answer is missing, though figures may still come.
    fn is_complete(&self) -> bool;

    /// What came besides the text of a whole answer; or why that cannot be told.
    fn rest(&mut self) -> Result<Rest, &'static str>;
}

pub(crate) struct Rest {
    pub(crate) calls: Vec<Call>,
    pub(crate) usage: Option<Usage>,
    /// Why it ends before it is whole, if so.
    pub(crate) cut: Option<Cut>,
}

pub(crate) enum Heard {
    /// More text; may be empty.
    Text(String),
    /// That was all.
    End,
}

pub(crate) struct Streaming<W> {
    body: Incoming,
    peer: Arc<Peer>,
    wire: W,
    /// Why it may call nothing, if so.
    why_no_tools: Option<&'static str>,
    events: Events,
    has_text: bool,
    /// When the last event came.
    heard_at: Instant,
    /// Whether nothing more is read, and `last` is what remains to be told.
    is_over: bool,
    last: VecDeque<Result<Chunk, ModelError>>,
}

#[async_trait]
impl<W: Wire> Answer for Streaming<W> {
    /// May be dropped and called again: nothing is lost.
    async fn next(&mut self) -> Option<Result<Chunk, ModelError>> {
        while !self.is_over {
            let Some(data) = self.events.pop() else {
                self.read().await;
                continue;
            };
            self.heard_at = Instant::now();
            match self.wire.hear(&data, &self.peer) {
                Ok(Heard::Text(text)) if text.is_empty() => {}
                Ok(Heard::Text(text)) => {
                    self.has_text |= !text.trim().is_empty();
                    return Some(Ok(Chunk::Text(text)));
                }
                Ok(Heard::End) => self.finish(),
                Err(error) => self.fail(error),
            }
        }
        self.last.pop_front()
    }
}

impl<W: Wire> Streaming<W> {
    pub(crate) fn new(body: Incoming, peer: Arc<Peer>, wire: W, why_no_tools: Option<&'static str>) -> Self {
        let (events, last) = (Events::default(), VecDeque::new());
        let heard_at = Instant::now();
        Self { body, peer, wire, why_no_tools, events, has_text: false, heard_at, is_over: false, last }
    }

    async fn read(&mut self) {
        // Comments keep a connection, and end no wait for what is to come.
        let (silence_max, eventless_max) =
            if self.wire.is_complete() { (USAGE_MAX, USAGE_MAX) } else { (SILENCE_MAX, EVENTLESS_MAX) };
        let deadline = (Instant::now() + silence_max).min(self.heard_at + eventless_max);
        match timeout_at(deadline, self.body.frame()).await {
            Ok(Some(Ok(frame))) => {
                if !self.events.push(frame.data_ref().map_or(&[], |bytes| bytes)) {
                    self.fail(self.peer.interrupted("an event of it is too long"));
                }
            }
            Ok(Some(Err(error))) => self.stop(&root_cause(&error)),
            Ok(None) => self.stop("it stopped before its end"),
            Err(_) => self.stop(&format!("nothing came for {} s", self.heard_at.elapsed().as_secs())),
        }
    }

    /// The body gives no more.
    fn stop(&mut self, why: &str) {
        if self.wire.is_complete() { self.finish() } else { self.fail(self.peer.interrupted(why)) }
    }

    /// Calls are told only now that they are whole, and only where some could be made.
    fn finish(&mut self) {
        self.is_over = true;
        let Rest { mut calls, usage, cut } = match self.wire.rest() {
            Ok(rest) => rest,
            Err(why) => return self.fail(self.peer.interrupted(why)),
        };
        if cut == Some(Cut::Filter) {
            if !self.has_text {
                return self.fail(self.peer.refused());
            }
            // What was to be called may not have been whole, and nobody meant it to be.
            calls.clear();
        }
        let cut = cut.map(|cut| Ok(Chunk::Cut(cut)));
        let usage = usage.map(|usage| Ok(Chunk::Usage(usage))).into_iter().chain(cut);
        match self.why_no_tools {
            None => self.last.extend(calls.into_iter().map(|call| Ok(Chunk::Call(call))).chain(usage)),
            Some(why) => {
                let has_only_called = !calls.is_empty() && !self.has_text;
                self.last.extend(usage.chain(has_only_called.then(|| Err(self.peer.called_tool(why)))));
            }
        }
    }

    fn fail(&mut self, error: ModelError) {
        self.is_over = true;
        self.last.push_back(Err(error));
    }
}
