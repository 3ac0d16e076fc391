//! How a JSON file is laid out, so that what is added to it looks as if its owner had written it.

use jsonc_parser::ast::Value as Node;
use jsonc_parser::common::{Range, Ranged};
use serde_json::Value;

/// What a file uses throughout.
#[derive(Debug)]
pub(super) struct Style {
    pub(super) newline: &'static str,
    /// One step of indentation.
    unit: String,
}

impl Style {
    pub(super) fn of(text: &str, root: Option<&Node<'_>>) -> Self {
        let outer = root.map_or("", |root| indent(text, root.range().start));
        let first = root.and_then(Node::as_object).and_then(|object| object.properties.first());
        let inner = first.and_then(|property| own_indent(text, property.range.start)).unwrap_or_default();
        let unit = inner.strip_prefix(outer).unwrap_or_default();
        Self { newline: newline_of(text), unit: if unit.is_empty() { "  ".to_owned() } else { unit.to_owned() } }
    }
}

/// How lines of a text end.
pub(super) fn newline_of(text: &str) -> &'static str {
    match text.find('\n') {
        Some(at) if text[..at].ends_with('\r') => "\r\n",
        _ => "\n",
    }
}

/// Where a value stands.
#[derive(Debug, Clone)]
pub(super) enum Layout {
    /// On a line that begins with this, so that what is in it has lines of its own.
    Lines(String),
    /// Among others on one line.
    Inline,
}

impl Layout {
    /// The layout of what is there.
    pub(super) fn of(text: &str, value: Range) -> Self {
        let has_lines = text[value.start..value.end].contains('\n');
        let is_alone = text[..value.start].rsplit('\n').next().is_some_and(|before| !before.contains(['{', '[']));
        if has_lines || is_alone { Self::Lines(indent(text, value.start).to_owned()) } else { Self::Inline }
    }

    /// The layout of a new last child.
    pub(super) fn of_child(
        text: &str,
        root: Option<&Node<'_>>,
        container: Range,
        last: Option<Range>,
        style: &Style,
    ) -> Self {
        let has_lines = |range: Range| text[range.start..range.end].contains('\n');
        let file_has_lines = root.is_none_or(|root| has_lines(root.range()) || root.range() == container);
        match last {
            Some(last) if has_lines(container) => match own_indent(text, last.start) {
                Some(indent) => Self::Lines(indent.to_owned()),
                None => Self::Lines(indent(text, container.start).to_owned() + &style.unit),
            },
            None if has_lines(container) || file_has_lines => {
                Self::Lines(indent(text, container.start).to_owned() + &style.unit)
            }
            _ => Self::Inline,
        }
    }

    /// What stands before a new child.
    pub(super) fn gap(&self, style: &Style) -> String {
        match self {
            Self::Lines(indent) => format!("{}{indent}", style.newline),
            Self::Inline => " ".to_owned(),
        }
    }
}

/// The white space that a line begins with.
pub(super) fn indent(text: &str, at: usize) -> &str {
    let start = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
    let line = &text[start..];
    &line[..line.len() - line.trim_start_matches([' ', '\t']).len()]
}

/// The same, if what is at `at` is the first on its line.
fn own_indent(text: &str, at: usize) -> Option<&str> {
    let start = text[..at].rfind('\n')? + 1;
    text[start..at].trim_matches([' ', '\t']).is_empty().then(|| &text[start..at])
}

/// A value as text. Lists of texts stay on one line.
pub(super) fn write(value: &Value, layout: &Layout, style: &Style) -> String {
    let Layout::Lines(indent) = layout else { return write_inline(value) };
    let inner = Layout::Lines(format!("{indent}{}", style.unit));
    let (open, close, children): (_, _, Vec<String>) = match value {
        Value::Object(fields) if !fields.is_empty() => {
            let field = |(key, value): (&String, &Value)| {
                format!("{}: {}", Value::from(key.as_str()), write(value, &inner, style))
            };
            ('{', '}', fields.iter().map(field).collect())
        }
        Value::Array(list) if list.iter().any(Value::is_object) => {
            ('[', ']', list.iter().map(|value| write(value, &inner, style)).collect())
        }
        _ => return write_inline(value),
    };
    let gap = inner.gap(style);
    format!("{open}{gap}{}{}{close}", children.join(&format!(",{gap}")), layout.gap(style))
}

fn write_inline(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let field =
                |(key, value): (&String, &Value)| format!("{}: {}", Value::from(key.as_str()), write_inline(value));
            format!("{{{}}}", fields.iter().map(field).collect::<Vec<_>>().join(", "))
        }
        Value::Array(list) => format!("[{}]", list.iter().map(write_inline).collect::<Vec<_>>().join(", ")),
        other => other.to_string(),
    }
}

/// The end of what stands on the line after `at`, comments included.
pub(super) fn content_end(text: &str, at: usize) -> usize {
    let blank = text[at..].len() - text[at..].trim_start_matches([' ', '\t']).len();
    match comment_end(text, at + blank) {
        Some(end) if !text[at..end].contains('\n') => content_end(text, end),
        _ => at,
    }
}

/// The place of the next that is neither white space nor comment.
pub(super) fn next_token(text: &str, at: usize) -> usize {
    let start = text.len() - text[at..].trim_start().len();
    comment_end(text, start).map_or(start, |end| next_token(text, end))
}

/// The end of the comment that begins at `at`, if one does.
fn comment_end(text: &str, at: usize) -> Option<usize> {
    let rest = &text[at..];
    if rest.starts_with("//") {
        return Some(at + rest.find(['\n', '\r']).unwrap_or(rest.len()));
    }
    rest.starts_with("/*").then(|| rest.find("*/").map_or(text.len(), |end| at + end + 2))
}
