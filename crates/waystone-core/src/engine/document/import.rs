//! Documents read. Everything in one is checked before anything of it is kept, and all of it is kept at once.

use std::collections::{HashMap, HashSet};
use std::io::Read;
use std::sync::Arc;

use serde_json::Value;
use serde_json::value::RawValue;

use super::super::Engine;
use crate::api::{
    CheckpointRecord, Git, ImportStatus, Imported, Origin, SegmentRecord, SessionRecord, SnapshotRecord, TaskRecord,
    Tier, check_time,
};
use crate::canon::{Hash, hash_text};
use crate::document::{Part, Reader};
use crate::engine::checkpoint::Known;
use crate::error::{Error, Quota, Result};
use crate::id::{CheckpointId, ProjectId, SegmentId, SnapshotId, TaskId};
use crate::json::parse_trusted;
use crate::meaning;
use crate::offload::offload_unless;
use crate::pack::{GROUP_CHECKPOINTS_MAX, GROUP_RAW_BYTES_MAX, Packed};
use crate::search::searched;
use crate::secret::Scan;
use crate::store::{
    ImportedProject, ImportedSession, NewCheckpoint, NewProject, NewSegment, NewSegments, NewSession, NewSnapshot,
    NewSnapshotSegment, Scope, Wanted,
};

impl Engine {
    /// Takes a document in: what is not here of it is added, under the ids it has there.
    pub async fn import_document(&self, scope: &Scope, source: impl Read + Send + 'static) -> Result<Imported> {
        self.check_writable()?;
        let limits = self.limits();
        let mut reader = Reader::new(source, limits.import_bytes_max, limits.request_bytes_max());
        let mut taken = None;
        loop {
            let (rest, part) = aside(move || {
                let part = reader.next_part();
                (reader, part)
            })
            .await?;
            reader = rest;
            taken = match (part?, taken) {
                (Some(Part::Session(session)), None) => Some(Taken::Session(self.begin_session(session)?)),
                (Some(Part::Project(project)), None) => Some(Taken::Project(self.begin_project(project.project_id))),
                (Some(Part::Checkpoint { record, context }), Some(Taken::Session(session))) => {
                    Some(Taken::Session(self.take_checkpoint(scope, session, record, context).await?))
                }
                (Some(part), Some(Taken::Project(project))) => Some(Taken::Project(project.take(part).await?)),
                (None, Some(Taken::Session(session))) => return self.keep_session(scope, session).await,
                (None, Some(Taken::Project(project))) => return self.keep_project(scope, project).await,
                _ => return Err(Error::broken("a document has its parts in another order than it is read in")),
            };
        }
    }

    fn begin_session(&self, session: SessionRecord) -> Result<TakenSession> {
        let at = self.clock.now();
        session.check(at)?;
        Ok(TakenSession {
            new: NewSession { session, checkpoints: Vec::new(), at },
            scan: self.scan(),
            seen: HashSet::new(),
            added: 0,
            group: Group::default(),
        })
    }

    fn begin_project(&self, project: ProjectId) -> TakenProject {
        let new = NewProject {
            project,
            tasks: Vec::new(),
            segments: Vec::new(),
            snapshots: Vec::new(),
            at: self.clock.now(),
            total_bytes_max: self.limits.total_bytes_max,
        };
        TakenProject {
            new,
            scan: self.scan(),
            text_bytes_max: self.limits.context_bytes_max,
            segments: HashMap::new(),
            tasks: HashSet::new(),
            snapshots: HashSet::new(),
        }
    }

    /// Checks a checkpoint, and packs it unless it is here.
    async fn take_checkpoint(
        &self,
        scope: &Scope,
        mut taken: TakenSession,
        record: CheckpointRecord<'static>,
        context: String,
    ) -> Result<TakenSession> {
        let id = record.checkpoint_id.clone();
        let wrong = |message: String| Error::InvalidInput(format!("checkpoint `{id}`: {message}"));
        check_time(&format!("checkpoint `{id}`"), record.created_at, taken.new.at)?;
        if let Some(parent) = record.parent_checkpoint_id.as_ref().filter(|parent| !taken.seen.contains(*parent)) {
            return Err(wrong(format!("its parent `{parent}` does not stand before it")));
        }
        let git = record.git.clone().and_then(|git| Git::new(git.branch, git.head));
        if git != record.git {
            return Err(wrong("its git is no branch and commit".to_owned()));
        }
        if !taken.seen.insert(id.clone()) {
            return Err(wrong("it stands in the document twice".to_owned()));
        }
        self.check_context_size(context.len())?;
        let found = self.store.find_checkpoint(scope, &Wanted::ById(id.clone()), Some(&id)).await?;
        let engine = self.clone();
        let prepare = move || {
            let context_hash = hash_text(&context)?;
            if context_hash.to_string() != record.context_hash {
                return Err(format!("its context has the hash {context_hash}, not the one that stands beside it"));
            }
            if found.is_none() {
                taken.scan_checkpoint(&record, &context)?;
            }
            Ok((taken, record, context, context_hash, found.is_some()))
        };
        let (mut taken, record, context, context_hash, is_here) = aside(prepare).await?.map_err(wrong)?;
        let mut packed = None;
        if !is_here {
            taken.added += 1;
            if taken.added > self.limits.checkpoints_max {
                let (count, max) = (taken.added, self.limits.checkpoints_max);
                return Err(Error::QuotaExceeded(Quota::ImportedCheckpoints { count, max }));
            }
            let (group, of) = (std::mem::take(&mut taken.group), id.clone());
            let pack = move || group.pack(&engine, of, context, context_hash);
            let (group, bytes) = aside(pack).await??;
            (taken.group, packed) = (group, Some(bytes));
        }
        let new = self.imported_checkpoint(&taken.new.session, record, context_hash, packed);
        taken.new.checkpoints.push(new);
        Ok(taken)
    }

    fn imported_checkpoint(
        &self,
        session: &SessionRecord,
        record: CheckpointRecord<'_>,
        context_hash: Hash,
        packed: Option<Arc<Packed>>,
    ) -> NewCheckpoint {
        let workflow = session.workflow_id.as_ref().map_or("", |id| id.as_str());
        NewCheckpoint {
            id: record.checkpoint_id,
            session: session.id.clone(),
            project: session.project_id.clone(),
            project_named: true,
            at: record.created_at,
            agent: record.agent_id,
            workflow: record.workflow_id,
            metadata: record.metadata.without_critical_keys(),
            origin: record.origin.unwrap_or_default(),
            git: record.git,
            context_hash,
            correlation: Hash::of_parts(&[workflow.as_bytes(), &context_hash.0]),
            packed,
            is_reference: false,
            force: true,
            expected_head: None,
            parent: record.parent_checkpoint_id,
            context_rules: None,
            idempotency: None,
            checkpoints_max: self.limits.checkpoints_max,
            session_bytes_max: self.limits.session_bytes_max,
            total_bytes_max: self.limits.total_bytes_max,
        }
    }

    async fn keep_session(&self, scope: &Scope, taken: TakenSession) -> Result<Imported> {
        let (session, project) = (taken.new.session.id.clone(), taken.new.session.project_id.clone());
        if taken.new.checkpoints.is_empty() {
            return Err(Error::InvalidInput(format!("session `{session}` has no checkpoints in the document")));
        }
        let TakenSession { new, scan, .. } = taken;
        let found = scan.end()?;
        let ImportedSession { added, known, deleted, differs, newest_before } =
            self.store.import_session(scope, new).await?;
        let mut warnings = self.warnings();
        if added > 0 {
            warnings.extend(self.nearly_full(scope, Some(&session)).await);
        }
        warnings.extend(found);
        warnings.extend(
            differs.then(|| format!("session `{session}` was here; its name, tags, marks and rules stay as they are")),
        );
        warnings.extend(
            newest_before
                .map(|before| format!("its newest checkpoint is an imported one now; before it was `{before}`")),
        );
        warnings.extend(deleted.first().map(|first| {
            format!("{} of its checkpoints are deleted here and stay so, such as `{first}`", deleted.len())
        }));
        Ok(Imported {
            session_id: Some(session),
            checkpoints_added: Some(added),
            checkpoints_known: Some(known),
            ..self.imported(added > 0, project, warnings)
        })
    }

    async fn keep_project(&self, scope: &Scope, taken: TakenProject) -> Result<Imported> {
        let project = taken.new.project.clone();
        let found = taken.scan.end()?;
        let ImportedProject { added, known, deleted, snapshots_added, changed, current_kept } =
            self.store.import_project(scope, taken.new).await?;
        let mut warnings = self.warnings();
        if changed {
            warnings.extend(self.nearly_full(scope, None).await);
        }
        warnings.extend(found);
        warnings.extend((deleted > 0).then(|| format!("{deleted} of its segments are deleted here and stay so")));
        warnings.extend(current_kept.map(|task| format!("task `{task}` stays the current one")));
        Ok(Imported {
            segments_added: Some(added),
            segments_known: Some(known),
            snapshots_added: Some(snapshots_added),
            ..self.imported(changed, project, warnings)
        })
    }

    fn imported(&self, changed: bool, project_id: ProjectId, warnings: Vec<String>) -> Imported {
        Imported {
            status: match (changed, &self.volatile) {
                (false, _) => ImportStatus::Unchanged,
                (true, None) => ImportStatus::Imported,
                (true, Some(_)) => ImportStatus::Volatile,
            },
            project_id,
            session_id: None,
            checkpoints_added: None,
            checkpoints_known: None,
            segments_added: None,
            segments_known: None,
            snapshots_added: None,
            warnings,
        }
    }
}

/// Reading and packing take long, whatever the size of a part: others are served meanwhile.
async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    offload_unless(false, work).await
}

/// What was taken of a document so far.
enum Taken {
    Session(TakenSession),
    Project(TakenProject),
}

struct TakenSession {
    new: NewSession,
    scan: Scan,
    seen: HashSet<CheckpointId>,
    added: u64,
    group: Group,
}

impl TakenSession {
    /// Looks for secrets in a checkpoint that is not here.
    fn scan_checkpoint(&mut self, record: &CheckpointRecord<'_>, context: &str) -> Result<(), String> {
        let root = format!("/checkpoints/{}", self.new.checkpoints.len());
        if let Value::Object(context) = parse_trusted(context.as_bytes()).map_err(|error| error.to_string())? {
            self.scan.object(&format!("{root}/context"), &context);
        }
        self.scan.object(&format!("{root}/metadata"), record.metadata.fields());
        Ok(())
    }
}

/// The group that the next checkpoint joins, and the text that it is packed against.
#[derive(Default)]
struct Group {
    count: u64,
    raw_bytes: u64,
    newest: Option<Known>,
}

impl Group {
    /// Packs a context as a save would, and counts it.
    fn pack(
        mut self,
        engine: &Engine,
        id: CheckpointId,
        context: String,
        context_hash: Hash,
    ) -> Result<(Self, Arc<Packed>)> {
        let packed = engine.pack_context(&context, self.newest.as_ref())?;
        (self.count, self.raw_bytes) = (self.count + 1, self.raw_bytes + context.len() as u64);
        if self.count >= GROUP_CHECKPOINTS_MAX || self.raw_bytes >= GROUP_RAW_BYTES_MAX {
            return Ok((Self::default(), packed));
        }
        let context = RawValue::from_string(context).map_err(|error| Error::broken(error.to_string()))?;
        self.newest = Some(Known { id, context_hash, raw_hash: packed.raw_hash, context: context.into() });
        Ok((self, packed))
    }
}

struct TakenProject {
    new: NewProject,
    scan: Scan,
    text_bytes_max: u64,
    /// Where each segment stands.
    segments: HashMap<SegmentId, u32>,
    tasks: HashSet<TaskId>,
    snapshots: HashSet<SnapshotId>,
}

impl TakenProject {
    async fn take(mut self, part: Part) -> Result<Self> {
        match part {
            Part::Task(task) => self.take_task(task)?,
            Part::Segment(segment) => return aside(move || self.take_segment(segment).map(|()| self)).await?,
            Part::Snapshot(snapshot) => self.take_snapshot(snapshot)?,
            Part::Session(_) | Part::Checkpoint { .. } | Part::Project(_) => {
                return Err(Error::broken("a project's document has a part of a session's"));
            }
        }
        Ok(self)
    }

    fn take_task(&mut self, task: TaskRecord) -> Result<()> {
        if task.current && self.new.tasks.iter().any(|other| other.current) {
            return Err(Error::InvalidInput("two tasks are current in the document".to_owned()));
        }
        if !self.tasks.insert(task.task_id.clone()) {
            return Err(twice("task", task.task_id.as_str()));
        }
        self.new.tasks.push(task);
        Ok(())
    }

    fn take_segment(&mut self, segment: SegmentRecord) -> Result<()> {
        segment.check(self.new.at)?;
        let (actual, max) = (segment.text.len() as u64, self.text_bytes_max);
        if actual > max {
            return Err(Error::PayloadTooLarge { what: "a text", actual, max });
        }
        self.scan.text(&format!("/segments/{}/text", self.new.segments.len()), &segment.text);
        let text_hash = Hash::of(segment.text.as_bytes());
        if self.segments.insert(segment.segment_id.clone(), self.new.segments.len() as u32).is_some() {
            return Err(twice("segment", segment.segment_id.as_str()));
        }
        let new = NewSegment {
            id: segment.segment_id,
            text_hash,
            kind: segment.kind,
            origin: segment.origin.unwrap_or_else(|| Origin::Agent.of_text(segment.kind, None)),
            // Whoever keeps house counts them; a document may have more text than can be counted at once.
            tokens: Some((segment.text.len() as u64).div_ceil(4)),
            is_estimate: true,
            pieces: meaning::pieces(&searched(&segment.text)),
            role: None,
            created: segment.created_at,
            text: segment.text,
        };
        let with = NewSegments {
            project: self.new.project.clone(),
            task: segment.task_id,
            segments: vec![new],
            tags: segment.tags,
            file_path: segment.file_path,
            line_range: segment.line_range,
            topic: segment.topic_id,
            pinned: segment.pinned,
            stash: segment.tier == Tier::Stashed,
            at: segment.last_touched_at,
            total_bytes_max: self.new.total_bytes_max,
        };
        self.new.segments.push((with, segment.mentions, segment.gc_survival_count));
        Ok(())
    }

    fn take_snapshot(&mut self, snapshot: SnapshotRecord) -> Result<()> {
        snapshot.check(self.new.at)?;
        let SnapshotRecord { snapshot_id: id, task_id: task, name, created_at: created, segments } = snapshot;
        if !self.snapshots.insert(id.clone()) {
            return Err(twice("snapshot", id.as_str()));
        }
        let (mut places, mut seen) = (Vec::with_capacity(segments.len()), HashSet::new());
        for segment in segments {
            let Some(&at) = self.segments.get(&segment.segment_id) else {
                let message = format!("snapshot `{id}` has segment `{}`, the document has not", segment.segment_id);
                return Err(Error::InvalidInput(message));
            };
            if !seen.insert(at) {
                return Err(twice("segment", segment.segment_id.as_str()));
            }
            places.push(NewSnapshotSegment { at, tier: segment.tier, pinned: segment.pinned });
        }
        self.new.snapshots.push(NewSnapshot { id, task, name, created, segments: places });
        Ok(())
    }
}

fn twice(what: &str, id: &str) -> Error {
    Error::InvalidInput(format!("{what} `{id}` stands in the document twice"))
}
