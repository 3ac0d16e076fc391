//! What was said last, for who goes on with it.

use clap::builder::styling::Style;
use waystone_core::api::Role;

use super::flow::Flow;
use super::prompt::tell;
use super::talk::{Place, Talk};
use crate::cli::render::{cut, plain_text};
use crate::platform::terminal_columns;

/// So much of a message is shown.
const LINES_MAX: usize = 8;
const CHARS_MAX: usize = 600;
/// Before every line but the first.
const BEFORE: &str = "  ";

/// Shows the last exchange of a branch, shortened.
pub(super) async fn recall(talk: &Talk<'_>, place: &Place) -> anyhow::Result<()> {
    let Some(said) = talk.find_last_said(place).await? else { return Ok(()) };
    let style = Style::new().dimmed();
    tell(&format!("{style}> {}{style:#}\n", shortened(&said.text())))?;
    let answer = talk.find_newest(place).await?.filter(|newest| newest.role == Role::Assistant);
    match answer.map(|answer| answer.text()).filter(|text| !text.is_empty()) {
        Some(text) => Ok(tell(&format!("{style}  {}{style:#}\n\n", shortened(&text)))?),
        None => Ok(tell("\n")?),
    }
}

/// The beginning of a text. None of its lines stands where lines of ours do.
fn shortened(text: &str) -> String {
    shortened_within(text, terminal_columns(std::io::stderr()))
}

fn shortened_within(text: &str, columns: Option<usize>) -> String {
    let text = text.trim_end();
    let lines: Vec<&str> = text.lines().take(LINES_MAX).collect();
    let begun = lines.join("\n");
    let shown = match begun.len() < text.len() && begun.chars().count() <= CHARS_MAX {
        true => begun + "\n…",
        false => cut(&begun, CHARS_MAX),
    };
    let mut flow = Flow::new(columns.map(|columns| columns.saturating_sub(BEFORE.len())));
    let shown = flow.add(&plain_text(&shown)) + &flow.end();
    shown.replace('\n', &format!("\n{BEFORE}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_shortened_and_none_of_its_lines_is_ours() {
        let check = |text: &str, shown: &str| assert_eq!(shortened_within(text, None), shown);
        check("hello\n", "hello");
        check("one\n> two\u{1b}[2J", "one\n  > two\\u{1b}[2J");
        check(&"line\n".repeat(9), &("line\n  ".repeat(8) + "…"));
        check(&"x".repeat(601), &("x".repeat(600) + "…"));
        assert_eq!(shortened_within("one two three four five", Some(22)), "one two three four\n  five");
        check(&"line\n".repeat(8), ("line\n  ".repeat(8)).trim_end());
    }
}
