//! `/api/events`: what changes in the store, as it changes, by whichever process.
//!
//! A reader gets every event once and in order. It may come back with `Last-Event-ID`; when events in between have expired,
//! or the id is not one of this store's, it is told `resync` first and must read the state anew.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, Method};
use axum::response::sse::{Event as Frame, KeepAlive, Sse};
use futures_util::Stream;
use futures_util::stream;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use tokio::sync::watch;
use waystone_core::Error;
use waystone_core::api::{Event, EventPage};

use super::Http;
use super::extract::Query;
use super::reply::HttpError;
use super::route::Route;

pub(super) const LAST_EVENT_ID: &str = "Last-Event-ID";
const HEARTBEAT: Duration = Duration::from_secs(30);

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Subscribe {
    /// Begin after the event with this number; from now on when left out. `Last-Event-ID` counts first.
    #[serde(default)]
    #[schemars(range(min = 0))]
    after: Option<i64>,
}

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::GET, "/api/events", "list_events", subscribe)
            .summary("Follow what changes, as server-sent events")
            .query::<Subscribe>()
            .header::<u64>(LAST_EVENT_ID, "The number of the last event that was seen.")
            .replies_text(
                "text/event-stream",
                "Events with `id`, `event` (what became true) and `data` (a JSON object). On a store that ends with the \
                 process the first is a `warning` without `id`, whose `data` has the `warnings` of any other reply.",
            ),
    ]
}

async fn subscribe(
    State(http): State<Http>,
    Query(request): Query<Subscribe>,
    headers: HeaderMap,
) -> Result<Sse<impl Stream<Item = Result<Frame, Infallible>>>, HttpError> {
    let after = last_event_id(&headers)?.or(request.after);
    let changes = http.engine.watch_events();
    let page = http.engine.list_events(&http.scope(), after).await?;
    let mut reader = Reader { last: page.end(), changes, stopping: http.stopping.clone(), http, waiting: Vec::new() };
    reader.take(page);
    reader.warn();
    let frames = stream::unfold(reader, |mut reader| async move { Some((Ok(reader.next().await?), reader)) });
    Ok(Sse::new(frames).keep_alive(KeepAlive::new().interval(HEARTBEAT)))
}

fn last_event_id(headers: &HeaderMap) -> Result<Option<i64>, HttpError> {
    let Some(id) = headers.get(LAST_EVENT_ID) else { return Ok(None) };
    let id = id.to_str().ok().and_then(|id| id.parse().ok()).filter(|id| *id >= 0);
    id.map(Some).ok_or_else(|| HttpError(Error::InvalidInput(format!("{LAST_EVENT_ID} is not the number of an event"))))
}

/// One subscriber.
struct Reader {
    http: Http,
    /// The number of the last event that was read for it.
    last: i64,
    changes: watch::Receiver<i64>,
    stopping: watch::Receiver<bool>,
    /// Frames to be sent, the next one last.
    waiting: Vec<Frame>,
}

impl Reader {
    /// The next frame; `None` when the server ends or the store cannot be read.
    async fn next(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = self.waiting.pop() {
                return Some(frame);
            }
            tokio::select! {
                changed = self.changes.wait_for(|newest| *newest > self.last) => { changed.ok()?; }
                _ = self.stopping.wait_for(|stopping| *stopping) => return None,
            }
            let page = self.http.engine.list_events(&self.http.scope(), Some(self.last)).await;
            self.take(page.map_err(|error| tracing::error!(%error, "events cannot be read")).ok()?);
        }
    }

    /// Says first what every other reply says too.
    fn warn(&mut self) {
        let warnings = self.http.engine.warnings();
        if !warnings.is_empty() {
            self.waiting.push(Frame::default().event("warning").data(json!({ "warnings": warnings }).to_string()));
        }
    }

    fn take(&mut self, page: EventPage) {
        self.last = page.end();
        self.waiting = page.events.iter().rev().map(frame).collect();
        if page.is_gap {
            self.waiting.push(resync(&page));
        }
    }
}

fn resync(page: &EventPage) -> Frame {
    let data = json!({ "newest": page.newest }).to_string();
    Frame::default().id(page.start().to_string()).event("resync").data(data)
}

fn frame(event: &Event) -> Frame {
    let data = serde_json::to_string(event).unwrap_or_default();
    Frame::default().id(event.seq.to_string()).event(&event.kind).data(data)
}
