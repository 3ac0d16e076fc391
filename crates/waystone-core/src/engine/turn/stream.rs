//! What readers of a conversation are told, as it happens.
//!
//! The log in the store is what counts: every durable event is read from there, by whichever process it was written. Only text that is being
//! streamed by this process goes to readers before it is written. A [`Channel`] holds what was told last, in order and once for all
//! readers; a [`Reader`] that falls behind goes on in the log, and one that cannot gets a `Resync`. Nothing is ever passed over in silence.

mod reader;

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use serde::Deserialize;
use tokio::sync::watch;

use crate::api::ContentDelta;
use crate::error::{Error, Result};
use crate::id::{SegmentId, SessionId};
use crate::store::{Scope, SharedStore, TurnEvent};

pub use reader::Reader;

/// How many events a channel holds that are in the log too.
const RING: usize = 256;
/// A reader so many events behind is told to read the state anew.
const BEHIND_MAX: u64 = 16 * RING as u64;
/// How many rows of the log are read at once.
const PAGE: u32 = 256;

/// The kinds of events that are rows.
pub(super) const CONTENT_DELTA: &str = "ContentDelta";
pub(super) const STATE_CHANGED: &str = "StateChanged";
pub(super) const MESSAGE_COMPLETED: &str = "MessageCompleted";
pub(in crate::engine) const TOOL_CALL_REQUESTED: &str = "ToolCallRequested";
pub(super) const TOOL_CALL_COMPLETED: &str = "ToolCallCompleted";
pub(super) const WINDOW_ASSEMBLED: &str = "WindowAssembled";
pub(super) const USAGE_WARNING: &str = "UsageWarning";
const RESYNC: &str = "Resync";

/// One event as readers get it.
#[derive(Debug)]
pub struct Frame {
    run: Arc<str>,
    n: u64,
    /// The newest row when it was told: its own, or for what was not written yet the one before.
    seq: i64,
    kind: String,
    data: String,
    wire: OnceLock<Vec<u8>>,
}

impl Frame {
    pub(super) fn new(run: &Arc<str>, n: u64, seq: i64, kind: &str, data: String) -> Self {
        Self { run: Arc::clone(run), n, seq, kind: kind.to_owned(), data, wire: OnceLock::new() }
    }

    /// What a reader comes back with to go on after it.
    pub fn id(&self) -> String {
        format!("{}-{}", self.run, self.n)
    }

    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// A JSON object.
    pub fn data(&self) -> &str {
        &self.data
    }

    /// The event as a face writes it, made once for all readers.
    pub fn wire(&self, render: impl FnOnce(&Self) -> Vec<u8>) -> &[u8] {
        self.wire.get_or_init(|| render(self))
    }
}

/// Text that was streamed, as one row has it.
#[derive(Debug, Deserialize, serde::Serialize)]
pub(super) struct Deltas {
    pub(super) context_id: SessionId,
    pub(super) message_id: SegmentId,
    pub(super) attempt: u64,
    /// Of the first.
    pub(super) sequence: u64,
    pub(super) deltas: Vec<String>,
}

/// What was told last, and to whom it is told.
#[derive(Debug)]
pub(super) struct Channel {
    ring: Mutex<Ring>,
    /// How many were ever told, or [`u64::MAX`] when there will be no more.
    told: watch::Sender<u64>,
    /// The newest row of the log that was told.
    followed: tokio::sync::Mutex<i64>,
    /// Someone looks what other processes add to the log.
    is_followed: AtomicBool,
}

#[derive(Debug, Default)]
struct Ring {
    frames: VecDeque<Arc<Frame>>,
    /// The number of the first of `frames`.
    start: u64,
    /// Those before this number are in the log.
    written: u64,
    /// The log could not be read: nothing is told before it was.
    is_behind: bool,
    /// The conversation was deleted: who has been told all is told that there is no more.
    is_gone: bool,
    last: Option<(Arc<str>, u64)>,
}

impl Ring {
    fn end(&self) -> u64 {
        self.start + self.frames.len() as u64
    }

    fn push(&mut self, frame: Frame) {
        self.last = Some((Arc::clone(&frame.run), frame.n));
        self.frames.push_back(Arc::new(frame));
        while self.frames.len() > RING && self.start < self.written {
            self.frames.pop_front();
            self.start += 1;
        }
    }

    /// The number of what comes right after a place that the log has led to. `None` when what came in between has left the ring: then it is in
    /// the log now.
    fn next_after(&self, place: &Place) -> Option<u64> {
        let Some(at) = self.frames.iter().position(|frame| place.is_before(frame)) else { return Some(self.end()) };
        let frame = &self.frames[at];
        let is_next = at > 0 || self.start == 0 || *frame.run == *place.run && frame.n == place.n + 1;
        is_next.then_some(self.start + at as u64)
    }

    fn has(&self, run: &str, n: u64) -> bool {
        self.last.as_ref().is_some_and(|(last, newest)| **last == *run && n <= *newest)
    }
}

impl Channel {
    fn new(followed: i64) -> Self {
        Self {
            ring: Mutex::default(),
            told: watch::Sender::new(0),
            followed: tokio::sync::Mutex::new(followed),
            is_followed: AtomicBool::new(false),
        }
    }

    /// Whether someone reads. Who follows the log for them ends when no one does, and the next reader begins again.
    fn has_readers(&self) -> bool {
        let has_any = || self.told.receiver_count() > 0;
        if has_any() {
            return true;
        }
        self.is_followed.store(false, Ordering::Release);
        has_any() && !self.is_followed.swap(true, Ordering::AcqRel)
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells what is not in the log yet. Returns its number.
    pub(super) fn tell(&self, frame: Frame) -> u64 {
        let mut ring = self.ring();
        // What is not told now is told from the log.
        if !ring.is_behind {
            ring.push(frame);
        }
        self.wake(&ring);
        ring.end()
    }

    /// Ends all readers, because the conversation is gone; or lets them go on, because it is there again.
    fn set_gone(&self, is_gone: bool) {
        let mut ring = self.ring();
        if ring.is_gone || is_gone {
            ring.is_gone = is_gone;
            self.wake(&ring);
        }
    }

    /// Lets readers look.
    fn wake(&self, ring: &Ring) {
        self.told.send_replace(if ring.is_gone { u64::MAX } else { ring.end() });
    }

    /// What was told up to this number is in the log now.
    pub(super) fn mark_written(&self, end: u64) {
        let mut ring = self.ring();
        ring.written = ring.written.max(end);
    }

    /// Tells what was added to the log.
    pub(super) async fn follow(&self, store: &SharedStore, scope: &Scope, context: &SessionId) -> Result<()> {
        if self.told.receiver_count() == 0 {
            return Ok(());
        }
        let mut followed = self.followed.lock().await;
        loop {
            let read = store.list_turn_events(scope, context, *followed + 1, PAGE).await;
            let read = read.and_then(|rows| {
                let frames = rows.iter().map(|row| frames(row, false)).collect::<Result<Vec<_>>>()?;
                Ok((rows.last().map(|row| row.seq), frames))
            });
            let mut ring = self.ring();
            ring.is_behind = read.is_err();
            let (Some(newest), frames) = read? else { return Ok(()) };
            for frame in frames.into_iter().flatten() {
                if !ring.has(&frame.run, frame.n) {
                    ring.push(frame);
                    // All that was told before is older than this row.
                    ring.written = ring.end();
                }
            }
            *followed = newest;
            self.wake(&ring);
        }
    }
}

/// The events of a row, or one for all of them.
fn frames(row: &TurnEvent, is_joined: bool) -> Result<Vec<Frame>> {
    let run: Arc<str> = row.run.as_str().into();
    if row.kind != CONTENT_DELTA {
        return Ok(vec![Frame::new(&run, row.last, row.seq, &row.kind, row.payload.clone())]);
    }
    let unreadable = |error| Error::broken(format!("an event cannot be read: {error}"));
    let row_deltas: Deltas = serde_json::from_str(&row.payload).map_err(unreadable)?;
    let Deltas { context_id, message_id, attempt, sequence, deltas } = &row_deltas;
    if is_joined {
        let (last, joined) = (sequence + deltas.len() as u64 - 1, deltas.concat());
        let first_sequence = Some(*sequence);
        let data = delta(&ContentDelta {
            context_id,
            message_id,
            delta: &joined,
            sequence: last,
            attempt: *attempt,
            first_sequence,
        });
        return Ok(vec![Frame::new(&run, row.last, row.seq, CONTENT_DELTA, data)]);
    }
    let each = deltas.iter().zip(0..).map(|(text, at)| {
        let told = ContentDelta {
            context_id,
            message_id,
            delta: text,
            sequence: sequence + at,
            attempt: *attempt,
            first_sequence: None,
        };
        Frame::new(&run, row.first + at, row.seq, CONTENT_DELTA, delta(&told))
    });
    Ok(each.collect())
}

pub(super) fn delta(delta: &ContentDelta<'_>) -> String {
    serde_json::to_string(delta).unwrap_or_default()
}

/// The channels of this process: one for each conversation that has a reader or a turn here.
#[derive(Debug, Default)]
pub(super) struct Channels(Mutex<HashMap<SessionId, Weak<Channel>>>);

impl Channels {
    /// The channel of a conversation whose newest event is `seq`.
    pub(super) fn open(&self, context: &SessionId, seq: i64) -> Arc<Channel> {
        let mut channels = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(channel) = channels.get(context).and_then(Weak::upgrade) {
            return channel;
        }
        channels.retain(|_, channel| channel.strong_count() > 0);
        let channel = Arc::new(Channel::new(seq));
        channels.insert(context.clone(), Arc::downgrade(&channel));
        channel
    }
}

/// The place of an event in the order of all events of a conversation.
#[derive(Debug, Clone)]
struct Place {
    seq: i64,
    run: Arc<str>,
    n: u64,
}

impl Place {
    fn of(frame: &Frame) -> Self {
        Self { seq: frame.seq, run: Arc::clone(&frame.run), n: frame.n }
    }

    /// Goes on to `frame`. Its run is mostly the one it was, which many readers share: that is not counted anew for each.
    fn move_to(&mut self, frame: &Frame) {
        (self.seq, self.n) = (frame.seq, frame.n);
        if !Arc::ptr_eq(&self.run, &frame.run) {
            self.run = Arc::clone(&frame.run);
        }
    }

    fn is_before(&self, frame: &Frame) -> bool {
        match *self.run == *frame.run {
            true => self.n < frame.n,
            false => self.seq < frame.seq,
        }
    }
}
