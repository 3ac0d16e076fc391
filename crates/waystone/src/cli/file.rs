//! A context or a text from a file or from standard input.

use std::io::{self, Read};
use std::path::Path;

use serde_json::{Map, Value};
use waystone_core::Error;
use waystone_core::json::parse_strict;

use super::failure::Failure;

/// Reads the object in a file of up to `bytes_max`. A file that is named alone may have been meant as a session.
pub(super) fn read_context(path: &Path, bytes_max: u64, is_alone: bool) -> anyhow::Result<Map<String, Value>> {
    let text = read(path, bytes_max, is_alone)?;
    Ok(object(&text).map_err(|error| Error::InvalidInput(format!("{}: {error}", name_of(path))))?)
}

/// Reads the text in a file of up to `bytes_max`.
pub(super) fn read_text(path: &Path, bytes_max: u64) -> anyhow::Result<String> {
    let text = read(path, bytes_max, false)?;
    let not_text = |_| Error::InvalidInput(format!("{}: it is not UTF-8", name_of(path)));
    Ok(String::from_utf8(text).map_err(not_text)?)
}

pub(super) fn object(text: &[u8]) -> Result<Map<String, Value>, String> {
    match parse_strict(text)? {
        Value::Object(object) => Ok(object),
        _ => Err("it is not a JSON object".to_owned()),
    }
}

fn is_standard_input(path: &Path) -> bool {
    path == Path::new("-")
}

fn name_of(path: &Path) -> String {
    if is_standard_input(path) { "standard input".to_owned() } else { path.display().to_string() }
}

fn read(path: &Path, bytes_max: u64, is_alone: bool) -> anyhow::Result<Vec<u8>> {
    let name = name_of(path);
    let failed = |what: &str, error: &io::Error| Failure {
        code: "INVALID_INPUT",
        message: format!("cannot {what} {name}: {error}"),
        hint: match is_alone {
            true => "one argument is FILE, two are SESSION and FILE; `-` reads standard input".to_owned(),
            false => "name a file; `-` reads standard input".to_owned(),
        },
    };
    let source: Box<dyn Read> = match is_standard_input(path) {
        true => Box::new(io::stdin()),
        false => Box::new(std::fs::File::open(path).map_err(|error| failed("open", &error))?),
    };
    let mut text = Vec::new();
    source.take(bytes_max + 1).read_to_end(&mut text).map_err(|error| failed("read", &error))?;
    if text.len() as u64 > bytes_max {
        // Of what is piped in no more is known than that.
        let actual = path.metadata().map_or(0, |metadata| metadata.len()).max(text.len() as u64);
        return Err(Error::PayloadTooLarge { what: "the file", actual, max: bytes_max }.into());
    }
    Ok(text)
}
