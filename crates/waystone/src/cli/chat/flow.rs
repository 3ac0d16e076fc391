//! An answer as it comes, broken between words where the terminal ends.
//!
//! A word is shown when it has ended: until then it may still go to the next line. Blocks of code stand as they are, since they are taken
//! elsewhere.

use crate::cli::wrap::wrap;

/// So much of a word is held back. What is longer is of a language without spaces, or no word: the terminal breaks the rest of its line.
const WORD_CHARS_MAX: usize = 40;
/// A narrower terminal breaks all lines itself.
const COLUMNS_MIN: usize = 20;
/// Before and behind a block of code.
const FENCE: &str = "```";

#[derive(Debug, Default)]
pub(super) struct Flow {
    /// Without them nothing is broken, and nothing held back.
    columns: Option<usize>,
    /// How much of the line is taken.
    at: usize,
    /// Spaces that come before the next word, unless it begins a line.
    gap: String,
    word: String,
    /// How the line begins, which may be a fence.
    head: String,
    is_code: bool,
    /// Whether the line is left as it is.
    is_left: bool,
}

impl Flow {
    pub(super) fn new(columns: Option<usize>) -> Self {
        Self { columns: columns.filter(|columns| *columns >= COLUMNS_MIN), ..Self::default() }
    }

    /// A line of ours, after `taken` columns.
    pub(super) fn wrap(&self, text: &str, taken: usize) -> String {
        wrap(text, taken, self.columns)
    }

    /// What can be shown with this text.
    pub(super) fn add(&mut self, text: &str) -> String {
        if self.columns.is_none() {
            return text.to_owned();
        }
        let mut shown = String::with_capacity(text.len());
        for c in text.chars() {
            let is_indent = self.head.is_empty() && c == ' ';
            if c != '\n' && !is_indent && self.head.len() < FENCE.len() {
                self.head.push(c);
            }
            match c {
                '\n' => {
                    self.end_word(&mut shown);
                    shown.push('\n');
                    self.is_code ^= self.head == FENCE;
                    self.begin_line();
                }
                c if self.is_left => shown.push(c),
                ' ' => {
                    self.end_word(&mut shown);
                    self.gap.push(' ');
                }
                c => {
                    self.word.push(c);
                    if self.word.len() > WORD_CHARS_MAX && self.word.chars().count() > WORD_CHARS_MAX {
                        self.end_word(&mut shown);
                        self.is_left = true;
                    }
                }
            }
        }
        shown
    }

    /// What is left to show when nothing more comes on this line.
    pub(super) fn end(&mut self) -> String {
        let mut shown = String::new();
        self.end_word(&mut shown);
        self.begin_line();
        shown
    }

    fn begin_line(&mut self) {
        (self.at, self.is_left) = (0, self.is_code);
        self.gap.clear();
        self.head.clear();
    }

    fn end_word(&mut self, shown: &mut String) {
        if self.word.is_empty() {
            return;
        }
        let (width, gap) = (self.word.chars().count(), std::mem::take(&mut self.gap));
        if self.at > 0 && self.columns.is_some_and(|columns| self.at + gap.len() + width > columns) {
            shown.push('\n');
            self.at = 0;
        } else {
            *shown += &gap;
            self.at += gap.len();
        }
        *shown += &std::mem::take(&mut self.word);
        self.at += width;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(parts: &[&str], shown: &str) {
        let mut flow = Flow::new(Some(20));
        let mut seen: String = parts.iter().map(|part| flow.add(part)).collect();
        seen += &flow.end();
        assert_eq!(seen, shown, "{parts:?}");
        let mut whole = Flow::new(None);
        assert_eq!(parts.iter().map(|part| whole.add(part)).collect::<String>() + &whole.end(), parts.concat());
    }

    #[test]
    fn lines_end_between_words_however_they_come() {
        check(&["one two three four five six"], "one two three four\nfive six");
        check(&["one two thr", "ee fo", "ur five", " six"], "one two three four\nfive six");
        check(&["exactly twenty chars", " and more"], "exactly twenty chars\nand more");
        check(&["  - indented\n  so\n\nthere"], "  - indented\n  so\n\nthere");
    }

    #[test]
    fn blocks_of_code_and_what_has_no_words_are_left_as_they_are() {
        let code = "so:\n```rust\nlet value = a + b + c + d + e;\n```\n";
        check(&[code, "one two three four five"], &format!("{code}one two three four\nfive"));
        let code = "- so:\n  ```\n  let value = a + b + c + d;\n  ```\n";
        check(&[code], code);
        let long = "x".repeat(50);
        check(&[&long, " a b c d e f g h i j k"], &format!("{long} a b c d e f g h i j k"));
        check(&["a ", &"y".repeat(30), " b"], &format!("a\n{}\nb", "y".repeat(30)));
    }
}
