//! Events: what subscribers are told, in order, each with a number they can come back with.

use tokio::sync::watch;

use super::Engine;
use crate::api::EventPage;
use crate::error::{Error, Result};
use crate::store::Scope;

/// How many events are read at once.
const PAGE: u32 = 500;

impl Engine {
    /// The events after the one with number `after`. When there is none to go on from, a page without events that says where
    /// those from now on begin.
    pub async fn list_events(&self, scope: &Scope, after: Option<i64>) -> Result<EventPage> {
        match after {
            Some(after) if after < 0 => Err(Error::InvalidInput("after is negative".to_owned())),
            Some(after) => self.store.list_events(scope, after, PAGE).await,
            None => Ok(EventPage { is_gap: false, ..self.store.list_events(scope, 0, 0).await? }),
        }
    }

    /// The number of the newest event, as it changes.
    pub fn watch_events(&self) -> watch::Receiver<i64> {
        self.store.watch_events()
    }
}
