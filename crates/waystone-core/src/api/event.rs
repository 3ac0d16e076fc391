use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::clock::Timestamp;

/// Something that changed in the store, as subscribers are told.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Event {
    /// Its number: events are told in this order, and a subscriber that comes back names the last one it saw.
    #[serde(skip)]
    pub seq: i64,
    /// What became true, such as `checkpoint.saved`.
    #[serde(rename = "type")]
    pub kind: String,
    /// When it happened.
    pub at: Timestamp,
    /// The ids and small fields it is about.
    pub data: Map<String, Value>,
}

/// Events after a given one.
#[derive(Debug, Clone, PartialEq)]
pub struct EventPage {
    pub events: Vec<Event>,
    /// Events that were asked for are gone, or never were: the subscriber must read the state anew.
    pub is_gap: bool,
    /// The number of the newest event.
    pub newest: i64,
}

impl EventPage {
    /// The number that its events come after.
    pub fn start(&self) -> i64 {
        self.events.first().map_or(self.newest, |first| first.seq - 1)
    }

    /// The number to go on after.
    pub fn end(&self) -> i64 {
        self.events.last().map_or(self.newest, |last| last.seq)
    }
}
