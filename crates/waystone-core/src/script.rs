//! Scripts that are written without spaces between words: Chinese, Japanese, Thai and their like, and Korean, whose words grow endings.
//! What is looked for there is a part of a run of letters. Such a run is searched by its overlapping pairs of characters, which the index
//! of words has as words of their own.

use std::borrow::Cow;

use unicode_normalization::char::is_combining_mark;
use unicode_normalization::{UnicodeNormalization, is_nfc_quick};

/// The text with each letter in one form, as `é` may be one character or two.
pub(crate) fn composed(text: &str) -> Cow<'_, str> {
    if text.is_ascii() || is_nfc_quick(text.chars()) == unicode_normalization::IsNormalized::Yes {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.nfc().collect())
}

pub(crate) fn is_unspaced(c: char) -> bool {
    matches!(c,
        '\u{e00}'..='\u{eff}' | '\u{1000}'..='\u{109f}' | '\u{1100}'..='\u{11ff}' | '\u{1780}'..='\u{17ff}'
        | '\u{3005}'..='\u{3007}' | '\u{3040}'..='\u{30ff}' | '\u{3100}'..='\u{318f}' | '\u{31f0}'..='\u{31ff}'
        | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{ac00}'..='\u{d7ff}' | '\u{f900}'..='\u{faff}'
        | '\u{ff66}'..='\u{ff9f}' | '\u{20000}'..='\u{323af}')
}

/// The runs of such letters in a text. Marks above and below them are left out: for the index they are no letters.
pub(crate) fn unspaced_runs(text: &str) -> Vec<Vec<char>> {
    let (mut runs, mut run) = (Vec::new(), Vec::new());
    if text.is_ascii() {
        return runs;
    }
    for c in text.chars() {
        if is_combining_mark(c) {
            continue;
        }
        if is_unspaced(c) && c.is_alphanumeric() {
            run.push(c);
        } else if !run.is_empty() {
            runs.push(std::mem::take(&mut run));
        }
    }
    runs.extend((!run.is_empty()).then_some(run));
    runs
}

/// Its overlapping pairs.
pub(crate) fn pairs(run: &[char]) -> impl Iterator<Item = String> {
    run.windows(2).map(|pair| pair.iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_without_spaces_are_taken_out_of_a_text() {
        let check = |text: &str, expected: &[&str]| {
            let runs: Vec<String> = unspaced_runs(text).iter().map(|run| run.iter().collect()).collect();
            assert_eq!(runs, expected, "{text}");
        };
        check("plain words, größe Ж", &[]);
        check("数据库连接失败,请检查 port端口", &["数据库连接失败", "请检查", "端口"]);
        check("データベース・接続", &["データベース", "接続"]);
        check("การเชื่อมต่อ", &["การเชอมตอ"]);
        check("데이터베이스를 연결", &["데이터베이스를", "연결"]);
        assert_eq!(pairs(&['数', '据', '库']).collect::<Vec<_>>(), ["数据", "据库"]);
        assert_eq!((composed("cafe\u{301}"), composed("か\u{3099}")), ("café".into(), "が".into()));
    }
}
