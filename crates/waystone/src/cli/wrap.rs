//! Our own words, broken between words where a terminal ends. What stands between backticks is typed as it is, so it stays on one line.

/// A narrower terminal breaks them itself.
const COLUMNS_MIN: usize = 20;
/// Before what goes on in another line.
const GOES_ON: &str = "  ";

/// `text` on lines of up to `columns`, of which `taken` are taken already on the first.
pub(super) fn wrap(text: &str, taken: usize, columns: Option<usize>) -> String {
    let Some(columns) = columns.filter(|columns| *columns >= COLUMNS_MIN) else { return text.to_owned() };
    let (mut wrapped, mut at) = (String::with_capacity(text.len()), taken);
    for (index, word) in words(text).into_iter().enumerate() {
        let width = word.chars().count();
        if index > 0 && at + 1 + width > columns {
            wrapped.push('\n');
            wrapped += GOES_ON;
            at = GOES_ON.len();
        } else if index > 0 {
            wrapped.push(' ');
            at += 1;
        }
        wrapped += word;
        at += width;
    }
    wrapped
}

/// What may stand on different lines.
fn words(text: &str) -> Vec<&str> {
    let (mut words, mut start, mut is_code) = (Vec::new(), 0, false);
    for (at, c) in text.char_indices() {
        match c {
            '`' => is_code = !is_code,
            ' ' if !is_code => {
                words.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    words.push(&text[start..]);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_between_words_and_not_inside_of_what_is_typed() {
        let check = |text: &str, columns, expected: &str| assert_eq!(wrap(text, 6, columns), expected);
        check(
            "a text that is longer than what there is room for",
            None,
            "a text that is longer than what there is room for",
        );
        check("one two three four five six", Some(20), "one two three\n  four five six");
        check("see `waystone context list`, which has it", Some(20), "see\n  `waystone context list`,\n  which has it");
        check("what nothing `ends goes on", Some(20), "what nothing\n  `ends goes on");
        check("a  b", Some(20), "a  b");
        check("", Some(20), "");
        check(&"x".repeat(50), Some(20), &"x".repeat(50));
    }
}
