//! `cargo xtask docs`: the parts of the guide that are made of the product itself, so that they cannot say otherwise.
//!
//! A page has an introduction that people write, then [`MARK`], then what a file in `docs/` here makes of the binary's own
//! words: help, schema, tools and OpenAPI. The README's picture is real output too, drawn by `tools/picture.py`.

mod cli;
mod configuration;
mod mcp;
mod rest;

use std::fs;
use std::path::Path;

use anyhow::Context;
use serde_json::Value;

use crate::{root, say, sh};

const MARK: &str = "<!-- What follows is made by `cargo xtask docs`. -->\n";

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Change nothing, and fail when a page is not what the binary says
    #[arg(long)]
    pub(crate) check: bool,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    if !options.check {
        sh("cargo", &["build", "--package", "waystone"])?;
    }
    let binary = waystone_testkit::process::binary("waystone");
    let scratch = tempfile::tempdir()?;
    let pages = [
        ("configuration.md", configuration::page(&binary, scratch.path())?),
        ("cli.md", cli::page(&binary, scratch.path())?),
        ("rest.md", rest::page(&binary, scratch.path())?),
        ("mcp.md", mcp::page(&binary, scratch.path())?),
    ];
    for (name, made) in pages {
        put(&root().join("docs/guide").join(name), &made, options.check)?;
    }
    let picture = ["tools/picture.py", &binary.to_string_lossy(), "docs/picture.svg"].map(str::to_owned);
    let check = options.check.then(|| "--check".to_owned());
    let arguments: Vec<String> = picture.into_iter().chain(check).collect();
    sh("python3", &arguments.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Puts `made` behind the mark of a page, or looks whether it is there.
fn put(page: &Path, made: &str, check: bool) -> anyhow::Result<()> {
    let now = fs::read_to_string(page).with_context(|| format!("{} cannot be read", page.display()))?;
    let (written, _) = now.split_once(MARK).with_context(|| format!("{} has no line {MARK}", page.display()))?;
    let wanted = format!("{written}{MARK}\n{}\n", made.trim_end());
    if wanted == now {
        return Ok(());
    }
    anyhow::ensure!(!check, "{} is not current; `cargo xtask docs` makes it anew", page.display());
    fs::write(page, wanted)?;
    say(format_args!("wrote {}", page.display()));
    Ok(())
}

/// A table of the reference; one without rows is left out.
fn table(head: [&str; 3], rows: &[[String; 3]]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let rows: String = rows.iter().map(|row| format!("| {} |\n", row.join(" | "))).collect();
    format!("| {} |\n|---|---|---|\n{rows}\n", head.join(" | "))
}

/// Text as it stands in Markdown, in a cell of a table too: what would be markup outside of code is escaped.
fn prose(text: &str) -> String {
    let mut is_code = false;
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '`' => is_code = !is_code,
            '\n' => {
                escaped.push(' ');
                continue;
            }
            '|' => escaped.push('\\'),
            '<' | '*' | '[' | ']' if !is_code => escaped.push('\\'),
            _ => {}
        }
        escaped.push(character);
    }
    escaped
}

/// What a JSON schema takes, in a few words.
fn kind(schema: &Value) -> String {
    let any = schema["anyOf"].as_array().or(schema["oneOf"].as_array());
    if let Some(any) = any {
        return or(any.iter().map(kind));
    }
    if let Some(values) = schema["enum"].as_array() {
        return or(values.iter().map(literal));
    }
    if !schema["const"].is_null() {
        return literal(&schema["const"]);
    }
    match &schema["type"] {
        Value::String(kind) => named(kind, schema),
        Value::Array(kinds) => or(kinds.iter().filter_map(Value::as_str).map(|kind| named(kind, schema))),
        _ => "any".to_owned(),
    }
}

fn named(kind: &str, schema: &Value) -> String {
    let items = &schema["items"];
    match (kind, items["type"].as_str()) {
        ("array", Some(plain)) if items["enum"].is_null() => format!("list of {plain}s"),
        ("array", _) if items.is_object() => format!("list of {}", self::kind(items)),
        ("array", _) => "list".to_owned(),
        ("boolean", _) => "true or false".to_owned(),
        _ => kind.to_owned(),
    }
}

fn literal(value: &Value) -> String {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    format!("`{text}`")
}

/// `a, b or c`, each once and without `null`: what may be null may be left out.
fn or(words: impl Iterator<Item = String>) -> String {
    let mut all: Vec<String> = Vec::new();
    for word in words.filter(|word| word != "null") {
        if !all.contains(&word) {
            all.push(word);
        }
    }
    match all.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => "null".to_owned(),
    }
}

/// Fields of an object's schema: name, what it takes, what it means; needed ones in bold, first.
fn fields(schema: &Value) -> Vec<[String; 3]> {
    let needed: Vec<&str> = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let all: Vec<(&String, &Value)> = schema["properties"].as_object().into_iter().flatten().collect();
    let (first, rest): (Vec<_>, Vec<_>) = all.into_iter().partition(|(name, _)| needed.contains(&name.as_str()));
    let row = |name: String, schema: &Value| {
        let default = match &schema["default"] {
            Value::Null => String::new(),
            default => format!("; {} when left out", literal(default)),
        };
        let text = schema["description"].as_str().unwrap_or_default();
        [name, prose(&(kind(schema) + &default)), prose(text)]
    };
    let first = first.into_iter().map(|(name, schema)| row(format!("**`{name}`**"), schema));
    first.chain(rest.into_iter().map(|(name, schema)| row(format!("`{name}`"), schema))).collect()
}

/// Names of an object's fields, in a sentence; those that may be missing come last.
fn names(schema: &Value) -> String {
    let needed: Vec<&str> = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let all: Vec<&String> = schema["properties"].as_object().into_iter().flatten().map(|(name, _)| name).collect();
    let (always, maybe): (Vec<_>, Vec<_>) = all.into_iter().partition(|name| needed.contains(&name.as_str()));
    let list = |names: Vec<&String>| names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    match (always.is_empty(), maybe.is_empty()) {
        (true, _) => list(maybe),
        (false, true) => list(always),
        (false, false) => format!("{}; maybe {}", list(always), list(maybe)),
    }
}
