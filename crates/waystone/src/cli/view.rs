//! What a person sees of views: the context that fits, and what became of each key.

use std::path::PathBuf;

use clap::Args;
use serde_json::{Map, Value};
use waystone_core::Engine;
use waystone_core::api::{CompressContext, PrioritizeContext, Strategy, View, ViewReport, ViewSummary, Weights};
use waystone_core::id::{CheckpointId, SessionId};
use waystone_core::store::Scope;

use super::file::read_context;
use super::render::{Out, plain_json, short, table, thousands};

#[derive(Debug, Args)]
pub(crate) struct ViewArguments {
    /// The checkpoint to view; left out with --latest and --file, the newest of the session that you last saved
    #[arg(conflicts_with = "latest")]
    checkpoint: Option<CheckpointId>,
    /// View the newest checkpoint of this session; with --file, its marks and rules count
    #[arg(long, value_name = "SESSION")]
    latest: Option<SessionId>,
    /// View the JSON object in a file; `-` reads standard input
    #[arg(long, conflicts_with = "checkpoint")]
    file: Option<PathBuf>,
    /// How many tokens the view may have
    #[arg(long, value_name = "N")]
    tokens: Option<u64>,
    /// How many times smaller it shall be, if --tokens is not given [default: 2]
    #[arg(long, value_name = "R", conflicts_with = "tokens")]
    ratio: Option<f64>,
    /// How values are made smaller
    #[arg(long, value_parser = ["auto", "structural", "extractive", "summary"], default_value = "auto")]
    strategy: String,
    /// What the view is for: what it names is kept first
    #[arg(long, value_name = "TEXT")]
    goal: Option<String>,
    /// In order of importance, without what is EPHEMERAL
    #[arg(long, requires = "tokens", conflicts_with_all = ["strategy", "goal"])]
    prioritize: bool,
    /// How the budget is shared with --prioritize, such as '{"IMPORTANT": 60, "USEFUL": 10}'
    #[arg(long, value_name = "JSON", requires = "prioritize", value_parser = weights)]
    weights: Option<Weights>,
}

fn weights(text: &str) -> Result<Weights, String> {
    serde_json::from_str(text)
        .map_err(|error| format!("{error}; it is an object such as {{\"IMPORTANT\": 60, \"USEFUL\": 10}}"))
}

/// Makes the view that was asked for, and prints it.
pub(crate) async fn view(arguments: ViewArguments, engine: &Engine, scope: &Scope, out: &Out) -> anyhow::Result<()> {
    let read = |file: &PathBuf| read_context(file, engine.limits().request_bytes_max(), false);
    let context = arguments.file.as_ref().map(read).transpose()?;
    let view = match (arguments.prioritize, arguments.tokens) {
        (true, Some(token_budget)) => {
            let request = PrioritizeContext {
                context,
                session_id: arguments.latest,
                checkpoint_id: arguments.checkpoint,
                token_budget,
                weights: arguments.weights.unwrap_or_default(),
            };
            engine.prioritize_context(scope, request).await?
        }
        (_, target_tokens) => {
            let strategy = match arguments.strategy.as_str() {
                "structural" => Strategy::Structural,
                "extractive" => Strategy::Extractive,
                "summary" => Strategy::Summary,
                _ => Strategy::Auto,
            };
            let request = CompressContext {
                context,
                session_id: arguments.latest,
                checkpoint_id: arguments.checkpoint,
                target_tokens,
                ratio: arguments.ratio,
                strategy,
                goal: arguments.goal,
            };
            engine.compress_context(scope, request).await?
        }
    };
    if !out.json {
        super::warn(&view.warnings);
    }
    out.print(&view, show)
}

fn show(view: &View) -> String {
    let source = match (&view.checkpoint_id, &view.session_id) {
        (Some(checkpoint), Some(session)) => {
            format!("checkpoint {checkpoint} of session {session}, from {}\n", view.origin)
        }
        _ => String::new(),
    };
    format!("{}\n\n{source}{}", pretty(&view.context), report(&view.report))
}

pub(crate) fn pretty(context: &Map<String, Value>) -> String {
    plain_json(&serde_json::to_string_pretty(context).unwrap_or_default())
}

/// What became of each key, and what the whole cost.
pub(crate) fn report(report: &ViewReport) -> String {
    let class_of = |key: &str| {
        let class = report.classes.iter().find(|(_, keys)| keys.iter().any(|of| of == key));
        class.map(|(class, _)| format!("{class:?}").to_uppercase()).unwrap_or_default()
    };
    let survival = &report.survival;
    let row = |key: &str, fate: String| {
        let rule = report.rules.get(key).cloned().unwrap_or_default();
        vec![short(key), class_of(key), fate, short(&rule)]
    };
    let kept = survival.kept.iter().map(|key| row(key, "whole".to_owned()));
    let shortened = survival.shortened.iter().map(|key| {
        row(&key.key, format!("{} of {} tokens", thousands(key.tokens_after), thousands(key.tokens_before)))
    });
    let dropped = survival.dropped.iter().map(|key| row(&key.key, format!("0 of {} tokens", thousands(key.tokens))));
    let handles =
        survival.shortened.iter().map(|key| &key.handle).chain(survival.dropped.iter().map(|key| &key.handle));
    let rest = rest(&handles.map(String::as_str).collect::<Vec<_>>());
    let anchors = survival.anchors;
    let anchors = match anchors.total {
        0 => String::new(),
        1 if anchors.in_view == 1 => "; the line that matters most is in view".to_owned(),
        1 => "; the line that matters most is not in view".to_owned(),
        total => format!("; {} of {total} lines that matter most are in view", anchors.in_view),
    };
    let written = report.summary.as_ref().map(|summary| {
        let ViewSummary { model, keys, calls, prompt_tokens, completion_tokens, cost_usd } = summary;
        let cost = cost_usd.map(|cost| format!(", ${cost:.4}")).unwrap_or_default();
        let keys = keys.iter().map(|key| short(key)).collect::<Vec<_>>().join(", ");
        format!("summaries by {model}: {keys} ({calls} calls, {prompt_tokens} + {completion_tokens} tokens{cost})\n")
    });
    format!(
        "{}\n{} of {} tokens{anchors}\n{}{}",
        table(&["KEY", "CLASS", "IN VIEW", "BY RULE"], kept.chain(shortened).chain(dropped)),
        thousands(report.tokens_after),
        thousands(report.tokens_before),
        written.unwrap_or_default(),
        rest,
    )
}

/// How to get what is not in the view: a line that can be typed as it stands, and what else can be put into it.
fn rest(handles: &[&str]) -> String {
    const OTHERS_MAX: usize = 3;
    let Some((first, others)) = handles.split_first() else { return String::new() };
    let pointer = |handle: &&str| handle.split_once('#').map_or("", |(_, pointer)| pointer).to_owned();
    let named = others.iter().take(OTHERS_MAX).map(|handle| format!("#{}", pointer(handle))).collect::<Vec<_>>();
    let also = match others.len() {
        0 => String::new(),
        count if count > OTHERS_MAX => format!("and so with {} and {} more\n", named.join(", "), count - OTHERS_MAX),
        _ => format!("and so with {}\n", named.join(", ")),
    };
    // A handle has no quotes.
    format!("the rest: waystone expand '{first}'\n{also}")
}
