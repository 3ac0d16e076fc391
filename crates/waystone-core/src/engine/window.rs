//! Windows: assembled for a call, and looked at. How a branch is made to fit is in [`crate::window`].

mod entry;
mod summary;

use std::collections::HashSet;

use serde_json::json;

use super::Engine;
use super::model::answer_tokens;
use super::secret::cover_tools;
use super::turn::own::own_tools;
use super::turn::prompt::{Called, system_prompt, tools_called};
use crate::api::{
    ChatConfig, ContentPart, FindWindow, LeftOutMessage, ModelInfo, Role, Tool, UsageWarning, Window, WindowAssembled,
    WindowChange, WindowSpan, WindowSurvival,
};
use crate::canon::Hash;
use crate::error::{Error, Result};
use crate::handle::Handle;
use crate::id::{BranchName, SessionId, ToolCallId};
use crate::model::{Said, Usage};
use crate::offload::offload_unless;
use crate::store::{MadeWindow, Manifest, NewWindow, Scope, WindowRows};
use crate::survive::Survivors;
use crate::window::{Assembled, Entry, Kind, Room, Span, TooSmall, assemble, assemble_again, survivors};

pub(super) use entry::MOST;
use entry::marked;

/// So much is left empty, because providers count what stands around messages in their own way; more where their tokens are not ours.
const MARGIN_PERCENT: u64 = 2;
const ESTIMATE_MARGIN_PERCENT: u64 = 10;
/// From so many percent on someone is warned.
const LEVELS: [(u64, &str); 3] = [(90, "urgent"), (80, "high"), (60, "medium")];

/// A window that a model is to be told.
pub(super) struct Prepared {
    /// What the model may call: ours too, when something is left out.
    pub(super) tools: Vec<Tool>,
    /// What it has called since the user said something.
    pub(super) called: Called,
    pub(super) manifest: Manifest,
    pub(super) assembled: Assembled,
    pub(super) head: u64,
    pub(super) cached_tokens: u64,
    pub(super) changes: Vec<WindowChange>,
    percent_before: u64,
    /// The branch as far as it was loaded, how many messages were not, and what stood for its beginning before.
    entries: Vec<Entry>,
    passed_over: u64,
    told_before: String,
    /// Who wrote what stands for it now, and what that cost; or why nobody did.
    written_by: Option<(String, Option<f64>)>,
    warnings: Vec<String>,
}

impl Engine {
    /// The window of the next call, made from these.
    async fn prepare_window(&self, rows: WindowRows, config: &ChatConfig, tools: &[Tool]) -> Result<Prepared> {
        let (engine, config, tools) = (self.clone(), config.clone(), tools.to_vec());
        offload_unless(false, move || engine.assemble(rows, &config, tools).map_err(Error::WindowTooSmall)).await?
    }

    fn assemble(&self, rows: WindowRows, config: &ChatConfig, mut tools: Vec<Tool>) -> Result<Prepared, TooSmall> {
        if let Some(cover) = self.secrets.shown() {
            cover_tools(cover, &mut tools);
        }
        let WindowRows { entries, passed_over, pinned, stashed, made, .. } = rows;
        let last = made.first();
        let system = self.system_prompt(config);
        // Whoever cannot see something can look for it.
        let own: Vec<Tool> = own_tools(&tools).collect();
        let with_own: Vec<Tool> = tools.iter().cloned().chain(own).collect();
        let had_own = last.is_some_and(|last| last.manifest.has_own_tools);
        // What another branch came to has handles too.
        let is_merged = |entry: &Entry| entry.message.role == Role::System && !entry.is_stashed;
        let has_more = passed_over > 0 || entries.iter().any(is_merged);
        let offer = |has_own: bool| if has_own { &with_own } else { &tools };
        let fit = |has_own: bool| {
            let (limit, room) = self.room(config, &system, offer(has_own));
            // What was left out for a model that holds less is put back for one that holds more.
            let before = last.filter(|last| last.manifest.limit == limit).map(|last| last.manifest.cut.clone());
            let assembled = assemble(&entries, &before.unwrap_or_default(), room)?;
            Ok((limit, room, assembled))
        };
        // Where there is no room even for these it goes without.
        let (mut has_own, mut fitted) = match fit(had_own) {
            Err(_) if had_own => (false, fit(false)?),
            fitted => (had_own, fitted?),
        };
        let is_wanted = has_more || !fitted.2.left_out.is_empty();
        if is_wanted != had_own
            && let Ok(otherwise) = fit(is_wanted)
        {
            (has_own, fitted) = (is_wanted, otherwise);
        }
        let (limit, room, assembled) = fitted;
        let manifest = Manifest {
            model: config.model_id.clone(),
            limit,
            room,
            cut: assembled.cut.clone(),
            pinned,
            stashed,
            has_own_tools: has_own,
            system,
        };
        let changes = changes(last.map(|last| &last.manifest), &manifest);
        let cached_tokens = last.map_or(0, |last| match changes.is_empty() && is_still_in(&entries, last) {
            true => last.tokens,
            false => {
                tokens_of(&assembled, cached_spans(&self.again(&entries, last), &last.manifest, &assembled, &manifest))
            }
        });
        Ok(Prepared {
            tools: offer(has_own).clone(),
            called: tools_called(entries.iter().map(|entry| &*entry.message)),
            percent_before: last.map_or(0, |last| last.tokens * 100 / room.budget.max(1)),
            head: entries.last().map_or(0, |entry| entry.position),
            told_before: last.map(|last| last.manifest.cut.told.clone()).unwrap_or_default(),
            manifest,
            assembled,
            cached_tokens,
            changes,
            written_by: None,
            warnings: Vec::new(),
            entries,
            passed_over,
        })
    }

    /// The system prompt of a conversation, as the model is told.
    fn system_prompt(&self, config: &ChatConfig) -> String {
        let system = system_prompt(config, |id| (self.chat.prompt)(id));
        self.secrets.shown().and_then(|cover| cover.text(&system)).unwrap_or(system)
    }

    /// What a model's window holds, and how much of that there is for what it is told.
    fn room(&self, config: &ChatConfig, system: &str, tools: &[Tool]) -> (u64, Room) {
        let ModelInfo { limit, name, .. } = self.chat.model.describe(&config.model_id);
        let answer = answer_tokens(&config.parameters, limit);
        let margin = if self.counts_as_we_do(&config.model_id) { MARGIN_PERCENT } else { ESTIMATE_MARGIN_PERCENT };
        let count = |text: &str| self.counts.spread(text, &[text.len()]).iter().sum::<usize>() as u64;
        let tools = if tools.is_empty() { 0 } else { count(&json!(tools).to_string()) };
        // In large steps, so that windows do not change with every answer.
        let ratio = ((self.calibration.ratio(&name) * 10.0).ceil() / 10.0).max(1.0);
        let budget = ((limit - answer) * (100 - margin) / 100) as f64 / ratio;
        (limit, Room { budget: budget as u64, system: count(system), tools })
    }

    /// A window that was made, as it was.
    fn again(&self, entries: &[Entry], made: &MadeWindow) -> Assembled {
        let Manifest { room, cut, pinned, stashed, .. } = &made.manifest;
        let told = entries.iter().take_while(|entry| entry.position <= made.head);
        let entries = marked(told, pinned, stashed);
        assemble_again(&entries, cut.clone(), *room)
    }

    /// The window of the last call on a branch, or of the next.
    pub async fn find_window(&self, scope: &Scope, context: &SessionId, request: FindWindow) -> Result<Window> {
        let branch = request.branch.as_ref();
        if request.next {
            let config = self.store.find_turn(scope, context).await?.config;
            let tools = self.tools_of(&config).await.tools;
            let rows = self.load_whole(scope, context, branch).await?;
            let prepared = self.prepare_window(rows, &config, &tools).await?;
            let mut window = self.shown_window(context, &prepared);
            window.warnings.extend(self.foretell_summary(&prepared));
            return Ok(window);
        }
        let WindowRows { entries, made, .. } = self.load_whole(scope, context, branch).await?;
        let mut made = made.into_iter();
        let none = || {
            Error::NotFound(format!(
                "/api/contexts/{context}/window: no model was asked on this branch yet; next=true shows what it would be told"
            ))
        };
        let last = made.next().ok_or_else(none)?;
        let (engine, before, at) = (self.clone(), made.next(), last.at);
        let show = move || {
            let assembled = engine.again(&entries, &last);
            let cached = before.as_ref().map_or(0, |before| {
                cached_spans(&engine.again(&entries, before), &before.manifest, &assembled, &last.manifest)
            });
            Prepared {
                tools: Vec::new(),
                called: Called::default(),
                changes: changes(before.as_ref().map(|before| &before.manifest), &last.manifest),
                percent_before: 0,
                head: last.head,
                cached_tokens: tokens_of(&assembled, cached),
                manifest: last.manifest,
                assembled,
                entries: Vec::new(),
                passed_over: 0,
                told_before: String::new(),
                written_by: None,
                warnings: Vec::new(),
            }
        };
        let prepared = offload_unless(false, show).await?;
        Ok(Window { assembled_at: Some(at), ..self.shown_window(context, &prepared) })
    }

    fn shown_window(&self, context: &SessionId, prepared: &Prepared) -> Window {
        let Prepared { manifest, assembled, cached_tokens, changes, .. } = prepared;
        let (cached_tokens, model_id) = (*cached_tokens, manifest.model.clone());
        let usage = Usage { prompt: assembled.tokens, cache_read: cached_tokens, ..Usage::default() };
        let mut up_to = 0;
        let spans = assembled.spans.iter().map(|span| {
            up_to += span.tokens;
            WindowSpan {
                message_id: span.message.clone(),
                kind: span.kind.as_str(),
                class: span.class,
                reason: span.reason.as_str(),
                tokens: span.tokens,
                hash: hash_of(span, &manifest.system),
                cached: up_to <= cached_tokens,
            }
        });
        let left_out = assembled.left_out.iter().map(|left_out| LeftOutMessage {
            message_id: left_out.message.clone(),
            tokens: left_out.tokens,
            reason: left_out.reason.as_str(),
            handle: Handle::to_segment(&left_out.message).to_string(),
        });
        Window {
            context_id: context.clone(),
            spans: spans.collect(),
            tokens: assembled.tokens,
            limit: manifest.limit,
            budget: manifest.room.budget,
            cached_tokens,
            estimated: !self.counts_as_we_do(&manifest.model),
            cost_usd: self.chat.model.describe(&manifest.model).prices.map(|prices| prices.cost_usd(usage)),
            left_out: left_out.collect(),
            survival: survival(manifest),
            changes: changes.clone(),
            assembled_at: None,
            warnings: self.warnings(),
            model_id,
        }
    }
}

impl Prepared {
    /// The ids of the calls on the branch, as far as it was loaded.
    pub(super) fn call_ids(&self) -> HashSet<ToolCallId> {
        let parts = self.entries.iter().flat_map(|entry| &entry.message.content);
        let ids = parts.filter_map(|part| match part {
            ContentPart::ToolCall { id, .. } => Some(id.clone()),
            ContentPart::Text { .. } | ContentPart::ToolResult { .. } => None,
        });
        ids.collect()
    }

    /// What is kept of it, under the id of the event that tells of it.
    pub(super) fn kept(&self, id: String) -> NewWindow {
        NewWindow { id, head: self.head, tokens: self.assembled.tokens, manifest: self.manifest.clone() }
    }

    pub(super) fn told(&self, context: &SessionId, branch: &BranchName) -> WindowAssembled {
        WindowAssembled {
            context_id: context.clone(),
            branch: branch.to_string(),
            model_id: self.manifest.model.clone(),
            tokens: self.assembled.tokens,
            limit: self.manifest.limit,
            cached_tokens: self.cached_tokens,
            spans: self.assembled.spans.len() as u64,
            left_out: self.passed_over + self.assembled.left_out.len() as u64,
            survival: survival(&self.manifest),
            changes: self.changes.clone(),
            digest_by: self.written_by.as_ref().map(|(model, _)| model.clone()),
            digest_cost_usd: self.written_by.as_ref().and_then(|(_, cost)| *cost),
            warnings: self.warnings.clone(),
        }
    }

    /// What someone is told whose window has become fuller than it was.
    pub(super) fn warning(&self, context: &SessionId) -> Option<UsageWarning> {
        let percent = self.assembled.tokens * 100 / self.manifest.room.budget.max(1);
        let (from, level) = LEVELS.into_iter().find(|(from, _)| percent >= *from)?;
        let (tokens, budget) = (self.assembled.tokens, self.manifest.room.budget);
        let message = format!(
            "the window is {percent} % full, {tokens} of {budget} tokens; when it is full, older tool results and turns are left out"
        );
        (self.percent_before < from).then(|| UsageWarning { context_id: context.clone(), percent, level, message })
    }
}

/// Whether what the user had asked last when a window was made is in windows for other reasons than that.
fn is_still_in(entries: &[Entry], made: &MadeWindow) -> bool {
    let last = entries.iter().rfind(|entry| entry.is_request());
    let told = entries.iter().take_while(|entry| entry.position <= made.head);
    told.filter(|entry| entry.is_request()).last().is_some_and(|then| {
        let is_kept = then.is_pinned || !then.is_stashed;
        let is_last = last.is_some_and(|last| last.position == then.position);
        is_last || (is_kept && then.position > made.manifest.cut.digested_to)
    })
}

/// What became of the lines that must not be lost. None of them is critical, so the one function that looks has nothing to refuse.
fn survival(Manifest { cut, has_own_tools, .. }: &Manifest) -> Option<WindowSurvival> {
    let Survivors { total, in_view, by_handle, lost } =
        survivors(&cut.digest, &cut.told, *has_own_tools).unwrap_or_default()?;
    Some(WindowSurvival { total, in_view, one_call_away: by_handle, lost })
}

fn tokens_of(assembled: &Assembled, spans: usize) -> u64 {
    assembled.spans[..spans].iter().map(|span| span.tokens).sum()
}

/// How many spans a provider has read before, in the call that had `before`.
fn cached_spans(before: &Assembled, was: &Manifest, now: &Assembled, is: &Manifest) -> usize {
    if was.model != is.model || was.system != is.system || was.room.tools != is.room.tools {
        return 0;
    }
    let same = before.spans.iter().zip(&now.spans).take_while(|(before, now)| before.said == now.said);
    same.count()
}

fn changes(before: Option<&Manifest>, now: &Manifest) -> Vec<WindowChange> {
    let Some(before) = before else { return vec![WindowChange::First] };
    let all = [
        (before.cut != now.cut, WindowChange::Cut),
        (before.pinned != now.pinned, WindowChange::Pins),
        (before.stashed != now.stashed, WindowChange::Stash),
        (before.model != now.model, WindowChange::Model),
        (before.system != now.system, WindowChange::SystemPrompt),
        (before.room.tools != now.room.tools, WindowChange::Tools),
    ];
    all.into_iter().filter(|(is_changed, _)| *is_changed).map(|(_, change)| change).collect()
}

/// Of what the model is told. Two that are told alike have the same.
fn hash_of(span: &Span, system: &str) -> Option<String> {
    let told = match &span.said {
        None if span.kind == Kind::SystemPrompt => system.to_owned(),
        None => return None,
        Some(Said::Text { role, text }) => json!([role, text]).to_string(),
        Some(Said::Calls { text, calls }) => {
            let calls: Vec<_> = calls.iter().map(|call| json!([call.id, call.tool, call.arguments])).collect();
            json!(["assistant", text, calls]).to_string()
        }
        Some(Said::Result { call_id, text, is_error, .. }) => json!(["result", call_id, text, is_error]).to_string(),
    };
    Some(Hash::of(told.as_bytes()).to_string())
}
