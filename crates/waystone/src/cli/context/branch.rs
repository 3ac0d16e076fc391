//! Branches of a conversation: compared, and one told what another came to.

use waystone_core::Engine;
use waystone_core::api::{BranchDiff, BranchSide, FindContext, MergeBranch, MergedBranch};
use waystone_core::id::{BranchName, SessionId};
use waystone_core::store::Scope;

use crate::cli::render::{Out, ask, count, cut, line, plain_text, table, thousands};

/// What is left of 80 columns beside an id and a role.
const PREVIEW_CHARS: usize = 24;

pub(super) fn diff(diff: &BranchDiff) -> String {
    let both = match &diff.common_message_id {
        Some(last) => format!("Both have {}, up to {last}.\n", count(diff.common_messages, "message")),
        None => "They have no message in common.\n".to_owned(),
    };
    both + &side(&diff.a) + &side(&diff.b)
}

fn side(side: &BranchSide) -> String {
    let messages = count(side.total, "message");
    let head = format!("\nOnly on {}: {messages}, {} tokens\n", side.name, thousands(side.tokens));
    if side.messages.is_empty() {
        return head;
    }
    let rows = side.messages.iter().map(|message| {
        let preview = cut(&line(&message.preview), PREVIEW_CHARS);
        vec![message.message_id.to_string(), message.role.as_str().to_owned(), thousands(message.tokens), preview]
    });
    let shown = side.messages.len();
    let more = if side.has_more { format!("{shown} of {}; more: --limit\n", side.total) } else { String::new() };
    head + &table(&["MESSAGE", "ROLE", "TOKENS", "BEGINS WITH"], rows) + &more
}

/// What is to be merged, and how.
pub(super) struct Merge {
    pub(super) context: SessionId,
    pub(super) from: BranchName,
    pub(super) into: Option<BranchName>,
    pub(super) is_dry_run: bool,
    pub(super) yes: bool,
}

pub(super) async fn merge(merge: Merge, engine: &Engine, scope: &Scope, out: &Out) -> anyhow::Result<()> {
    let Merge { context, from, into, is_dry_run, yes } = merge;
    let into = match into {
        Some(name) => name,
        None => {
            let found = engine.find_context(scope, &context, FindContext { message_pool: false }).await?;
            found.active_branch_name.parse().map_err(anyhow::Error::msg)?
        }
    };
    let request = |dry_run| MergeBranch { from: from.clone(), dry_run, idempotency_key: None };
    if is_dry_run || !yes {
        let preview = engine.merge_branch(scope, &context, &into, request(true)).await?;
        if is_dry_run {
            return out.print(&preview, |preview| show(preview, &into));
        }
        eprint!("{}", show(&preview, &into));
        ask(&format!("Add this to branch {into}?"), "it is added", "nothing was added")?;
    }
    let merged = engine.merge_branch(scope, &context, &into, request(false)).await?;
    out.print(&merged, |merged| {
        let id = merged.message_id.as_ref().map(ToString::to_string).unwrap_or_default();
        format!("Added to {into} as message {id}. `waystone undo` takes it back.\n")
    })
}

fn show(preview: &MergedBranch, into: &BranchName) -> String {
    let (messages, tokens) = (count(preview.messages, "message"), thousands(preview.messages_tokens));
    format!(
        "{messages} with {tokens} tokens become one with {} on {into}:\n\n{}\n\n",
        thousands(preview.tokens),
        plain_text(preview.content.trim_end())
    )
}
