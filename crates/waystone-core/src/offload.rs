//! Where work is done that takes long: not on the threads that serve other requests.

use crate::error::{Error, Result};

/// Work on up to so much text takes less than a millisecond, and is done at once.
pub const INLINE_BYTES_MAX: usize = 256 * 1024;

/// Does work on about `bytes` bytes: here, or on a thread of its own.
pub async fn offload<T: Send + 'static>(bytes: usize, work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    offload_unless(bytes <= INLINE_BYTES_MAX, work).await
}

/// The same, where how many bytes there are is known only as far as `is_small` says.
pub(crate) async fn offload_unless<T: Send + 'static>(
    is_small: bool,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T> {
    if is_small {
        return Ok(work());
    }
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|panic| Error::Internal(format!("the work was aborted: {panic}")))
}
