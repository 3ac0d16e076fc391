//! The same hash from text, for a context that is too large to be taken apart: as a value it would be many times its size.
//!
//! One pass notes, for each object whose keys are not in order, where they stand; another writes the canonical form along those
//! notes. Both hold far less than the text itself does.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::io::{self, BufWriter, Write};

use serde_json::Number;

use super::{Hash, HashWriter, hash, write_number};
use crate::json::{DEPTH_MAX, check_number, describe, string_end, too_deep};

/// The hash of the object that `text` is, which must be JSON without white space. An error names what cannot be kept.
pub fn hash_text(text: &str) -> Result<Hash, String> {
    let text = text.as_bytes();
    if text.first() != Some(&b'{') {
        return Err("it is not an object".to_owned());
    }
    let notes = Notes::of(text)?;
    let mut refused = None;
    let hash = hash(|out| notes.write_value(out, 0).map(drop).inspect_err(|error| refused = Some(describe(error))));
    hash.ok_or_else(|| refused.unwrap_or_default())
}

/// Where keys stand that are not in order.
struct Notes<'a> {
    text: &'a [u8],
    /// Where each such object begins, in order, and where its keys are listed below.
    objects: Vec<(u32, u32)>,
    /// For each of them how many keys it has, and where they begin, sorted.
    keys: Vec<u32>,
}

/// An object or list that has not ended yet.
struct Open {
    start: u32,
    /// Its first key among those that are open; `None` in a list.
    first_key: Option<usize>,
    is_sorted: bool,
}

impl<'a> Notes<'a> {
    fn of(text: &'a [u8]) -> Result<Self, String> {
        u32::try_from(text.len()).map_err(|_| "it is longer than 4 GiB".to_owned())?;
        let mut notes = Self { text, objects: Vec::new(), keys: Vec::new() };
        let (mut stack, mut open_keys): (Vec<Open>, Vec<u32>) = (Vec::new(), Vec::new());
        let mut at = 0;
        while let Some(&byte) = text.get(at) {
            let start = at as u32;
            at += 1;
            match byte {
                b'"' => {
                    at = string_end(text, at);
                    let is_key = text.get(at) == Some(&b':');
                    if let (true, Some(open)) = (is_key, stack.last_mut()) {
                        let before = open_keys.last().filter(|_| open.first_key < Some(open_keys.len()));
                        let in_order = before.is_none_or(|before| notes.compare(*before, start) == Ordering::Less);
                        open.is_sorted &= in_order;
                        open_keys.push(start);
                    }
                }
                b'-' | b'0'..=b'9' => {
                    at = number_end(text, at);
                    check_number(&text[start as usize..at])?;
                }
                b'{' | b'[' => {
                    let first_key = (byte == b'{').then_some(open_keys.len());
                    stack.push(Open { start, first_key, is_sorted: true });
                    if stack.len() > DEPTH_MAX {
                        return Err(too_deep());
                    }
                }
                b'}' | b']' => {
                    let closed = stack.pop();
                    if let Some(Open { start, first_key: Some(first), is_sorted }) = closed {
                        if !is_sorted {
                            notes.add(start, &mut open_keys[first..])?;
                        }
                        open_keys.truncate(first);
                    }
                }
                _ => {}
            }
        }
        notes.objects.sort_unstable();
        Ok(notes)
    }

    fn add(&mut self, start: u32, keys: &mut [u32]) -> Result<(), String> {
        keys.sort_unstable_by(|a, b| self.compare(*a, *b));
        if let Some(twice) = keys.windows(2).find(|pair| self.compare(pair[0], pair[1]) == Ordering::Equal) {
            return Err(format!("duplicate key `{}`", self.string(twice[0]).escape_debug()));
        }
        self.objects.push((start, self.keys.len() as u32));
        self.keys.push(keys.len() as u32);
        self.keys.extend_from_slice(keys);
        Ok(())
    }

    /// The order of two keys, by the places where they begin.
    fn compare(&self, a: u32, b: u32) -> Ordering {
        let (a, b) = (self.string(a), self.string(b));
        match a.is_ascii() && b.is_ascii() {
            true => a.cmp(&b),
            false => a.encode_utf16().cmp(b.encode_utf16()),
        }
    }

    /// The string that begins there. One that is no text is refused when it is written.
    fn string(&self, start: u32) -> Cow<'a, str> {
        let start = start as usize;
        let quoted = &self.text[start..string_end(self.text, start + 1)];
        match memchr::memchr(b'\\', quoted) {
            None => String::from_utf8_lossy(&quoted[1..quoted.len().max(2) - 1]),
            Some(_) => Cow::Owned(serde_json::from_slice(quoted).unwrap_or_default()),
        }
    }

    /// Writes the value that begins at `at`, and returns where it ends.
    fn write_value(&self, out: &mut BufWriter<HashWriter>, at: usize) -> io::Result<usize> {
        match self.text.get(at) {
            Some(b'"') => self.write_string(out, at),
            Some(b'{') => self.write_object(out, at),
            Some(b'[') => self.write_sequence(out, at, b']', Self::write_value),
            Some(b'-' | b'0'..=b'9') => {
                let end = number_end(self.text, at + 1);
                let number: Number = serde_json::from_slice(&self.text[at..end])?;
                write_number(out, &number)?;
                Ok(end)
            }
            _ => {
                let length = self.text[at..].iter().take_while(|byte| byte.is_ascii_lowercase()).count();
                out.write_all(&self.text[at..at + length])?;
                Ok(at + length)
            }
        }
    }

    fn write_string(&self, out: &mut BufWriter<HashWriter>, at: usize) -> io::Result<usize> {
        let end = string_end(self.text, at + 1);
        let quoted = &self.text[at..end];
        match memchr::memchr(b'\\', quoted) {
            None => out.write_all(quoted)?,
            Some(_) => serde_json::to_writer(out, &serde_json::from_slice::<String>(quoted)?)?,
        }
        Ok(end)
    }

    fn write_object(&self, out: &mut BufWriter<HashWriter>, at: usize) -> io::Result<usize> {
        let Ok(found) = self.objects.binary_search_by_key(&at, |(start, _)| *start as usize) else {
            return self.write_sequence(out, at, b'}', Self::write_member);
        };
        let first = self.objects[found].1 as usize + 1;
        let mut end = 0;
        out.write_all(b"{")?;
        for (n, key) in self.keys[first..first + self.keys[first - 1] as usize].iter().enumerate() {
            if n > 0 {
                out.write_all(b",")?;
            }
            end = end.max(self.write_member(out, *key as usize)?);
        }
        out.write_all(b"}")?;
        Ok(end + 1)
    }

    fn write_member(&self, out: &mut BufWriter<HashWriter>, at: usize) -> io::Result<usize> {
        let end = self.write_string(out, at)?;
        out.write_all(b":")?;
        self.write_value(out, end + 1)
    }

    /// Writes items one after the other as they stand, from the bracket at `at` to the one that ends them.
    fn write_sequence(
        &self,
        out: &mut BufWriter<HashWriter>,
        at: usize,
        close: u8,
        write: impl Fn(&Self, &mut BufWriter<HashWriter>, usize) -> io::Result<usize>,
    ) -> io::Result<usize> {
        out.write_all(&self.text[at..=at])?;
        let mut at = at + 1;
        while self.text.get(at).is_some_and(|byte| *byte != close) {
            if self.text[at] == b',' {
                out.write_all(b",")?;
                at += 1;
            }
            at = write(self, out, at)?;
        }
        out.write_all(&[close])?;
        Ok(at + 1)
    }
}

fn number_end(text: &[u8], at: usize) -> usize {
    at + text[at..].iter().take_while(|b| b.is_ascii_digit() || b"+-.eE".contains(b)).count()
}
