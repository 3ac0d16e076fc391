//! An engine on a temporary data directory, with a manual clock and a store that can be told to fail.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicI64;

use serde_json::Value;
use tempfile::TempDir;
use waystone_core::api::{
    Checkup, FindingKind, Imported, ListCheckpoints, LoadCheckpoint, LoadedCheckpoint, SaveCheckpoint, SavedCheckpoint,
};
use waystone_core::clock::Clock;
use waystone_core::id::CheckpointId;
use waystone_core::secret::{Policy, Secrets};
use waystone_core::store::Scope;
use waystone_core::{Engine, Export, Limits, Result, json};
use waystone_store::{MasterKey, OpenError, Repaired, Root, Sqlite};

use crate::audit;
use crate::clock::ManualClock;
use crate::faulty::{Fault, FaultyStore, TOLD_BYTES};

pub struct Harness {
    directory: TempDir,
    pub clock: Arc<ManualClock>,
    pub limits: Limits,
    pub scope: Scope,
    pub engine: Engine,
    store: Arc<FaultyStore>,
}

impl Harness {
    pub fn new() -> Self {
        Self::with_limits(Limits::default())
    }

    pub fn with_limits(limits: Limits) -> Self {
        Self::with(private_dir(), limits, ManualClock::default())
    }

    /// A harness whose ids are its own: they begin with this number.
    pub fn counting_from(id: u64) -> Self {
        Self::with(private_dir(), Limits::default(), ManualClock::counting_from(id))
    }

    /// A harness on a directory that is closed to others.
    pub fn on(directory: TempDir) -> Self {
        Self::with(directory, Limits::default(), ManualClock::default())
    }

    fn with(directory: TempDir, limits: Limits, clock: ManualClock) -> Self {
        let clock = Arc::new(clock);
        let (engine, store) = open(directory.path(), &clock, &limits, i64::MAX);
        Self { directory, clock, limits, scope: Scope::local("tester"), engine, store }
    }

    pub fn data_dir(&self) -> &Path {
        self.directory.path()
    }

    /// Closes the engine and opens another one whose store fails at the `steps`-th step from now.
    pub async fn fail_after(&mut self, steps: i64) {
        self.engine.close().await;
        self.check_sealed();
        (self.engine, self.store) = open(self.directory.path(), &self.clock, &self.limits, steps);
    }

    /// From now on no step of a turn can be written, or they can again.
    pub fn refuse_steps(&self, is_stuck: bool) {
        self.store.refuse_steps(is_stuck);
    }

    /// No file of a sealed store holds what was given to it.
    fn check_sealed(&self) {
        if key().is_none() {
            return;
        }
        let told: HashSet<Vec<u8>> = self.store.told();
        if told.is_empty() {
            return;
        }
        for path in files_in(self.directory.path()) {
            // What is being moved or removed meanwhile is looked at where it is then.
            let Ok(bytes) = fs::read(&path) else { continue };
            let found = bytes.windows(TOLD_BYTES).find(|window| told.contains(*window));
            let found = found.map(|told| String::from_utf8_lossy(told).into_owned());
            assert_eq!(found, None, "{} holds what is to be sealed", path.display());
        }
    }

    /// Waits until the store has taken `count` saves since it was opened, so that they wait in its queue.
    pub async fn wait_for_taken(&self, count: usize) {
        while self.store.taken() < count {
            tokio::task::yield_now().await;
        }
    }

    /// What the engine keeps everything in.
    pub fn store(&self) -> &FaultyStore {
        &self.store
    }

    /// Another engine on the same directory, as another process would have.
    pub fn second(&self) -> Engine {
        self.at(self.directory.path())
    }

    /// An engine on another directory.
    pub fn at(&self, path: &Path) -> Engine {
        open(path, &self.clock, &self.limits, i64::MAX).0
    }

    pub async fn restart(&mut self) {
        self.fail_after(i64::MAX).await;
    }

    /// Restarts until every group is in its file and everything is indexed. One end waits only two seconds for that, and the disk may
    /// be slow.
    pub async fn restart_mirrored(&mut self) {
        for _ in 0..30 {
            self.restart().await;
            let dirty = "SELECT (SELECT count(*) FROM checkpoint_group WHERE mirrored_seq < changed_seq)
                + (SELECT count(*) FROM checkpoint_index WHERE stale = 1)
                + (SELECT count(*) FROM checkpoint WHERE key > (SELECT min(found_key) FROM search_index)
                       AND (SELECT wrapped_key IS NULL FROM space))
                + (SELECT count(*) FROM search_index AS i JOIN space AS s ON s.space = i.space
                   WHERE i.followed_seq < s.operation_seq OR i.next_segment IS NOT NULL)";
            if audit::open(self.data_dir()).query_row(dirty, [], |row| row.get::<_, u64>(0)).unwrap() == 0 {
                return;
            }
        }
        panic!("groups are not mirrored, however often the store is closed");
    }

    /// Closes the engine when every group is in its file.
    pub async fn close_mirrored(&mut self) {
        self.restart_mirrored().await;
        self.engine.close().await;
    }

    /// Brings back what is in mirror files. The engine must be closed.
    pub fn repair(&self) -> Repaired {
        self.try_repair().unwrap()
    }

    pub fn try_repair(&self) -> Result<Repaired, OpenError> {
        let clock: Arc<dyn Clock> = self.clock.clone();
        waystone_store::repair(
            Root { path: self.data_dir(), key: key().as_ref(), seals: key().is_some() },
            &clock,
            &mut |_, _| {},
        )
    }

    /// Compares both copies of everything, and heals each from the other.
    pub async fn check_copies(&self) -> Checkup {
        self.engine.check_copies(&self.scope, |_, _| {}).await.unwrap()
    }

    /// The kinds of what [`Self::check_copies`] finds.
    pub async fn findings(&self) -> Vec<FindingKind> {
        self.check_copies().await.findings.iter().map(|finding| finding.kind).collect()
    }

    /// The same data, with what is done about secrets.
    pub fn with_secrets(mut self, secret: Policy, pii: Policy) -> Self {
        self.engine = self.engine.clone().with_secrets(Secrets::new(secret, pii, Vec::new()));
        self
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

    /// A session as a document.
    pub async fn export_session(&self, session: &str) -> Result<String> {
        whole(self.engine.export_session(&self.scope, &session.parse().unwrap()).await?).await
    }

    /// A project as a document.
    pub async fn export_project(&self, project: &str) -> Result<String> {
        whole(self.engine.export_project(&self.scope, &project.parse().unwrap()).await?).await
    }

    /// The audit as a file.
    pub async fn export_audit(&self) -> Result<String> {
        whole(self.engine.export_audit(&self.scope).await?).await
    }

    pub async fn import(&self, document: impl Into<Vec<u8>>) -> Result<Imported> {
        self.engine.import_document(&self.scope, io::Cursor::new(document.into())).await
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
        assert_eq!(audit::audit(self.data_dir()), Vec::<String>::new());
    }
}

impl Default for Harness {
    fn default() -> Self {
        Self::new()
    }
}

/// A temporary directory that only this user can read, as the store demands.
pub fn private_dir() -> TempDir {
    private_dir_in(&std::env::temp_dir())
}

pub fn private_dir_in(folder: &Path) -> TempDir {
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    tempfile::Builder::new().prefix("waystone-").permissions(private).tempdir_in(folder).unwrap()
}

/// Copies a directory with all that is in it; the copy is private.
pub fn copy_dir(from: &Path, to: &Path) {
    make_private(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let (path, target) = entry.map(|entry| (entry.path(), to.join(entry.file_name()))).unwrap();
        if path.is_dir() {
            copy_dir(&path, &target);
        } else {
            fs::copy(path, target).unwrap();
        }
    }
}

impl Drop for Harness {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.check_sealed();
        }
    }
}

fn files_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.flat_map(|path| if path.is_dir() { files_in(&path) } else { vec![path] }).collect()
}

/// Makes a directory that only this user can read, unless it is there.
pub fn make_private(path: &Path) -> io::Result<()> {
    std::os::unix::fs::DirBuilderExt::mode(&mut fs::DirBuilder::new(), 0o700).recursive(true).create(path)
}

async fn whole(mut export: Export) -> Result<String> {
    let mut document = Vec::new();
    while let Some(part) = export.next_part().await? {
        document.extend(part);
    }
    Ok(String::from_utf8(document).unwrap())
}

pub fn request_of(request: Value) -> SaveCheckpoint {
    serde_json::from_value(request).unwrap()
}

pub fn context_of(loaded: &LoadedCheckpoint) -> Value {
    json::parse_trusted(loaded.context.get().as_bytes()).unwrap()
}

/// What stores of tests are sealed with, where `WAYSTONE_TEST_SEALED` asks for it: what holds for plain ones holds for sealed ones too.
#[expect(clippy::disallowed_methods, reason = "a run of tests is told so how it is meant")]
pub fn key() -> Option<MasterKey> {
    std::env::var_os("WAYSTONE_TEST_SEALED").map(|_| MasterKey::new([7; 32], None))
}

fn open(path: &Path, clock: &Arc<ManualClock>, limits: &Limits, steps: i64) -> (Engine, Arc<FaultyStore>) {
    let key = key();
    let store = Sqlite::open(Root { path, key: key.as_ref(), seals: key.is_some() }, clock.clone(), limits).unwrap();
    let store = Arc::new(FaultyStore::new(Arc::new(store), Fault::FailAt(AtomicI64::new(steps))));
    let engine = Engine::new(store.clone(), clock.clone(), limits.clone(), "project".parse().unwrap());
    (engine, store)
}
