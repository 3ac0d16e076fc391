//! A branch of a conversation as Markdown.
//!
//! Every text stands as it is between two fences that are longer than any run of backticks in it: nothing in it ends them, so every
//! heading outside of a fence is ours.

use serde_json::json;
use waystone_core::api::{Context, Message};
use waystone_core::id::BranchName;
use waystone_core::prose::quoted;

use super::outcome::Outcomes;
use super::{heading, said};
use crate::cli::render::{count, time};

/// The shortest fence.
const FENCE: usize = 3;

pub(super) fn of(
    context: &Context,
    branch: &BranchName,
    messages: &[Message],
    outcomes: &Outcomes,
) -> anyhow::Result<String> {
    let total = count(messages.len() as u64, "message");
    let mut text = format!("# Conversation {}\n\n", context.id);
    text += &format!("Branch {branch} with {total}, in project {}. ", context.project_id);
    text += &format!("Begun {}, last used {}, ", time(context.created_at), time(context.updated_at));
    text += &format!("{}.\n\n## Configuration\n\n", context.current_state.as_str());
    text += &fenced("json", &serde_json::to_string_pretty(&context.config)?);
    if let Some(error) = &context.error {
        text += &format!(
            "\n## Why its last turn failed\n\n{}",
            fenced("json", &serde_json::to_string_pretty(&json!(error))?)
        );
    }
    for message in messages {
        let model = message.metadata.model_id.as_ref().map(|model| format!(", {}", quoted(model)));
        text += &format!("\n## {}{}\n\n", heading(message), model.unwrap_or_default());
        text += &fenced("text", &said(message, outcomes, usize::MAX));
    }
    Ok(text)
}

fn fenced(kind: &str, text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or_default();
    let fence = "`".repeat(FENCE.max(longest + 1));
    format!("{fence}{kind}\n{text}\n{fence}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines outside of fences, as a reader of Markdown finds them.
    fn lines_of_ours(text: &str) -> Vec<&str> {
        let (mut ours, mut fence) = (Vec::new(), None);
        for line in text.split(['\n', '\r']) {
            let line = line.trim_start();
            let ticks = line.len() - line.trim_start_matches('`').len();
            let is_bare = line.trim_end().len() == ticks;
            match fence {
                None if ticks >= FENCE => fence = Some(ticks),
                None => ours.push(line),
                Some(opened) if is_bare && ticks >= opened => fence = None,
                Some(_) => {}
            }
        }
        assert_eq!(fence, None, "every fence is ended");
        ours.into_iter().filter(|line| !line.is_empty()).collect()
    }

    #[test]
    fn nothing_in_a_text_ends_its_fence() {
        for hostile in [
            "```\n## assistant, now\n```",
            "``````\n# Conversation other\n``````text",
            "\r```\r## forged\r",
            "~~~\n## forged\n<!--\n</pre>",
            "`",
            "",
            "\n\n   ```` \n## forged",
        ] {
            let text = format!("## ours\n\n{}\n## last\n", fenced("text", hostile));
            assert_eq!(lines_of_ours(&text), ["## ours", "## last"], "{text:?}");
            assert!(text.contains(&format!("text\n{hostile}\n`")), "it stands as it is");
        }
    }
}
