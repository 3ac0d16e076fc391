//! An answer of many lines, up to a bound.

use std::ops::ControlFlow;

/// Of one answer.
pub(super) const TEXT_BYTES_MAX: usize = 256 * 1024;

/// Goes on, or breaks off and says why.
pub(super) type Flow = ControlFlow<&'static str>;

pub(super) struct Report {
    text: String,
    lines: usize,
    lines_max: usize,
}

impl Report {
    pub(super) fn new(lines_max: usize) -> Self {
        Self { text: String::new(), lines: 0, lines_max }
    }

    pub(super) fn push(&mut self, line: &str) -> Flow {
        if self.lines == self.lines_max || self.text.len() + line.len() > TEXT_BYTES_MAX {
            return Flow::Break("there is more than fits into one answer");
        }
        self.text.push_str(line);
        self.text.push('\n');
        self.lines += 1;
        Flow::Continue(())
    }

    /// The lines, or `nothing` if there are none, and in brackets whether that is all, and what was passed over and how many of it.
    pub(super) fn end(mut self, nothing: &str, flow: Flow, passed_over: &[(&str, usize)]) -> String {
        if self.lines == 0 {
            self.text = format!("{nothing}\n");
        }
        if let Flow::Break(why) = flow {
            self.text.push_str(&format!("[cut: {why}; narrow it down with `path` or `glob`]\n"));
        }
        for (what, count) in passed_over.iter().filter(|(_, count)| *count > 0) {
            self.text.push_str(&format!("[passed over: {what} ({count})]\n"));
        }
        self.text.truncate(self.text.trim_end().len());
        self.text
    }
}

pub(super) fn bytes(count: u64) -> String {
    format!("{count} {}", if count == 1 { "byte" } else { "bytes" })
}
