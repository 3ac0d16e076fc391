//! What a person sees of the difference between two checkpoints, or two texts.

use std::fmt::Write as _;

use clap::builder::styling::{AnsiColor, Style};
use serde_json::Value;
use waystone_core::api::{Change, ChangeKind, CheckpointDiff};

use super::render::{plain, plain_json, plain_text};

pub(crate) fn show(diff: &CheckpointDiff) -> String {
    if diff.changes.is_empty() {
        return "Both hold the same context.".to_owned();
    }
    diff.changes.iter().map(show_change).collect::<Vec<_>>().join("\n")
}

fn show_change(change: &Change) -> String {
    let (mark, color) = match change.kind {
        ChangeKind::Added => ('+', AnsiColor::Green),
        ChangeKind::Removed => ('-', AnsiColor::Red),
        ChangeKind::Changed => ('~', AnsiColor::Yellow),
    };
    let mut text = String::new();
    let style = Style::new().fg_color(Some(color.into())).bold();
    let _ = writeln!(text, "{style}{mark} {}{style:#}", plain(&change.key));
    if let Some(diff) = &change.diff {
        return text + &show_lines(diff);
    }
    let lines = |value: &Value| plain_json(&serde_json::to_string_pretty(value).unwrap_or_default());
    for (mark, value) in [('-', &change.before), ('+', &change.after)] {
        for line in value.iter().flat_map(|value| lines(value).lines().map(str::to_owned).collect::<Vec<_>>()) {
            add_line(&mut text, &format!("{mark}{line}"));
        }
    }
    text
}

/// A unified diff in colours.
pub(crate) fn show_lines(diff: &str) -> String {
    diff.lines().fold(String::new(), |mut text, line| {
        add_line(&mut text, &plain_text(line));
        text
    })
}

fn add_line(text: &mut String, line: &str) {
    let color = match line.as_bytes().first() {
        Some(b'+') => Some(AnsiColor::Green.into()),
        Some(b'-') => Some(AnsiColor::Red.into()),
        Some(b'@') => Some(AnsiColor::Cyan.into()),
        _ => None,
    };
    let style = Style::new().fg_color(color);
    let _ = writeln!(text, "  {style}{line}{style:#}");
}
