//! `waystone stats`

use waystone_core::Engine;
use waystone_core::api::{Class, Stats};
use waystone_core::store::Scope;

use super::render::{Out, bytes, count, fields, short, table, thousands};

pub(crate) async fn run(engine: &Engine, scope: &Scope, out: &Out) -> anyhow::Result<()> {
    out.print(&engine.stats(scope).await?, show)
}

fn show(stats: &Stats) -> String {
    let segments: u64 = stats.tiers.iter().map(|tier| tier.segment_count).sum();
    if stats.session_count + stats.archived_session_count + segments == 0 && stats.calls.is_empty() {
        return "Nothing is kept yet. `waystone checkpoint save` saves something, and `waystone install` lets an agent do it.".to_owned();
    }
    let mut parts = vec![kept(stats)];
    if segments > 0 {
        let rows = stats
            .tiers
            .iter()
            .map(|tier| vec![tier.tier.as_str().to_owned(), thousands(tier.segment_count), thousands(tier.tokens)]);
        parts.push(table(&["TIER", "SEGMENTS", "TOKENS"], rows));
    }
    if let Some(sessions) = stats.classified_session_count.filter(|sessions| *sessions > 0) {
        let rows = stats.classes.iter().map(|one| vec![name_of(one.class).to_owned(), thousands(one.tokens)]);
        let of = format!("Newest contexts of {}, those used last.\n", count(sessions, "session"));
        parts.push(table(&["CLASS", "TOKENS"], rows) + &of);
    }
    if !stats.largest_sessions.is_empty() {
        let rows = stats.largest_sessions.iter().map(|one| {
            let name = one.name.as_deref().map(short).unwrap_or_default();
            vec![one.session_id.to_string(), name, bytes(one.size_bytes), one.checkpoint_count.to_string()]
        });
        parts.push(table(&["LARGEST SESSIONS", "NAME", "SIZE", "CHECKPOINTS"], rows));
    }
    if !stats.views.is_empty() {
        let rows = stats
            .views
            .iter()
            .map(|view| vec![view.name.clone(), view.count.to_string(), format!("{:.0} %", view.median_percent_saved)]);
        parts.push(table(&["VIEWS", "COUNT", "MEDIAN SAVED"], rows));
    }
    if !stats.calls.is_empty() {
        let rows = stats
            .calls
            .iter()
            .map(|call| vec![call.name.clone(), call.count.to_string(), time(call.p50_ms), time(call.p95_ms)]);
        parts.push(table(&["CALLS", "COUNT", "P50", "P95"], rows) + "Percentiles are estimates.\n");
    }
    parts.join("\n")
}

fn kept(stats: &Stats) -> String {
    let and_archived = |live: u64, archived: u64| match archived {
        0 => live.to_string(),
        archived => format!("{live}, and {archived} archived"),
    };
    let (stored, raw) = (bytes(stats.stored_bytes), bytes(stats.raw_bytes));
    let stored = match stats.stored_bytes {
        0 => String::new(),
        _ => match stats.ratio {
            ratio if ratio >= 1.0 => format!("{stored} for {raw} of JSON, {ratio:.1} x smaller"),
            _ => format!("{stored} for {raw} of JSON; what is very short does not get smaller"),
        },
    };
    let percent = stats.quota_used_bytes as f64 * 100.0 / stats.quota_max_bytes.max(1) as f64;
    fields(&[
        ("sessions", and_archived(stats.session_count, stats.archived_session_count)),
        ("checkpoints", and_archived(stats.checkpoint_count, stats.archived_checkpoint_count)),
        ("stored", stored),
        ("quota", format!("{} of {} ({percent:.1} %)", bytes(stats.quota_used_bytes), bytes(stats.quota_max_bytes))),
        ("operations", stats.operation_count.to_string()),
    ])
}

fn name_of(class: Class) -> &'static str {
    match class {
        Class::Critical => "CRITICAL",
        Class::Important => "IMPORTANT",
        Class::Useful => "USEFUL",
        Class::Ephemeral => "EPHEMERAL",
    }
}

/// A duration, to two digits or so.
fn time(ms: f64) -> String {
    match ms {
        ms if ms < 1.0 => format!("{:.0} µs", ms * 1000.0),
        ms if ms < 10.0 => format!("{ms:.1} ms"),
        ms if ms < 1000.0 => format!("{ms:.0} ms"),
        ms => format!("{:.1} s", ms / 1000.0),
    }
}
