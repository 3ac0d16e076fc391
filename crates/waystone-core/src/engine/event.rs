//! Events: what subscribers are told, in order, each with a number they can come back with.

use tokio::sync::watch;

use super::Engine;
use crate::api::EventPage;
use crate::error::Result;
use crate::store::Scope;

/// How many events are read at once.
const PAGE: u32 = 500;

impl Engine {
    /// The events after the one with number `after`; from now on when there is none to go on from.
    pub async fn list_events(&self, scope: &Scope, after: Option<i64>) -> Result<EventPage> {
        self.store
            .list_events(scope, after.unwrap_or(i64::MAX), PAGE)
            .await
            .map(|page| EventPage { is_gap: page.is_gap && after.is_some(), ..page })
    }

    /// The number of the newest event, as it changes.
    pub fn watch_events(&self) -> watch::Receiver<i64> {
        self.store.watch_events()
    }
}
