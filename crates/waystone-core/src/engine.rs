//! The engine: one method for each thing a client can ask for. The methods are in one file per noun.

mod checkpoint;
mod doctor;
mod document;
mod event;
mod garbage;
mod handle;
mod mark;
mod operation;
mod search;
mod segment;
mod session;
mod stash;
mod status;
mod task;
mod transcript;
mod usage;
mod view;

use std::sync::Arc;

use crate::api::ContextRule;
use crate::clock::{Clock, Timestamp};
use crate::id::ProjectId;
use crate::recent::Recent;
use crate::store::SharedStore;
use crate::tokens::Counts;

pub use document::Export;

/// How long what was deleted is kept before it is removed.
pub const GRACE_DAYS: i64 = 7;

/// What may be kept, and how much of it.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Checkpoints of a session, before the oldest without name, tag or branch is archived.
    pub checkpoints_max: u64,
    /// A context as JSON text.
    pub context_bytes_max: u64,
    /// A checkpoint as stored.
    pub checkpoint_bytes_max: u64,
    /// All checkpoints of a session as stored.
    pub session_bytes_max: u64,
    /// All that is kept, as stored.
    pub total_bytes_max: u64,
    /// A document that is imported.
    pub import_bytes_max: u64,
    /// How many tokens the window of a model holds, unless a request says so.
    pub window_tokens: u64,
}

impl Limits {
    /// What a request may have around a context.
    pub const ENVELOPE_BYTES_MAX: u64 = 1024 * 1024;

    /// The most bytes of a request, or of a file with a context, that are read.
    pub fn request_bytes_max(&self) -> u64 {
        self.context_bytes_max + Self::ENVELOPE_BYTES_MAX
    }
}

impl Default for Limits {
    fn default() -> Self {
        const MIB: u64 = 1024 * 1024;
        Self {
            checkpoints_max: 100,
            context_bytes_max: 64 * MIB,
            checkpoint_bytes_max: 10 * MIB,
            session_bytes_max: 1024 * MIB,
            total_bytes_max: 10 * 1024 * MIB,
            import_bytes_max: 256 * MIB,
            window_tokens: 1_000_000,
        }
    }
}

/// Cheap to clone; all clones are one engine.
#[derive(Clone)]
pub struct Engine {
    store: SharedStore,
    clock: Arc<dyn Clock>,
    limits: Arc<Limits>,
    recent: Arc<Recent>,
    counts: Arc<Counts>,
    /// The configuration's, which count after a session's own.
    context_rules: Arc<[ContextRule]>,
    /// The project of a request that names none.
    project: ProjectId,
    /// Why nothing is kept beyond the end of the process, if so.
    volatile: Option<Arc<str>>,
}

impl Engine {
    pub fn new(store: SharedStore, clock: Arc<dyn Clock>, limits: Limits, project: ProjectId) -> Self {
        Self {
            store,
            clock,
            limits: Arc::new(limits),
            recent: Arc::default(),
            counts: Arc::default(),
            context_rules: Arc::new([]),
            project,
            volatile: None,
        }
    }

    /// The same engine on a store that ends with the process: what it saves it calls volatile, and every reply says `why`.
    pub fn volatile(self, why: &str) -> Self {
        Self { volatile: Some(why.into()), ..self }
    }

    /// The same engine with rules for all sessions.
    pub fn with_context_rules(self, rules: Vec<ContextRule>) -> Self {
        Self { context_rules: rules.into(), ..self }
    }

    /// What every reply says besides its own: that nothing is kept, if so.
    pub fn warnings(&self) -> Vec<String> {
        let warn = |why: &Arc<str>| format!("nothing is kept beyond the end of this process: {why}");
        self.volatile.iter().map(warn).collect()
    }

    /// The project that is meant where none is named.
    pub fn project(&self) -> &ProjectId {
        &self.project
    }

    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Until when something that is deleted now is kept.
    fn kept_until(&self, deleted: Timestamp) -> Timestamp {
        Timestamp::from_ms(deleted.ms() + GRACE_DAYS * 24 * 60 * 60 * 1000)
    }

    /// Writes what is pending and lets go of the store. The last call to an engine.
    pub async fn close(&self) {
        self.store.close().await;
    }
}
