//! `read_file`: the text of a file, by lines.

use std::io::{BufRead, BufReader, Read};

use serde_json::json;
use waystone_core::api::Tool;

use super::argument::Arguments;
use super::folder::{Folder, failure, shown};
use super::report::TEXT_BYTES_MAX;
use super::{Patience, schema};

/// How far into a file lines are counted.
const SCANNED_BYTES_MAX: u64 = 64 * 1024 * 1024;

pub(super) fn tool() -> Tool {
    let kibibytes = TEXT_BYTES_MAX / 1024;
    Tool {
        name: "read_file".to_owned(),
        description: format!(
            "Reads a text file of the workspace. At most {kibibytes} KiB at once; when there is more, the last line says with \
             which offset to go on."
        ),
        input_schema: schema(
            json!({
                "path": { "type": "string", "description": "The file, relative to the workspace." },
                "offset": { "type": "integer", "minimum": 1, "description": "The first line to read, from 1 on. Default 1." },
                "limit": { "type": "integer", "minimum": 1, "description": "How many lines. Default: as many as fit." },
            }),
            &["path"],
        ),
        read_only: true,
        idempotent: true,
    }
}

pub(super) fn run(folder: &Folder, arguments: &Arguments<'_>, _: &Patience) -> Result<String, String> {
    let path = folder.relative(arguments.required_text("path")?)?;
    let offset = arguments.count("offset")?.unwrap_or(1);
    let limit = arguments.count("limit")?.unwrap_or(usize::MAX);
    let mut reader = BufReader::with_capacity(64 * 1024, folder.open_file(&path)?.take(SCANNED_BYTES_MAX));
    for line in 1..offset {
        if reader.skip_until(b'\n').map_err(|error| failure(&path, &error))? == 0 {
            return Err(past_end(&path, line - 1, reader.get_ref().limit()));
        }
    }
    let mut bytes = Vec::new();
    let mut piece = reader.by_ref().take(TEXT_BYTES_MAX as u64 + 1);
    piece.read_to_end(&mut bytes).map_err(|error| failure(&path, &error))?;
    if bytes.is_empty() && offset > 1 {
        return Err(past_end(&path, offset - 1, reader.get_ref().limit()));
    }
    let end = end(&bytes, limit);
    let text =
        text(&bytes, end).ok_or_else(|| format!("`{}` is not text in UTF-8: it cannot be read", shown(&path)))?;
    Ok(match (text.is_empty(), end < bytes.len()) {
        (true, _) => "[the file is empty]".to_owned(),
        (_, false) => text.to_owned(),
        (_, true) if text.ends_with('\n') => {
            let next = offset.saturating_add(text.lines().count());
            format!("{text}[lines {offset} to {}; there is more: go on with offset {next}]", next - 1)
        }
        (_, true) => {
            let next = offset.saturating_add(1);
            format!("{text}\n[line {offset} is cut here: it is too long; what follows it begins at offset {next}]")
        }
    })
}

/// Where the piece ends that is shown: after `limit` lines, and after whole lines unless one alone is too long.
fn end(bytes: &[u8], limit: usize) -> usize {
    let fitting = &bytes[..bytes.len().min(TEXT_BYTES_MAX)];
    let mut ends = fitting.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1);
    if let Some(end) = ends.nth(limit - 1) {
        return end;
    }
    if bytes.len() == fitting.len() {
        return bytes.len();
    }
    fitting.iter().rposition(|byte| *byte == b'\n').map_or(fitting.len(), |at| at + 1)
}

/// None if it is no text. A character that `end` divides is left out.
fn text(bytes: &[u8], end: usize) -> Option<&str> {
    if bytes.contains(&0) {
        return None;
    }
    match str::from_utf8(&bytes[..end]) {
        Ok(text) => Some(text),
        Err(error) if error.error_len().is_none() && end < bytes.len() => {
            str::from_utf8(&bytes[..error.valid_up_to()]).ok()
        }
        Err(_) => None,
    }
}

fn past_end(path: &str, lines: usize, scannable_bytes: u64) -> String {
    let path = shown(path);
    match (scannable_bytes, lines) {
        (0, _) => {
            format!("only the first {} MiB of `{path}` can be read: give a smaller offset", SCANNED_BYTES_MAX >> 20)
        }
        (_, 1) => format!("`{path}` has 1 line: give a smaller offset"),
        _ => format!("`{path}` has {lines} lines: give a smaller offset"),
    }
}
