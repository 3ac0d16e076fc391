//! Handles: `ws:<kind>:<id>#<pointer>?<range>`, by which what a view left out is found again.
//!
//! The pointer is a JSON pointer with everything but letters, digits and `-._~/` percent-encoded, so that a handle can stand in a path and
//! a range after it is never part of a key.

use std::fmt;
use std::str::FromStr;

use serde_json::Value;

use crate::canon::Hash;
use crate::id::{CheckpointId, SegmentId};

/// What holds the value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Holder {
    Checkpoint(CheckpointId),
    /// A context that was given to a view and is kept for a while, by the hash of its text.
    Context(Hash),
    /// A segment's text.
    Segment(SegmentId),
}

/// A part of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Range {
    /// From the first to the last, counted from 1.
    Lines(usize, usize),
    /// From the first, counted from 0, up to the last and without it.
    Bytes(usize, usize),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handle {
    pub holder: Holder,
    /// A JSON pointer; empty for the whole context.
    pub pointer: String,
    pub range: Option<Range>,
}

impl Handle {
    /// The whole text of a segment, or of a message.
    pub fn to_segment(id: &SegmentId) -> Self {
        Self { holder: Holder::Segment(id.clone()), pointer: String::new(), range: None }
    }

    /// The value under a top-level key.
    pub fn to_key(holder: Holder, key: &str) -> Self {
        Self { holder, pointer: format!("/{}", key.replace('~', "~0").replace('/', "~1")), range: None }
    }
}

impl Range {
    /// The part of `text`; `None` where it begins after the end or inside of a character.
    pub fn of(self, text: &str) -> Option<&str> {
        match self {
            Self::Bytes(first, end) => text.get(first..end.min(text.len())),
            Self::Lines(first, last) => {
                let starts = || std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1));
                let start = starts().nth(first.checked_sub(1)?)?;
                let end = starts().nth(last).map_or(text.len(), |next| next - 1);
                text.get(start..end.max(start))
            }
        }
    }
}

impl fmt::Display for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.holder {
            Holder::Checkpoint(id) => write!(f, "ws:checkpoint:{id}")?,
            Holder::Context(hash) => write!(f, "ws:context:{hash}")?,
            Holder::Segment(id) => write!(f, "ws:segment:{id}")?,
        }
        if !self.pointer.is_empty() || self.range.is_some() {
            write!(f, "#{}", encode(&self.pointer))?;
        }
        match self.range {
            Some(Range::Lines(first, last)) => write!(f, "?lines={first}-{last}"),
            Some(Range::Bytes(first, end)) => write!(f, "?bytes={first}-{end}"),
            None => Ok(()),
        }
    }
}

impl FromStr for Handle {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| format!("`{text}` is no handle: {why}");
        let (value, range) = text.split_once('?').map_or((text, None), |(value, range)| (value, Some(range)));
        let (holder, pointer) = value.split_once('#').unwrap_or((value, ""));
        let holder = match holder.splitn(3, ':').collect::<Vec<_>>()[..] {
            ["ws", "checkpoint", id] => Holder::Checkpoint(id.parse().map_err(|error: String| wrong(&error))?),
            ["ws", "context", hash] => {
                Holder::Context(parse_hash(hash).ok_or_else(|| wrong("its hash has 64 hex digits"))?)
            }
            ["ws", "segment", id] => Holder::Segment(id.parse().map_err(|error: String| wrong(&error))?),
            _ => return Err(wrong("it begins with ws:checkpoint:, ws:context: or ws:segment:")),
        };
        let pointer = decode(pointer).ok_or_else(|| wrong("its pointer is not encoded right"))?;
        if !pointer.is_empty() && !pointer.starts_with('/') {
            return Err(wrong("its pointer begins with /"));
        }
        let range =
            range.map(|range| parse_range(range).ok_or_else(|| wrong("a range is ?lines=1-20 or ?bytes=0-100")));
        Ok(Self { holder, pointer, range: range.transpose()? })
    }
}

fn parse_hash(text: &str) -> Option<Hash> {
    let mut bytes = [0; 32];
    hex::decode_to_slice(text, &mut bytes).ok()?;
    Some(Hash(bytes))
}

fn parse_range(text: &str) -> Option<Range> {
    let (unit, numbers) = text.split_once('=')?;
    let (first, last) = numbers.split_once('-')?;
    let (first, last) = (first.parse().ok()?, last.parse().ok()?);
    match unit {
        "lines" if 1 <= first && first <= last => Some(Range::Lines(first, last)),
        "bytes" if first <= last => Some(Range::Bytes(first, last)),
        _ => None,
    }
}

fn encode(pointer: &str) -> String {
    let mut encoded = String::with_capacity(pointer.len());
    for byte in pointer.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => encoded.push(byte.into()),
            other => encoded.push_str(&format!("%{other:02X}")),
        }
    }
    encoded
}

fn decode(text: &str) -> Option<String> {
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let mut byte = [0];
        hex::decode_to_slice(after.get(..2)?, &mut byte).ok()?;
        bytes.push(byte[0]);
        rest = &after[2..];
    }
    String::from_utf8(bytes).ok()
}

/// A value as text: text as it is, everything else as compact JSON.
pub(crate) fn text_of(value: &Value) -> std::borrow::Cow<'_, str> {
    match value {
        Value::String(text) => text.into(),
        other => other.to_string().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_is_read_as_it_was_written_whatever_the_key() {
        for key in ["a", "", "a/b", "a~b", "a?lines=1-2", "a#b", "ü 漢", "%41", "~1", "\u{0}\n"] {
            let handle = Handle::to_key(Holder::Checkpoint("c-1".parse().unwrap()), key);
            let text = handle.to_string();
            assert!(text.bytes().all(|byte| byte.is_ascii_graphic()), "{text}");
            assert_eq!(text.parse::<Handle>().unwrap(), handle, "{key:?}");
            let value = serde_json::json!({ key: 7 });
            assert_eq!(value.pointer(&handle.pointer), Some(&serde_json::json!(7)), "{key:?}");
        }
        let hash = Hash::of(b"x");
        let whole = Handle { holder: Holder::Context(hash), pointer: String::new(), range: None };
        assert_eq!(whole.to_string(), format!("ws:context:{hash}"));
        assert_eq!(whole.to_string().parse::<Handle>().unwrap(), whole);
        let part = Handle { range: Some(Range::Lines(1, 2)), ..whole.clone() };
        for text in [format!("{whole}?lines=1-2"), format!("{whole}#?lines=1-2"), part.to_string()] {
            assert_eq!(text.parse::<Handle>().unwrap(), part, "a range goes behind any handle");
        }
    }

    #[test]
    fn what_is_no_handle_is_refused_by_name() {
        let bad = [
            "",
            "ws",
            "ws:checkpoint:",
            "ws:segment:",
            "ws:message:a",
            "ws:context:abc",
            "ws:checkpoint:a#b",
            "ws:checkpoint:a#/%4",
            "ws:checkpoint:a#/%zz",
            "ws:checkpoint:a#/%ff",
            "ws:checkpoint:a#/b?lines=0-1",
            "ws:checkpoint:a#/b?lines=2-1",
            "ws:checkpoint:a#/b?bytes=-1",
            "ws:checkpoint:a#/b?words=1-2",
            "ws:checkpoint:a/b",
        ];
        for text in bad {
            let error = text.parse::<Handle>().unwrap_err();
            assert!(error.contains(text) && error.contains("is no handle"), "{error}");
        }
    }

    #[test]
    fn a_range_is_a_part_of_the_text() {
        let text = "one\ntwo\nthree";
        let check = |range: Range, expected: Option<&str>| assert_eq!(range.of(text), expected, "{range:?}");
        check(Range::Lines(1, 1), Some("one"));
        check(Range::Lines(2, 3), Some("two\nthree"));
        check(Range::Lines(3, 9), Some("three"));
        check(Range::Lines(4, 4), None);
        check(Range::Bytes(4, 7), Some("two"));
        check(Range::Bytes(4, 99), Some("two\nthree"));
        check(Range::Bytes(14, 20), None);
        assert_eq!(Range::Bytes(1, 2).of("ü"), None);
        assert_eq!(Range::Lines(2, 2).of("a\n\nb"), Some(""));
    }
}
