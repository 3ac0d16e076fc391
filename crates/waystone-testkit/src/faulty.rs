//! Stores that fail on purpose.

mod audit;
mod conversation;
mod document;
mod operation;
mod retention;
mod segment;
mod task;
mod unsaved;

use std::collections::HashSet;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;
use waystone_core::api::{
    Checkpoint, CheckpointPage, ContextRule, EventPage, Finding, ListCheckpoints, ListSessions, Session, SessionPage,
    Stats, Status, UpdateSession,
};
use waystone_core::canon::Hash;
use waystone_core::clock::Timestamp;
use waystone_core::error::Unavailable;
use waystone_core::histogram::{Kind, Measured};
use waystone_core::id::{CheckpointId, ProjectId, SessionId};
use waystone_core::pack::Packed;
use waystone_core::store::{
    Added, CheckedGroup, FindResumable, NewCheckpoint, NewContext, NewTurns, Resumable, Scope, SharedStore, Store,
    StoredCheckpoint, TranscriptEnd, TranscriptStore, Used, Wanted,
};
use waystone_core::{Engine, Error, Limits, Result};
use waystone_server::mcp::{Mcp, ToolSet};
use waystone_store::Sqlite;

use crate::clock::ManualClock;

/// What a [`FaultyStore`] does wrong.
pub enum Fault {
    /// The step with this number fails. A call is two steps: before it, when nothing has happened, and after it, when it
    /// has happened but the caller does not hear of it.
    FailAt(AtomicI64),
    /// Acknowledges a save at once and commits it this much later.
    AcknowledgeEarly(Duration),
    /// Acknowledges a save that failed.
    AcknowledgeFailed,
}

pub struct FaultyStore {
    inner: SharedStore,
    fault: Fault,
    taken: AtomicUsize,
    /// No step of a turn can be written.
    is_stuck: AtomicBool,
    /// The beginnings of what it was given to keep, as they would stand in a file that is not sealed.
    told: Mutex<HashSet<Vec<u8>>>,
}

/// Of what is told so much is looked for. What is shorter may stand in a file by chance.
pub const TOLD_BYTES: usize = 14;
/// Where packed contexts begin to differ from each other.
const HEADER_BYTES: usize = 6;

impl FaultyStore {
    pub fn new(inner: SharedStore, fault: Fault) -> Self {
        Self { inner, fault, taken: AtomicUsize::new(0), is_stuck: AtomicBool::new(false), told: Mutex::default() }
    }

    /// From now on steps of turns are refused, or taken again.
    pub(crate) fn refuse_steps(&self, is_stuck: bool) {
        self.is_stuck.store(is_stuck, Ordering::SeqCst);
    }

    /// How many saves the store has taken so far without answering them at once: those are in its queue, or have been.
    pub fn taken(&self) -> usize {
        self.taken.load(Ordering::SeqCst)
    }

    /// What it was given to keep, and no file of a sealed store may hold.
    pub fn told(&self) -> HashSet<Vec<u8>> {
        self.told.lock().unwrap().clone()
    }

    fn note(&self, bytes: &[u8]) {
        if let Some(begin) = bytes.get(..TOLD_BYTES) {
            self.told.lock().unwrap().insert(begin.to_vec());
        }
    }

    async fn counted<T>(&self, call: impl Future<Output = T>) -> T {
        let (mut call, mut is_counted) = (pin!(call), false);
        poll_fn(|context| {
            let polled = call.as_mut().poll(context);
            if polled.is_pending() && !std::mem::replace(&mut is_counted, true) {
                self.taken.fetch_add(1, Ordering::SeqCst);
            }
            polled
        })
        .await
    }

    fn step(&self) -> Result<()> {
        match &self.fault {
            Fault::FailAt(step) if step.fetch_sub(1, Ordering::SeqCst) == 0 => Err(Error::StorageUnavailable {
                reason: Unavailable::Broken,
                message: "a fault was injected".to_owned(),
            }),
            _ => Ok(()),
        }
    }

    fn step_of_turn(&self) -> Result<()> {
        self.step()?;
        match self.is_stuck.load(Ordering::SeqCst) {
            true => {
                Err(Error::StorageUnavailable { reason: Unavailable::Full, message: "the disk is full".to_owned() })
            }
            false => Ok(()),
        }
    }
}

#[async_trait]
impl Store for FaultyStore {
    async fn add_checkpoint(&self, scope: &Scope, new: NewCheckpoint) -> Result<Added> {
        self.step()?;
        self.note(new.packed.as_ref().map_or(&[], |packed| packed.bytes.get(HEADER_BYTES..).unwrap_or(&[])));
        new.metadata.name().into_iter().for_each(|name| self.note(name.as_bytes()));
        if let Fault::AcknowledgeEarly(delay) = self.fault {
            let (inner, scope, later) = (Arc::clone(&self.inner), scope.clone(), new.clone());
            tokio::spawn(async move {
                tokio::time::sleep(delay).await;
                inner.add_checkpoint(&scope, later).await
            });
            return Ok(Added::New { checkpoint: unsaved::checkpoint(new), pruned: 0, used: Used::default() });
        }
        if let Fault::AcknowledgeFailed = self.fault {
            let added = self.inner.add_checkpoint(scope, new.clone()).await;
            return Ok(added.unwrap_or_else(|_| Added::New {
                checkpoint: unsaved::checkpoint(new),
                pruned: 0,
                used: Used::default(),
            }));
        }
        let added = self.counted(self.inner.add_checkpoint(scope, new)).await?;
        self.step()?;
        Ok(added)
    }

    async fn find_checkpoint(
        &self,
        scope: &Scope,
        wanted: &Wanted,
        known: Option<&CheckpointId>,
    ) -> Result<Option<StoredCheckpoint>> {
        self.step()?;
        self.inner.find_checkpoint(scope, wanted, known).await
    }

    async fn heal_checkpoint(&self, scope: &Scope, id: &CheckpointId) -> Result<bool> {
        self.step()?;
        self.inner.heal_checkpoint(scope, id).await
    }

    async fn check_group(&self, scope: &Scope, after: i64, at: Timestamp) -> Result<Option<CheckedGroup>> {
        self.step()?;
        self.inner.check_group(scope, after, at).await
    }

    async fn check_database(&self, scope: &Scope) -> Result<Option<Finding>> {
        self.step()?;
        self.inner.check_database(scope).await
    }

    async fn check_records(&self, scope: &Scope) -> Result<Vec<Finding>> {
        self.step()?;
        self.inner.check_records(scope).await
    }

    async fn count_single_copies(&self, scope: &Scope) -> Result<u64> {
        self.step()?;
        self.inner.count_single_copies(scope).await
    }

    async fn list_orphans(&self, scope: &Scope) -> Result<Vec<Finding>> {
        self.step()?;
        self.inner.list_orphans(scope).await
    }

    fn note_load(&self, scope: &Scope, id: &CheckpointId, at: Timestamp) {
        self.inner.note_load(scope, id, at);
    }

    async fn search_checkpoints(
        &self,
        scope: &Scope,
        filter: &ListCheckpoints,
        now: Timestamp,
    ) -> Result<CheckpointPage> {
        self.step()?;
        self.inner.search_checkpoints(scope, filter, now).await
    }

    async fn reindex(&self, scope: &Scope, is_beginning: bool, at: Timestamp) -> Result<u64> {
        self.step()?;
        let left = self.inner.reindex(scope, is_beginning, at).await?;
        self.step()?;
        Ok(left)
    }

    async fn list_checkpoints(&self, scope: &Scope, filter: &ListCheckpoints) -> Result<CheckpointPage> {
        self.step()?;
        self.inner.list_checkpoints(scope, filter).await
    }

    async fn archive_checkpoint(&self, scope: &Scope, id: &CheckpointId, at: Timestamp) -> Result<Checkpoint> {
        self.step()?;
        let archived = self.inner.archive_checkpoint(scope, id, at).await?;
        self.step()?;
        Ok(archived)
    }

    async fn find_session(&self, scope: &Scope, id: &SessionId) -> Result<Session> {
        self.step()?;
        self.inner.find_session(scope, id).await
    }

    async fn list_resumable(&self, scope: &Scope, wanted: &FindResumable, now: Timestamp) -> Result<Vec<Resumable>> {
        self.step()?;
        self.inner.list_resumable(scope, wanted, now).await
    }

    async fn list_sessions(&self, scope: &Scope, filter: &ListSessions) -> Result<SessionPage> {
        self.step()?;
        self.inner.list_sessions(scope, filter).await
    }

    async fn update_session(
        &self,
        scope: &Scope,
        id: &SessionId,
        change: &UpdateSession,
        at: Timestamp,
    ) -> Result<Session> {
        self.step()?;
        let updated = self.inner.update_session(scope, id, change, at).await?;
        self.step()?;
        Ok(updated)
    }

    async fn mark_critical(&self, scope: &Scope, session: &SessionId, key: &str, at: Timestamp) -> Result<()> {
        self.step()?;
        self.inner.mark_critical(scope, session, key, at).await?;
        self.step()
    }

    async fn unmark_critical(&self, scope: &Scope, session: &SessionId, key: &str, at: Timestamp) -> Result<bool> {
        self.step()?;
        let unmarked = self.inner.unmark_critical(scope, session, key, at).await?;
        self.step()?;
        Ok(unmarked)
    }

    async fn find_rules(&self, scope: &Scope, session: &SessionId) -> Result<(Vec<String>, Vec<ContextRule>)> {
        self.step()?;
        self.inner.find_rules(scope, session).await
    }

    async fn find_own_session(&self, scope: &Scope, project: &ProjectId) -> Result<Option<SessionId>> {
        self.step()?;
        self.inner.find_own_session(scope, project).await
    }

    async fn keep_context(&self, scope: &Scope, new: NewContext) -> Result<()> {
        self.step()?;
        self.inner.keep_context(scope, new).await?;
        self.step()
    }

    async fn find_context(&self, scope: &Scope, hash: Hash) -> Result<Option<Packed>> {
        self.step()?;
        self.inner.find_context(scope, hash).await
    }

    async fn archive_session(&self, scope: &Scope, id: &SessionId, at: Timestamp) -> Result<Session> {
        self.step()?;
        let archived = self.inner.archive_session(scope, id, at).await?;
        self.step()?;
        Ok(archived)
    }

    async fn list_events(&self, scope: &Scope, after: i64, limit: u32) -> Result<EventPage> {
        self.step()?;
        self.inner.list_events(scope, after, limit).await
    }

    fn watch_events(&self) -> watch::Receiver<i64> {
        self.inner.watch_events()
    }

    async fn stats(&self, scope: &Scope) -> Result<Stats> {
        self.step()?;
        self.inner.stats(scope).await
    }

    fn note_measured(&self, scope: &Scope, kind: Kind, name: &str, value: u64) {
        self.inner.note_measured(scope, kind, name, value);
    }

    async fn list_measured(&self, scope: &Scope) -> Result<Vec<Measured>> {
        self.step()?;
        self.inner.list_measured(scope).await
    }

    async fn status(&self, scope: &Scope) -> Result<Status> {
        self.step()?;
        self.inner.status(scope).await
    }

    async fn find_used(&self, scope: &Scope, session: Option<&SessionId>) -> Result<Used> {
        self.step()?;
        self.inner.find_used(scope, session).await
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}

#[async_trait]
impl TranscriptStore for FaultyStore {
    async fn find_transcript(&self, scope: &Scope, path: &str) -> Result<Option<TranscriptEnd>> {
        self.step()?;
        self.inner.find_transcript(scope, path).await
    }

    async fn capture_turns(&self, scope: &Scope, new: Arc<NewTurns>) -> Result<Vec<bool>> {
        self.step()?;
        let is_new = self.inner.capture_turns(scope, new).await?;
        self.step()?;
        Ok(is_new)
    }
}

/// Does what `waystone mcp` does, on a store with a fault.
#[expect(clippy::disallowed_methods, reason = "it is started by the process harness, which passes settings so")]
pub async fn serve_mcp(fault: Fault) -> std::result::Result<(), Box<dyn std::error::Error>> {
    let data_dir = std::env::var("WAYSTONE_DATA_DIR")?;
    let clock = Arc::new(ManualClock::unique());
    let store = FaultyStore::new(Arc::new(Sqlite::open(&data_dir, clock.clone(), &Limits::default())?), fault);
    let limits = Limits { checkpoints_max: 1_000_000, ..Limits::default() };
    let engine = Engine::new(Arc::new(store), clock, limits, "default".parse()?);
    Mcp::new(engine.clone(), "faulty", ToolSet::All).serve_stdio(std::future::pending()).await?;
    engine.close().await;
    Ok(())
}
