//! What readers of a conversation are told, as it happens.
//!
//! The log in the store is what counts: every durable event is read from there, by whichever process it was written. Only text that is being
//! streamed by this process goes to readers before it is written. A [`Channel`] holds what was told last, in order and once for all
//! readers; a [`Reader`] that falls behind goes on in the log, and one that cannot gets a [`Resync`]. Nothing is ever passed over in silence.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use serde::Deserialize;
use tokio::sync::watch;

use crate::api::{ContentDelta, Resync};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::id::{SegmentId, SessionId};
use crate::store::{Scope, SharedStore, TurnEvent};

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
    /// How many were ever told.
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
        self.told.send_replace(ring.end());
        ring.end()
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
            self.told.send_replace(ring.end());
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

/// Where a reader goes on.
#[derive(Debug)]
enum Source {
    Log,
    /// From this number of the channel on.
    Ring(u64),
    Ended,
}

/// One reader of a conversation's events.
pub struct Reader {
    engine: Engine,
    scope: Scope,
    context: SessionId,
    channel: Arc<Channel>,
    told: watch::Receiver<u64>,
    place: Place,
    source: Source,
    /// It has fallen behind: what belongs together is told as one.
    is_slow: bool,
    first: Option<Arc<Frame>>,
}

impl Engine {
    /// Follows what happens in a conversation, from now on or after an event that was told before.
    pub async fn follow_context(&self, scope: &Scope, context: &SessionId, after: Option<&str>) -> Result<Reader> {
        let seq = self.store.find_turn(scope, context).await?.seq;
        let channel = self.turns.channels.open(context, seq);
        let told = channel.told.subscribe();
        self.follow_others(scope, context, &channel);
        let newest = self.store.list_turn_events(scope, context, seq, 1).await?;
        let newest = newest.first().map(|row| (row.seq, row.run.as_str().into(), row.last));
        let (seq, run, n) = newest.unwrap_or((0, "".into(), 0));
        let mut reader = Reader {
            engine: self.clone(),
            scope: scope.clone(),
            context: context.clone(),
            channel,
            told,
            place: Place { seq, run, n },
            source: Source::Log,
            is_slow: false,
            first: None,
        };
        if let Some(after) = after {
            reader.go_after(after).await?;
        }
        Ok(reader)
    }

    /// Tells what other processes add to the log, as long as the channel has a reader.
    fn follow_others(&self, scope: &Scope, context: &SessionId, channel: &Arc<Channel>) {
        if channel.is_followed.swap(true, Ordering::AcqRel) {
            return;
        }
        let (store, scope, context) = (Arc::clone(&self.store), scope.clone(), context.clone());
        let (channel, mut changes) = (Arc::downgrade(channel), self.store.watch_events());
        tokio::spawn(async move {
            while let Some(channel) = channel.upgrade().filter(|channel| channel.has_readers()) {
                // What cannot be read now is read with the next change.
                let _ = channel.follow(&store, &scope, &context).await;
                drop(channel);
                if changes.changed().await.is_err() {
                    break;
                }
            }
        });
    }
}

impl Reader {
    /// Goes on after the event with this id. What cannot be known to be next begins with a [`Resync`].
    async fn go_after(&mut self, id: &str) -> Result<()> {
        let number = |n: &str| n.parse::<i64>().ok().and_then(|n| u64::try_from(n).ok());
        let known = id.rsplit_once('-').and_then(|(run, n)| Some((run, number(n)?)));
        let Some((run, n)) = known else { return self.resync("").await };
        // The log first: what is in the ring need not be all that followed.
        if let Some(seq) = self.engine.store.find_turn_event(&self.scope, &self.context, run, n).await? {
            self.place = Place { seq, run: run.into(), n };
            return Ok(());
        }
        let told = {
            let ring = self.channel.ring();
            let found = ring.frames.iter().position(|frame| *frame.run == *run && frame.n == n);
            found.map(|at| (Place::of(&ring.frames[at]), ring.start + at as u64 + 1))
        };
        match told {
            Some((place, next)) => (self.place, self.source) = (place, Source::Ring(next)),
            None => self.resync(run).await?,
        }
        Ok(())
    }

    /// Says what is written so far, after which it goes on.
    async fn resync(&mut self, run: &str) -> Result<()> {
        let (resync, newest) = self.engine.store.find_resync(&self.scope, &self.context, run).await?;
        let newest = newest.map(|row| Place { seq: row.seq, run: row.run.as_str().into(), n: row.last });
        self.place = newest.unwrap_or(Place { seq: 0, run: "".into(), n: 0 });
        let data = serde_json::to_string::<Resync>(&resync).unwrap_or_default();
        let Place { seq, run, n } = &self.place;
        self.first = Some(Arc::new(Frame::new(run, *n, *seq, RESYNC, data)));
        Ok(())
    }

    /// The next events, at least one, as many as are there. `None` when this reader must begin anew, or nothing can be read.
    pub async fn next(&mut self) -> Option<Vec<Arc<Frame>>> {
        loop {
            if let Some(first) = self.first.take() {
                return Some(vec![first]);
            }
            let found = match self.source {
                Source::Ended => return None,
                Source::Log => self.read_log().await.ok()?,
                Source::Ring(next) => self.read_ring(next).await?,
            };
            if let Some(last) = found.last() {
                self.place.move_to(last);
                return Some(found);
            }
        }
    }

    async fn read_log(&mut self) -> Result<Vec<Arc<Frame>>> {
        // The row that holds the last one may hold others after it.
        let from = self.place.seq.max(1);
        let rows = self.engine.store.list_turn_events(&self.scope, &self.context, from, PAGE).await?;
        let mut found = Vec::new();
        for row in &rows {
            let is_begun = *self.place.run == *row.run && row.first <= self.place.n;
            let frames = frames(row, self.is_slow && !is_begun)?;
            found.extend(frames.into_iter().filter(|frame| self.place.is_before(frame)).map(Arc::new));
        }
        if found.is_empty() {
            let ring = self.channel.ring();
            if let Some(next) = ring.next_after(&self.place) {
                (self.source, self.is_slow) = (Source::Ring(next), false);
            }
        }
        Ok(found)
    }

    async fn read_ring(&mut self, next: u64) -> Option<Vec<Arc<Frame>>> {
        self.told.wait_for(|told| *told > next).await.ok()?;
        let behind = {
            let ring = self.channel.ring();
            let behind = ring.end() - next;
            if next >= ring.start {
                let from = usize::try_from(next - ring.start).unwrap_or(usize::MAX);
                self.source = Source::Ring(ring.end());
                // The log may have been ahead of it.
                let told = ring.frames.iter().skip(from).filter(|frame| self.place.is_before(frame));
                return Some(told.cloned().collect());
            }
            behind
        };
        if behind > BEHIND_MAX {
            self.resync("").await.ok()?;
            self.source = Source::Ended;
        } else {
            (self.source, self.is_slow) = (Source::Log, true);
        }
        Some(Vec::new())
    }
}
