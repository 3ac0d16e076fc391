//! `/api/stats` and `/metrics`

use std::fmt::{Display, Write as _};
use std::sync::Arc;
use std::time::Instant;

use axum::extract::{Request, State};
use axum::http::{Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use waystone_core::api::Stats;

use super::Http;
use super::reply::{HttpError, HttpResult, ok};
use super::route::Route;

/// The text format of Prometheus.
const MEDIA_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::GET, "/api/stats", "stats", stats)
            .summary("What is kept, what it takes, and how long calls take")
            .replies::<Stats>(200),
        Route::new(Method::GET, "/metrics", "gauge", metrics)
            .summary("The same for Prometheus")
            .replies_text(MEDIA_TYPE, "Metrics in the text format of Prometheus."),
    ]
}

async fn stats(State(http): State<Http>) -> HttpResult<Stats> {
    ok(http.engine.stats(&http.scope()).await)
}

async fn metrics(State(http): State<Http>) -> Result<Response, HttpError> {
    let text = render(&http.engine.gauge(&http.scope()).await?);
    Ok(([(header::CONTENT_TYPE, MEDIA_TYPE)], text).into_response())
}

/// Takes note of how long a request took until its answer began.
pub(super) async fn time(State((http, route)): State<(Http, Arc<str>)>, request: Request, next: Next) -> Response {
    let begun = Instant::now();
    let response = next.run(request).await;
    http.engine.note_call(&http.scope(), &route, begun.elapsed());
    response
}

fn render(stats: &Stats) -> String {
    let mut page = Page(String::new());
    page.one("waystone_sessions", "gauge", "Sessions that are not deleted.", stats.session_count);
    page.one("waystone_archived_sessions", "gauge", "Sessions that can be restored.", stats.archived_session_count);
    page.one("waystone_checkpoints", "gauge", "Checkpoints that are not archived.", stats.checkpoint_count);
    let archived = stats.archived_checkpoint_count;
    page.one("waystone_archived_checkpoints", "gauge", "Checkpoints that can be restored.", archived);
    page.one("waystone_raw_bytes", "gauge", "Contexts of all checkpoints as JSON text.", stats.raw_bytes);
    page.one("waystone_stored_bytes", "gauge", "The same as stored.", stats.stored_bytes);
    page.one("waystone_quota_used_bytes", "gauge", "What counts against the quota.", stats.quota_used_bytes);
    page.one("waystone_quota_max_bytes", "gauge", "The quota.", stats.quota_max_bytes);
    page.one("waystone_operations_total", "counter", "Changes ever made.", stats.operation_count);
    page.head("waystone_segments", "gauge", "Segments, by where they are.");
    for tier in &stats.tiers {
        page.sample("waystone_segments", &[("tier", tier.tier.as_str())], tier.segment_count);
    }
    page.head("waystone_segment_tokens", "gauge", "Tokens of segments, by where they are.");
    for tier in &stats.tiers {
        page.sample("waystone_segment_tokens", &[("tier", tier.tier.as_str())], tier.tokens);
    }
    page.head(
        "waystone_view_saved_percent",
        "gauge",
        "Median of what views left out of contexts, in percent of tokens.",
    );
    for view in &stats.views {
        page.sample("waystone_view_saved_percent", &[("view", &view.name)], view.median_percent_saved);
    }
    page.head(
        "waystone_call_duration_seconds",
        "summary",
        "How long calls took, by tool or route; quantiles are estimates.",
    );
    for call in &stats.calls {
        for (quantile, ms) in [("0.5", call.p50_ms), ("0.95", call.p95_ms)] {
            let labels = [("call", call.name.as_str()), ("quantile", quantile)];
            page.sample("waystone_call_duration_seconds", &labels, ms / 1000.0);
        }
        page.sample("waystone_call_duration_seconds_sum", &[("call", &call.name)], call.total_ms / 1000.0);
        page.sample("waystone_call_duration_seconds_count", &[("call", &call.name)], call.count);
    }
    page.0
}

struct Page(String);

impl Page {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        let escape = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let labels: Vec<String> = labels.iter().map(|(key, text)| format!("{key}=\"{}\"", escape(text))).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let _ = writeln!(self.0, "{name}{labels} {value}");
    }

    fn one(&mut self, name: &str, kind: &str, help: &str, value: u64) {
        self.head(name, kind, help);
        self.sample(name, &[], value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_in_a_label_cannot_end_it() {
        let mut page = Page(String::new());
        page.sample("x", &[("a", "say \"no\"\\\n"), ("b", "")], 1.5);
        assert_eq!(page.0, "x{a=\"say \\\"no\\\"\\\\\\n\",b=\"\"} 1.5\n");
    }
}
