//! How replies look on a terminal.

use std::fmt::Write as _;
use std::io::{ErrorKind, IsTerminal, Write};
use std::iter;
use std::ops::Range;

use comfy_table::{Table, presets};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use waystone_core::clock::Timestamp;
use waystone_core::prose::steers;

use super::failure::{Declined, Failure};
use crate::platform::terminal_columns;

/// Between two columns.
const COLUMN_GAP: usize = 2;
/// Before columns that follow on a line of their own.
const FOLLOWS: &str = "    ";

pub(crate) struct Out {
    pub(crate) json: bool,
}

impl Out {
    /// Prints `reply` as JSON, or else what `text` makes of it.
    pub(crate) fn print<T: Serialize>(&self, reply: &T, text: impl FnOnce(&T) -> String) -> anyhow::Result<()> {
        let shown = if self.json { plain_json(&serde_json::to_string_pretty(reply)?) } else { text(reply) };
        // What stands in it cannot steer a terminal; colours of ours go where they can be shown.
        match writeln!(anstream::stdout().lock(), "{}", shown.trim_end()) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
            done => Ok(done?),
        }
    }
}

/// Asks a person before `what` is deleted, and says what comes of it.
pub(crate) fn confirm(what: &str, outcome: &str) -> anyhow::Result<()> {
    let question = format!("Delete {what}? {outcome}");
    ask(&question, &format!("{what} is deleted"), "nothing was deleted")
}

/// Asks a person whether something is to be done. Without a terminal there is no one to ask, so it must have been said before.
pub(crate) fn ask(question: &str, what_is_done: &str, when_refused: &str) -> anyhow::Result<()> {
    if !std::io::stdin().is_terminal() {
        let message = format!("{what_is_done} only when that is confirmed, and there is no terminal to ask on");
        return Err(Failure { code: "INVALID_INPUT", message, hint: "use --yes".to_owned() }.into());
    }
    let mut stderr = std::io::stderr();
    write!(stderr, "{question} [y/N] ")?;
    loop {
        let mut answer = String::new();
        if std::io::stdin().read_line(&mut answer)? == 0 {
            // What comes next begins a line.
            writeln!(stderr)?;
            return Err(Declined(when_refused.to_owned()).into());
        }
        match answer.trim().to_lowercase().as_str() {
            "y" | "yes" => return Ok(()),
            "" | "n" | "no" => return Err(Declined(when_refused.to_owned()).into()),
            _ => write!(stderr, "Answer y or n: [y/N] ")?,
        }
    }
}

/// Where a terminal is too narrow for all columns, those that do not fit follow on lines of their own. A column in which nothing stands
/// is left out.
pub(crate) fn table(header: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let rows = rows.into_iter().map(|row| row.iter().map(|cell| plain(cell)).collect());
    let rows: Vec<Vec<String>> =
        iter::once(header.iter().map(|name| (*name).to_owned()).collect()).chain(rows).collect();
    table_within(&without_empty_columns(rows), terminal_columns(std::io::stdout()).unwrap_or(usize::MAX))
}

/// The first row is the header.
fn without_empty_columns(rows: Vec<Vec<String>>) -> Vec<Vec<String>> {
    let has_text =
        |at: usize| rows.len() < 2 || rows[1..].iter().any(|row| row.get(at).is_some_and(|cell| !cell.is_empty()));
    let kept: Vec<bool> = (0..rows.first().map_or(0, Vec::len)).map(has_text).collect();
    let keep = |row: Vec<String>| row.into_iter().zip(&kept).filter(|(_, kept)| **kept).map(|(cell, _)| cell).collect();
    rows.into_iter().map(keep).collect()
}

fn table_within(rows: &[Vec<String>], columns_max: usize) -> String {
    let widths = part(rows, 0..usize::MAX).column_max_content_widths();
    let (mut parts, mut first, mut taken) = (Vec::new(), 0, 0);
    for (at, width) in widths.iter().enumerate() {
        if at > first && taken + usize::from(*width) > columns_max {
            parts.push(first..at);
            (first, taken) = (at, FOLLOWS.len());
        }
        taken += usize::from(*width) + COLUMN_GAP;
    }
    parts.push(first..widths.len());
    let lines =
        |part: Table| part.lines().map(|line| line.strip_prefix(' ').unwrap_or(&line).trim_end().to_owned()).collect();
    let parts: Vec<Vec<String>> = parts.into_iter().map(|columns| lines(part(rows, columns))).collect();
    let mut text = String::new();
    for row in 0..rows.len() {
        for (at, part) in parts.iter().enumerate() {
            let line = part.get(row).map_or("", String::as_str);
            if at == 0 || !line.is_empty() {
                let _ = writeln!(text, "{}{line}", if at == 0 { "" } else { FOLLOWS });
            }
        }
    }
    text
}

/// Some columns of a table.
fn part(rows: &[Vec<String>], columns: Range<usize>) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    for (at, row) in rows.iter().enumerate() {
        let row = row.iter().skip(columns.start).take(columns.len());
        if at == 0 {
            table.set_header(row)
        } else {
            table.add_row(row)
        };
    }
    table
}

/// Two columns: what it is and its value, where it has one.
pub(crate) fn fields(fields: &[(&str, String)]) -> String {
    let width = fields.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
    fields.iter().filter(|(_, value)| !value.is_empty()).fold(String::new(), |mut text, (name, value)| {
        let _ = writeln!(text, "{name:width$}  {}", plain(value));
        text
    })
}

/// Stored text with its control characters made visible, so that it cannot steer a terminal.
pub(crate) fn plain(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut shown, c| {
        if steers(c) {
            let _ = write!(shown, "{}", c.escape_unicode());
        } else {
            shown.push(c);
        }
        shown
    })
}

/// [`plain`] text with its lines and tabs.
pub(crate) fn plain_text(text: &str) -> String {
    text.split('\n')
        .map(|line| line.split('\t').map(plain).collect::<Vec<_>>().join("\t"))
        .collect::<Vec<_>>()
        .join("\n")
}

/// [`plain`] text on one line: what a library says may have several.
pub(crate) fn line(text: &str) -> String {
    plain(&text.lines().map(str::trim).collect::<Vec<_>>().join(" "))
}

/// JSON in which such characters, which can stand only inside its texts, are written as escapes: the same JSON still.
pub(crate) fn plain_json(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut shown, c| {
        if steers(c) && c != '\n' {
            // Of some characters JSON has two halves.
            for half in c.encode_utf16(&mut [0; 2]) {
                let _ = write!(shown, "\\u{half:04x}");
            }
        } else {
            shown.push(c);
        }
        shown
    })
}

/// A number of things: `1 checkpoint`, `2 checkpoints`.
pub(crate) fn count(number: u64, thing: &str) -> String {
    format!("{} {thing}{}", thousands(number), if number == 1 { "" } else { "s" })
}

/// A text that leaves room for the other columns.
pub(crate) fn short(text: &str) -> String {
    cut(text, 32)
}

pub(crate) fn cut(text: &str, chars: usize) -> String {
    match text.char_indices().nth(chars) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// A time to the second.
pub(crate) fn time(at: Timestamp) -> String {
    at.to_string().replacen('T', " ", 1).split('.').next().unwrap_or_default().to_owned() + "Z"
}

/// How long ago something was, for lists; where one thing is shown it has its [`time`].
pub(crate) fn ago(at: Timestamp, now: Timestamp) -> String {
    format!("{} ago", now.age_of(at))
}

/// An age that is told in hours.
pub(crate) fn age(hours: f64) -> String {
    Timestamp::from_ms((hours * 3_600_000.0) as i64).age_of(Timestamp::from_ms(0))
}

/// A number as people read it: `128,000`.
pub(crate) fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<&[u8]> = digits.as_bytes().rchunks(3).rev().collect();
    groups.iter().map(|group| String::from_utf8_lossy(group)).collect::<Vec<_>>().join(",")
}

pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    let mut amount = count as f64 / 1024.0;
    if amount < 1.0 {
        return format!("{count} B");
    }
    let mut unit = 0;
    while amount >= 1024.0 && unit < UNITS.len() - 1 {
        amount /= 1024.0;
        unit += 1;
    }
    format!("{amount:.1} {}", UNITS[unit])
}

/// How far something is, shown on standard error, and only on a terminal.
pub(crate) fn bar(what: &'static str) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg} [{bar:30}] {pos}/{len} {eta}");
    ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar())).with_message(what)
}

/// That something goes on whose end is not known, shown in the same way.
pub(crate) fn spinner(what: &'static str) -> ProgressBar {
    let spinner = ProgressBar::new_spinner().with_message(what);
    spinner.enable_steady_tick(std::time::Duration::from_millis(100));
    spinner
}

pub(crate) fn advance(bar: &ProgressBar, done: u64, total: u64) {
    bar.set_length(total);
    bar.set_position(done);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_that_a_terminal_has_no_room_for_follow_on_a_line_of_their_own() {
        let row = |cells: [&str; 4]| cells.map(str::to_owned).to_vec();
        let rows =
            [row(["ID", "WHEN", "SIZE", "NAME"]), row(["a", "2 min ago", "12 B", "one"]), row(["b", "now", "", ""])];
        let wide = "ID  WHEN       SIZE  NAME\na   2 min ago  12 B  one\nb   now\n";
        assert_eq!(table_within(&rows, 80), wide);
        assert_eq!(table_within(&rows, 18), "ID  WHEN\n    SIZE  NAME\na   2 min ago\n    12 B  one\nb   now\n");
    }

    #[test]
    fn a_column_in_which_nothing_stands_is_left_out() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        assert_eq!(table(&["ID", "NAME", "SIZE"], [row(["a", "", "1"]), row(["b", "", ""])]), "ID  SIZE\na   1\nb\n");
        assert_eq!(table(&["ID", "NAME", "SIZE"], []), "ID  NAME  SIZE\n");
    }

    #[test]
    fn control_characters_cannot_reach_a_terminal() {
        assert_eq!(plain("a\u{1b}[31mb\nc\u{9b}d\u{202e}"), "a\\u{1b}[31mb\\u{a}c\\u{9b}d\\u{202e}");
        let hostile = "{\n\"a\": \"\u{9b}31m\u{7f}\u{202e}\u{2028}\u{e0041}é\"}";
        let shown = plain_json(hostile);
        assert_eq!(shown, "{\n\"a\": \"\\u009b31m\\u007f\\u202e\\u2028\\udb40\\udc41é\"}");
        let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        assert_eq!(value(&shown), value(hostile), "the same JSON still");
    }

    #[test]
    fn numbers_are_read_in_thousands() {
        for (number, shown) in [(0, "0"), (999, "999"), (4_000, "4,000"), (1_047_576, "1,047,576")] {
            assert_eq!(thousands(number), shown);
        }
    }

    #[test]
    fn ages_are_told_in_one_unit() {
        for (hours, told) in [(0.0, "0 s"), (0.1, "6 min"), (1.0, "60 min"), (47.9, "47 h"), (48.0, "2 days")] {
            assert_eq!(age(hours), told);
        }
        let (at, now) = (Timestamp::from_ms(0), Timestamp::from_ms(130_000));
        assert_eq!((ago(at, now), ago(now, at)), ("2 min ago".to_owned(), "0 s ago".to_owned()));
    }

    #[test]
    fn sizes_are_shown_in_the_largest_unit_that_fits() {
        for (count, shown) in
            [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1_572_864, "1.5 MiB"), (u64::MAX, "16777216.0 TiB")]
        {
            assert_eq!(bytes(count), shown);
        }
    }
}
