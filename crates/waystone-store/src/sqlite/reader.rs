//! Reads, beside the writer: a few connections, opened when first needed, each used by one call at a time.

use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::Connection;
use tokio::sync::Semaphore;
use waystone_core::{Error, Result};

use super::connection::Source;
use super::error::{DbResult, closed};

const READERS_MAX: usize = 4;

pub(crate) struct Readers {
    source: Source,
    idle: Mutex<Vec<Connection>>,
    permits: Arc<Semaphore>,
}

impl Readers {
    pub(crate) fn new(source: Source) -> Self {
        Self { source, idle: Mutex::new(Vec::new()), permits: Arc::new(Semaphore::new(READERS_MAX)) }
    }

    /// Runs `work` in one read transaction: it sees one state of the database, and the state is let go of at its end.
    pub(crate) async fn read<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Connection) -> DbResult<T> + Send + 'static,
    ) -> Result<T> {
        let permit = Arc::clone(&self.permits).acquire_owned().await.map_err(|_| closed())?;
        let readers = Arc::clone(self);
        let done = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            readers.with_connection(work)
        });
        done.await.map_err(|_| closed())?.map_err(Error::from)
    }

    fn with_connection<T>(&self, work: impl FnOnce(&Connection) -> DbResult<T>) -> DbResult<T> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let db = idle.map_or_else(|| self.source.open(), Ok)?;
        let transaction = db.unchecked_transaction()?;
        let done = work(&transaction);
        drop(transaction);
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(db);
        done
    }

    /// Refuses later reads. Reads under way finish.
    pub(crate) fn close(&self) {
        self.permits.close();
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}
