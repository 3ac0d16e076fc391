//! Writes that find no room: what is kept waits until some was made, and what makes room has what was set aside for that.
//!
//! How room is made is in `retention/relieve.rs`; the log is folded back in time by `maintenance.rs`.

use rusqlite::Connection;
use waystone_core::clock::Timestamp;
use waystone_core::error::Unavailable;
use waystone_core::{Error, Result};

use super::Sqlite;
use super::error::{DbResult, is_full};
use super::maintenance::Upkeep;
use crate::platform::free_bytes;

/// From this size on a write is not begun without room for it.
const LARGE_BYTES: u64 = 1024 * 1024;

impl Sqlite {
    /// Writes, and when the disk is full once more after room was made. For what is large there must be room before it is tried.
    pub(super) async fn write_with_room<T: Send + 'static>(
        &self,
        size: u64,
        work: impl Fn(&Connection) -> DbResult<T> + Clone + Send + 'static,
    ) -> Result<T> {
        // In the log, in the database, and in its file.
        let needed = 3 * size;
        let has_room = || size < LARGE_BYTES || free_bytes(self.directory.root()).map_or(true, |free| free > needed);
        let full = || {
            let message = format!("storage: {size} bytes are to be written and the disk is nearly full");
            Error::StorageUnavailable { reason: Unavailable::Full, message }
        };
        let first = if has_room() { self.writer.write(work.clone()).await } else { Err(full()) };
        match first {
            Err(error) if is_full(&error) => {
                let freed = self.keep_house(move |upkeep| upkeep.free_disk(needed)).await;
                if freed.is_ok() { self.writer.write(work).await } else { Err(error) }
            }
            done => done,
        }
    }

    /// The same for what lets something go, or brings it back: on a full disk it takes of what was set aside, and nothing is removed for it.
    /// Who may not delete cannot make room either.
    pub(super) async fn write_deletion<T: Send + 'static>(
        &self,
        work: impl Fn(&Connection) -> DbResult<T> + Clone + Send + 'static,
    ) -> Result<T> {
        match self.writer.write(work.clone()).await {
            Err(error) if is_full(&error) => {
                let is_lent = self.keep_house(Upkeep::lend_reserve).await?;
                let done = self.writer.write(work).await;
                if is_lent {
                    let take_back = |upkeep: &mut Upkeep| {
                        upkeep.take_reserve_back();
                        Ok(())
                    };
                    // Housekeeping sets it aside again otherwise: what was done is done.
                    let _ = self.keep_house(take_back).await;
                }
                done
            }
            done => done,
        }
    }

    /// Writes the file of a group from which something was deleted, before that is acknowledged: a database rebuilt from the files
    /// must not bring it back. The group stays dirty; housekeeping writes it once more and records that.
    pub(super) async fn mirror_deletion(&self, group: Option<i64>, at: Timestamp) -> Result<()> {
        let Some(key) = group else { return Ok(()) };
        match self.mirror(key, at).await {
            Err(error) if is_full(&error) => {
                self.keep_house(move |upkeep| upkeep.with_reserve(|upkeep| upkeep.mirror_one(key, at))).await
            }
            done => done.map(drop),
        }
    }
}
