//! The one thread of this process that writes. Requests that wait at the same time share a transaction and so one sync.
//!
//! Each request runs in a savepoint of its own: one that fails is undone and answered, the others go on. No one is answered
//! with success before the commit. Between processes, writers queue on `write.lock`, because the kernel wakes waiters in
//! turn while SQLite's own waiting is a lottery. A request that has not begun after [`WAIT_MAX`] is withdrawn.
//!
//! Here is what callers hold; what the thread does with their requests is in [`thread`].

mod thread;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use rusqlite::Connection;
use tokio::sync::oneshot;
use waystone_core::error::Unavailable;
use waystone_core::{Error, Result};

use super::connection::open_writer;
use super::error::{DbResult, closed};
use super::migration::cannot_open;
use crate::OpenError;
use crate::directory::DataDirectory;
use crate::platform::open_private_file;
use thread::Thread;

const QUEUE_MAX: usize = 1024;
const WAIT_MAX: Duration = Duration::from_secs(5);

/// Something to be recorded with a later commit.
type Note = Box<dyn FnOnce(&Connection) -> DbResult<()> + Send>;

enum Message {
    Write(Request),
    Note(Note),
    Close(oneshot::Sender<()>),
}

struct Request {
    stage: Arc<Stage>,
    /// Does the work, or fails with the error that keeps it from being begun.
    run: Box<Run>,
}

type Run = dyn FnOnce(Result<&Connection>) -> Done + Send;

/// A request that has run. `answer` tells its caller, with the error of the commit if that failed.
struct Done {
    failed: bool,
    answer: Answer,
}

type Answer = Box<dyn FnOnce(Option<&Error>) + Send>;

/// Whether a request waits, has begun, or was withdrawn by its caller. It leaves the first state once.
#[derive(Default)]
struct Stage(AtomicU8);

impl Stage {
    const WAITING: u8 = 0;
    const BEGUN: u8 = 1;
    const WITHDRAWN: u8 = 2;

    fn leave_for(&self, state: u8) -> bool {
        self.0.compare_exchange(Self::WAITING, state, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

pub(crate) struct Writer {
    /// None in a process that only reads.
    queue: Option<SyncSender<Message>>,
}

impl Writer {
    pub(crate) fn start(directory: &DataDirectory) -> Result<Self, OpenError> {
        let path = directory.database();
        let unusable = |error| OpenError::Unusable { path: directory.root().to_owned(), error };
        let db = open_writer(&path, directory.keys()).map_err(|error| cannot_open(&path, &error))?;
        let lock = open_private_file(&directory.write_lock()).map_err(unusable)?;
        let (queue, messages) = sync_channel(QUEUE_MAX);
        let thread = Thread::new(directory.clone(), db, lock, messages);
        std::thread::Builder::new().name("writer".to_owned()).spawn(move || thread.run()).map_err(unusable)?;
        Ok(Self { queue: Some(queue) })
    }

    /// One that refuses everything.
    pub(crate) fn refusing() -> Self {
        Self { queue: None }
    }

    /// Fails in a process that only reads.
    pub(crate) fn check(&self) -> Result<()> {
        self.queue.as_ref().map(drop).ok_or(Error::ReadOnly)
    }

    /// Runs `work` in a transaction. `Ok` means that it is committed and synced.
    pub(crate) async fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> DbResult<T> + Send + 'static,
    ) -> Result<T> {
        let queue = self.queue.as_ref().ok_or(Error::ReadOnly)?;
        let (sender, mut receiver) = oneshot::channel();
        let run = move |db: Result<&Connection>| {
            // One that panics is undone like one that fails, and the thread goes on for the others.
            let work = |db| {
                catch_unwind(AssertUnwindSafe(|| work(db).map_err(Error::from))).unwrap_or_else(|_| Err(panicked()))
            };
            let result = db.and_then(work);
            let failed = result.is_err();
            let answer = move |commit_error: Option<&Error>| {
                let _ = sender.send(match (result, commit_error) {
                    (Ok(_), Some(error)) => Err(error.clone()),
                    (result, _) => result,
                });
            };
            Done { failed, answer: Box::new(answer) }
        };
        let stage = Arc::new(Stage::default());
        let request = Request { stage: Arc::clone(&stage), run: Box::new(run) };
        queue.try_send(Message::Write(request)).map_err(|refused| match refused {
            TrySendError::Full(_) => full(),
            TrySendError::Disconnected(_) => closed(),
        })?;
        match tokio::time::timeout(WAIT_MAX, &mut receiver).await {
            Ok(answer) => answer.unwrap_or_else(|_| Err(closed())),
            Err(_) if stage.leave_for(Stage::WITHDRAWN) => Err(busy()),
            Err(_) => receiver.await.unwrap_or_else(|_| Err(closed())),
        }
    }

    /// Runs `note` in a later commit. What does not fit into the queue is let go: it is activity, not data. So is what a process notes that only
    /// reads.
    pub(crate) fn note(&self, note: impl FnOnce(&Connection) -> DbResult<()> + Send + 'static) {
        let Some(queue) = &self.queue else { return };
        if queue.try_send(Message::Note(Box::new(note))).is_err() {
            tracing::debug!("a note was not taken: the queue is full");
        }
    }

    /// Writes what was noted and ends the thread.
    pub(crate) async fn close(&self) {
        let (closed, wait) = oneshot::channel();
        if self.queue.as_ref().is_some_and(|queue| queue.try_send(Message::Close(closed)).is_ok()) {
            let _ = tokio::time::timeout(WAIT_MAX, wait).await;
        }
    }
}

fn panicked() -> Error {
    Error::Internal("the work on the database was aborted, and nothing of it was kept".to_owned())
}

fn busy() -> Error {
    Error::StorageUnavailable {
        reason: Unavailable::Busy,
        message: format!("storage: others were writing for {} seconds", WAIT_MAX.as_secs()),
    }
}

fn full() -> Error {
    Error::StorageUnavailable {
        reason: Unavailable::Busy,
        message: format!("storage: {QUEUE_MAX} requests are waiting already"),
    }
}

#[cfg(test)]
mod tests {
    use waystone_testkit::Harness;

    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn work_that_panics_is_undone_and_answered_and_the_next_is_done() {
        let h = Harness::new();
        let writer = Writer::start(&DataDirectory::prepare(h.data_dir()).unwrap()).unwrap();
        let work = |db: &Connection| -> DbResult<()> {
            db.execute_batch("CREATE TABLE made_before_the_panic (n)")?;
            panic!("a mistake of ours");
        };
        let failed = writer.write(work).await.unwrap_err();
        assert_eq!(failed.to_string(), "the work on the database was aborted, and nothing of it was kept");
        let is_there = |db: &Connection| {
            Ok(db.prepare("SELECT 1 FROM sqlite_schema WHERE name = 'made_before_the_panic'")?.exists([])?)
        };
        assert!(!writer.write(is_there).await.unwrap());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_full_queue_refuses_at_once_and_says_so() {
        let h = Harness::new();
        let writer = Arc::new(Writer::start(&DataDirectory::prepare(h.data_dir()).unwrap()).unwrap());
        let (begun, has_begun) = oneshot::channel();
        let (go_on, may_go_on) = sync_channel::<()>(0);
        let first = Arc::clone(&writer);
        let first = tokio::spawn(async move {
            let work = move |_: &Connection| {
                let _ = begun.send(());
                let _ = may_go_on.recv();
                Ok(())
            };
            first.write(work).await
        });
        has_begun.await.unwrap();
        (0..QUEUE_MAX).for_each(|_| writer.note(|_| Ok(())));
        let refused = writer.write(|_| Ok(())).await.unwrap_err();
        assert_eq!(refused.to_string(), "storage: 1024 requests are waiting already");
        drop(go_on);
        first.await.unwrap().unwrap();
    }
}
