//! Faults of ours in the middle of a request: whoever asked is told, and others are served on.

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use waystone_core::{Error, Result};

/// What `work` comes to, also where it panics. What it had begun is dropped then, as when a caller goes away.
pub(crate) async fn caught<T>(work: impl Future<Output = T>) -> Result<T> {
    let done = AssertUnwindSafe(work).catch_unwind().await;
    done.map_err(|_| Error::Internal("the request was aborted".to_owned()))
}
