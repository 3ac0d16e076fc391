//! A call of a tool as a person sees it who is to decide about it.
//!
//! Every argument has a line of its own, so that none is pushed out of sight by another, and nothing in one looks like another.

use serde_json::Value;

use crate::cli::render::{cut, line, plain_text};

/// So wide is a narrow terminal.
pub(super) const COLUMNS: usize = 80;
const NAME_CHARS_MAX: usize = 24;
/// So many arguments are shown before someone asks for all.
const ARGUMENTS_MAX: usize = 12;

/// A call on one line between brackets.
pub(super) fn call_line(tool: &str, arguments: &Value) -> String {
    cut(&line(&format!("{tool} {arguments}")), COLUMNS - "[…]".chars().count())
}

/// Arguments, each on one line.
pub(super) fn shown_in_short(arguments: &Value) -> String {
    let Value::Object(arguments) = arguments else { return format!("  {}\n", fitted(arguments, COLUMNS - 2)) };
    let name = |name: &str| cut(&line(name), NAME_CHARS_MAX);
    let width = arguments.keys().take(ARGUMENTS_MAX).map(|key| name(key).chars().count()).max().unwrap_or_default();
    let shown = arguments.iter().take(ARGUMENTS_MAX);
    let shown = shown.map(|(key, value)| format!("  {:width$}  {}\n", name(key), fitted(value, COLUMNS - width - 4)));
    let more = match arguments.len().saturating_sub(ARGUMENTS_MAX) {
        0 => String::new(),
        more => format!("  and {more} more, which s shows\n"),
    };
    shown.chain([more]).collect()
}

fn fitted(value: &Value, room: usize) -> String {
    let written = line(&value.to_string());
    let chars = written.chars().count();
    if chars <= room {
        return written;
    }
    let rest = format!(" (s shows all {chars} characters)");
    cut(&written, room.saturating_sub(rest.len() + 1)) + &rest
}

/// Arguments as they are. A text of several lines is shown as such.
pub(super) fn shown_in_full(arguments: &Value) -> String {
    let Value::Object(arguments) = arguments else { return format!("{}\n", plain_text(&format!("{arguments:#}"))) };
    let shown = arguments.iter().map(|(name, value)| match value {
        Value::String(text) if text.contains('\n') => {
            format!("{}:\n  {}\n", line(name), plain_text(text).replace('\n', "\n  "))
        }
        value => format!("{}: {}\n", line(name), plain_text(&format!("{value:#}")).replace('\n', "\n  ")),
    });
    shown.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn no_argument_hides_another_and_every_line_fits() {
        let check = |arguments: Value, shown: &str| assert_eq!(shown_in_short(&arguments), shown);
        check(json!({ "path": "a.txt", "content": "hi" }), "  path     \"a.txt\"\n  content  \"hi\"\n");
        let (long, rest) = ("x".repeat(500), "… (s shows all 502 characters)");
        let begun = format!("\"{}", "x".repeat(69 - rest.chars().count() - 1));
        check(json!({ "content": long, "path": "a" }), &format!("  content  {begun}{rest}\n  path     \"a\"\n"));
        check(json!({ "a\n  path": "\u{1b}[2J\u{202e}" }), "  a path  \"\\u001b[2J\\u{202e}\"\n");
        check(json!([1]), "  [1]\n");
        check(json!({}), "");

        let many: Value = (0..20).map(|n| (format!("{n}{}", "n".repeat(90)), json!(long))).collect();
        let many = shown_in_short(&many);
        assert!(many.ends_with("  and 8 more, which s shows\n"), "{many}");
        assert!(many.lines().all(|line| line.chars().count() <= COLUMNS), "{many}");
        assert_eq!(call_line("tool", &json!({ "a": long })).chars().count(), COLUMNS - 2);
    }

    #[test]
    fn all_of_a_text_is_shown_and_none_of_its_lines_is_an_argument() {
        let shown = shown_in_full(&json!({ "path": "a", "content": "one\npath: \"b\"\n\u{1b}[1A\r", "list": [1] }));
        let lines =
            ["path: \"a\"", "content:", "  one", "  path: \"b\"", "  \\u{1b}[1A\\u{d}", "list: [", "    1", "  ]"];
        assert_eq!(shown, lines.join("\n") + "\n");
    }
}
