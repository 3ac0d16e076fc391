//! Documents written: a session or a project, one part at a time, so that only one part is held. Reading one is in [`import`].

mod import;

use std::collections::{HashSet, VecDeque};

use serde::Serialize;

use super::Engine;
use super::secret::{cover_segment, cover_session, cover_text};
use crate::api::{CheckpointRecord, ListCheckpoints, LoadCheckpoint, ProjectRecord, SessionRecord};
use crate::clock::Timestamp;
use crate::document::{PROJECT, SESSION, VERSION};
use crate::error::{Conflict, Error, Result};
use crate::id::{CheckpointId, ProjectId, SegmentId, SessionId};
use crate::offload::offload;
use crate::store::Scope;

/// A document that is being written.
pub struct Export {
    pub(super) engine: Engine,
    pub(super) scope: Scope,
    pub(super) stage: Stage,
    /// Text that is ready.
    ready: VecDeque<Vec<u8>>,
    /// What it may be called: the workflow, the session, the project, or `audit`.
    pub name: String,
    /// How such files end.
    pub extension: &'static str,
    pub at: Timestamp,
    /// How many checkpoints, segments or records were written.
    pub count: u64,
    /// Snapshots that were left out: some of their segments are deleted.
    pub left_out: u64,
    /// Texts that stand in it without their secrets.
    pub covered: u64,
}

/// What comes next.
pub(super) enum Stage {
    Checkpoints { waiting: VecDeque<CheckpointId>, written: HashSet<CheckpointId> },
    Segments { project: ProjectId, after: i64, written: HashSet<SegmentId> },
    Snapshots { project: ProjectId, after: i64, written: HashSet<SegmentId>, count: u64 },
    Records { after: i64 },
    End,
}

impl Engine {
    /// A session with its checkpoints that are not deleted, as a document.
    pub async fn export_session(&self, scope: &Scope, id: &SessionId) -> Result<Export> {
        let session = self.store.find_session(scope, id).await?;
        if self.store.is_conversation(scope, id).await? {
            return Err(Error::Conflict(Conflict::IsConversation(id.clone())));
        }
        let mut record = SessionRecord {
            id: session.id,
            project_id: session.project_id,
            name: session.name,
            tags: session.tags,
            workflow_id: session.workflow_id,
            created_at: session.created_at,
            critical_keys: session.critical_keys,
            context_rules: session.context_rules,
        };
        let covered = self.secrets.shown().map_or(0, |cover| cover_session(cover, &mut record));
        let waiting = self.list_ids(scope, id).await?;
        let head = head(SESSION, "session", &record)? + ",\n  \"checkpoints\": [";
        let name = record.workflow_id.as_ref().map_or(record.id.as_str(), |id| id.as_str());
        let stage = Stage::Checkpoints { waiting, written: HashSet::new() };
        Ok(Export { covered, ..self.export(scope, name, head, stage) })
    }

    /// A project with its tasks, segments that are not deleted, and snapshots, as a document.
    pub async fn export_project(&self, scope: &Scope, project: &ProjectId) -> Result<Export> {
        let tasks = self.store.export_tasks(scope, project).await?;
        let first = self.store.export_segments(scope, project, 0).await?;
        if tasks.is_empty() && first.segments.is_empty() {
            return Err(Error::NotFound(format!("project `{project}`")));
        }
        let mut head = head(PROJECT, "project", &ProjectRecord { project_id: project.clone() })?;
        head += ",\n  \"tasks\": [";
        for (at, task) in tasks.iter().enumerate() {
            head += &item(at as u64, &pretty(task, "    ")?);
        }
        head += &end_of_list(tasks.len() as u64);
        head += ",\n  \"segments\": [";
        let stage = Stage::Segments { project: project.clone(), after: 0, written: HashSet::new() };
        Ok(self.export(scope, project.as_str(), head, stage))
    }

    pub(super) fn export(&self, scope: &Scope, name: &str, head: String, stage: Stage) -> Export {
        let extension = if matches!(stage, Stage::Records { .. }) { "jsonl" } else { "json" };
        Export {
            engine: self.clone(),
            scope: scope.clone(),
            stage,
            ready: VecDeque::from([head.into_bytes()]),
            name: name.to_owned(),
            extension,
            at: self.clock.now(),
            count: 0,
            left_out: 0,
            covered: 0,
        }
    }

    /// The ids of a session's checkpoints, oldest first.
    async fn list_ids(&self, scope: &Scope, session: &SessionId) -> Result<VecDeque<CheckpointId>> {
        let mut filter = ListCheckpoints { session_id: Some(session.clone()), limit: 1000, ..Default::default() };
        let mut ids = VecDeque::new();
        loop {
            let page = self.store.list_checkpoints(scope, &filter).await?;
            page.checkpoints.into_iter().for_each(|checkpoint| ids.push_front(checkpoint.checkpoint_id));
            filter.cursor = page.next_cursor;
            if filter.cursor.is_none() {
                return Ok(ids);
            }
        }
    }
}

impl Export {
    /// Whether it may go to a file in the data directory.
    pub fn check_writable(&self) -> Result<()> {
        self.engine.check_writable()
    }

    /// The next piece of its text; `None` after the last one. After an error it is not whole, and there is no more of it.
    pub async fn next_part(&mut self) -> Result<Option<Vec<u8>>> {
        while self.ready.is_empty() {
            match std::mem::replace(&mut self.stage, Stage::End) {
                Stage::Checkpoints { waiting, written } => self.write_checkpoint(waiting, written).await?,
                Stage::Segments { project, after, written } => self.write_segments(project, after, written).await?,
                Stage::Snapshots { project, after, written, count } => {
                    self.write_snapshot(project, after, written, count).await?;
                }
                Stage::Records { after } => self.write_records(after).await?,
                Stage::End => return Ok(None),
            }
        }
        Ok(self.ready.pop_front())
    }

    pub(super) fn push(&mut self, text: String) {
        self.ready.push_back(text.into_bytes());
    }

    /// A checkpoint that cannot be read ends the export with an error: a document must not lack what it does not name.
    async fn write_checkpoint(
        &mut self,
        mut waiting: VecDeque<CheckpointId>,
        mut written: HashSet<CheckpointId>,
    ) -> Result<()> {
        let Some(id) = waiting.pop_front() else {
            self.push(end_of_list(self.count) + "\n}\n");
            return Ok(());
        };
        let request = LoadCheckpoint { checkpoint_id: Some(id.clone()), ..LoadCheckpoint::default() };
        let loaded = self.engine.read_checkpoint(&self.scope, request).await?;
        self.engine.store.note_load(&self.scope, &id, self.engine.clock.now());
        let checkpoint = loaded.checkpoint;
        let record = CheckpointRecord {
            checkpoint_id: checkpoint.checkpoint_id,
            created_at: checkpoint.created_at,
            origin: Some(checkpoint.said_origin),
            agent_id: checkpoint.agent_id,
            workflow_id: checkpoint.workflow_id,
            parent_checkpoint_id: checkpoint.parent_checkpoint_id.filter(|parent| written.contains(parent)),
            git: checkpoint.git,
            metadata: checkpoint.metadata.without_critical_keys(),
            context_hash: checkpoint.context_hash.to_string(),
            context: None,
        };
        let (engine, context) = (self.engine.clone(), loaded.context);
        let bytes = context.get().len();
        let cover = move || engine.cover_checkpoint(record, context);
        let (record, context, covered) = offload(bytes, cover).await??;
        self.covered += covered;
        let text = pretty(&record, "    ")?;
        let open = text.strip_suffix("\n    }").unwrap_or(&text);
        self.push(item(self.count, open) + ",\n      \"context\": ");
        self.ready.push_back(Box::<str>::from(context).into_string().into_bytes());
        self.push("\n    }".to_owned());
        self.count += 1;
        written.insert(id);
        self.stage = Stage::Checkpoints { waiting, written };
        Ok(())
    }

    async fn write_segments(&mut self, project: ProjectId, after: i64, mut written: HashSet<SegmentId>) -> Result<()> {
        let page = self.engine.store.export_segments(&self.scope, &project, after).await?;
        for mut segment in page.segments {
            if self.engine.secrets.shown().is_some() {
                let (engine, bytes) = (self.engine.clone(), segment.text.len());
                let cover = move || {
                    let covered = engine.secrets.shown().map_or(0, |cover| cover_segment(cover, &mut segment));
                    (segment, covered)
                };
                let (changed, covered) = offload(bytes, cover).await?;
                (segment, self.covered) = (changed, self.covered + covered);
            }
            self.push(item(self.count, &pretty(&segment, "    ")?));
            self.count += 1;
            written.insert(segment.segment_id);
        }
        self.stage = match page.cursor {
            Some(after) => Stage::Segments { project, after, written },
            None => {
                self.push(end_of_list(self.count) + ",\n  \"snapshots\": [");
                Stage::Snapshots { project, after: 0, written, count: 0 }
            }
        };
        Ok(())
    }

    /// A snapshot is written whole or not at all.
    async fn write_snapshot(
        &mut self,
        project: ProjectId,
        after: i64,
        written: HashSet<SegmentId>,
        mut count: u64,
    ) -> Result<()> {
        let Some(found) = self.engine.store.export_snapshot(&self.scope, &project, after).await? else {
            self.push(end_of_list(count) + "\n}\n");
            return Ok(());
        };
        match found.snapshot.segments.iter().all(|segment| written.contains(&segment.segment_id)) {
            true => {
                let mut snapshot = found.snapshot;
                if let Some(cover) = self.engine.secrets.shown() {
                    self.covered += snapshot.name.iter_mut().map(|name| cover_text(cover, name)).sum::<u64>();
                }
                self.push(item(count, &pretty(&snapshot, "    ")?));
                count += 1;
            }
            false => self.left_out += 1,
        }
        self.stage = Stage::Snapshots { project, after: found.cursor, written, count };
        Ok(())
    }
}

/// Format and version, and what comes first after them.
fn head(format: &str, name: &str, record: &impl Serialize) -> Result<String> {
    let record = pretty(record, "  ")?;
    Ok(format!("{{\n  \"format\": \"{format}\",\n  \"version\": {VERSION},\n  \"{name}\": {record}"))
}

fn item(at: u64, text: &str) -> String {
    let comma = if at > 0 { "," } else { "" };
    format!("{comma}\n    {text}")
}

fn end_of_list(count: u64) -> String {
    if count > 0 { "\n  ]".to_owned() } else { "]".to_owned() }
}

/// JSON on several lines, of which all but the first are moved to the right.
fn pretty(record: &impl Serialize, margin: &str) -> Result<String> {
    let text = serde_json::to_string_pretty(record).map_err(|error| Error::broken(format!("a document: {error}")))?;
    Ok(text.replace('\n', &format!("\n{margin}")))
}
