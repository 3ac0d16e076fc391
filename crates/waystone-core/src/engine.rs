//! The engine: one method for each thing a client can ask for. The methods are in one file per noun.

mod audit;
mod backup;
mod branch;
mod checkpoint;
mod conversation;
mod doctor;
mod document;
mod event;
mod garbage;
mod handle;
mod mark;
mod message;
mod model;
mod operation;
mod resume;
mod retention;
mod search;
mod secret;
mod segment;
mod session;
mod stash;
mod stats;
mod status;
mod summary;
mod task;
pub(crate) mod tool_call;
mod transcript;
mod turn;
mod usage;
mod view;
mod window;

use std::sync::Arc;

use crate::api::{ContextRule, Git};
use crate::clock::{Clock, Timestamp};
use crate::error::{Error, Result};
use crate::id::{ProjectId, SessionId};
use crate::recent::Recent;
use crate::secret::Secrets;
use crate::store::{SharedStore, Used};
use crate::tokens::{Calibration, Counts};
use crate::window::Entry;

use checkpoint::Known;
pub use conversation::{Chat, Lookup, MAIN};
pub use document::Export;
pub use summary::Summaries;
pub use tool_call::{PolicyKind, ToolPolicy};
use turn::Turns;
pub use turn::{Frame, Reader};
pub use usage::USAGE_WARNED_PERCENT;

const DAY_MS: i64 = 24 * 60 * 60 * 1000;

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
    /// Days without a save or load after which a session is deleted; 0 keeps it.
    pub retention_days: u64,
}

impl Limits {
    /// From here on a reply warns of a limit, and the store as a whole is cleaned up above the second and down to the third.
    pub const WARNED_PERCENT: u64 = 80;
    pub const RELIEVED_PERCENT: u64 = 90;
    pub const RELIEVED_TO_PERCENT: u64 = 85;

    /// What a request may have around a context.
    pub const ENVELOPE_BYTES_MAX: u64 = 1024 * 1024;

    /// A session that was last used before this moment is deleted.
    pub fn idle_since(&self, now: Timestamp) -> Timestamp {
        let days = i64::try_from(self.retention_days).ok().filter(|days| *days > 0);
        Timestamp::from_ms(days.map_or(i64::MIN, |days| now.ms() - days * DAY_MS))
    }

    /// What a client should know of limits that something comes near to: a checkpoint, its session, and all that is kept.
    pub(crate) fn nearly_reached(&self, checkpoint: u64, used: Used) -> Vec<String> {
        let warn_of = |what: &str, used: u64, max: u64, unit: &str, setting: &str, outcome: &str| {
            let percent = used.saturating_mul(100) / max.max(1);
            (percent >= Self::WARNED_PERCENT)
                .then(|| format!("{what} {percent} % of what {setting} allows ({used} of {max}{unit}); {outcome}"))
        };
        let warn = |what: &str, used: u64, max: u64, setting: &str, outcome: &str| {
            warn_of(what, used, max, " bytes", setting, outcome)
        };
        let early = "at 90 % what was deleted is removed before its time, then sessions that were not used for longest";
        [
            warn(
                "the checkpoint has",
                checkpoint,
                self.checkpoint_bytes_max,
                "WAYSTONE_MAX_CHECKPOINT_BYTES",
                "a larger one is refused",
            ),
            warn(
                "the session has",
                used.session,
                self.session_bytes_max,
                "WAYSTONE_MAX_SESSION_BYTES",
                "then nothing more is saved in it",
            ),
            warn_of(
                "checkpoints with names or tags, which are never archived, are",
                used.spared,
                self.checkpoints_max,
                "",
                "WAYSTONE_MAX_CHECKPOINTS",
                "at 100 % nothing more is saved in the session; delete some, or save without a name",
            ),
            warn("the store has", used.total, self.total_bytes_max, "WAYSTONE_MAX_TOTAL_BYTES", early),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

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
            retention_days: 30,
        }
    }
}

/// Where the repository around the working directory stands now. Asked at every save, so it must cost little.
pub type GitState = Arc<dyn Fn() -> Option<Git> + Send + Sync>;

/// Cheap to clone; all clones are one engine.
#[derive(Clone)]
pub struct Engine {
    store: SharedStore,
    clock: Arc<dyn Clock>,
    limits: Arc<Limits>,
    /// The newest context of each session that was saved or loaded.
    contexts: Arc<Recent<(i64, SessionId), Known>>,
    /// Conversations of which a window was made, as far as they are behind its cut.
    branches: Arc<Recent<(i64, SessionId), Vec<Entry>>>,
    counts: Arc<Counts>,
    calibration: Arc<Calibration>,
    /// The configuration's, which count after a session's own.
    context_rules: Arc<[ContextRule]>,
    /// The project of a request that names none.
    project: ProjectId,
    git: GitState,
    secrets: Arc<Secrets>,
    chat: Arc<Chat>,
    summaries: Arc<Summaries>,
    turns: Arc<Turns>,
    /// Why nothing is kept beyond the end of the process, if so.
    volatile: Option<Arc<str>>,
    is_read_only: bool,
}

impl Engine {
    pub fn new(store: SharedStore, clock: Arc<dyn Clock>, limits: Limits, project: ProjectId) -> Self {
        Self {
            store,
            clock,
            limits: Arc::new(limits),
            contexts: Arc::new(Recent::new(checkpoint::MOST)),
            branches: Arc::new(Recent::new(window::MOST)),
            counts: Arc::default(),
            calibration: Arc::default(),
            context_rules: Arc::new([]),
            project,
            git: Arc::new(|| None),
            secrets: Arc::default(),
            chat: Arc::default(),
            summaries: Arc::default(),
            turns: Arc::default(),
            volatile: None,
            is_read_only: false,
        }
    }

    /// The same engine on a store that ends with the process: what it saves it calls volatile, and every reply says `why`.
    pub fn volatile(self, why: &str) -> Self {
        Self { volatile: Some(why.into()), ..self }
    }

    /// The same engine, which changes nothing: not on request, and not by the way.
    pub fn read_only(self) -> Self {
        Self { is_read_only: true, ..self }
    }

    /// Every method that changes something asks this before it does anything else. The store that such an engine has refuses too.
    pub fn check_writable(&self) -> Result<()> {
        if self.is_read_only { Err(Error::ReadOnly) } else { Ok(()) }
    }

    /// The same engine with rules for all sessions.
    pub fn with_context_rules(self, rules: Vec<ContextRule>) -> Self {
        Self { context_rules: rules.into(), ..self }
    }

    /// The same engine of who works in a repository.
    pub fn with_git(self, git: GitState) -> Self {
        Self { git, ..self }
    }

    /// The same engine with other rules for secrets, or another policy.
    pub fn with_secrets(self, secrets: Secrets) -> Self {
        Self { secrets: Arc::new(secrets), ..self }
    }

    /// What every reply says besides its own: that nothing is kept, or nothing can be changed, if so.
    pub fn warnings(&self) -> Vec<String> {
        let warn = |why: &Arc<str>| format!("nothing is kept beyond the end of this process: {why}");
        let read_only = self.is_read_only.then(|| "read-only: what would change something is refused".to_owned());
        self.volatile.iter().map(warn).chain(read_only).collect()
    }

    /// What time it is to the engine.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
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
        Timestamp::from_ms(deleted.ms() + GRACE_DAYS * DAY_MS)
    }

    /// Writes what is pending, ends what runs for tools and lets go of the store. The last call to an engine.
    pub async fn close(&self) {
        self.turns.leave_all().await;
        self.chat.tools.close().await;
        self.store.close().await;
    }
}
