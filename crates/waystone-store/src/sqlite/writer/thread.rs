//! What the writer thread does: it takes `write.lock`, runs all that waits in one transaction, commits, and answers.

use std::fs::File;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use tokio::sync::oneshot;
use waystone_core::error::Unavailable;
use waystone_core::{Error, Result};

use super::{Answer, Message, Note, Request, Stage};
use crate::directory::DataDirectory;
use crate::platform::free_bytes;
use crate::sqlite::error::DbError;
use crate::sqlite::maintenance::make_room;

/// A batch ends when it has run this long, so that other processes get their turn.
const BATCH_MAX: Duration = Duration::from_millis(50);
const NOTE_DELAY: Duration = Duration::from_secs(1);
const NOTES_MAX: usize = 4096;

pub(super) struct Thread {
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
    pub(super) fn new(directory: DataDirectory, db: Connection, lock: File, messages: Receiver<Message>) -> Self {
        Self { directory, db, lock, messages, notes: Vec::new(), noted_at: Instant::now(), closing: None }
    }

    pub(super) fn run(mut self) {
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

fn broken(error: &std::io::Error) -> Error {
    Error::StorageUnavailable { reason: Unavailable::Broken, message: format!("storage: {error}") }
}
