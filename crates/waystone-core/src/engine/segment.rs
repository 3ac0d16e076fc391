//! Segments: put, and listed by what is in the window.

use std::collections::HashMap;
use std::sync::Arc;

use super::Engine;
use crate::api::{
    ListSegments, NextCall, Origin, ProjectList, PutReply, PutSegments, SaidMessage, Segment, SegmentFilters,
    SegmentType, TaskContext, Tier, WorkingSet, WorkingSetReply,
};
use crate::canon::Hash;
use crate::clock::Timestamp;
use crate::error::{Error, Result};
use crate::id::{ProjectId, TaskId};
use crate::meaning;
use crate::offload::{offload, offload_unless};
use crate::score;
use crate::search::searched;
use crate::store::{Facts, NewSegment, NewSegments, Put, Scope, SegmentPage, SelectSegments, Used, WhichTask};
use crate::tokens;

/// How many stashed segments are looked at for those most worth having back, and how many are shown.
const WORTH_LOOKED_AT: u32 = 200;
const WORTH_SHOWN: usize = 5;

/// A text to be put, and what is known of it by itself.
pub(super) struct Text {
    /// Leads to it in the request.
    pub(super) pointer: String,
    pub(super) text: String,
    pub(super) kind: SegmentType,
    pub(super) role: Option<String>,
    pub(super) said: Option<Timestamp>,
}

impl Text {
    pub(super) fn of_message(pointer: String, message: SaidMessage, kind: SegmentType) -> Self {
        Self { pointer, text: message.content, kind, role: message.role, said: message.timestamp }
    }
}

/// What a put came to.
pub(super) struct Outcome {
    ids: Vec<crate::id::SegmentId>,
    added: u64,
    tokens_added: u64,
    elsewhere: u64,
    pub(super) operation: Option<i64>,
    total_bytes: u64,
    /// What was found in the texts that a client should know.
    pub(super) warnings: Vec<String>,
}

impl Engine {
    /// Captures texts, those that are known by touching them.
    pub async fn put_segments(&self, scope: &Scope, mut request: PutSegments) -> Result<PutReply> {
        self.check_writable()?;
        request.check(self.clock.now())?;
        let project = self.project_or_own(request.project_id.take());
        let said = request.messages.take();
        let kind = request.kind.unwrap_or(if said.is_some() { SegmentType::Message } else { SegmentType::Note });
        let listed = request.texts.take().into_iter().flatten().enumerate();
        let listed = listed.map(|(at, text)| (format!("/texts/{at}"), text));
        let texts = request.text.take().map(|text| ("/text".to_owned(), text)).into_iter().chain(listed);
        let texts = texts.map(|(pointer, text)| Text { pointer, text, kind, role: None, said: None });
        let said = said.into_iter().flatten().enumerate();
        let said = said.map(|(at, message)| Text::of_message(format!("/messages/{at}/content"), message, kind));
        let which = request.task_id.clone().map_or(WhichTask::Any, WhichTask::Named);
        let has_fields = request.has_fields();
        let put = self.put_texts(scope, &project, texts.chain(said).collect(), request).await?;
        let usage = self.store.sum_usage(scope, &project, &which, None).await?;
        let (tokens, touched) = (usage.tokens(), put.ids.len() as u64 - put.added);
        let mut warnings = self.warnings();
        warnings.extend((touched > 0 && has_fields).then(|| {
            let keep = if touched == 1 { "was known: it keeps" } else { "were known: they keep" };
            format!("{touched} of the texts {keep} the task, tags, topic and file of before")
        }));
        warnings.extend((put.elsewhere > 0).then(|| {
            let count = put.elsewhere;
            let are = if count == 1 { "was known and stays where it is" } else { "were known and stay where they are" };
            format!("{count} of the texts {are}: stashed, or in another task")
        }));
        warnings.extend(self.limits.nearly_reached(0, Used { total: put.total_bytes, ..Used::default() }));
        warnings.extend(put.warnings);
        Ok(PutReply {
            touched,
            segment_ids: put.ids,
            added: put.added,
            tokens_added: put.tokens_added,
            usage_percent: self.percent(tokens, self.limits.window_tokens),
            operation_id: put.operation.map(|seq| seq.to_string()),
            next: self.next_when_full(&project, usage.task.as_ref(), tokens, self.limits.window_tokens),
            project_id: project,
            warnings,
        })
    }

    /// Puts texts with what `with` says of all of them.
    pub(super) async fn put_texts(
        &self,
        scope: &Scope,
        project: &ProjectId,
        texts: Vec<Text>,
        with: PutSegments,
    ) -> Result<Outcome> {
        let now = self.clock.now();
        for text in &texts {
            self.check_text_size(text.text.len())?;
        }
        let (mut segments, mut pointers) = (Vec::with_capacity(texts.len()), Vec::with_capacity(texts.len()));
        for text in texts {
            let (id, text_hash, created) = (self.fresh_id()?, Hash::of(&[]), text.said.unwrap_or(now));
            let Text { pointer, text, kind, role, .. } = text;
            pointers.push(pointer);
            segments.push(NewSegment {
                id,
                text,
                text_hash,
                origin: with.origin.unwrap_or_else(|| scope.origin.of_text(kind, role.as_deref())),
                kind,
                tokens: None,
                is_estimate: false,
                pieces: Vec::new(),
                role,
                created,
            });
        }
        let bytes = segments.iter().map(|segment| segment.text.len()).sum();
        let mut scan = self.scan();
        with.tags.iter().enumerate().for_each(|(at, tag)| scan.text(&format!("/tags/{at}"), tag));
        with.file_path.iter().for_each(|path| scan.text("/file_path", path));
        let prepare = move || {
            for (segment, pointer) in segments.iter_mut().zip(&pointers) {
                scan.text(pointer, &segment.text);
                segment.text_hash = Hash::of(segment.text.as_bytes());
            }
            lower_equal(&mut segments);
            scan.end().map(|warnings| (segments, warnings))
        };
        let (segments, warnings) = offload(bytes, prepare).await??;
        let hashes = segments.iter().map(|segment| (segment.kind, segment.text_hash)).collect();
        let known = self.store.known_texts(scope, project, hashes).await?;
        let mut new = Arc::new(NewSegments {
            project: project.clone(),
            task: with.task_id,
            segments: count_tokens(segments, known).await?,
            tags: with.tags,
            file_path: with.file_path,
            line_range: with.line_range,
            topic: with.topic_id,
            pinned: with.pinned,
            stash: with.stash,
            at: now,
            total_bytes_max: self.limits.total_bytes_max,
        });
        loop {
            match self.store.put_segments(scope, Arc::clone(&new)).await? {
                Put::Done { ids, added, tokens_added, elsewhere, operation, total_bytes } => {
                    return Ok(Outcome { ids, added, tokens_added, elsewhere, operation, total_bytes, warnings });
                }
                Put::TokensWanted => {
                    let all = Arc::make_mut(&mut new);
                    let none_known = vec![false; all.segments.len()];
                    all.segments = count_tokens(std::mem::take(&mut all.segments), none_known).await?;
                }
            }
        }
    }

    pub(super) fn check_text_size(&self, bytes: usize) -> Result<()> {
        let (actual, max) = (bytes as u64, self.limits.context_bytes_max);
        if actual > max { Err(Error::PayloadTooLarge { what: "a text", actual, max }) } else { Ok(()) }
    }

    /// What is in the window.
    pub async fn list_working_set(&self, scope: &Scope, request: ListSegments) -> Result<WorkingSetReply> {
        let page = self.list_tiers(scope, &request, &[Tier::Working]).await?;
        let (worth_retrieving, next) = match page.total {
            0 => self.worth_retrieving(scope, &request.project_id, page.task.as_ref()).await?,
            _ => (Vec::new(), None),
        };
        Ok(WorkingSetReply {
            working_set: WorkingSet {
                project_id: request.project_id,
                task_id: page.task,
                total_tokens: page.tokens,
                last_updated: page.changed,
            },
            segments: page.segments,
            total_tokens: page.tokens,
            segment_count: page.total,
            next_cursor: page.next_cursor,
            worth_retrieving,
            next,
            warnings: self.warnings(),
        })
    }

    /// All segments of a task, in the window and out of it.
    pub async fn list_task_context(&self, scope: &Scope, request: ListSegments) -> Result<TaskContext> {
        let page = self.list_tiers(scope, &request, &[Tier::Working, Tier::Stashed]).await?;
        Ok(TaskContext {
            project_id: request.project_id,
            task_id: page.task,
            segments: page.segments,
            total_tokens: page.tokens,
            segment_count: page.total,
            next_cursor: page.next_cursor,
            warnings: self.warnings(),
        })
    }

    async fn list_tiers(&self, scope: &Scope, request: &ListSegments, tiers: &'static [Tier]) -> Result<SegmentPage> {
        request.check()?;
        let select = SelectSegments {
            project: Some(request.project_id.clone()),
            first: Some(request.project_id.clone()),
            task: match (&request.task_id, request.all_tasks) {
                (Some(task), _) => WhichTask::Named(task.clone()),
                (None, true) => WhichTask::Any,
                (None, false) => WhichTask::Current,
            },
            tiers,
            filters: SegmentFilters::default(),
            query: String::new(),
            fits: None,
            is_ascending: true,
            limit: request.limit,
            cursor: request.cursor.clone(),
            preview: preview(request.full),
            now: self.clock.now(),
        };
        self.store.list_segments(scope, select).await
    }

    /// Every project with a segment.
    pub async fn list_projects(&self, scope: &Scope) -> Result<ProjectList> {
        Ok(ProjectList { projects: self.store.list_projects(scope).await?, warnings: self.warnings() })
    }

    pub(super) fn project_or_own(&self, named: Option<ProjectId>) -> ProjectId {
        named.unwrap_or_else(|| self.project.clone())
    }

    /// The stashed segments of a task, or else of the project, that would go last, and the call that brings them back.
    pub(super) async fn worth_retrieving(
        &self,
        scope: &Scope,
        project: &ProjectId,
        task: Option<&TaskId>,
    ) -> Result<(Vec<Segment>, Option<NextCall>)> {
        let select = SelectSegments {
            project: Some(project.clone()),
            first: Some(project.clone()),
            task: task.cloned().map_or(WhichTask::Any, WhichTask::Named),
            tiers: &[Tier::Stashed],
            filters: SegmentFilters::default(),
            query: String::new(),
            fits: None,
            is_ascending: false,
            limit: WORTH_LOOKED_AT,
            cursor: None,
            preview: preview(false),
            now: self.clock.now(),
        };
        let mut found = self.store.list_segments(scope, select.clone()).await?.segments;
        let of_task = task.filter(|_| !found.is_empty());
        if found.is_empty() && task.is_some() {
            let select = SelectSegments { task: WhichTask::Any, ..select };
            found = self.store.list_segments(scope, select).await?.segments;
        }
        if found.is_empty() {
            return Ok((found, None));
        }
        let now = self.clock.now();
        found.sort_by(|a, b| worth(a, now).total_cmp(&worth(b, now)));
        found.truncate(WORTH_SHOWN);
        let mut arguments = serde_json::Map::from_iter([("project_id".to_owned(), project.as_str().into())]);
        if let Some(task) = of_task {
            arguments.insert("filters".to_owned(), serde_json::json!({ "task_id": task }));
        }
        arguments.insert("move_to_active".to_owned(), true.into());
        // What belongs to no task or another comes back there, and not into the window of this one.
        let next = NextCall { tool: "context_retrieve_stashed", arguments };
        Ok((found, (task.is_none() || of_task.is_some()).then_some(next)))
    }
}

/// Equal texts of one request become one segment, which is trusted as the least of them.
fn lower_equal(segments: &mut [NewSegment]) {
    let mut lowest: HashMap<(SegmentType, [u8; 32]), Origin> = HashMap::new();
    for segment in &*segments {
        let origin = lowest.entry((segment.kind, segment.text_hash.0)).or_insert(segment.origin);
        *origin = origin.lowest(segment.origin);
    }
    for segment in segments {
        segment.origin = lowest[&(segment.kind, segment.text_hash.0)];
    }
}

/// What is worth most has the lowest score.
fn worth(segment: &Segment, now: Timestamp) -> f64 {
    let facts = Facts {
        kind: segment.kind,
        touched: segment.last_touched_at,
        refcount: segment.refcount,
        survived: segment.gc_survival_count,
        tokens: segment.tokens,
    };
    score::prune_score(&facts, now)
}

pub(super) fn preview(full: bool) -> Option<usize> {
    (!full).then_some(Segment::PREVIEW_CHARS)
}

/// Counts the tokens of those that are not known, on a thread of its own: the first count of all takes long.
async fn count_tokens(mut segments: Vec<NewSegment>, known: Vec<bool>) -> Result<Vec<NewSegment>> {
    if known.iter().all(|known| *known) {
        return Ok(segments);
    }
    offload_unless(false, move || {
        for (segment, _) in segments.iter_mut().zip(known).filter(|(_, known)| !known) {
            segment.tokens = Some(tokens::count(&segment.text) as u64);
            segment.pieces = meaning::pieces(&searched(&segment.text));
        }
        segments
    })
    .await
}
