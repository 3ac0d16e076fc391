//! A window as people see it: what fills it, by kind, and what is not in it.

use waystone_core::api::Window;

use crate::cli::render::{count, fields, table, thousands};

/// How wide the bar is.
const BAR_CHARS: u64 = 60;
/// So many of the messages that are left out are named.
const NAMED_MAX: usize = 10;

/// What fills a window, in the order in which it is shown, each with a letter for the bar.
const KINDS: [(&str, char, &str); 8] = [
    ("system_prompt", 's', "system prompt"),
    ("tools", 't', "tools"),
    ("digest", 'd', "digest"),
    ("system", 'y', "system"),
    ("user", 'u', "user"),
    ("assistant", 'a', "assistant"),
    ("tool_call", 'c', "tool calls"),
    ("tool_result", 'r', "tool results"),
];

pub(crate) fn show(window: &Window) -> String {
    let filled = format!(
        "{}{} of {} tokens, {} % of {} that may be filled",
        if window.estimated { "~" } else { "" },
        thousands(window.tokens),
        thousands(window.limit),
        window.tokens * 100 / window.budget.max(1),
        thousands(window.budget),
    );
    let cached = match window.cached_tokens {
        0 => String::new(),
        cached => format!("{} tokens, as in the call before", thousands(cached)),
    };
    let mut text = fields(&[
        ("model", window.model_id.clone()),
        ("filled", filled),
        ("cached", cached),
        ("cost", window.cost_usd.map(|cost| format!("${cost:.4} to read")).unwrap_or_default()),
    ]);
    text += &format!("\n{}\n\n", bar(window));
    text += &table(&["", "KIND", "PARTS", "TOKENS"], KINDS.iter().filter_map(|kind| row(window, *kind)));
    text + &left_out(window)
}

fn tokens(window: &Window, kind: &str) -> (u64, u64) {
    let spans = window.spans.iter().filter(|span| span.kind == kind);
    spans.fold((0, 0), |(parts, tokens), span| (parts + 1, tokens + span.tokens))
}

fn row(window: &Window, (kind, letter, name): (&str, char, &str)) -> Option<Vec<String>> {
    let (parts, tokens) = tokens(window, kind);
    (parts > 0).then(|| vec![letter.to_string(), name.to_owned(), parts.to_string(), thousands(tokens)])
}

/// A letter for each part of what may be filled; what is there is never invisible.
fn bar(window: &Window) -> String {
    let budget = window.budget.max(1);
    let filled: String = KINDS
        .iter()
        .flat_map(|(kind, letter, _)| {
            let tokens = tokens(window, kind).1;
            let chars = (tokens * BAR_CHARS / budget).max(u64::from(tokens > 0));
            std::iter::repeat_n(*letter, usize::try_from(chars).unwrap_or_default())
        })
        .collect();
    let free = usize::try_from(BAR_CHARS).unwrap_or_default().saturating_sub(filled.len());
    format!("[{filled}{}]", ".".repeat(free))
}

fn left_out(window: &Window) -> String {
    if window.left_out.is_empty() {
        return "\nNothing is left out.\n".to_owned();
    }
    let tokens: u64 = window.left_out.iter().map(|left| left.tokens).sum();
    let newest = window.left_out.iter().rev().take(NAMED_MAX);
    let rows = newest.map(|left| vec![left.handle.clone(), left.reason.to_owned(), thousands(left.tokens)]);
    let more = window.left_out.len().saturating_sub(NAMED_MAX);
    let more = if more > 0 { format!("and {more} more; --json lists all\n") } else { String::new() };
    format!(
        "\nLeft out, not whole: {} with {} tokens. `waystone expand HANDLE` shows one.\n\n{}{more}",
        count(window.left_out.len() as u64, "message"),
        thousands(tokens),
        table(&["HANDLE", "WHY", "TOKENS"], rows)
    )
}

#[cfg(test)]
mod tests {
    use waystone_core::api::{Class, WindowSpan};

    use super::*;

    fn window(filled: &[(&'static str, u64)]) -> Window {
        let spans = filled.iter().map(|(kind, tokens)| WindowSpan {
            message_id: None,
            kind,
            class: Class::Useful,
            reason: "fits",
            tokens: *tokens,
            hash: None,
            cached: false,
        });
        Window {
            context_id: "c".parse().unwrap(),
            model_id: "demo".to_owned(),
            spans: spans.collect(),
            tokens: filled.iter().map(|(_, tokens)| tokens).sum(),
            limit: 1000,
            budget: 600,
            cached_tokens: 0,
            estimated: false,
            cost_usd: None,
            left_out: Vec::new(),
            survival: None,
            changes: Vec::new(),
            assembled_at: None,
            warnings: Vec::new(),
        }
    }

    #[test]
    fn the_bar_is_as_full_as_the_window() {
        assert_eq!(bar(&window(&[])), format!("[{}]", ".".repeat(60)));
        assert_eq!(
            bar(&window(&[("user", 300), ("system_prompt", 1)])),
            format!("[s{}{}]", "u".repeat(30), ".".repeat(29))
        );
        assert_eq!(bar(&window(&[("tool_result", 600)])), format!("[{}]", "r".repeat(60)));
    }
}
