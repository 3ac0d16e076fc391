//! The one thread of this process that writes. Requests that wait at the same time share a transaction and so one sync.
//!
//! Each request runs in a savepoint of its own: one that fails is undone and answered, the others go on. No one is answered
//! with success before the commit. Between processes, writers queue on `write.lock`, because the kernel wakes waiters in
//! turn while SQLite's own waiting is a lottery. A request that has not begun after [`WAIT_MAX`] is withdrawn.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use tokio::sync::oneshot;
use waystone_core::error::Unavailable;
use waystone_core::{Error, Result};

use super::connection::open_writer;
use super::error::{DbError, DbResult, closed};
use super::migration::cannot_open;
use super::upkeep::make_room;
use crate::OpenError;
use crate::directory::DataDirectory;
use crate::platform::{free_bytes, open_private_file};

const QUEUE_MAX: usize = 1024;
const WAIT_MAX: Duration = Duration::from_secs(5);
/// A batch ends when it has run this long, so that other processes get their turn.
const BATCH_MAX: Duration = Duration::from_millis(50);
const NOTE_DELAY: Duration = Duration::from_secs(1);
const NOTES_MAX: usize = 4096;

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
    queue: SyncSender<Message>,
}

impl Writer {
    pub(crate) fn start(directory: &DataDirectory) -> Result<Self, OpenError> {
        let path = directory.database();
        let unusable = |error| OpenError::Unusable { path: directory.root().to_owned(), error };
        let db = open_writer(&path).map_err(|error| cannot_open(&path, &error))?;
        let lock = open_private_file(&directory.write_lock()).map_err(unusable)?;
        let (queue, messages) = sync_channel(QUEUE_MAX);
        let (directory, notes) = (directory.clone(), Vec::new());
        let thread = Thread { directory, db, lock, messages, notes, noted_at: Instant::now(), closing: None };
        std::thread::Builder::new().name("writer".to_owned()).spawn(move || thread.run()).map_err(unusable)?;
        Ok(Self { queue })
    }

    /// Runs `work` in a transaction. `Ok` means that it is committed and synced.
    pub(crate) async fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> DbResult<T> + Send + 'static,
    ) -> Result<T> {
        let (sender, mut receiver) = oneshot::channel();
        let run = move |db: Result<&Connection>| {
            let result = db.and_then(|db| work(db).map_err(Error::from));
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
        self.queue.try_send(Message::Write(request)).map_err(|refused| match refused {
            TrySendError::Full(_) => full(),
            TrySendError::Disconnected(_) => closed(),
        })?;
        match tokio::time::timeout(WAIT_MAX, &mut receiver).await {
            Ok(answer) => answer.unwrap_or_else(|_| Err(closed())),
            Err(_) if stage.leave_for(Stage::WITHDRAWN) => Err(busy()),
            Err(_) => receiver.await.unwrap_or_else(|_| Err(closed())),
        }
    }

    /// Runs `note` in a later commit. What does not fit into the queue is let go: it is activity, not data.
    pub(crate) fn note(&self, note: impl FnOnce(&Connection) -> DbResult<()> + Send + 'static) {
        if self.queue.try_send(Message::Note(Box::new(note))).is_err() {
            tracing::debug!("a note was not taken: the queue is full");
        }
    }

    /// Writes what was noted and ends the thread.
    pub(crate) async fn close(&self) {
        let (closed, wait) = oneshot::channel();
        if self.queue.try_send(Message::Close(closed)).is_ok() {
            let _ = tokio::time::timeout(WAIT_MAX, wait).await;
        }
    }
}

struct Thread {
    directory: DataDirectory,
    db: Connection,
    lock: File,
    messages: Receiver<Message>,
    notes: Vec<Note>,
    /// When the oldest of `notes` was noted.
    noted_at: Instant,
    /// Who waits for this thread to end.
    closing: Option<oneshot::Sender<()>>,
}

impl Thread {
    fn run(mut self) {
        while self.closing.is_none() {
            match self.next() {
                Some(Message::Write(request)) => self.commit(Some(request)),
                Some(Message::Note(note)) => self.take_note(note),
                Some(Message::Close(closed)) => self.closing = Some(closed),
                None => break,
            }
        }
        self.commit(None);
        let Self { db, lock, closing, .. } = self;
        drop((db, lock));
        if let Some(closed) = closing {
            let _ = closed.send(());
        }
    }

    /// The next message; `None` when no one can send any more. Notes that have waited long enough are written meanwhile.
    fn next(&mut self) -> Option<Message> {
        loop {
            if self.notes.is_empty() {
                return self.messages.recv().ok();
            }
            match self.messages.recv_timeout(NOTE_DELAY.saturating_sub(self.noted_at.elapsed())) {
                Ok(message) => return Some(message),
                Err(RecvTimeoutError::Timeout) => self.commit(None),
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
    }

    fn take_note(&mut self, note: Note) {
        if self.notes.is_empty() {
            self.noted_at = Instant::now();
        }
        if self.notes.len() < NOTES_MAX {
            self.notes.push(note);
        }
    }

    /// One transaction with `first`, everything that waits behind it, and the notes.
    fn commit(&mut self, first: Option<Request>) {
        if first.is_none() && self.notes.is_empty() {
            return;
        }
        let begun = self.lock.lock().map_err(|error| broken(&error)).and_then(|()| self.begin());
        let mut answers = Vec::new();
        let committed = match begun {
            Ok(()) => self.run_batch(first, &mut answers),
            Err(error) => {
                answers.extend(first.map(|request| (request.run)(Err(error.clone())).answer));
                Err(error)
            }
        };
        if !self.db.is_autocommit() {
            let _ = self.execute("ROLLBACK");
        }
        if let Err(error) = self.lock.unlock() {
            tracing::error!(%error, "write.lock could not be released");
        }
        if let Err(error) = &committed {
            tracing::error!(%error, "a commit failed");
        }
        for answer in answers {
            answer(committed.as_ref().err());
        }
    }

    fn begin(&self) -> Result<()> {
        let free = || free_bytes(self.directory.root()).unwrap_or(u64::MAX);
        if let Err(error) = make_room(&self.directory, &self.db, free) {
            tracing::warn!(%error, "the disk is nearly full and the write-ahead log could not be folded back");
        }
        self.execute("BEGIN IMMEDIATE")
    }

    fn run_batch(&mut self, first: Option<Request>, answers: &mut Vec<Answer>) -> Result<()> {
        let (started, is_for_notes, changes) = (Instant::now(), first.is_none(), self.db.total_changes());
        let mut next = first;
        while let Some(request) = next.take() {
            if request.stage.leave_for(Stage::BEGUN) {
                self.run_one(request, answers)?;
            }
            if started.elapsed() < BATCH_MAX {
                next = self.next_waiting();
            }
        }
        // A commit that changes nothing costs no sync; notes that can wait do not make it cost one.
        if is_for_notes || self.db.total_changes() != changes {
            self.write_notes();
        }
        self.execute("COMMIT")
    }

    /// Runs a request in a savepoint. An error means that the transaction is gone, with all that ran before in it.
    fn run_one(&mut self, request: Request, answers: &mut Vec<Answer>) -> Result<()> {
        if let Err(error) = self.execute("SAVEPOINT request") {
            answers.push((request.run)(Err(error.clone())).answer);
            return Err(error);
        }
        let done = (request.run)(Ok(&self.db));
        answers.push(done.answer);
        if !done.failed {
            return self.execute("RELEASE request");
        }
        if self.db.is_autocommit() {
            let message = "storage: another request of the same commit failed and took this one with it";
            return Err(Error::StorageUnavailable { reason: Unavailable::Broken, message: message.to_owned() });
        }
        self.execute("ROLLBACK TO request; RELEASE request")
    }

    fn execute(&self, sql: &str) -> Result<()> {
        self.db.execute_batch(sql).map_err(|error| DbError::from(error).into())
    }

    fn next_waiting(&mut self) -> Option<Request> {
        while let Ok(message) = self.messages.try_recv() {
            match message {
                Message::Write(request) => return Some(request),
                Message::Note(note) => self.take_note(note),
                Message::Close(closed) => self.closing = Some(closed),
            }
        }
        None
    }

    fn write_notes(&mut self) {
        for note in std::mem::take(&mut self.notes) {
            let noted = self.execute("SAVEPOINT note").and_then(|()| note(&self.db).map_err(Error::from));
            if let Err(error) = &noted {
                tracing::warn!(%error, "a note was not recorded");
                if self.db.is_autocommit() {
                    return;
                }
                let _ = self.execute("ROLLBACK TO note");
            }
            let _ = self.execute("RELEASE note");
        }
    }
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

fn broken(error: &std::io::Error) -> Error {
    Error::StorageUnavailable { reason: Unavailable::Broken, message: format!("storage: {error}") }
}

#[cfg(test)]
mod tests {
    use waystone_testkit::Harness;

    use super::*;

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
