//! Figures of what is kept, and of how it is used. What is measured is noted by the way and written later: no call waits for it.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use super::Engine;
use super::checkpoint::parse_context;
use crate::api::{CallStats, Class, ClassStats, LoadCheckpoint, Stats, ViewStats};
use crate::classify::classify;
use crate::error::{Error, Result};
use crate::histogram::{Kind, Summary, summarize};
use crate::offload::offload_unless;
use crate::store::{FindResumable, Scope};
use crate::tokens::count;

/// The newest contexts of so many sessions are looked at, up to so much text in all: counting takes its time.
const CLASSIFIED_SESSIONS_MAX: usize = 100;
const CLASSIFIED_BYTES_MAX: usize = 4 * 1024 * 1024;

impl Engine {
    /// What is kept, what it takes, and how long calls take; with the newest contexts by class, which are counted for it.
    pub async fn stats(&self, scope: &Scope) -> Result<Stats> {
        let mut stats = self.gauge(scope).await?;
        let (classes, sessions) = self.count_classes(scope).await?;
        stats.classes = classes;
        stats.classified_session_count = Some(sessions);
        Ok(stats)
    }

    /// The same without what must be counted first: asked again and again.
    pub async fn gauge(&self, scope: &Scope) -> Result<Stats> {
        let stats = self.store.stats(scope).await?;
        let measured = self.store.list_measured(scope).await?;
        let view = |one: Summary| ViewStats { name: one.name, count: one.count, median_percent_saved: one.median };
        let call = |one: Summary| CallStats {
            name: one.name,
            count: one.count,
            p50_ms: one.median / 1000.0,
            p95_ms: one.p95 / 1000.0,
            total_ms: one.total as f64 / 1000.0,
        };
        let ratio = if stats.stored_bytes > 0 { stats.raw_bytes as f64 / stats.stored_bytes as f64 } else { 0.0 };
        Ok(Stats {
            ratio,
            quota_max_bytes: self.limits.total_bytes_max,
            views: summarize(Kind::View, &measured).into_iter().map(view).collect(),
            calls: summarize(Kind::Call, &measured).into_iter().map(call).collect(),
            warnings: self.warnings(),
            ..stats
        })
    }

    /// Takes note of how long a call took, by tool or route: a name of ours, not of a client's.
    pub fn note_call(&self, scope: &Scope, name: &str, took: Duration) {
        self.store.note_measured(scope, Kind::Call, name, u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
    }

    async fn count_classes(&self, scope: &Scope) -> Result<(Vec<ClassStats>, u64)> {
        let mut used = self.store.list_resumable(scope, &FindResumable::default(), self.clock.now()).await?;
        used.sort_by_key(|one| Reverse(one.accessed_seq));
        let (mut tokens, mut sessions, mut room) = (BTreeMap::<Class, u64>::new(), 0, CLASSIFIED_BYTES_MAX);
        for one in used.into_iter().take(CLASSIFIED_SESSIONS_MAX) {
            let Some(left) = room.checked_sub(one.newest_bytes) else { continue };
            let request = LoadCheckpoint { checkpoint_id: Some(one.newest), ..LoadCheckpoint::default() };
            let loaded = match self.read_checkpoint(scope, request).await {
                Ok(loaded) => loaded,
                Err(Error::CheckpointNotFound(_) | Error::CheckpointCorrupt { .. }) => continue,
                Err(error) => return Err(error),
            };
            let rules = self.rules(&one.session.critical_keys, &one.session.context_rules)?;
            let counted = offload_unless(false, move || {
                let context = parse_context(&loaded.context)?;
                let count = |(key, value): (&String, &Value)| {
                    (classify(key, value, &rules).class, count(&format!("{key:?}:{value}")) as u64)
                };
                Ok::<_, Error>(context.iter().map(count).collect::<Vec<_>>())
            });
            counted.await??.into_iter().for_each(|(class, count)| *tokens.entry(class).or_default() += count);
            (sessions, room) = (sessions + 1, left);
        }
        let class = |class: Class| ClassStats { class, tokens: tokens.get(&class).copied().unwrap_or_default() };
        Ok((Class::ALL.into_iter().map(class).collect(), sessions))
    }
}
