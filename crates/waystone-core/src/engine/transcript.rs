//! Transcripts of other programs: their turns become segments, and what they come to a checkpoint that a later session is told of.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::Engine;
use super::checkpoint::parse_context;
use crate::api::{Digest, ListCheckpoints, LoadCheckpoint, SaveCheckpoint};
use crate::canon::Hash;
use crate::error::{Error, Result};
use crate::id::{SegmentId, SessionId};
use crate::meaning;
use crate::offload::offload;
use crate::store::{NewSegment, NewSegments, NewTurns, Scope, TranscriptEnd};
use crate::transcript::{Captured, Turn, guide};

/// Checkpoints that were made of transcripts are known by it.
const WORKFLOW: &str = "transcript";
/// No tokenizer is loaded for a hook; whoever lives longer counts.
const BYTES_PER_TOKEN: usize = 3;

impl Engine {
    /// How far a transcript was captured.
    pub async fn find_transcript(&self, scope: &Scope, path: &str) -> Result<Option<TranscriptEnd>> {
        self.store.find_transcript(scope, path).await
    }

    /// Keeps the turns of a transcript that are new, outside of the window, and saves what the conversation has come to. Returns how many
    /// were new.
    pub async fn capture_transcript(&self, scope: &Scope, captured: Captured) -> Result<u64> {
        let Captured { client, session, path, turns, end } = captured;
        let (new, turns) = self.prepare_turns(&session, &path, turns, end).await?;
        let is_new = self.store.capture_turns(scope, Arc::new(new)).await?;
        let added: Vec<(Turn, SegmentId)> =
            turns.into_iter().zip(is_new).filter(|(_, is_new)| *is_new).map(|(turn, _)| turn).collect();
        if added.is_empty() {
            return Ok(0);
        }
        let mut digest = self.find_digest(scope, &session).await?.map(|(digest, _)| digest).unwrap_or_default();
        (digest.client, digest.transcript) = (client.to_owned(), path);
        digest.add(&added);
        let Value::Object(context) = json!(digest) else { unreachable!("a digest is an object") };
        self.save_checkpoint(scope, checkpoint_of(session, client, context)?).await?;
        Ok(added.len() as u64)
    }

    /// What a session that begins is told: of itself if it was captured before, else of the newest of the project. `None` when there is
    /// nothing to tell.
    pub async fn read_guide(&self, scope: &Scope, session: &SessionId) -> Result<Option<String>> {
        let own = self.find_digest(scope, session).await?.map(|(digest, at)| (session.clone(), digest, at));
        let found = match own {
            Some(own) => Some(own),
            None => {
                let filter = ListCheckpoints {
                    project_id: Some(self.project.clone()),
                    workflow_id: Some(WORKFLOW.parse().map_err(Error::broken)?),
                    limit: 1,
                    ..ListCheckpoints::default()
                };
                let newest = self.store.list_checkpoints(scope, &filter).await?.checkpoints.pop();
                match newest.map(|newest| newest.session_id) {
                    Some(id) => self.find_digest(scope, &id).await?.map(|(digest, at)| (id, digest, at)),
                    None => None,
                }
            }
        };
        Ok(found.map(|(session, digest, at)| guide(&digest, &session, &self.clock.now().age_of(at))))
    }

    async fn find_digest(
        &self,
        scope: &Scope,
        session: &SessionId,
    ) -> Result<Option<(Digest, crate::clock::Timestamp)>> {
        let request = LoadCheckpoint { session_id: Some(session.clone()), ..LoadCheckpoint::default() };
        let loaded = match self.load_checkpoint(scope, request).await {
            Err(Error::SessionNotFound(_)) => return Ok(None),
            loaded => loaded?,
        };
        let context = Value::Object(parse_context(&loaded.context)?);
        // A session of that name that is not ours has nothing to tell.
        let digest = serde_json::from_value(context).ok().filter(|digest: &Digest| !digest.client.is_empty());
        Ok(digest.map(|digest| (digest, loaded.checkpoint.created_at)))
    }

    /// Turns as segments, with what they are searched by and about how many tokens they have.
    async fn prepare_turns(
        &self,
        session: &SessionId,
        path: &str,
        turns: Vec<Turn>,
        end: TranscriptEnd,
    ) -> Result<(NewTurns, Vec<(Turn, SegmentId)>)> {
        let now = self.clock.now();
        let named = turns.into_iter().map(|turn| Ok((turn, self.fresh_id()?))).collect::<Result<Vec<_>>>()?;
        let bytes = named.iter().map(|(turn, _)| turn.text().len()).sum();
        let prepare = move || {
            let segment = |(turn, id): &(Turn, SegmentId)| {
                let text = turn.text();
                NewSegment {
                    id: id.clone(),
                    text_hash: Hash::of(text.as_bytes()),
                    kind: turn.kind(),
                    tokens: Some(text.len().div_ceil(BYTES_PER_TOKEN) as u64),
                    is_estimate: true,
                    pieces: meaning::pieces(&text),
                    role: Some(turn.role().to_owned()),
                    created: turn.at.unwrap_or(now),
                    text,
                }
            };
            (named.iter().map(segment).collect(), named)
        };
        let (segments, named) = offload(bytes, prepare).await?;
        let segments = NewSegments {
            project: self.project.clone(),
            task: Some(session.as_str().parse().map_err(Error::broken)?),
            segments,
            tags: vec!["transcript".to_owned()],
            file_path: None,
            line_range: None,
            topic: None,
            pinned: false,
            stash: true,
            at: now,
            total_bytes_max: self.limits.total_bytes_max,
        };
        let hashes = named.iter().map(|(turn, _)| turn.hash()).collect();
        Ok((NewTurns { segments, hashes, path: path.to_owned(), end }, named))
    }
}

fn checkpoint_of(session: SessionId, client: &str, context: Map<String, Value>) -> Result<SaveCheckpoint> {
    Ok(SaveCheckpoint {
        session_id: Some(session),
        context,
        metadata: None,
        force: false,
        project_id: None,
        agent_id: Some(client.parse().map_err(Error::broken)?),
        workflow_id: Some(WORKFLOW.parse().map_err(Error::broken)?),
        expected_checkpoint_id: None,
        parent_checkpoint_id: None,
        context_rules: None,
        idempotency_key: None,
    })
}
