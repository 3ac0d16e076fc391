//! The store on SQLite: one writer thread, a few readers beside it, and the locks that keep processes out of each
//! other's way. What each method does is in the file of its noun.

mod checkpoint;
mod connection;
mod cursor;
mod error;
mod event;
mod log;
mod migration;
mod reader;
mod session;
mod status;
mod upkeep;
mod writer;

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use tokio::sync::watch;
use waystone_core::Result;
use waystone_core::api::{
    Checkpoint, CheckpointPage, EventPage, ListCheckpoints, ListSessions, Session, SessionPage, Status, UpdateSession,
};
use waystone_core::clock::{Clock, Timestamp};
use waystone_core::id::{CheckpointId, SessionId};
use waystone_core::store::{Added, NewCheckpoint, Scope, Store, StoredCheckpoint, Wanted};

use crate::OpenError;
use crate::directory::DataDirectory;
use crate::lock::Presence;
use crate::maintenance::Maintenance;
use event::EventWatch;
use reader::Readers;
pub(crate) use upkeep::Upkeep;
use writer::{Access, Writer};

/// A store in a data directory. Dropping or closing it lets go of the directory.
pub struct Sqlite {
    directory: DataDirectory,
    readers: Arc<Readers>,
    writer: Writer,
    /// Started when someone first listens.
    events: Mutex<Option<EventWatch>>,
    /// Let go of last, and in this order: housekeeping stops, then the directory is left.
    held: Mutex<Option<(Maintenance, Presence)>>,
}

impl Sqlite {
    /// Opens the store in `root`, making the directory and the schema when they are missing.
    pub fn open(root: &Path, clock: Arc<dyn Clock>) -> Result<Self, OpenError> {
        let directory = DataDirectory::prepare(root)?;
        let unusable = |error| OpenError::Unusable { path: root.to_owned(), error };
        let presence = Presence::enter(
            &directory,
            &clock.new_id(),
            || migration::is_current(&directory),
            || migration::run(&directory, clock.now()),
        )?;
        let readers = Arc::new(Readers::new(directory.database()));
        let writer = Writer::start(&directory)?;
        let upkeep = Upkeep::new(directory.clone(), clock)?;
        let maintenance = Maintenance::start(upkeep).map_err(unusable)?;
        let (events, held) = (Mutex::new(None), Mutex::new(Some((maintenance, presence))));
        Ok(Self { directory, readers, writer, events, held })
    }
}

#[async_trait]
impl Store for Sqlite {
    async fn add_checkpoint(&self, scope: &Scope, new: NewCheckpoint) -> Result<Added> {
        let (scope_inside, at) = (scope.clone(), new.at);
        let added = self.writer.write(move |db| checkpoint::add(db, &scope_inside, &new)).await?;
        if let Added::Unchanged(head) = &added {
            self.writer.note(Access { scope: scope.clone(), id: head.checkpoint_id.clone(), at, is_load: false });
        }
        Ok(added)
    }

    async fn find_checkpoint(
        &self,
        scope: &Scope,
        wanted: &Wanted,
        known: Option<&CheckpointId>,
    ) -> Result<Option<StoredCheckpoint>> {
        let (scope, wanted, known) = (scope.clone(), wanted.clone(), known.cloned());
        self.readers.read(move |db| checkpoint::find(db, &scope, &wanted, known.as_ref())).await
    }

    fn note_load(&self, scope: &Scope, id: &CheckpointId, at: Timestamp) {
        self.writer.note(Access { scope: scope.clone(), id: id.clone(), at, is_load: true });
    }

    async fn list_checkpoints(&self, scope: &Scope, filter: &ListCheckpoints) -> Result<CheckpointPage> {
        let (scope, filter) = (scope.clone(), filter.clone());
        self.readers.read(move |db| checkpoint::list(db, &scope, &filter)).await
    }

    async fn archive_checkpoint(&self, scope: &Scope, id: &CheckpointId, at: Timestamp) -> Result<Checkpoint> {
        let (scope, id) = (scope.clone(), id.clone());
        self.writer.write(move |db| checkpoint::archive(db, &scope, &id, at)).await
    }

    async fn find_session(&self, scope: &Scope, id: &SessionId) -> Result<Session> {
        let (scope, id) = (scope.clone(), id.clone());
        self.readers.read(move |db| session::find(db, &scope, &id)).await
    }

    async fn list_sessions(&self, scope: &Scope, filter: &ListSessions) -> Result<SessionPage> {
        let (scope, filter) = (scope.clone(), filter.clone());
        self.readers.read(move |db| session::list(db, &scope, &filter)).await
    }

    async fn update_session(
        &self,
        scope: &Scope,
        id: &SessionId,
        change: &UpdateSession,
        at: Timestamp,
    ) -> Result<Session> {
        let (scope, id, change) = (scope.clone(), id.clone(), change.clone());
        self.writer.write(move |db| session::update(db, &scope, &id, &change, at)).await
    }

    async fn archive_session(&self, scope: &Scope, id: &SessionId, at: Timestamp) -> Result<Session> {
        let (scope, id) = (scope.clone(), id.clone());
        self.writer.write(move |db| session::archive(db, &scope, &id, at)).await
    }

    async fn list_events(&self, scope: &Scope, after: i64, limit: u32) -> Result<EventPage> {
        let scope = scope.clone();
        self.readers.read(move |db| event::list(db, &scope, after, limit)).await
    }

    fn watch_events(&self) -> watch::Receiver<i64> {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        events.get_or_insert_with(|| EventWatch::start(self.directory.database())).subscribe()
    }

    async fn status(&self, scope: &Scope) -> Result<Status> {
        let (scope, directory) = (scope.clone(), self.directory.clone());
        self.readers.read(move |db| status::read(db, &scope, &directory)).await
    }

    async fn close(&self) {
        self.writer.close().await;
        self.readers.close();
        let events = self.events.lock().unwrap_or_else(PoisonError::into_inner).take();
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner).take();
        let _ = tokio::task::spawn_blocking(move || drop((events, held))).await;
    }
}
