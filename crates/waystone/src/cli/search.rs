//! `waystone search`

use clap::Args;
use waystone_core::Engine;
use waystone_core::api::{Checkpoint, Hit, SearchAll, SearchResults, Segment, Tier};
use waystone_core::clock::Since;
use waystone_core::id::ProjectId;
use waystone_core::store::Scope;

use super::render::{Out, cut, short, table};
use super::segment::tier;

/// As much of a line that fits is shown.
const TEXT_CHARS: usize = 80;

#[derive(Debug, Args)]
pub(crate) struct Search {
    /// Words, names, "phrases in quotes", or a question
    #[arg(required = true, num_args = 1..)]
    query: Vec<String>,
    /// Only in this project; --project as a flag says the same
    #[arg(id = "in_project", long = "in", value_name = "PROJECT")]
    project: Option<ProjectId>,
    /// Only segments, of this tier: working or stashed
    #[arg(long, value_parser = tier)]
    tier: Option<Tier>,
    /// Only what was met or saved since: a time, or how long ago, such as 24h or 7d
    #[arg(long, value_name = "TIME")]
    since: Option<Since>,
    /// How many of each to show, 1 to 1000
    #[arg(long, default_value_t = SearchAll::default_limit())]
    limit: u32,
}

pub(crate) async fn run(
    search: Search,
    engine: &Engine,
    scope: &Scope,
    out: &Out,
    project: Option<ProjectId>,
) -> anyhow::Result<()> {
    let request = SearchAll {
        query: search.query.join(" "),
        project_id: search.project.or(project),
        tier: search.tier,
        since: search.since,
        limit: search.limit,
    };
    out.print(&engine.search(scope, request).await?, show)
}

fn show(found: &SearchResults) -> String {
    let segment = |segment: &Segment| {
        let place = format!("{}, {}", short(segment.project_id.as_str()), segment.tier.as_str());
        row(segment.segment_id.to_string(), &place, segment.hit.as_ref())
    };
    let mut parts = Vec::new();
    if !found.segments.is_empty() {
        parts.push(table(&["SEGMENT", "PROJECT", "SCORE", "BY", "AGE", "TEXT"], found.segments.iter().map(segment)));
    }
    if !found.checkpoints.is_empty() {
        parts.push(checkpoints(&found.checkpoints));
    }
    if parts.is_empty() {
        return "Nothing was found.".to_owned();
    }
    parts.push("`waystone segment show` and `waystone checkpoint show` print one whole.\n".to_owned());
    parts.join("\n")
}

/// Checkpoints that a search found.
pub(super) fn checkpoints(found: &[Checkpoint]) -> String {
    let checkpoint = |saved: &Checkpoint| {
        let name = saved.metadata.name().unwrap_or_default();
        let session =
            if name.is_empty() { saved.session_id.to_string() } else { format!("{} ({name})", saved.session_id) };
        row(saved.checkpoint_id.to_string(), &short(&session), saved.hit.as_ref())
    };
    table(&["CHECKPOINT", "SESSION", "SCORE", "BY", "AGE", "TEXT"], found.iter().map(checkpoint))
}

fn row(id: String, place: &str, hit: Option<&Hit>) -> Vec<String> {
    let (score, why) = hit.map_or((0.0, ""), |hit| (hit.score, hit.why));
    let (age, text) = hit.map_or(("", ""), |hit| (hit.age.as_str(), hit.snippet.as_str()));
    vec![id, place.to_owned(), format!("{score:.2}"), why.to_owned(), age.to_owned(), cut(text, TEXT_CHARS)]
}
