//! JSON with comments, edited as text: what is added is put between the bytes that are there, and what is removed is cut out
//! of them. No other byte changes, so the library only parses here; where things stand is all that is taken from it.

use jsonc_parser::ast::{Array, Object, Value as Node};
use jsonc_parser::common::{Range, Ranged};
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};
use serde_json::Value;

use super::layout::{Layout, Style, content_end, indent, next_token, write};

/// A step into an object or a list.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Step<'a> {
    Key(&'a str),
    Index(usize),
}

/// One step of a way, as it stands in the text: a child of a container.
#[derive(Debug)]
struct Spot {
    container: Range,
    children: Vec<Range>,
    index: usize,
}

impl Spot {
    fn child(&self) -> Range {
        self.children[self.index]
    }

    /// Whether nothing else is in the container, comments included.
    fn is_alone(&self, text: &str) -> bool {
        let (before, after) =
            (&text[self.container.start + 1..self.child().start], &text[self.child().end..self.container.end - 1]);
        before.trim().is_empty() && after.trim().trim_start_matches(',').trim().is_empty()
    }
}

/// The value of a text, if there is one. A client reads more than strict JSON or does not; that is for the client to say.
pub(super) fn parse(text: &str) -> Result<Option<Node<'_>>, String> {
    let options = ParseOptions {
        allow_comments: true,
        allow_trailing_commas: true,
        allow_loose_object_property_names: false,
        allow_missing_commas: false,
        allow_single_quoted_strings: false,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
        allow_bare_decimal_point_numbers: false,
        allow_non_finite_numbers: false,
        allow_extended_string_escapes: false,
    };
    let parsed = parse_to_ast(text, &CollectOptions::default(), &options);
    parsed.map(|result| result.value).map_err(|error| format!("it is not valid JSON: {error}"))
}

/// The object at a way of keys.
pub(super) fn object_at<'n, 't>(root: Option<&'n Node<'t>>, way: &[&str]) -> Result<Option<&'n Object<'t>>, String> {
    let Some(root) = root else { return Ok(None) };
    let mut object = root.as_object().ok_or("it is not a JSON object")?;
    for key in way {
        let Some(value) = property(object, key)? else { return Ok(None) };
        object = value.as_object().ok_or_else(|| format!("`{key}` is not an object"))?;
    }
    Ok(Some(object))
}

/// The list at a way of keys.
pub(super) fn list_at<'n, 't>(root: Option<&'n Node<'t>>, way: &[&str]) -> Result<Option<&'n Array<'t>>, String> {
    let Some((key, parents)) = way.split_last() else { return Ok(None) };
    let Some(object) = object_at(root, parents)? else { return Ok(None) };
    let Some(value) = property(object, key)? else { return Ok(None) };
    value.as_array().map(Some).ok_or_else(|| format!("`{key}` is not a list"))
}

/// The value of a key. Readers of JSON do not agree which of two counts, so there may be one only.
pub(super) fn property<'n, 't>(object: &'n Object<'t>, key: &str) -> Result<Option<&'n Node<'t>>, String> {
    let mut found = object.properties.iter().filter(|property| property.name.as_str() == key);
    match (found.next(), found.next()) {
        (_, Some(_)) => Err(format!("it has `{key}` twice")),
        (first, None) => Ok(first.map(|property| &property.value)),
    }
}

/// A node as a value. Numbers are of no concern here and become their text.
pub(super) fn value_of(node: &Node<'_>) -> Value {
    match node {
        Node::StringLit(text) => Value::String(text.value.to_string()),
        Node::NumberLit(number) => Value::String(number.value.to_owned()),
        Node::BooleanLit(boolean) => Value::Bool(boolean.value),
        Node::NullKeyword(_) => Value::Null,
        Node::Array(list) => list.elements.iter().map(value_of).collect(),
        Node::Object(object) => {
            let fields = object.properties.iter();
            fields.map(|field| (field.name.as_str().to_owned(), value_of(&field.value))).collect()
        }
    }
}

/// Puts `value` at a way of keys: in place of what is there, or else as the last of its object. Objects on the way are made.
pub(super) fn put(text: &str, way: &[&str], value: &Value) -> Result<String, String> {
    let root = parse(text)?;
    let steps: Vec<Step<'_>> = way.iter().map(|key| Step::Key(key)).collect();
    if let Some(node) = node_at(root.as_ref(), &steps) {
        let style = Style::of(text, root.as_ref());
        let layout = Layout::of(text, node.range());
        return Ok(splice(text, &[(node.range(), write(value, &layout, &style))]));
    }
    let mut depth = way.len() - 1;
    let object = loop {
        match object_at(root.as_ref(), &way[..depth])? {
            Some(object) => break Some(object),
            None if depth == 0 => break None,
            None => depth -= 1,
        }
    };
    let within = |keys: &[&str]| keys.iter().rev().fold(value.clone(), |inner, key| serde_json::json!({ *key: inner }));
    let Some(object) = object else {
        // Nothing is there but perhaps comments.
        let style = Style::of(text, None);
        let gap = if text.is_empty() || text.ends_with('\n') { "" } else { style.newline };
        let whole = write(&within(way), &Layout::Lines(String::new()), &style);
        return Ok(format!("{text}{gap}{whole}{}", style.newline));
    };
    let children: Vec<Range> = object.properties.iter().map(Ranged::range).collect();
    Ok(add_child(text, root.as_ref(), object.range, &children, Some(way[depth]), &within(&way[depth + 1..])))
}

/// Puts a text in place of what is at `way`.
pub(super) fn set_text(text: &str, way: &[Step<'_>], new: &str) -> Result<String, String> {
    let root = parse(text)?;
    let node = node_at(root.as_ref(), way).ok_or("what is to be replaced is not there")?;
    Ok(splice(text, &[(node.range(), Value::from(new).to_string())]))
}

/// Puts `value` at the end of the list at a way of keys.
pub(super) fn push(text: &str, way: &[&str], value: &Value) -> Result<String, String> {
    let root = parse(text)?;
    match list_at(root.as_ref(), way)? {
        None => put(text, way, &serde_json::json!([value])),
        Some(list) => {
            let children: Vec<Range> = list.elements.iter().map(Ranged::range).collect();
            Ok(add_child(text, root.as_ref(), list.range, &children, None, value))
        }
    }
}

/// Cuts out what is at `way`, and with it each container that has nothing else in it, unless `is_kept` says that it stays.
pub(super) fn cut(text: &str, way: &[Step<'_>], is_kept: impl Fn(&[Step<'_>]) -> bool) -> Result<String, String> {
    let root = parse(text)?;
    let mut spots = spots(root.as_ref(), way).ok_or("what is to be removed is not there")?;
    let mut spot = spots.pop().ok_or("nothing is to be removed")?;
    while spot.is_alone(text) && !is_kept(&way[..spots.len()]) {
        let Some(outer) = spots.pop() else { break };
        spot = outer;
    }
    Ok(cut_child(text, &spot))
}

/// Whether something is at `way`.
pub(super) fn has(text: &str, way: &[Step<'_>]) -> bool {
    parse(text).is_ok_and(|root| node_at(root.as_ref(), way).is_some())
}

fn node_at<'n, 't>(root: Option<&'n Node<'t>>, way: &[Step<'_>]) -> Option<&'n Node<'t>> {
    way.iter().try_fold(root?, |node, step| match (node, step) {
        (Node::Object(object), Step::Key(key)) => {
            object.properties.iter().find(|property| property.name.as_str() == *key).map(|property| &property.value)
        }
        (Node::Array(list), Step::Index(index)) => list.elements.get(*index),
        _ => None,
    })
}

fn spots(root: Option<&Node<'_>>, way: &[Step<'_>]) -> Option<Vec<Spot>> {
    (0..way.len())
        .map(|depth| {
            let node = node_at(root, &way[..depth])?;
            let (children, index) = match (node, way[depth]) {
                (Node::Object(object), Step::Key(key)) => {
                    let index = object.properties.iter().position(|property| property.name.as_str() == key)?;
                    (object.properties.iter().map(Ranged::range).collect(), index)
                }
                (Node::Array(list), Step::Index(index)) => (list.elements.iter().map(Ranged::range).collect(), index),
                _ => return None,
            };
            Some(Spot { container: node.range(), children, index })
        })
        .collect()
}

fn add_child(
    text: &str,
    root: Option<&Node<'_>>,
    container: Range,
    children: &[Range],
    key: Option<&str>,
    value: &Value,
) -> String {
    let style = Style::of(text, root);
    let layout = Layout::of_child(text, root, container, children.last().copied(), &style);
    let key = key.map(|key| format!("{}: ", Value::from(key))).unwrap_or_default();
    let mut child = layout.gap(&style) + &key + &write(value, &layout, &style);
    let Some(last) = children.last() else {
        let at = content_end(text, container.start + 1);
        let is_closed = text[at..container.end].contains('\n');
        if let (false, Layout::Lines(_)) = (is_closed, &layout) {
            child += &format!("{}{}", style.newline, indent(text, container.start));
        }
        return splice(text, &[(range(at, at), child)]);
    };
    let next = next_token(text, last.end);
    if text[next..].starts_with(',') {
        let at = content_end(text, next + 1);
        return splice(text, &[(range(at, at), child + ",")]);
    }
    let at = content_end(text, last.end);
    splice(text, &[(range(last.end, last.end), ",".to_owned()), (range(at, at), child)])
}

fn cut_child(text: &str, spot: &Spot) -> String {
    let child = spot.child();
    if spot.is_alone(text) {
        return splice(text, &[(range(spot.container.start + 1, spot.container.end - 1), String::new())]);
    }
    let next = next_token(text, child.end);
    let has_comma = text[next..].starts_with(',');
    // A comment between the two stays.
    let comma_follows = has_comma && text[child.end..next].trim().is_empty();
    let mut end = if comma_follows { next + 1 } else { child.end };
    let blank = text[..child.start].trim_end().len();
    let rest = text[end..].trim_start_matches([' ', '\t']);
    let mut start = child.start;
    if rest.starts_with(['\n', '\r']) || (rest.starts_with(['}', ']']) && !ends_in_comment(text, blank)) {
        // Up to the end of what stands before: the line of the child goes too.
        start = blank;
    } else {
        end = text.len() - rest.len();
    }
    let mut cuts = Vec::new();
    if !has_comma && spot.index > 0 {
        let comma = next_token(text, spot.children[spot.index - 1].end);
        cuts.push((range(comma, comma + 1), String::new()));
        start = start.max(comma + 1);
    }
    cuts.push((range(start, end), String::new()));
    if has_comma && !comma_follows {
        cuts.push((range(next, next + 1), String::new()));
    }
    splice(text, &cuts)
}

/// Whether the line that ends at `end` is a comment to its end: what followed on it would become part of the comment.
fn ends_in_comment(text: &str, end: usize) -> bool {
    text[..end].rsplit('\n').next().is_some_and(|line| line.contains("//"))
}

fn range(start: usize, end: usize) -> Range {
    Range { start, end }
}

/// Replaces ranges, which are in order.
fn splice(text: &str, changes: &[(Range, String)]) -> String {
    let mut changed = String::with_capacity(text.len());
    let mut at = 0;
    for (range, new) in changes {
        changed.push_str(&text[at..range.start]);
        changed.push_str(new);
        at = range.end;
    }
    changed + &text[at..]
}
