//! Transcripts of other programs: their turns become segments, and what they come to a checkpoint that a later session is told of.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::Engine;
use super::checkpoint::parse_context;
use super::secret::{cover_digest, cover_turn};
use crate::api::{Checkpoint, Digest, ListCheckpoints, LoadCheckpoint, Origin, SaveCheckpoint};
use crate::canon::Hash;
use crate::error::{Conflict, Error, Result};
use crate::id::{CheckpointId, SegmentId, SessionId};
use crate::meaning;
use crate::offload::offload;
use crate::search::searched;
use crate::store::{NewSegment, NewSegments, NewTurns, Scope, TranscriptEnd};
use crate::transcript::{Captured, Turn, guide};

/// Checkpoints that were made of transcripts are known by it.
const WORKFLOW: &str = "transcript";
const DIGESTS_MAX: u32 = 50;
const FIRST: &str = "first-of-transcript";
/// So often it is tried to save what a conversation came to, when others do the same.
const FOLDS_MAX: usize = 20;
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
        self.check_writable()?;
        let Captured { client, session, path, place, turns, end } = captured;
        let (new, turns) = self.prepare_turns(&session, &path, turns, end).await?;
        let is_new = self.store.capture_turns(scope, Arc::new(new)).await?;
        let added: Vec<(Turn, SegmentId)> =
            turns.into_iter().zip(is_new).filter(|(_, is_new)| *is_new).map(|(turn, _)| turn).collect();
        if added.is_empty() {
            return Ok(0);
        }
        for _ in 0..FOLDS_MAX {
            match self.save_digest(scope, client, &session, (&path, &place), &added).await {
                Err(Error::Conflict(Conflict::HeadMoved { .. } | Conflict::KeyReused(_))) => {}
                saved => return saved.map(|()| added.len() as u64),
            }
        }
        Err(Error::broken("what the conversation came to was saved by others all the time"))
    }

    /// Adds turns to what the conversation had come to; a conflict if someone else saved meanwhile.
    async fn save_digest(
        &self,
        scope: &Scope,
        client: &str,
        session: &SessionId,
        (path, place): (&str, &str),
        added: &[(Turn, SegmentId)],
    ) -> Result<()> {
        let newest = ListCheckpoints { session_id: Some(session.clone()), limit: 1, ..ListCheckpoints::default() };
        let head = match self.store.list_checkpoints(scope, &newest).await {
            Err(Error::SessionNotFound(_)) => None,
            page => page?.checkpoints.pop().map(|head| head.checkpoint_id),
        };
        let before = match head {
            Some(_) => self.find_digest(scope, newest, |_| true).await?,
            None => None,
        };
        let (mut digest, origin) = before.map_or((Digest::default(), Origin::User), |(digest, of)| (digest, of.origin));
        let origin = added.iter().fold(origin, |lowest, (turn, _)| lowest.lowest(turn.origin()));
        (digest.client, digest.transcript, digest.place) = (client.to_owned(), path.to_owned(), place.to_owned());
        digest.add(added);
        let Value::Object(mut context) = json!(digest) else { unreachable!("a digest is an object") };
        if let Some(cover) = self.secrets.shown() {
            cover.object(&mut context);
        }
        self.save_checkpoint(scope, checkpoint_of(session, client, (context, origin), head)?).await.map(drop)
    }

    /// What a session that begins is told: of itself if it was captured before, else of the newest of the project, and in the project of
    /// all that has none of the newest in the same directory. `None` when there is nothing to tell.
    pub async fn read_guide(&self, scope: &Scope, session: &SessionId, place: &str) -> Result<Option<String>> {
        let is_ours = |digest: &Digest| self.project.as_str() != "default" || digest.place == place;
        let own = ListCheckpoints { session_id: Some(session.clone()), ..ListCheckpoints::default() };
        let last = ListCheckpoints { project_id: Some(self.project.clone()), ..ListCheckpoints::default() };
        let found = match self.find_digest(scope, own, |_| true).await {
            Ok(None) | Err(Error::SessionNotFound(_)) => self.find_digest(scope, last, is_ours).await?,
            own => own?,
        };
        let now = self.clock.now();
        let tell = |(digest, checkpoint): (Digest, Checkpoint)| {
            // Before it is fenced: what is left out of a text must not take the end of a fence with it.
            let digest = match self.secrets.shown() {
                Some(cover) => cover_digest(cover, &digest),
                None => digest,
            };
            guide(&digest, &checkpoint, &now.age_of(checkpoint.created_at))
        };
        Ok(found.map(tell))
    }

    /// The newest of these checkpoints that was made of a transcript and `is_meant`. Only so many are looked at.
    async fn find_digest(
        &self,
        scope: &Scope,
        among: ListCheckpoints,
        is_meant: impl Fn(&Digest) -> bool,
    ) -> Result<Option<(Digest, Checkpoint)>> {
        let workflow_id = Some(WORKFLOW.parse().map_err(Error::broken)?);
        let filter = ListCheckpoints { workflow_id, limit: DIGESTS_MAX, ..among };
        for newest in self.store.list_checkpoints(scope, &filter).await?.checkpoints {
            let request = LoadCheckpoint { checkpoint_id: Some(newest.checkpoint_id), ..LoadCheckpoint::default() };
            let loaded = self.load_checkpoint(scope, request).await?;
            let context = Value::Object(parse_context(&loaded.context)?);
            if let Some(digest) = serde_json::from_value(context).ok().filter(&is_meant) {
                return Ok(Some((digest, loaded.checkpoint)));
            }
        }
        Ok(None)
    }

    /// Turns as segments, with what they are searched by and about how many tokens they have; and turns as they are told of. What must not be
    /// kept is taken out of them: there is no one to tell.
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
        let secrets = Arc::clone(&self.secrets);
        let prepare = move || {
            let mut named = named;
            let cover = |named: &mut [(Turn, SegmentId)], cover| {
                named.iter_mut().for_each(|(turn, _)| cover_turn(cover, turn));
            };
            secrets.kept().into_iter().for_each(|kept| cover(&mut named, kept));
            let segment = |(turn, id): &(Turn, SegmentId)| {
                let text = turn.text();
                let text = secrets.kept().and_then(|cover| cover.text(&text)).unwrap_or(text);
                NewSegment {
                    id: id.clone(),
                    text_hash: Hash::of(text.as_bytes()),
                    kind: turn.kind(),
                    origin: turn.origin(),
                    tokens: Some(text.len().div_ceil(BYTES_PER_TOKEN) as u64),
                    is_estimate: true,
                    pieces: meaning::pieces(&searched(&text)),
                    role: Some(turn.role().to_owned()),
                    created: turn.at.unwrap_or(now),
                    text,
                }
            };
            let segments = named.iter().map(segment).collect();
            secrets.shown().into_iter().for_each(|shown| cover(&mut named, shown));
            (segments, named)
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

fn checkpoint_of(
    session: &SessionId,
    client: &str,
    (context, origin): (Map<String, Value>, Origin),
    expected: Option<CheckpointId>,
) -> Result<SaveCheckpoint> {
    // Of several that want to be the first of a session one is.
    let first = expected.is_none().then(|| FIRST.parse().map_err(Error::broken)).transpose()?;
    Ok(SaveCheckpoint {
        session_id: Some(session.clone()),
        context,
        metadata: None,
        force: false,
        project_id: None,
        agent_id: Some(client.parse().map_err(Error::broken)?),
        workflow_id: Some(WORKFLOW.parse().map_err(Error::broken)?),
        expected_checkpoint_id: expected,
        parent_checkpoint_id: None,
        context_rules: None,
        origin: Some(origin),
        idempotency_key: first,
    })
}
