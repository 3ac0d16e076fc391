//! `/api/handles`

use axum::extract::State;
use axum::http::Method;
use axum::response::Response;
use schemars::JsonSchema;
use serde::Deserialize;
use waystone_core::api::{ExpandHandle, ExpandedHandle};

use super::Http;
use super::extract::{Id, Query, given};
use super::reply::{HttpError, large};
use super::route::Route;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::GET, "/api/handles", "expand_handle", find)
            .summary("Get the original behind a handle, given in the query")
            .query::<Wanted>()
            .replies::<ExpandedHandle>(200)
            .errors(&[404, 422]),
        Route::new(Method::GET, "/api/handles/{handle}", "expand_handle", expand)
            .summary("The same with the handle in the path, where each of its `#`, `/` and `?` is percent-encoded")
            .query::<Part>()
            .replies::<ExpandedHandle>(200)
            .errors(&[404, 422]),
    ]
}

/// [`ExpandHandle`] in a query.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Wanted {
    /// Such as `ws:checkpoint:<id>#/key`, from a view.
    handle: String,
    /// How many characters to skip.
    #[serde(default, deserialize_with = "given")]
    offset: Option<u64>,
    /// How many characters to return at most.
    #[serde(default, deserialize_with = "given")]
    #[schemars(range(min = 1))]
    limit: Option<u64>,
}

/// What it has besides its handle.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Part {
    /// How many characters to skip.
    #[serde(default, deserialize_with = "given")]
    offset: Option<u64>,
    /// How many characters to return at most.
    #[serde(default, deserialize_with = "given")]
    #[schemars(range(min = 1))]
    limit: Option<u64>,
}

async fn find(State(http): State<Http>, Query(wanted): Query<Wanted>) -> Result<Response, HttpError> {
    let request = ExpandHandle { handle: wanted.handle, offset: wanted.offset, limit: wanted.limit };
    let _taken = http.room.reply().await;
    large(http.engine.expand_handle(&http.scope(), request).await?).await
}

async fn expand(http: State<Http>, Id(handle): Id<String>, Query(part): Query<Part>) -> Result<Response, HttpError> {
    find(http, Query(Wanted { handle, offset: part.offset, limit: part.limit })).await
}
