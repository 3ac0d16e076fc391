//! An engine on a temporary data directory, with a manual clock and a store that can be told to fail.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;

use serde_json::Value;
use tempfile::TempDir;
use waystone_core::api::{ListCheckpoints, LoadCheckpoint, LoadedCheckpoint, SaveCheckpoint, SavedCheckpoint};
use waystone_core::id::CheckpointId;
use waystone_core::store::Scope;
use waystone_core::{Engine, Limits, Result, json};
use waystone_store::Sqlite;

use crate::audit::audit;
use crate::clock::ManualClock;
use crate::faulty::{Fault, FaultyStore};

pub struct Harness {
    directory: TempDir,
    pub clock: Arc<ManualClock>,
    pub limits: Limits,
    pub scope: Scope,
    pub engine: Engine,
}

impl Harness {
    pub fn new() -> Self {
        Self::with_limits(Limits::default())
    }

    pub fn with_limits(limits: Limits) -> Self {
        Self::with(private_dir(), limits)
    }

    /// A harness on a directory that is closed to others.
    pub fn on(directory: TempDir) -> Self {
        Self::with(directory, Limits::default())
    }

    fn with(directory: TempDir, limits: Limits) -> Self {
        let clock = Arc::new(ManualClock::default());
        let engine = open(directory.path(), &clock, &limits, i64::MAX);
        Self { directory, clock, limits, scope: Scope::local("tester"), engine }
    }

    pub fn data_dir(&self) -> &Path {
        self.directory.path()
    }

    /// Closes the engine and opens another one whose store fails at the `steps`-th step from now.
    pub async fn fail_after(&mut self, steps: i64) {
        self.engine.close().await;
        self.engine = open(self.directory.path(), &self.clock, &self.limits, steps);
    }

    /// Another engine on the same directory, as another process would have.
    pub fn second(&self) -> Engine {
        self.at(self.directory.path())
    }

    /// An engine on another directory.
    pub fn at(&self, path: &Path) -> Engine {
        open(path, &self.clock, &self.limits, i64::MAX)
    }

    pub async fn restart(&mut self) {
        self.fail_after(i64::MAX).await;
    }

    pub async fn try_save(&self, request: Value) -> Result<SavedCheckpoint> {
        self.engine.save_checkpoint(&self.scope, request_of(request)).await
    }

    pub async fn save(&self, session: &str, context: Value) -> SavedCheckpoint {
        self.try_save(serde_json::json!({ "sessionId": session, "context": context })).await.unwrap()
    }

    pub async fn try_load(&self, request: Value) -> Result<LoadedCheckpoint> {
        let request: LoadCheckpoint = serde_json::from_value(request).unwrap();
        self.engine.load_checkpoint(&self.scope, request).await
    }

    pub async fn load(&self, id: &CheckpointId) -> LoadedCheckpoint {
        self.try_load(serde_json::json!({ "checkpointId": id })).await.unwrap()
    }

    /// The ids that a list gives.
    pub async fn list(&self, request: Value) -> Vec<String> {
        let request: ListCheckpoints = serde_json::from_value(request).unwrap();
        let page = self.engine.list_checkpoints(&self.scope, request).await.unwrap();
        page.checkpoints.iter().map(|checkpoint| checkpoint.checkpoint_id.to_string()).collect()
    }

    /// Panics unless every checkpoint that is listed loads, and the database is sound.
    pub async fn check_invariants(&self) {
        for id in self.list(serde_json::json!({ "limit": 1000 })).await {
            self.load(&id.parse().unwrap()).await;
        }
        assert_eq!(audit(self.data_dir()), Vec::<String>::new());
    }
}

impl Default for Harness {
    fn default() -> Self {
        Self::new()
    }
}

/// A temporary directory that only this user can read, as the store demands.
pub fn private_dir() -> TempDir {
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    tempfile::Builder::new().prefix("waystone-").permissions(private).tempdir().unwrap()
}

pub fn request_of(request: Value) -> SaveCheckpoint {
    serde_json::from_value(request).unwrap()
}

pub fn context_of(loaded: &LoadedCheckpoint) -> Value {
    json::parse_trusted(loaded.context.get().as_bytes()).unwrap()
}

fn open(path: &Path, clock: &Arc<ManualClock>, limits: &Limits, steps: i64) -> Engine {
    let store = Sqlite::open(path, clock.clone()).unwrap();
    let store = FaultyStore::new(Arc::new(store), Fault::FailAt(AtomicI64::new(steps)));
    Engine::new(Arc::new(store), clock.clone(), limits.clone(), "project".parse().unwrap())
}
