//! Our server in a TOML file, edited as text: a table at the end, or its lines cut out. The library says where things stand;
//! it would write other line ends than it read.

use std::ops::Range;

use serde_json::{Map, Value};
use toml_edit::{Document, Item, Table, Value as Toml};

use super::layout::newline_of;
use super::part::NAME;

/// Where Codex has servers.
const SERVERS: &str = "mcp_servers";

pub(super) fn find(text: &str) -> Result<Option<Value>, String> {
    Ok(server(&parse(text)?)?.map(value_of))
}

/// Adds the server. One that is there is removed before.
pub(super) fn add(text: &str, server: &Value) -> Result<String, String> {
    let text = remove(text)?;
    let newline = newline_of(&text);
    let gap = match text.as_str() {
        "" => String::new(),
        text if text.ends_with('\n') => newline.to_owned(),
        _ => newline.repeat(2),
    };
    let fields = server.as_object().into_iter().flatten();
    let lines: Vec<String> = fields.map(|(key, value)| format!("{key} = {}{newline}", toml_of(value))).collect();
    Ok(format!("{text}{gap}[{SERVERS}.{NAME}]{newline}{}", lines.concat()))
}

/// Cuts out the lines of the server, and one empty line before each of its tables.
pub(super) fn remove(text: &str) -> Result<String, String> {
    let document = parse(text)?;
    let Some(item) = server(&document)? else { return Ok(text.to_owned()) };
    let mut cuts = Vec::new();
    collect(item, text, &mut cuts);
    cuts.sort_by_key(|cut: &Range<usize>| cut.start);
    let (mut rest, mut at) = (String::new(), 0);
    for cut in cuts {
        rest.push_str(&text[at..cut.start.max(at)]);
        at = cut.end.max(at);
    }
    Ok(rest + &text[at..])
}

fn parse(text: &str) -> Result<Document<&str>, String> {
    Document::parse(text).map_err(|error| format!("it is not valid TOML: {}", error.message()))
}

fn server<'d>(document: &'d Document<&str>) -> Result<Option<&'d Item>, String> {
    match document.as_table().get(SERVERS) {
        None => Ok(None),
        Some(Item::Table(servers)) => match servers.get(NAME) {
            Some(Item::Value(Toml::InlineTable(_)) | Item::Table(_)) | None => Ok(servers.get(NAME)),
            Some(_) => Err(format!("`{SERVERS}.{NAME}` is not a table")),
        },
        Some(Item::Value(Toml::InlineTable(_))) => {
            Err(format!("`{SERVERS}` is written between braces; write its servers as tables, [{SERVERS}.name]"))
        }
        Some(_) => Err(format!("`{SERVERS}` is not a table")),
    }
}

/// The lines of an item: its header and each of its values has lines of its own.
fn collect(item: &Item, text: &str, cuts: &mut Vec<Range<usize>>) {
    let lines = |span: Range<usize>| {
        let start = text[..span.start].rfind('\n').map_or(0, |newline| newline + 1);
        start..text[span.end..].find('\n').map_or(text.len(), |newline| span.end + newline + 1)
    };
    match item {
        Item::Table(table) => {
            if let (false, false, Some(span)) = (table.is_implicit(), table.is_dotted(), table.span()) {
                let mut header = lines(span);
                header.start = without_empty_line(&text[..header.start]);
                cuts.push(header);
            }
            table.iter().for_each(|(_, item)| collect(item, text, cuts));
        }
        Item::ArrayOfTables(tables) => {
            for table in tables {
                cuts.extend(Table::span(table).map(lines));
                table.iter().for_each(|(_, item)| collect(item, text, cuts));
            }
        }
        Item::Value(value) => cuts.extend(value.span().map(lines)),
        Item::None => {}
    }
}

fn without_empty_line(before: &str) -> usize {
    let line = before.strip_suffix('\n').map_or(before, |line| line.strip_suffix('\r').unwrap_or(line));
    if line.is_empty() || line.ends_with('\n') { line.len() } else { before.len() }
}

fn value_of(item: &Item) -> Value {
    match item {
        Item::Value(value) => inline_value_of(value),
        Item::Table(table) => {
            table.iter().map(|(key, item)| (key.to_owned(), value_of(item))).collect::<Map<_, _>>().into()
        }
        Item::ArrayOfTables(tables) => Value::from(tables.to_string()),
        Item::None => Value::Null,
    }
}

/// Values that we never write become their text, which differs from all that we write.
fn inline_value_of(value: &Toml) -> Value {
    match value {
        Toml::String(text) => Value::from(text.value().as_str()),
        Toml::Array(list) => list.iter().map(inline_value_of).collect(),
        Toml::InlineTable(table) => {
            table.iter().map(|(key, value)| (key.to_owned(), inline_value_of(value))).collect::<Map<_, _>>().into()
        }
        other => Value::from(format!("{other:?}")),
    }
}

fn toml_of(value: &Value) -> Toml {
    match value {
        Value::Array(list) => Toml::Array(list.iter().map(toml_of).collect()),
        Value::Object(fields) => {
            Toml::InlineTable(fields.iter().map(|(key, value)| (key.as_str(), toml_of(value))).collect())
        }
        other => Toml::from(other.as_str().unwrap_or_default()),
    }
}
