//! Loading: the text of a checkpoint, from what is at hand or from its bytes, whole or not at all.

use std::sync::Arc;

use serde_json::value::RawValue;

use super::super::Engine;
use super::Known;
use crate::api::{Checkpoint, LoadCheckpoint, LoadedCheckpoint};
use crate::engine::view::check_tokens;
use crate::error::{Error, Result};
use crate::id::{CheckpointId, SessionId};
use crate::offload::offload;
use crate::pack::unpack;
use crate::store::{Scope, StoredCheckpoint, Wanted};

impl Engine {
    /// The checkpoint that was asked for, or the session's newest one that can be read.
    pub async fn load_checkpoint(&self, scope: &Scope, request: LoadCheckpoint) -> Result<LoadedCheckpoint> {
        let tokens = request.max_tokens;
        tokens.map_or(Ok(()), |tokens| check_tokens("maxTokens", tokens))?;
        let loaded = self.read_checkpoint(scope, request).await?;
        self.store.note_load(scope, &loaded.checkpoint.checkpoint_id, self.clock.now());
        let loaded = LoadedCheckpoint { warnings: self.warnings(), ..loaded };
        match tokens {
            Some(tokens) => self.view_loaded(scope, loaded, tokens).await,
            None => Ok(loaded),
        }
    }

    /// The same, without taking note of it.
    pub(in crate::engine) async fn read_checkpoint(
        &self,
        scope: &Scope,
        request: LoadCheckpoint,
    ) -> Result<LoadedCheckpoint> {
        let loaded = self.read_stored(scope, request).await?;
        self.with_messages(scope, loaded).await
    }

    /// The same as it is stored: of a conversation that is where it stood, and not its messages.
    pub(super) async fn read_stored(&self, scope: &Scope, request: LoadCheckpoint) -> Result<LoadedCheckpoint> {
        match (request.checkpoint_id, request.session_id) {
            (Some(id), None) => self.load_by_id(scope, id).await,
            (None, Some(session)) => self.load_latest(scope, session).await,
            (Some(_), Some(_)) => {
                Err(Error::InvalidInput("checkpointId and sessionId are both given; give one of them".to_owned()))
            }
            (None, None) => {
                Err(Error::InvalidInput("checkpointId and sessionId are both missing; give one".to_owned()))
            }
        }
    }

    /// What is known of a checkpoint besides its context, damaged or not. It is no load: nothing is unpacked or noted.
    pub async fn find_checkpoint(&self, scope: &Scope, id: &CheckpointId) -> Result<Checkpoint> {
        let found = self.store.find_checkpoint(scope, &Wanted::ById(id.clone()), Some(id)).await?;
        found.map(|found| found.checkpoint).ok_or_else(|| Error::CheckpointNotFound(id.clone()))
    }

    async fn load_by_id(&self, scope: &Scope, id: CheckpointId) -> Result<LoadedCheckpoint> {
        let read = self.read(scope, &Wanted::ById(id.clone()), None).await?;
        let damage = match read.ok_or_else(|| Error::CheckpointNotFound(id.clone()))? {
            Read::Whole(loaded) => return Ok(*loaded),
            Read::Damaged(_, damage) => damage,
        };
        let before = self.first_good(scope, id.clone(), Wanted::Before).await?;
        let nearest = match before {
            Some(good) => Some(good),
            None => self.first_good(scope, id.clone(), Wanted::After).await?,
        };
        let nearest = nearest.map(|(good, _)| good.checkpoint.checkpoint_id);
        Err(Error::CheckpointCorrupt { id, damage, nearest })
    }

    async fn load_latest(&self, scope: &Scope, session: SessionId) -> Result<LoadedCheckpoint> {
        let known = self.find_known(scope, &session);
        let read = self.read(scope, &Wanted::Latest(session.clone()), known).await?;
        let (id, damage) = match read.ok_or(Error::SessionNotFound(session))? {
            Read::Whole(loaded) => return Ok(*loaded),
            Read::Damaged(id, damage) => (id, damage),
        };
        match self.first_good(scope, id.clone(), Wanted::Before).await? {
            Some((good, skipped)) => Ok(LoadedCheckpoint { degraded: true, skipped, ..good }),
            None => Err(Error::CheckpointCorrupt { id, damage, nearest: None }),
        }
    }

    /// The first checkpoint from the damaged `id` on, in the direction of `next`, that can be read, and the damaged ones up to it.
    async fn first_good(
        &self,
        scope: &Scope,
        id: CheckpointId,
        next: fn(CheckpointId) -> Wanted,
    ) -> Result<Option<(LoadedCheckpoint, Vec<CheckpointId>)>> {
        let mut damaged = vec![id.clone()];
        let mut wanted = next(id);
        while let Some(read) = self.read(scope, &wanted, None).await? {
            match read {
                Read::Whole(loaded) => return Ok(Some((*loaded, damaged))),
                Read::Damaged(id, _) => {
                    damaged.push(id.clone());
                    wanted = next(id);
                }
            }
        }
        Ok(None)
    }

    /// The newest checkpoint of a session whose context is at hand, or can be read.
    pub(super) async fn newest_known(&self, scope: &Scope, session: &SessionId) -> Result<Option<Arc<Known>>> {
        if let Some(known) = self.find_known(scope, session) {
            return Ok(Some(known));
        }
        self.read(scope, &Wanted::Latest(session.clone()), None).await?;
        Ok(self.find_known(scope, session))
    }

    /// A skipped save stands on the checkpoint it equals, so that one must be whole.
    pub(super) async fn is_whole(&self, scope: &Scope, id: &CheckpointId, known: Option<&Known>) -> Result<bool> {
        if known.is_some_and(|known| known.id == *id) {
            return Ok(true);
        }
        let read = self.read(scope, &Wanted::ById(id.clone()), None).await?;
        Ok(matches!(read, Some(Read::Whole(_))))
    }

    /// Finds and unpacks a checkpoint. What is damaged is healed from its second copy, and read again.
    async fn read(&self, scope: &Scope, wanted: &Wanted, known: Option<Arc<Known>>) -> Result<Option<Read>> {
        let read = self.read_once(scope, wanted, known).await?;
        match &read {
            Some(Read::Damaged(id, _)) if !self.is_read_only && self.store.heal_checkpoint(scope, id).await? => {
                self.read_once(scope, wanted, None).await
            }
            _ => Ok(read),
        }
    }

    /// The newest of a session is kept at hand.
    async fn read_once(&self, scope: &Scope, wanted: &Wanted, known: Option<Arc<Known>>) -> Result<Option<Read>> {
        let found = self.store.find_checkpoint(scope, wanted, known.as_ref().map(|known| &known.id)).await?;
        let Some(StoredCheckpoint { checkpoint, chain, mirror }) = found else { return Ok(None) };
        let id = checkpoint.checkpoint_id.clone();
        if let Some(known) = known.as_ref().filter(|known| known.id == id) {
            return Ok(Some(Read::whole(LoadedCheckpoint::new(
                checkpoint,
                mirror,
                RawValue::to_owned(&known.context),
            ))));
        }
        let raw_hash = chain.last().map(|packed| packed.raw_hash);
        let raw_bytes = chain.iter().map(|packed| packed.raw_bytes).sum();
        let unpacked = offload(raw_bytes, move || {
            let base_text = known.as_ref().map_or(&[][..], |known| known.text());
            let text = unpack(&chain, base_text).map_err(|damage| damage.to_string());
            let text = text.and_then(|text| String::from_utf8(text).map_err(|error| error.to_string()));
            text.and_then(|text| RawValue::from_string(text).map_err(|error| error.to_string()))
        });
        let context = match unpacked.await? {
            Ok(context) => context,
            Err(damage) => return Ok(Some(Read::Damaged(id, damage))),
        };
        if let (Wanted::Latest(session), Some(raw_hash)) = (wanted, raw_hash) {
            let (context_hash, context) = (checkpoint.context_hash, context.clone().into());
            let known = Known { id, context_hash, raw_hash, context };
            self.keep_known(scope, session, known);
        }
        Ok(Some(Read::whole(LoadedCheckpoint::new(checkpoint, mirror, context))))
    }
}

/// What became of reading a checkpoint that is there.
enum Read {
    Whole(Box<LoadedCheckpoint>),
    Damaged(CheckpointId, String),
}

impl Read {
    fn whole(loaded: LoadedCheckpoint) -> Self {
        Self::Whole(Box::new(loaded))
    }
}
