//! Room: how much of what is large is held at once.
//!
//! A parsed body takes many times its size in memory, and a loaded context is held as text more than once. So large bodies
//! together have no more bytes than the largest allowed one, and few replies that may be large are made at once. Who has room
//! for a body may wait for that of a reply, never the other way round; no one waits for more of the same kind.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use waystone_core::Limits;
use waystone_core::offload::INLINE_BYTES_MAX;

/// Replies as large as a context that are made at once.
const REPLIES_MAX: usize = 4;

/// Held until what was large is gone.
pub(crate) type Taken = OwnedSemaphorePermit;

/// Cheap to clone.
#[derive(Clone)]
pub(crate) struct Room {
    /// KiB of bodies that may be held at once.
    bodies: Arc<Semaphore>,
    replies: Arc<Semaphore>,
    imports: Arc<Semaphore>,
}

impl Room {
    pub(crate) fn new(limits: &Limits) -> Self {
        let bodies = kib(limits.request_bytes_max()) as usize;
        Self {
            bodies: Arc::new(Semaphore::new(bodies)),
            replies: Arc::new(Semaphore::new(REPLIES_MAX)),
            imports: Arc::new(Semaphore::new(1)),
        }
    }

    /// Waits until a document may be received: one at a time, since each takes room on the disk.
    pub(crate) async fn import(&self) -> Option<Taken> {
        Arc::clone(&self.imports).acquire_owned().await.ok()
    }

    /// Waits until a body of `bytes` may be read, parsed and worked on. Small ones wait for no one.
    pub(crate) async fn body(&self, bytes: u64) -> Option<Taken> {
        if bytes <= INLINE_BYTES_MAX as u64 {
            return None;
        }
        Arc::clone(&self.bodies).acquire_many_owned(kib(bytes)).await.ok()
    }

    /// Waits until a reply may be made that may be as large as a context.
    pub(crate) async fn reply(&self) -> Option<Taken> {
        Arc::clone(&self.replies).acquire_owned().await.ok()
    }
}

/// Gives back what was taken over `bytes`.
pub(crate) fn shrink(taken: Option<Taken>, bytes: usize) -> Option<Taken> {
    taken.and_then(|mut taken| taken.split((kib(bytes as u64) as usize).min(taken.num_permits())))
}

fn kib(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(1024)).unwrap_or(Semaphore::MAX_PERMITS as u32)
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn what_is_large_waits_and_what_is_small_does_not() {
        let room = Room::new(&Limits { context_bytes_max: 1024 * 1024, ..Limits::default() });
        let whole = room.body(2 * 1024 * 1024).await;
        assert!(room.body(INLINE_BYTES_MAX as u64).now_or_never().expect("it does not wait").is_none());
        assert!(room.body(INLINE_BYTES_MAX as u64 + 1).now_or_never().is_none());
        let rest = shrink(whole, 1024 * 1024);
        assert!(room.body(1024 * 1024).now_or_never().flatten().is_some());
        assert!(room.body(1024 * 1024 + 1).now_or_never().is_none());
        drop(rest);

        let replies: Vec<_> = (0..REPLIES_MAX).map(|_| room.reply().now_or_never()).collect();
        assert!(replies.iter().all(Option::is_some) && room.reply().now_or_never().is_none());
    }
}
