//! What goes when it is no longer needed, and what brings it back.

use super::Engine;
use crate::api::{CleanUp, Cleaned, CleanedUp, RestoredCheckpoint, Session};
use crate::error::{Conflict, Error, Result};
use crate::id::{CheckpointId, SessionId};
use crate::retention::Selection;
use crate::store::{Purged, Scope};

/// Said of everything that is removed for good.
const OUT_OF_REACH: &str = "copies that a backup put outside of the data directory are out of reach";
/// Said of what others read just now.
const IN_LOG: &str = "others are reading, so what was removed stands in the write-ahead log until they are done and housekeeping has cut it off";

/// What is said of something that was removed.
pub(super) fn warnings_of(purged: &Purged) -> impl Iterator<Item = String> {
    let in_backup = |backup: &String| {
        format!(
            "{backup} could not be changed, so what was removed stands in it until housekeeping comes through, or it is deleted"
        )
    };
    let known = [OUT_OF_REACH].into_iter().chain(purged.is_in_log.then_some(IN_LOG)).map(str::to_owned);
    known.chain(purged.in_backups.iter().map(in_backup))
}

fn not_deleted(what: &'static str, id: impl ToString) -> Error {
    Error::Conflict(Conflict::NotDeleted { what, id: id.to_string() })
}

impl Engine {
    /// Lists a session again that was deleted, with its checkpoints.
    pub async fn restore_session(&self, scope: &Scope, id: &SessionId) -> Result<Session> {
        self.check_writable()?;
        let session = match self.store.restore_session(scope, id, self.clock.now()).await {
            Err(Error::SessionNotFound(_)) if self.store.find_session(scope, id).await.is_ok() => {
                return Err(not_deleted("session", id));
            }
            restored => restored?,
        };
        Ok(Session { warnings: self.warnings(), ..session })
    }

    /// Lists a checkpoint again that was deleted or archived.
    pub async fn restore_checkpoint(&self, scope: &Scope, id: &CheckpointId) -> Result<RestoredCheckpoint> {
        self.check_writable()?;
        let restored = match self.store.restore_checkpoint(scope, id, self.clock.now()).await {
            Err(Error::CheckpointNotFound(_))
                if self.find_checkpoint(scope, id).await.is_ok_and(|found| !found.archived) =>
            {
                return Err(not_deleted("checkpoint", id));
            }
            restored => restored?,
        };
        let (checkpoint_id, session_id) = (restored.checkpoint_id, restored.session_id);
        Ok(RestoredCheckpoint { checkpoint_id, session_id, warnings: self.warnings() })
    }

    /// Deletes what is old, or tells what would be. `progress` is told how many sessions are done, and of how many.
    pub async fn clean_up(
        &self,
        scope: &Scope,
        request: CleanUp,
        mut progress: impl FnMut(u64, u64) + Send,
    ) -> Result<CleanedUp> {
        if !request.dry_run {
            self.check_writable()?;
        }
        let now = self.clock.now();
        let selection = Selection {
            older_than: request.older_than.map(|since| since.before(now)),
            keep_last: request.keep_last.map(u64::from),
            idle_since: self.limits.idle_since(now),
            session: request.session_id,
        };
        if let Some(session) = &selection.session {
            self.store.find_session(scope, session).await?;
        }
        let removable = self.store.list_removable(scope, &selection).await?;
        let mut cleaned = Vec::new();
        for (done, found) in removable.iter().enumerate() {
            match request.dry_run {
                true => cleaned.push(found.clone()),
                // What was used meanwhile is left alone.
                false => cleaned.extend(self.store.clean_session(scope, &found.session_id, &selection, now).await?),
            }
            progress(done as u64 + 1, removable.len() as u64);
        }
        let sum = |of: fn(&Cleaned) -> u64| cleaned.iter().map(of).sum();
        Ok(CleanedUp {
            dry_run: request.dry_run,
            sessions: sum(|cleaned| u64::from(cleaned.whole_session)),
            checkpoints: sum(|cleaned| cleaned.checkpoints),
            size_bytes: sum(|cleaned| cleaned.size_bytes),
            kept_until: self.kept_until(now),
            warnings: self.warnings(),
            cleaned: {
                cleaned.truncate(CleanedUp::TOLD_MAX);
                cleaned
            },
        })
    }
}
