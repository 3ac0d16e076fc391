//! A body as events: the part of server-sent events that models use.
//!
//! Works on bytes, so that it does not matter where the network cuts them. What it does not know it passes over, as the standard
//! says; a stricter reader would break off answers for a stray line.

use std::collections::VecDeque;
use std::mem;

/// Thousands of times what providers send.
const EVENT_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Takes bytes, gives the data of whole events.
#[derive(Debug, Default)]
pub(crate) struct Events {
    /// The line under way.
    line: Vec<u8>,
    /// The data of the event under way.
    data: Vec<u8>,
    whole: VecDeque<Vec<u8>>,
}

impl Events {
    /// Whether there is still room: false ends the stream.
    #[must_use]
    pub(crate) fn push(&mut self, mut bytes: &[u8]) -> bool {
        while let Some(length) = bytes.iter().position(|byte| *byte == b'\n') {
            self.line.extend_from_slice(&bytes[..length]);
            bytes = &bytes[length + 1..];
            self.end_line();
        }
        self.line.extend_from_slice(bytes);
        self.line.len() + self.data.len() <= EVENT_BYTES_MAX
    }

    pub(crate) fn pop(&mut self) -> Option<Vec<u8>> {
        self.whole.pop_front()
    }

    fn end_line(&mut self) {
        let line = mem::take(&mut self.line);
        let line = line.strip_suffix(b"\r").unwrap_or(&line);
        if let Some(data) = line.strip_prefix(b"data:") {
            if !self.data.is_empty() {
                self.data.push(b'\n');
            }
            self.data.extend_from_slice(data.strip_prefix(b" ").unwrap_or(data));
        } else if line.is_empty() && !self.data.is_empty() {
            self.whole.push_back(mem::take(&mut self.data));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(body: &str, expected: &[&str]) {
        for size in 1..=body.len() {
            let mut events = Events::default();
            assert!(body.as_bytes().chunks(size).all(|piece| events.push(piece)));
            let found: Vec<_> =
                std::iter::from_fn(|| events.pop()).map(|data| String::from_utf8(data).unwrap()).collect();
            assert_eq!(found, expected, "{body:?} in pieces of {size}");
        }
    }

    #[test]
    fn events_are_whole_however_the_body_is_cut() {
        check("data: one\n\ndata: zwölf 🦀\n\n", &["one", "zwölf 🦀"]);
        check("data: one\r\n\r\ndata:two\r\n\r\n", &["one", "two"]);
        check("data: a\ndata: b\n\n", &["a\nb"]);
    }

    #[test]
    fn what_is_no_data_is_passed_over() {
        check(": comment\n\nevent: x\nid: 7\nretry: 1\nstray\ndata: one\nunknown: y\n\n\n\n", &["one"]);
    }

    #[test]
    fn an_event_that_was_not_ended_is_not_given() {
        check("data: one\n\ndata: two\n", &["one"]);
    }

    #[test]
    fn an_event_has_a_bound() {
        let mut events = Events::default();
        assert!(events.push(&vec![b'x'; EVENT_BYTES_MAX]));
        assert!(!events.push(b"x"));
    }
}
