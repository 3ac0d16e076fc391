//! The part of the store that is about what goes. What takes long, or files, is done as housekeeping does it.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use rusqlite::Connection;
use waystone_core::api::{BackedUp, Checkpoint, Cleaned, Session};
use waystone_core::clock::Timestamp;
use waystone_core::id::{CheckpointId, SessionId};
use waystone_core::retention::Selection;
use waystone_core::store::{Purged, RetentionStore, Scope};
use waystone_core::{Error, Result};

use super::{Archived, clean};
use crate::mirror::tombstone;
use crate::sqlite::backup::Copy;
use crate::sqlite::error::{DbResult, file_error};
use crate::sqlite::maintenance::Upkeep;
use crate::sqlite::{Sqlite, checkpoint, session};

impl Sqlite {
    /// Does what housekeeping does, because someone asked for it: what is done is durable then.
    pub(in crate::sqlite) async fn keep_house<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Upkeep) -> DbResult<T> + Send + 'static,
    ) -> Result<T> {
        self.writer.check()?;
        let (directory, clock, limits) = (self.directory.clone(), Arc::clone(&self.clock), self.limits.clone());
        let done = tokio::task::spawn_blocking(move || {
            let mut upkeep = Upkeep::on_demand(directory, clock, limits)?;
            Ok(work(&mut upkeep)?)
        });
        done.await.map_err(|error| Error::broken(error.to_string()))?
    }

    /// Brings something back that may have a tombstone, while nothing is removed: ids of a session that are there, as `find` has them. There is
    /// a tombstone only where a removal broke off; what was removed before it was our turn keeps its own.
    async fn bring_back<T: Send + 'static>(
        &self,
        find: impl FnOnce(&Connection) -> DbResult<(SessionId, Vec<String>)> + Send + 'static,
        work: impl Fn(&Connection) -> DbResult<T> + Clone + Send + 'static,
    ) -> Result<T> {
        let turn = self.take_turn().await?;
        let (session, ids) = self.readers.read(find).await?;
        self.take_tombstones_away(session, ids).await?;
        let done = self.write_deletion(work).await;
        drop(turn);
        done
    }

    /// Forgets that these were removed. Only for who has the turn to write files.
    pub(in crate::sqlite) async fn take_tombstones_away(&self, session: SessionId, ids: Vec<String>) -> Result<()> {
        let directory = self.directory.clone();
        let work = move || {
            tombstone::take_away(&directory, session.as_str(), ids.iter().map(String::as_str))
                .map_err(|error| Error::from(file_error(&directory.tombstones(), &error)))
        };
        tokio::task::spawn_blocking(work).await.map_err(|error| Error::broken(error.to_string()))?
    }
}

#[async_trait]
impl RetentionStore for Sqlite {
    async fn restore_checkpoint(&self, scope: &Scope, id: &CheckpointId, at: Timestamp) -> Result<Checkpoint> {
        let (reading, of) = (scope.clone(), id.clone());
        let find = move |db: &Connection| {
            let found =
                checkpoint::find_by_id(db, &reading, &of)?.ok_or_else(|| Error::CheckpointNotFound(of.clone()))?;
            Ok((found.session_id, vec![of.as_str().to_owned()]))
        };
        let (scope, id) = (scope.clone(), id.clone());
        self.bring_back(find, move |db| checkpoint::restore(db, &scope, &id, at)).await
    }

    async fn restore_session(&self, scope: &Scope, id: &SessionId, at: Timestamp) -> Result<Session> {
        let (reading, of) = (scope.clone(), id.clone());
        let find = move |db: &Connection| Ok((of.clone(), session::list_ids(db, &reading, &of)?));
        let (scope, session) = (scope.clone(), id.clone());
        self.bring_back(find, move |db| session::restore(db, &scope, &session, at)).await
    }

    async fn purge_checkpoint(&self, scope: &Scope, id: &CheckpointId, at: Timestamp) -> Result<Purged> {
        let (scope, id) = (scope.clone(), id.clone());
        let purge = move |upkeep: &mut Upkeep| {
            let removed = upkeep.remove(&scope, Archived::Checkpoint(&scope, id.as_str()), false, at)?;
            let checkpoints = removed.ok_or(Error::CheckpointNotFound(id))?;
            upkeep.tell_purged(checkpoints)
        };
        self.keep_house(purge).await
    }

    async fn purge_session(&self, scope: &Scope, id: &SessionId, at: Timestamp) -> Result<Purged> {
        let (scope, id) = (scope.clone(), id.clone());
        let purge = move |upkeep: &mut Upkeep| {
            let mut removed = None;
            while let Some(count) = upkeep.remove(&scope, Archived::Session(&scope, id.as_str()), false, at)? {
                removed = Some(removed.unwrap_or(0) + count);
            }
            let checkpoints = removed.ok_or(Error::SessionNotFound(id))?;
            upkeep.tell_purged(checkpoints)
        };
        self.keep_house(purge).await
    }

    async fn back_up(&self, _: &Scope, directory: Option<&str>, at: Timestamp) -> Result<BackedUp> {
        let to = directory.map(PathBuf::from);
        self.keep_house(move |upkeep| Copy::new(&upkeep.directory, to, at)?.make()).await
    }

    async fn list_removable(&self, scope: &Scope, selection: &Selection) -> Result<Vec<Cleaned>> {
        let (scope, selection) = (scope.clone(), selection.clone());
        self.readers.read(move |db| clean::list_removable(db, &scope, &selection)).await
    }

    async fn clean_session(
        &self,
        scope: &Scope,
        session: &SessionId,
        selection: &Selection,
        at: Timestamp,
    ) -> Result<Option<Cleaned>> {
        let (scope, session, selection) = (scope.clone(), session.clone(), selection.clone());
        let cleaned = self.write_deletion(move |db| clean::clean_session(db, &scope, &session, &selection, at)).await?;
        let Some((cleaned, groups)) = cleaned else { return Ok(None) };
        for group in groups {
            self.mirror_deletion(Some(group), at).await?;
        }
        Ok(Some(cleaned))
    }
}
