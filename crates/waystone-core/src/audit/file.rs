//! The audit as a file that can be verified anywhere: a line with the chains, a line for each record, and a line with the head.

use std::io::{BufRead, Read};

use serde::{Deserialize, Serialize};

use super::Walk;
use crate::api::{AuditChain, AuditHead, AuditRecord, VerifiedAudit};
use crate::error::{Error, Result};

const FORMAT: &str = "waystone.audit";
const VERSION: u64 = 1;
/// A record names at most so many segments that it takes no more.
const LINE_BYTES_MAX: u64 = 16 * 1024 * 1024;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Top {
    format: String,
    version: u64,
    chains: Vec<AuditChain>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct End {
    head: AuditHead,
}

fn line(value: &impl Serialize) -> Result<String> {
    let text = serde_json::to_string(value).map_err(|error| Error::broken(format!("a record: {error}")))?;
    Ok(text + "\n")
}

pub fn top_line(chains: Vec<AuditChain>) -> Result<String> {
    line(&Top { format: FORMAT.to_owned(), version: VERSION, chains })
}

pub fn record_line(record: &AuditRecord) -> Result<String> {
    line(record)
}

pub fn head_line(head: AuditHead) -> Result<String> {
    line(&End { head })
}

/// Verifies what an export has written, and compares it with a head that was kept. `progress` is told how many bytes were read.
pub fn verify_file(
    source: impl BufRead,
    kept: Option<&AuditHead>,
    mut progress: impl FnMut(u64),
) -> Result<VerifiedAudit> {
    let mut lines = Lines { source, number: 0, bytes: 0 };
    let top: Top = lines.parse(&lines.refuse("it is empty"))?;
    if top.format != FORMAT || top.version != VERSION {
        return Err(Error::InvalidInput(format!(
            "it is not an audit of version {VERSION}, as `audit export` writes it"
        )));
    }
    let (mut walk, mut found) = (Walk::new(top.chains), None);
    let head = loop {
        let text = lines.next()?.ok_or_else(|| lines.refuse("it ends before the line with its head"))?;
        if let Ok(End { head }) = serde_json::from_str(&text) {
            break head;
        }
        let record: AuditRecord = serde_json::from_str(&text).map_err(|error| lines.refuse(&error.to_string()))?;
        if kept.is_some_and(|kept| kept.seq == record.seq) {
            found = Some(record.hash.clone());
        }
        walk.step(&record);
        progress(lines.bytes);
    };
    if lines.next()?.is_some() {
        return Err(lines.refuse("it goes on after the line with its head"));
    }
    let verified = walk.end(&head);
    Ok(match kept {
        Some(kept) => verified.against(kept, found.as_deref()),
        None => verified,
    })
}

struct Lines<R> {
    source: R,
    number: u64,
    bytes: u64,
}

impl<R: BufRead> Lines<R> {
    fn refuse(&self, why: &str) -> Error {
        Error::InvalidInput(format!("line {}: {why}", self.number))
    }

    fn next(&mut self) -> Result<Option<String>> {
        let mut text = String::new();
        self.number += 1;
        let read = self.source.by_ref().take(LINE_BYTES_MAX).read_line(&mut text);
        let read = read.map_err(|error| self.refuse(&error.to_string()))?;
        if read as u64 == LINE_BYTES_MAX {
            return Err(self.refuse(&format!("it has more than {LINE_BYTES_MAX} bytes")));
        }
        self.bytes += read as u64;
        Ok((read > 0).then_some(text))
    }

    fn parse<T: serde::de::DeserializeOwned>(&mut self, missing: &Error) -> Result<T> {
        let text = self.next()?.ok_or_else(|| missing.clone())?;
        serde_json::from_str(&text).map_err(|error| self.refuse(&error.to_string()))
    }
}
