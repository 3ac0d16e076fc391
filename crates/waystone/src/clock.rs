//! The real clock.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use uuid::Uuid;
use waystone_core::clock::{Clock, Timestamp};

#[derive(Debug)]
pub(crate) struct SystemClock;

#[async_trait]
#[expect(clippy::disallowed_methods, reason = "this is the one home of time and fresh ids")]
impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_ms(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }

    async fn sleep(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    fn new_id(&self) -> String {
        Uuid::now_v7().to_string()
    }
}
