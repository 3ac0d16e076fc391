//! Events as rows, and the thread that notices what other processes add.

use std::time::Duration;

use rusqlite::{Connection, params};
use serde_json::{Map, Value};
use tokio::sync::watch;
use waystone_core::api::{Event, EventPage};
use waystone_core::clock::Timestamp;
use waystone_core::store::Scope;

use super::connection::Source;
use super::error::{DbResult, unreadable};
use crate::background::{Background, Stop};

/// How often the database is asked while someone listens.
const ROUND: Duration = Duration::from_millis(50);

pub(crate) fn list(db: &Connection, scope: &Scope, after: i64, limit: u32) -> DbResult<EventPage> {
    let newest: i64 =
        db.query_row("SELECT event_seq FROM space WHERE space = ?1", params![scope.space], |row| row.get(0))?;
    let mut statement = db.prepare_cached(
        "SELECT seq, at_ms, kind, unsealed(payload, 'event', seq) FROM event WHERE space = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3",
    )?;
    let mut rows = statement.query(params![scope.space, after, limit])?;
    let mut events = Vec::new();
    while let Some(row) = rows.next()? {
        let payload: String = row.get(3)?;
        events.push(Event {
            seq: row.get(0)?,
            at: Timestamp::from_ms(row.get(1)?),
            kind: row.get(2)?,
            data: joined(serde_json::from_str(&payload).map_err(|error| unreadable("an event", error))?),
        });
    }
    let is_gap = match events.first() {
        Some(first) => first.seq != after.saturating_add(1),
        None => after != newest,
    };
    Ok(EventPage { events, is_gap, newest })
}

/// Text that was streamed in several parts is told as one.
fn joined(mut data: Map<String, Value>) -> Map<String, Value> {
    if let Some(Value::Array(deltas)) = data.remove("deltas") {
        let first = data.get("sequence").and_then(Value::as_u64).unwrap_or(1);
        let text: String = deltas.iter().filter_map(Value::as_str).collect();
        data.insert("delta".to_owned(), text.into());
        data.insert("sequence".to_owned(), (first + deltas.len() as u64 - 1).into());
        data.insert("first_sequence".to_owned(), first.into());
    }
    data
}

/// Keeps a number up to date with the newest event's, whichever process added it. Asks only while someone listens.
pub(crate) struct EventWatch {
    newest: watch::Sender<i64>,
    _thread: Option<Background>,
}

impl EventWatch {
    pub(crate) fn start(source: Source) -> Self {
        let newest = watch::Sender::new(0);
        let told = newest.clone();
        let thread = Background::start("events", move |stop| run(&source, &told, stop));
        let thread = thread.map_err(|error| tracing::error!(%error, "events cannot be watched")).ok();
        Self { newest, _thread: thread }
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<i64> {
        self.newest.subscribe()
    }
}

fn run(source: &Source, told: &watch::Sender<i64>, stop: &Stop) {
    let mut db = None;
    while stop.wait(ROUND) {
        if told.receiver_count() == 0 {
            continue;
        }
        if db.is_none() {
            db = source.open().map_err(|error| tracing::warn!(%error, "events cannot be read")).ok();
        }
        // One machine has one space: the newest of all is the newest of it.
        let newest = db.as_ref().and_then(|db| {
            db.prepare_cached("SELECT max(event_seq) FROM space")
                .and_then(|mut s| s.query_row([], |row| row.get(0)))
                .ok()
        });
        if let Some(newest) = newest {
            told.send_if_modified(|known: &mut i64| std::mem::replace(known, newest) != newest);
        }
    }
}
