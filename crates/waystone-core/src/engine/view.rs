//! Views: a context within a budget. Nothing stored changes, except that a context given with the request is kept for a while, so that
//! its handles lead somewhere.
//!
//! This file only orders the steps. What a key is worth is in [`crate::classify`], how a value is made smaller in [`crate::compress`],
//! what must not be lost in [`crate::survive`].

mod summary;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value};

use super::Engine;
use super::handle::GIVEN;
use crate::api::{
    AnchorCount, Class, CompressContext, DroppedKey, LoadCheckpoint, LoadedCheckpoint, NextCall, Origin,
    PrioritizeContext, ShortenedKey, Strategy, Survival, TOKENS_MAX, View, ViewReport, ViewSummary, Weights,
};
use crate::canon::Hash;
use crate::classify::{Rules, classify, classify_all};
use crate::compress::{self, Budget, Compressed, Fate, compress};
use crate::error::{Error, Quota, Result};
use crate::handle::{Handle, Holder};
use crate::histogram::Kind;
use crate::id::{CheckpointId, SessionId};
use crate::offload::offload_unless;
use crate::pack::pack;
use crate::prose::quoted;
use crate::store::{NewContext, Scope};
use crate::survive;

/// What a view is made of.
struct Source {
    context: Map<String, Value>,
    rules: Rules,
    checkpoint: Option<CheckpointId>,
    session: Option<SessionId>,
    origin: Origin,
    /// The text of a context that came with the request.
    given: Option<Arc<RawValue>>,
}

/// What is wanted of it.
struct Wish {
    /// How it was asked for.
    name: &'static str,
    budget: Budget,
    weights: Weights,
    is_by_class: bool,
    strategy: Strategy,
    goal: Option<String>,
}

impl Engine {
    /// A view of a context that is so many tokens long, or so many times smaller.
    pub async fn compress_context(&self, scope: &Scope, request: CompressContext) -> Result<View> {
        let budget = match (request.target_tokens, request.ratio) {
            (Some(_), Some(_)) => return Err(invalid("targetTokens and ratio are both given; give one of them")),
            (Some(tokens), None) => {
                check_tokens("targetTokens", tokens)?;
                Budget::Tokens(whole(tokens))
            }
            (None, ratio) => Budget::Ratio(ratio.unwrap_or(2.0)),
        };
        if matches!(budget, Budget::Ratio(ratio) if !(1.0..=1e6).contains(&ratio)) {
            return Err(invalid("ratio must be from 1 to 1000000"));
        }
        let source = self.find_source(scope, request.context, request.session_id, request.checkpoint_id).await?;
        let (weights, strategy, goal) = (Weights::default(), request.strategy, request.goal);
        self.view(scope, source, Wish { name: "compress", budget, weights, is_by_class: false, strategy, goal }).await
    }

    /// A view of a context in order of importance.
    pub async fn prioritize_context(&self, scope: &Scope, request: PrioritizeContext) -> Result<View> {
        request.weights.check().map_err(Error::InvalidInput)?;
        check_tokens("tokenBudget", request.token_budget)?;
        let source = self.find_source(scope, request.context, request.session_id, request.checkpoint_id).await?;
        let (budget, weights) = (Budget::Tokens(whole(request.token_budget)), request.weights);
        let strategy = Strategy::Auto;
        let wish = Wish { name: "prioritize", budget, weights, is_by_class: true, strategy, goal: None };
        self.view(scope, source, wish).await
    }

    /// What was loaded, with a view of its context in place of all of it.
    pub(super) async fn view_loaded(
        &self,
        scope: &Scope,
        loaded: LoadedCheckpoint,
        tokens: u64,
    ) -> Result<LoadedCheckpoint> {
        let source = self.source_of(scope, &loaded).await?;
        let wish = Wish {
            name: "load",
            budget: Budget::Tokens(whole(tokens)),
            weights: Weights::default(),
            is_by_class: false,
            strategy: Strategy::Auto,
            goal: None,
        };
        let view = self.view(scope, source, wish).await?;
        let context = to_raw_value(&view.context).map_err(|error| Error::broken(error.to_string()))?;
        let warnings = loaded.warnings.into_iter().chain(view.warnings).collect();
        let LoadedCheckpoint { mut checkpoint, blob_path, degraded, skipped, .. } = loaded;
        if let Some(cover) = self.secrets.shown() {
            checkpoint.metadata.cover(cover);
        }
        let shown = LoadedCheckpoint::new(checkpoint, blob_path, context);
        Ok(LoadedCheckpoint { view: Some(view.report), degraded, skipped, warnings, ..shown })
    }

    async fn find_source(
        &self,
        scope: &Scope,
        context: Option<Map<String, Value>>,
        session_id: Option<SessionId>,
        checkpoint_id: Option<CheckpointId>,
    ) -> Result<Source> {
        let Some(context) = context else {
            let session_id = match (&session_id, &checkpoint_id) {
                (None, None) => Some(self.own_session(scope).await?),
                _ => session_id,
            };
            let loaded =
                self.load_checkpoint(scope, LoadCheckpoint { checkpoint_id, session_id, max_tokens: None }).await?;
            return self.source_of(scope, &loaded).await;
        };
        if checkpoint_id.is_some() {
            return Err(invalid("context and checkpointId are both given; give one of them"));
        }
        let text = to_raw_value(&context).map_err(|error| Error::InvalidInput(format!("context: {error}")))?;
        self.check_context_size(text.get().len())?;
        let rules = match &session_id {
            Some(session) => self.rules_of(scope, session).await?,
            None => self.rules(&[], &[])?,
        };
        let (session, origin, given) = (session_id, GIVEN, Some(text.into()));
        Ok(Source { context, rules, checkpoint: None, session, origin, given })
    }

    async fn source_of(&self, scope: &Scope, loaded: &LoadedCheckpoint) -> Result<Source> {
        let (marks, rules) = self.store.find_rules(scope, &loaded.checkpoint.session_id).await?;
        Ok(Source {
            context: super::checkpoint::parse_context(&loaded.context)?,
            rules: self.rules(&marks, &rules)?,
            checkpoint: Some(loaded.id.clone()),
            session: Some(loaded.checkpoint.session_id.clone()),
            origin: loaded.checkpoint.origin,
            given: None,
        })
    }

    async fn view(&self, scope: &Scope, source: Source, wish: Wish) -> Result<View> {
        let (engine, now, name) = (self.clone(), self.clock.now(), wish.name);
        let is_summary = match wish.strategy {
            Strategy::Summary => true,
            Strategy::Auto => self.summaries.is_default,
            Strategy::Structural | Strategy::Extractive => false,
        };
        let goal = wish.goal.clone();
        let mut shortened = offload_unless(false, move || engine.shorten(source, &wish)).await??;
        let mut unwritten = None;
        if is_summary {
            (shortened, unwritten) = self.summarize_keys(shortened, goal.as_deref()).await?;
        }
        let engine = self.clone();
        let made = offload_unless(false, move || engine.make_view(shortened)).await??;
        let has_no_handles = self.is_read_only && made.to_keep.is_some();
        let mut near = Vec::new();
        if let Some(new) = made.to_keep.filter(|_| !has_no_handles) {
            let new = NewContext { at: now, total_bytes_max: self.limits.total_bytes_max, ..new };
            self.store.keep_context(scope, new).await?;
            near = self.nearly_full(scope, None).await;
        }
        let report = &made.view.report;
        let saved = report.tokens_before.saturating_sub(report.tokens_after) * 100 / report.tokens_before.max(1);
        self.store.note_measured(scope, Kind::View, name, saved);
        let over = made.view.report.over_budget.then(|| {
            let (tokens, asked) = (made.view.report.tokens_after, made.tokens_max);
            let keys = made.view.context.keys().map(|key| quoted(key)).take(5).collect::<Vec<_>>().join(", ");
            format!("{asked} tokens were asked for, and what is CRITICAL or was asked last has {tokens} alone: the view holds exactly that, {keys}")
        });
        let unkept = has_no_handles.then(|| "handles of this view cannot be resolved: read-only".to_owned());
        let covered = (made.covered > 0).then(|| {
            let (count, is) = (made.covered, if made.covered == 1 { "text is" } else { "texts are" });
            format!("{count} {is} shown without possible secrets; context_expand and a load without maxTokens return them as they are")
        });
        let warnings = self.warnings().into_iter().chain(unkept).chain(over).chain(covered).chain(unwritten);
        let warnings = warnings.chain(near).collect();
        Ok(View { warnings, ..made.view })
    }

    /// The context of a view, before anyone has looked what became of it.
    fn shorten(&self, mut source: Source, wish: &Wish) -> Result<Shortened> {
        if source.given.is_some() {
            // It may be kept, so it must be what may be kept.
            let mut scan = self.scan();
            scan.object("/context", &source.context);
            scan.end()?;
        }
        let covered = self.secrets.shown().map_or(0, |cover| cover.object(&mut source.context));
        // In another order the same members have other tokens: the view is counted in its own, what it was made of in the one it had.
        let mut tokens_before = None;
        if wish.is_by_class {
            let text = Value::from(source.context.clone()).to_string();
            tokens_before = Some(self.counts.spread(&text, &[text.len()]).iter().sum());
            source.context = by_class(source.context, &source.rules);
        }
        let verdicts = classify_all(&source.context, &source.rules);
        let compressed = compress(
            &compress::Request {
                context: &source.context,
                verdicts: &verdicts,
                budget: wish.budget,
                weights: wish.weights,
                drops_ephemeral: wish.is_by_class,
                strategy: wish.strategy,
                goal: wish.goal.as_deref(),
            },
            &self.counts,
        );
        let mut classes: BTreeMap<Class, Vec<String>> =
            Class::ALL.into_iter().map(|class| (class, Vec::new())).collect();
        for (key, verdict) in &verdicts {
            classes.entry(verdict.class).or_default().push((*key).to_owned());
        }
        let rules = verdicts.iter().map(|(key, verdict)| ((*key).to_owned(), verdict.rule.clone())).collect();
        Ok(Shortened { source, compressed, covered, tokens_before, classes, rules, summary: None })
    }

    fn make_view(&self, shortened: Shortened) -> Result<Made> {
        let Shortened { source, compressed, covered, tokens_before, classes, rules, summary } = shortened;
        let hash = source.given.as_ref().map(|text| Hash::of(text.get().as_bytes()));
        let holder = match (&source.checkpoint, hash) {
            (Some(id), _) => Holder::Checkpoint(id.clone()),
            (None, Some(hash)) => Holder::Context(hash),
            (None, None) => return Err(Error::broken("a view has no source")),
        };
        let survival = survival(&source.context, &compressed, &holder)?;
        let handles =
            survival.shortened.iter().map(|key| &key.handle).chain(survival.dropped.iter().map(|key| &key.handle));
        let next = handles.into_iter().next().map(|handle| NextCall {
            tool: "context_expand",
            arguments: Map::from_iter([("handle".to_owned(), handle.as_str().into())]),
        });
        let to_keep = match (&source.given, hash) {
            (Some(text), Some(hash)) if next.is_some() => Some(self.pack_given(text, hash)?),
            _ => None,
        };
        let report = ViewReport {
            tokens_before: tokens_before.unwrap_or(compressed.tokens_before) as u64,
            tokens_after: compressed.tokens_after as u64,
            classes,
            rules,
            survival,
            summary,
            over_budget: compressed.tokens_after > compressed.tokens_max,
        };
        let view = View {
            context: compressed.context,
            origin: source.origin,
            checkpoint_id: source.checkpoint,
            session_id: source.session,
            report,
            next,
            warnings: Vec::new(),
        };
        Ok(Made { view, to_keep, covered, tokens_max: compressed.tokens_max })
    }

    fn pack_given(&self, text: &RawValue, hash: Hash) -> Result<NewContext> {
        let packed = pack(text.get().as_bytes()).map_err(|error| Error::broken(error.to_string()))?;
        let (actual, max) = (packed.bytes.len() as u64, self.limits.checkpoint_bytes_max);
        if actual > max {
            return Err(Error::QuotaExceeded(Quota::CheckpointBytes { actual, max }));
        }
        Ok(NewContext { hash, packed, at: self.clock.now(), total_bytes_max: 0 })
    }
}

/// The same members, those of the higher class first.
fn by_class(context: Map<String, Value>, rules: &Rules) -> Map<String, Value> {
    let mut members: Vec<(String, Value)> = context.into_iter().collect();
    members.sort_by_cached_key(|(key, value)| classify(key, value, rules).class);
    members.into_iter().collect()
}

/// A view whose keys were shortened.
struct Shortened {
    source: Source,
    compressed: Compressed,
    /// How many texts are not shown as they are.
    covered: u64,
    /// Where that is not what was counted.
    tokens_before: Option<usize>,
    classes: BTreeMap<Class, Vec<String>>,
    rules: BTreeMap<String, String>,
    summary: Option<ViewSummary>,
}

struct Made {
    view: View,
    /// How many texts are not shown as they are.
    covered: u64,
    tokens_max: usize,
    to_keep: Option<NewContext>,
}

/// What became of every key. A view that lost what must not be lost does not leave.
fn survival(context: &Map<String, Value>, compressed: &Compressed, holder: &Holder) -> Result<Survival> {
    let mut survival = Survival::default();
    let handle = |key: &str| Handle::to_key(holder.clone(), key).to_string();
    for (key, class, fate) in &compressed.fates {
        match *fate {
            Fate::Kept => survival.kept.push(key.clone()),
            Fate::Shortened { before, after } => survival.shortened.push(ShortenedKey {
                key: key.clone(),
                tokens_before: before as u64,
                tokens_after: after as u64,
                handle: handle(key),
            }),
            Fate::Dropped { tokens } => survival.dropped.push(DroppedKey {
                key: key.clone(),
                class: *class,
                tokens: tokens as u64,
                handle: handle(key),
            }),
        }
    }
    let fates: HashMap<&str, (Class, &Fate)> =
        compressed.fates.iter().map(|(key, class, fate)| (key.as_str(), (*class, fate))).collect();
    let critical = |key: &str| fates.get(key).is_some_and(|(class, _)| *class == Class::Critical);
    let handled = |key: &str| fates.get(key).is_some_and(|(_, fate)| **fate != Fate::Kept);
    let found = survive::check(context, &compressed.context, critical, handled).map_err(Error::broken)?;
    survival.anchors =
        AnchorCount { total: found.total, in_view: found.in_view, by_handle: found.by_handle, lost: found.lost };
    Ok(survival)
}

pub(super) fn check_tokens(field: &str, tokens: u64) -> Result<()> {
    match tokens {
        1..=TOKENS_MAX => Ok(()),
        _ => Err(Error::InvalidInput(format!("{field} is {tokens}, it must be from 1 to {TOKENS_MAX}"))),
    }
}

fn whole(tokens: u64) -> usize {
    usize::try_from(tokens).unwrap_or(usize::MAX)
}

fn invalid(message: &str) -> Error {
    Error::InvalidInput(message.to_owned())
}
