//! `waystone search`

use clap::Args;
use waystone_core::Engine;
use waystone_core::api::{Checkpoint, Hit, SearchAll, SearchResults, Segment, Tier};
use waystone_core::clock::Since;
use waystone_core::id::ProjectId;
use waystone_core::store::Scope;

use super::render::{Out, cut, plain, short};
use super::segment::tier;

/// As much of a line that fits is shown.
const TEXT_CHARS: usize = 76;
/// So many lines before and after a hit are printed by the command that is offered.
const AROUND: u64 = 5;

#[derive(Debug, Args)]
pub(crate) struct Search {
    /// Words, names, "phrases in quotes", or a question
    #[arg(required = true, num_args = 1..)]
    query: Vec<String>,
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
        project_id: project,
        tier: search.tier,
        since: search.since,
        limit: search.limit,
    };
    out.print(&engine.search(scope, request).await?, show)
}

fn show(found: &SearchResults) -> String {
    if found.segments.is_empty() && found.checkpoints.is_empty() {
        return "Nothing was found. Other words may help; `waystone segment list` and `waystone session list` show what there is.\n"
            .to_owned();
    }
    let hits =
        found.segments.iter().map(|segment| &segment.hit).chain(found.checkpoints.iter().map(|saved| &saved.hit));
    let mut parts = vec![nearest(hits.flatten()).to_owned()];
    if !found.segments.is_empty() {
        parts.push(segments(&found.segments));
    }
    if !found.checkpoints.is_empty() {
        parts.push(checkpoints(&found.checkpoints));
    }
    let line = found.segments.iter().find_map(|segment| Some((segment, segment.hit.as_ref()?.line?)));
    parts.push("`waystone segment show` and `waystone checkpoint show` print one whole.\n".to_owned());
    let around = line.map(|(segment, line)| {
        let (from, to) = (line.saturating_sub(AROUND).max(1), line + AROUND);
        format!(
            "`waystone expand 'ws:segment:{}?lines={from}-{to}'` prints what is around the first hit.\n",
            segment.segment_id
        )
    });
    parts.concat() + &around.unwrap_or_default()
}

/// What must be known before what was found is read: that it does not say what was looked for.
fn nearest<'a>(mut hits: impl Iterator<Item = &'a Hit>) -> &'static str {
    match hits.all(|hit| !hit.why.contains("words")) {
        true => "note: nothing has these words; this is what is nearest in meaning\n\n",
        false => "",
    }
}

/// Segments that a search found.
pub(super) fn segments(found: &[Segment]) -> String {
    let shown = found.iter().map(|segment| {
        let place =
            format!("{} {} in {}", segment.tier.as_str(), segment.kind.as_str(), short(segment.project_id.as_str()));
        entry(&segment.segment_id.to_string(), &place, segment.hit.as_ref())
    });
    shown.collect()
}

/// Checkpoints that a search found.
pub(super) fn checkpoints(found: &[Checkpoint]) -> String {
    let shown = found.iter().map(|saved| {
        let name = saved.metadata.name().map(|name| format!(" ({})", short(name))).unwrap_or_default();
        let place = format!("checkpoint of {}{name}", short(saved.session_id.as_str()));
        entry(&saved.checkpoint_id.to_string(), &place, saved.hit.as_ref())
    });
    shown.collect()
}

/// What was found, and below it the line that fits best.
fn entry(id: &str, place: &str, hit: Option<&Hit>) -> String {
    let place = plain(place);
    let Some(Hit { score, why, snippet, line, age }) = hit else { return format!("{id}  {place}\n\n") };
    let line = line.map(|line| format!("line {line}: ")).unwrap_or_default();
    let text = cut(&plain(snippet), TEXT_CHARS.saturating_sub(line.len()));
    let by = if why.starts_with("beside") { "" } else { "by " };
    format!("{id}  {place}\n  {line}{text}\n  {score:.2} {by}{why}, {age} old\n\n")
}
