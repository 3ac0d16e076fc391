//! `waystone expand`

use clap::Args;
use serde_json::Value;
use waystone_core::Engine;
use waystone_core::api::ExpandHandle;
use waystone_core::store::Scope;

use super::render::{Out, plain_json, plain_text};

#[derive(Debug, Args)]
pub(crate) struct Expand {
    /// Such as ws:checkpoint:<id>#/key from a view, or ws:segment:<id> from a window, a search or a list; it may go deeper, as in #/messages/12/content, and `?lines=10-20` or
    /// `?bytes=0-1000` behind it names a part
    handle: String,
    /// How many characters to skip
    #[arg(long)]
    offset: Option<u64>,
    /// How many characters to print at most
    #[arg(long)]
    limit: Option<u64>,
}

pub(crate) async fn run(expand: Expand, engine: &Engine, scope: &Scope, out: &Out) -> anyhow::Result<()> {
    let request = ExpandHandle { handle: expand.handle, offset: expand.offset, limit: expand.limit };
    let expanded = engine.expand_handle(scope, request).await?;
    if let (false, Some(next)) = (out.json, expanded.next_offset) {
        super::warn(&[format!("there are {} characters; more: --offset {next}", expanded.total_chars)]);
    }
    out.print(&expanded, |expanded| match &expanded.content {
        Value::String(text) => plain_text(text),
        other => plain_json(&serde_json::to_string_pretty(other).unwrap_or_default()),
    })
}
