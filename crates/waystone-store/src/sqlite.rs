//! The store on SQLite: one writer thread, a few readers beside it, and the locks that keep processes out of each
//! other's way. What each method does is in the file of its noun.

mod audit;
mod backup;
mod branch;
mod checkpoint;
mod clock;
mod columns;
mod connection;
mod conversation;
mod counter;
mod cursor;
mod damage;
mod doctor;
mod document;
mod error;
mod event;
mod garbage;
mod key;
mod log;
mod maintenance;
mod mark;
mod message;
pub(crate) mod migration;
mod mirror;
mod open;
mod operation;
mod origin;
mod reader;
mod rebuild;
mod resume;
mod retention;
mod retry;
mod room;
mod seal;
mod search;
mod segment;
mod session;
mod stats;
mod status;
mod task;
mod tool_call;
mod transcript;
mod turn;
mod usage;
mod view;
mod window;
mod writer;

use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use rusqlite::Connection;
use tokio::sync::watch;
use waystone_core::api::{
    AuditHead, Checkpoint, CheckpointPage, ContextRule, EventPage, Finding, ListCheckpoints, ListSessions, Session,
    SessionPage, Stats, Status, UpdateSession,
};
use waystone_core::canon::Hash;
use waystone_core::clock::{Clock, Timestamp};
use waystone_core::histogram::{Kind, Measured};
use waystone_core::id::{CheckpointId, ProjectId, SessionId};
use waystone_core::pack::Packed;
use waystone_core::store::{
    Added, CheckedGroup, FindResumable, NewCheckpoint, NewContext, Resumable, Scope, Store, StoredCheckpoint, Used,
    Wanted,
};
use waystone_core::{Limits, Result};

use crate::background::Background;
use crate::directory::DataDirectory;
use crate::lock::Presence;
pub(crate) use backup::{Copying, copy_whole};
pub(crate) use connection::Source;
use connection::open_reader;
pub(crate) use damage::{why_unusable, why_unusable_copy};
use doctor::{Diagnosis, Walk};
use error::file_error;
use event::EventWatch;
pub(crate) use key::{seal_all, wrap_anew};
pub(crate) use maintenance::Upkeep;
use mirror::{Mirrored, Trust};
pub(crate) use open::{find_mark, find_mark_of_copy};
use reader::Readers;
pub(crate) use rebuild::{Base, Imported, forget_files, import_files};
pub(crate) use seal::Keys;
use search::Corpora;
use stats::Measures;
use writer::Writer;

/// A store in a data directory. Dropping or closing it lets go of the directory.
pub struct Sqlite {
    directory: DataDirectory,
    source: Source,
    clock: Arc<dyn Clock>,
    limits: Limits,
    readers: Arc<Readers>,
    writer: Writer,
    corpora: Arc<Corpora>,
    measures: Arc<Measures>,
    /// The name of this process's file in `run/`: whose turns are its own.
    instance: String,
    /// Started when someone first listens.
    events: Mutex<Option<EventWatch>>,
    /// Let go of last, and in this order: housekeeping stops, then the directory is left.
    held: Mutex<Option<(Option<Background>, Presence)>>,
}

impl Sqlite {
    /// Writes what was measured with a later commit.
    fn write_measures(&self) {
        if !self.measures.is_empty() {
            let measures = Arc::clone(&self.measures);
            self.writer.note(move |db| measures.write(db));
        }
    }

    /// Looks at the database with a connection that has not searched before: a check would compare what such a one remembers of the tables of
    /// words with what others have made of them since, and call it damage.
    async fn check_alone<T: Send + 'static>(
        &self,
        check: impl FnOnce(&Connection) -> error::DbResult<T> + Send + 'static,
    ) -> Result<T> {
        let (path, keys) = (self.directory.database(), Arc::clone(self.directory.keys()));
        self.readers.read(move |_| check(&open_reader(&path, &keys)?)).await
    }

    /// Compares rows and file of a group. A file that is written after the rows were read holds more than they do, so
    /// what is not as it should be is looked at again while no one writes files.
    async fn look(&self, after: i64) -> Result<Option<Diagnosis>> {
        let look = |turn: Option<File>| {
            let directory = self.directory.clone();
            self.readers.read(move |db| {
                let _turn = turn;
                doctor::look(&directory, db, after)
            })
        };
        match look(None).await? {
            Some(found) if !found.is_sound() => look(Some(self.take_turn().await?)).await,
            found => Ok(found),
        }
    }

    /// Writes the file of a group.
    async fn mirror(&self, key: i64, at: Timestamp) -> Result<Option<Mirrored>> {
        let (directory, turn) = (self.directory.clone(), self.take_turn().await?);
        self.readers.read(move |db| mirror::write(&directory, db, key, at, &turn)).await
    }

    /// Waits for its turn to write files. No connection is held while others write theirs.
    async fn take_turn(&self) -> Result<File> {
        self.writer.check()?;
        let directory = self.directory.clone();
        let turn = tokio::task::spawn_blocking(move || mirror::take_turn(&directory)).await;
        Ok(turn.map_err(|error| file_error(self.directory.root(), &io::Error::other(error)))??)
    }
}

#[async_trait]
impl Store for Sqlite {
    async fn add_checkpoint(&self, scope: &Scope, new: NewCheckpoint) -> Result<Added> {
        let (scope_inside, at) = (scope.clone(), new.at);
        let size = new.packed.as_ref().map_or(0, |packed| packed.bytes.len() as u64);
        let added = self.write_with_room(size, move |db| checkpoint::add(db, &scope_inside, &new)).await?;
        if let Added::Unchanged(head) = &added {
            let (scope, id) = (scope.clone(), head.checkpoint_id.clone());
            self.writer.note(move |db| checkpoint::record_use(db, &scope, &id, at).map(drop));
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

    async fn heal_checkpoint(&self, scope: &Scope, id: &CheckpointId) -> Result<bool> {
        let (scope, id, directory) = (scope.clone(), id.clone(), self.directory.clone());
        let healed = self.writer.write(move |db| match checkpoint::find_group(db, &scope, &id)? {
            Some(key) => mirror::heal(&directory, db, key, Trust::Texts),
            None => Ok(Vec::new()),
        });
        Ok(!healed.await?.is_empty())
    }

    async fn check_group(&self, _: &Scope, after: i64, at: Timestamp) -> Result<Option<CheckedGroup>> {
        let Some(found) = self.look(after).await? else { return Ok(None) };
        let (key, mut healed) = (found.key, Vec::new());
        if found.needs_healing() {
            let directory = self.directory.clone();
            healed = self.writer.write(move |db| mirror::heal(&directory, db, key, Trust::Columns)).await?;
        }
        let (directory, mut from_backup) = (self.directory.clone(), Vec::new());
        if found.is_any_lost() {
            let heal = move |db: &Connection| mirror::heal_from_backups(&directory, db, key, at);
            from_backup = self.writer.write(heal).await?;
        }
        if !healed.is_empty() || !from_backup.is_empty() || found.needs_file() {
            let mirrored = self.mirror(key, at).await?;
            self.writer.write(move |db| Ok(mirror::mark_mirrored(db, mirrored.as_slice())?)).await?;
        }
        let now = self.look(key - 1).await?;
        Ok(now.map(|now| found.tell(healed, from_backup, &now)))
    }

    async fn check_database(&self, _: &Scope) -> Result<Option<Finding>> {
        self.check_alone(doctor::check_database).await
    }

    async fn count_single_copies(&self, scope: &Scope) -> Result<u64> {
        let space = scope.space;
        self.readers.read(move |db| doctor::count_single_copies(db, space)).await
    }

    async fn list_orphans(&self, _: &Scope) -> Result<Vec<Finding>> {
        let directory = self.directory.clone();
        self.readers.read(move |db| doctor::list_orphans(&directory, db)).await
    }

    async fn check_records(&self, scope: &Scope) -> Result<Vec<Finding>> {
        let (space, mut findings, mut begun) = (scope.space, Vec::new(), None);
        loop {
            match self.readers.read(move |db| doctor::walk_operations(db, space, begun)).await? {
                Walk::At(walk) => begun = Some(walk),
                Walk::Done => break,
                Walk::Broken(finding) => {
                    findings.push(finding);
                    break;
                }
            }
        }
        let mut next = Some(0);
        while let Some(key) = next {
            let walk = move |db: &Connection| {
                let mut damaged = Vec::new();
                Ok((doctor::walk_segments(db, key, &mut damaged)?, damaged))
            };
            let (walk, damaged) = self.readers.read(walk).await?;
            findings.extend(damaged);
            next = if let Walk::At(key) = walk { Some(key) } else { None };
        }
        let is_damaged = self.check_alone(|db| Ok(search::is_any_damaged(db)?)).await?
            || self.writer.write(|db| Ok(search::is_any_closed(db)?)).await?;
        if is_damaged || self.readers.read(doctor::needs_healing).await? {
            findings.extend(self.writer.write(move |db| doctor::heal_derived(db, is_damaged)).await?);
        }
        Ok(findings)
    }

    fn note_load(&self, scope: &Scope, id: &CheckpointId, at: Timestamp) {
        let (scope, id) = (scope.clone(), id.clone());
        self.writer.note(move |db| checkpoint::record_load(db, &scope, &id, at));
    }

    async fn search_checkpoints(
        &self,
        scope: &Scope,
        filter: &ListCheckpoints,
        now: Timestamp,
    ) -> Result<CheckpointPage> {
        let (scope, filter, corpora) = (scope.clone(), filter.clone(), Arc::clone(&self.corpora));
        self.readers.read(move |db| search::search_checkpoints(db, &scope, &corpora, &filter, now)).await
    }

    async fn reindex(&self, _: &Scope, is_beginning: bool, at: Timestamp) -> Result<u64> {
        self.writer.write(move |db| search::reindex(db, is_beginning, at)).await
    }

    async fn list_checkpoints(&self, scope: &Scope, filter: &ListCheckpoints) -> Result<CheckpointPage> {
        let (scope, filter) = (scope.clone(), filter.clone());
        self.readers.read(move |db| checkpoint::list(db, &scope, &filter)).await
    }

    async fn archive_checkpoint(&self, scope: &Scope, id: &CheckpointId, at: Timestamp) -> Result<Checkpoint> {
        let (scope, id) = (scope.clone(), id.clone());
        let (archived, group) = self.write_deletion(move |db| checkpoint::archive(db, &scope, &id, at)).await?;
        self.mirror_deletion(group, at).await?;
        Ok(archived)
    }

    async fn find_session(&self, scope: &Scope, id: &SessionId) -> Result<Session> {
        let (scope, id) = (scope.clone(), id.clone());
        self.readers.read(move |db| session::find(db, &scope, &id)).await
    }

    async fn list_resumable(&self, scope: &Scope, wanted: &FindResumable, now: Timestamp) -> Result<Vec<Resumable>> {
        let (scope, wanted, corpora) = (scope.clone(), wanted.clone(), Arc::clone(&self.corpora));
        self.readers.read(move |db| resume::list(db, &scope, &corpora, &wanted, now)).await
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
        self.write_with_room(0, move |db| session::update(db, &scope, &id, &change, at)).await
    }

    async fn mark_critical(&self, scope: &Scope, session: &SessionId, key: &str, at: Timestamp) -> Result<()> {
        let (scope, session, key) = (scope.clone(), session.clone(), key.to_owned());
        self.write_with_room(0, move |db| mark::add(db, &scope, &session, &key, at)).await
    }

    async fn unmark_critical(&self, scope: &Scope, session: &SessionId, key: &str, at: Timestamp) -> Result<bool> {
        let (scope, session, key) = (scope.clone(), session.clone(), key.to_owned());
        self.write_with_room(0, move |db| mark::remove(db, &scope, &session, &key, at)).await
    }

    async fn find_rules(&self, scope: &Scope, session: &SessionId) -> Result<(Vec<String>, Vec<ContextRule>)> {
        let (scope, session) = (scope.clone(), session.clone());
        self.readers.read(move |db| mark::find_rules(db, &scope, &session)).await
    }

    async fn find_own_session(&self, scope: &Scope, project: &ProjectId) -> Result<Option<SessionId>> {
        let (scope, project) = (scope.clone(), project.clone());
        self.readers.read(move |db| mark::find_own_session(db, &scope, &project)).await
    }

    async fn keep_context(&self, scope: &Scope, new: NewContext) -> Result<()> {
        let (scope, size, new) = (scope.clone(), new.packed.bytes.len() as u64, Arc::new(new));
        self.write_with_room(size, move |db| view::keep(db, &scope, &new)).await
    }

    async fn find_context(&self, scope: &Scope, hash: Hash) -> Result<Option<Packed>> {
        let scope = scope.clone();
        self.readers.read(move |db| view::find(db, &scope, hash)).await
    }

    async fn archive_session(&self, scope: &Scope, id: &SessionId, at: Timestamp) -> Result<Session> {
        let (scope, id) = (scope.clone(), id.clone());
        let (archived, group) = self.write_deletion(move |db| session::archive(db, &scope, &id, at)).await?;
        self.mirror_deletion(group, at).await?;
        Ok(archived)
    }

    async fn list_events(&self, scope: &Scope, after: i64, limit: u32) -> Result<EventPage> {
        let scope = scope.clone();
        self.readers.read(move |db| event::list(db, &scope, after, limit)).await
    }

    fn watch_events(&self) -> watch::Receiver<i64> {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        events.get_or_insert_with(|| EventWatch::start(self.source.clone())).subscribe()
    }

    async fn stats(&self, scope: &Scope) -> Result<Stats> {
        let scope = scope.clone();
        self.readers.read(move |db| stats::read(db, &scope)).await
    }

    fn note_measured(&self, scope: &Scope, kind: Kind, name: &str, value: u64) {
        if self.measures.add(scope.space, kind, name, value) {
            self.write_measures();
        }
    }

    async fn list_measured(&self, scope: &Scope) -> Result<Vec<Measured>> {
        let (scope, measures) = (scope.clone(), Arc::clone(&self.measures));
        self.readers.read(move |db| measures.list(db, &scope)).await
    }

    async fn status(&self, scope: &Scope) -> Result<Status> {
        let (scope, directory) = (scope.clone(), self.directory.clone());
        self.readers.read(move |db| status::read(db, &scope, &directory)).await
    }

    async fn find_used(&self, scope: &Scope, session: Option<&SessionId>) -> Result<Used> {
        let (scope, session) = (scope.clone(), session.cloned());
        self.readers.read(move |db| status::find_used(db, &scope, session.as_ref())).await
    }

    async fn close(&self) {
        self.write_measures();
        self.writer.close().await;
        // Where a log file is kept, a cut in the log of operations shows.
        if let Ok(AuditHead { seq, hash }) = self.readers.read(|db| audit::head(db, Scope::local("").space)).await {
            tracing::info!(seq, %hash, "audit head");
        }
        self.readers.close();
        let events = self.events.lock().unwrap_or_else(PoisonError::into_inner).take();
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner).take();
        let _ = tokio::task::spawn_blocking(move || drop((events, held))).await;
    }
}
