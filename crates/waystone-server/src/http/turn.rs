//! `/api/contexts/{context_id}/state`, `retry`, `cancel` and `events`: turns as they go on
//!
//! Events are followed in `engine/turn/stream.rs`; here they are written. Each is written once, whatever the number of readers.

use std::convert::Infallible;
use std::pin::Pin;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Method, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use tokio::time::{Instant, Interval, interval_at};
use waystone_core::api::{Heartbeat, TurnChanged, TurnState};
use waystone_core::id::{IdempotencyKey, SessionId};
use waystone_core::{Engine, Error, Frame, Reader};

use super::Http;
use super::event::LAST_EVENT_ID;
use super::extract::{IDEMPOTENCY_KEY, Id, take_key};
use super::reply::{HttpError, HttpResult, ok};
use super::route::Route;

const HEARTBEAT: Duration = Duration::from_secs(30);

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::GET, "/api/contexts/{context_id}/state", "find_turn", state)
            .summary("Get where the turn of a conversation is, and why it failed if it did")
            .replies::<TurnState>(200)
            .errors(&[404]),
        Route::new(Method::POST, "/api/contexts/{context_id}/retry", "retry_turn", retry)
            .summary("Ask the model again after a failure")
            .header::<IdempotencyKey>(IDEMPOTENCY_KEY, "Makes a retry of this request safe.")
            .replies::<TurnChanged>(200)
            .errors(&[404, 409]),
        Route::new(Method::POST, "/api/contexts/{context_id}/cancel", "cancel_turn", cancel)
            .summary("End a turn; what was streamed is kept")
            .header::<IdempotencyKey>(IDEMPOTENCY_KEY, "With one a turn that has ended already is no error.")
            .replies::<TurnChanged>(200)
            .errors(&[404]),
        Route::new(Method::GET, "/api/contexts/{context_id}/events", "follow_context", follow)
            .summary("Follow a conversation as server-sent events")
            .header::<String>(LAST_EVENT_ID, "The id of the last event that was seen; those after it are told again.")
            .replies_text(
                "text/event-stream",
                "Events with `id`, `event` and `data` (a JSON object). `StateChanged`, `ContentDelta`, `MessageCompleted`, `ToolCallRequested`, `ToolCallCompleted`, `WindowAssembled`, `UsageWarning`, `BranchMerged`, `Heartbeat` \
                 every 30 s without `id`; `Resync` carries what is written of the message when what comes in between is not known.",
            )
            .errors(&[404]),
    ]
}

async fn state(State(http): State<Http>, Id(context): Id<SessionId>) -> HttpResult<TurnState> {
    ok(http.engine.find_turn(&http.scope(), &context).await)
}

async fn retry(State(http): State<Http>, Id(context): Id<SessionId>, headers: HeaderMap) -> HttpResult<TurnChanged> {
    let mut key = None;
    take_key(&headers, IDEMPOTENCY_KEY, &mut key)?;
    ok(http.engine.retry_turn(&http.scope(), &context, key).await)
}

async fn cancel(State(http): State<Http>, Id(context): Id<SessionId>, headers: HeaderMap) -> HttpResult<TurnChanged> {
    let mut key = None;
    take_key(&headers, IDEMPOTENCY_KEY, &mut key)?;
    ok(http.engine.cancel_turn(&http.scope(), &context, key).await)
}

async fn follow(
    State(http): State<Http>,
    Id(context): Id<SessionId>,
    headers: HeaderMap,
) -> Result<Response, HttpError> {
    let not_text = |_| Error::InvalidInput(format!("{LAST_EVENT_ID} is not the id of an event"));
    let after = headers.get(LAST_EVENT_ID).map(|id| id.to_str().map_err(not_text)).transpose()?;
    let reader = http.engine.follow_context(&http.scope(), &context, after.filter(|id| !id.is_empty())).await?;
    let beat = interval_at(Instant::now() + HEARTBEAT, HEARTBEAT);
    let mut stopping = http.stopping.clone();
    let stopped = async move { _ = stopping.wait_for(|stopping| *stopping).await };
    let open = Open { reader, stopped: Box::pin(stopped), beat, engine: http.engine.clone() };
    let written = stream::unfold(open, |mut open| async move {
        let part = open.next_part().await?;
        Some((Ok::<_, Infallible>(part), open))
    });
    let headers = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-cache")];
    Ok((headers, Body::from_stream(written)).into_response())
}

/// A reader that is connected.
struct Open {
    reader: Reader,
    /// Waited for once, and not anew with each event: all readers wait for the same.
    stopped: Pin<Box<dyn Future<Output = ()> + Send>>,
    beat: Interval,
    engine: Engine,
}

impl Open {
    /// What is to be sent next; `None` when the server ends, or the reader is to begin anew.
    async fn next_part(&mut self) -> Option<Bytes> {
        let frames = tokio::select! {
            biased;
            frames = self.reader.next() => frames?,
            () = &mut self.stopped => return None,
            _ = self.beat.tick() => {
                let data = serde_json::to_string(&Heartbeat { timestamp: self.engine.now() }).unwrap_or_default();
                return Some(format!("event: Heartbeat\ndata: {data}\n\n").into());
            }
        };
        let mut part = Vec::new();
        frames.iter().for_each(|frame| part.extend_from_slice(frame.wire(render)));
        Some(part.into())
    }
}

fn render(frame: &Frame) -> Vec<u8> {
    format!("id: {}\nevent: {}\ndata: {}\n\n", frame.id(), frame.kind(), frame.data()).into_bytes()
}
