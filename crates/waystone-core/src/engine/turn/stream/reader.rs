//! One reader of a conversation: it goes on in the channel, in the log where it has fallen behind, and begins anew where it cannot.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::watch;

use super::{BEHIND_MAX, Channel, Frame, PAGE, Place, RESYNC, frames};
use crate::api::Resync;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::id::SessionId;
use crate::store::Scope;

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
        channel.set_gone(false);
        let told = channel.told.subscribe();
        // It may have been deleted in between, and who looks for that has looked already.
        if let Err(error) = self.store.find_turn(scope, context).await {
            channel.set_gone(matches!(error, Error::ContextNotFound(_)));
            return Err(error);
        }
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
                let found = store.find_turn(&scope, &context).await;
                channel.set_gone(matches!(found, Err(Error::ContextNotFound(_))));
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
        // Told to who asked when there was no event yet.
        if run.is_empty() && n == 0 {
            self.place = Place { seq: 0, run: "".into(), n };
            return Ok(());
        }
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
            match ring.next_after(&self.place) {
                Some(next) => (self.source, self.is_slow) = (Source::Ring(next), false),
                // What it has missed was removed with the conversation.
                None if ring.is_gone => self.source = Source::Ended,
                None => {}
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
                if ring.is_gone && next == ring.end() {
                    return None;
                }
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
