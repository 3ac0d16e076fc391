//! A clock that only moves when told.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;
use waystone_core::clock::{Clock, Timestamp};

/// Starts at 2026-01-01 and gives ids that count up.
#[derive(Debug)]
pub struct ManualClock {
    now_ms: watch::Sender<i64>,
    ids: AtomicU64,
}

impl Default for ManualClock {
    fn default() -> Self {
        Self { now_ms: watch::Sender::new(1_767_225_600_000), ids: AtomicU64::new(1) }
    }
}

impl ManualClock {
    /// One whose ids do not meet those of another process.
    pub fn unique() -> Self {
        Self::counting_from(u64::from(std::process::id()) * 10_000)
    }

    /// One whose ids begin with this number.
    pub fn counting_from(id: u64) -> Self {
        let clock = Self::default();
        clock.ids.store(id, Ordering::SeqCst);
        clock
    }

    pub fn advance_ms(&self, ms: i64) {
        self.now_ms.send_modify(|now| *now += ms);
    }

    /// Waits until someone sleeps: from then on they wake when the clock is moved far enough.
    pub async fn wait_for_sleeper(&self) {
        while self.now_ms.receiver_count() == 0 {
            tokio::task::yield_now().await;
        }
    }
}

#[async_trait]
impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_ms(*self.now_ms.borrow())
    }

    async fn sleep(&self, time: Duration) {
        let end = *self.now_ms.borrow() + i64::try_from(time.as_millis()).unwrap();
        let _ = self.now_ms.subscribe().wait_for(|now| *now >= end).await;
    }

    fn new_id(&self) -> String {
        format!("00000000-0000-7000-8000-{:012}", self.ids.fetch_add(1, Ordering::SeqCst))
    }
}
