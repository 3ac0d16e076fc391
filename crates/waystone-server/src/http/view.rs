//! `/api/views`

use axum::extract::State;
use axum::http::Method;
use axum::response::Response;
use waystone_core::api::{CompressContext, PrioritizeContext, View};

use super::Http;
use super::extract::Body;
use super::reply::{HttpError, large};
use super::route::Route;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::POST, "/api/views/compress", "compress_context", compress)
            .summary("Make a view of a context that fits into a budget of tokens")
            .body::<CompressContext>()
            .replies::<View>(200)
            .errors(&[404, 413, 422]),
        Route::new(Method::POST, "/api/views/prioritize", "prioritize_context", prioritize)
            .summary("Make a view of a context in order of importance")
            .body::<PrioritizeContext>()
            .replies::<View>(200)
            .errors(&[404, 413, 422]),
    ]
}

async fn compress(
    State(http): State<Http>,
    Body(request, _turn): Body<CompressContext>,
) -> Result<Response, HttpError> {
    let _taken = http.room.reply().await;
    large(http.engine.compress_context(&http.scope(), request).await?).await
}

async fn prioritize(
    State(http): State<Http>,
    Body(request, _turn): Body<PrioritizeContext>,
) -> Result<Response, HttpError> {
    let _taken = http.room.reply().await;
    large(http.engine.prioritize_context(&http.scope(), request).await?).await
}
