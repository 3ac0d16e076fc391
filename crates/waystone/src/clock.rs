//! The real clock.

use std::time::{SystemTime, UNIX_EPOCH};

use uuid::Uuid;
use waystone_core::clock::{Clock, Timestamp};

#[derive(Debug)]
pub(crate) struct SystemClock;

#[expect(clippy::disallowed_methods, reason = "this is the one home of time and fresh ids")]
impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_ms(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }

    fn new_id(&self) -> String {
        Uuid::now_v7().to_string()
    }
}
