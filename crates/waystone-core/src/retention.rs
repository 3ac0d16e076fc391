//! Which checkpoints a cleanup takes.

use crate::clock::Timestamp;
use crate::id::SessionId;

/// What is to go. Without `older_than` and `keep_last` it is whole sessions that were not used since `idle_since`.
#[derive(Debug, Clone, PartialEq)]
pub struct Selection {
    pub older_than: Option<Timestamp>,
    pub keep_last: Option<u64>,
    pub idle_since: Timestamp,
    pub session: Option<SessionId>,
}

/// What it depends on whether a checkpoint goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kept {
    pub created_at: Timestamp,
    /// It has a name, a tag or a branch.
    pub is_spared: bool,
}

impl Selection {
    /// Whether whole sessions go, rather than checkpoints of them.
    pub fn is_of_sessions(&self) -> bool {
        self.older_than.is_none() && self.keep_last.is_none()
    }

    /// Which of a session's checkpoints go, given newest first. The newest never does, and what is spared is not counted.
    pub fn takes(&self, checkpoints: &[Kept]) -> Vec<bool> {
        let mut counted = 0;
        let takes = |(at, checkpoint): (usize, &Kept)| {
            if checkpoint.is_spared {
                return false;
            }
            counted += 1;
            let is_old = self.older_than.is_none_or(|time| checkpoint.created_at < time);
            let is_beyond = self.keep_last.is_none_or(|kept| counted > kept);
            at > 0 && !self.is_of_sessions() && is_old && is_beyond
        };
        checkpoints.iter().enumerate().map(takes).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Newest first: a letter for each, large when it is spared, made on the days 9, 8, and so on.
    fn taken(of: &str, older_than: Option<i64>, keep_last: Option<u64>) -> String {
        let kept = |(at, letter): (usize, char)| Kept {
            created_at: Timestamp::from_ms(9 - i64::try_from(at).unwrap()),
            is_spared: letter.is_uppercase(),
        };
        let checkpoints: Vec<Kept> = of.chars().enumerate().map(kept).collect();
        let older_than = older_than.map(Timestamp::from_ms);
        let selection = Selection { older_than, keep_last, idle_since: Timestamp::from_ms(0), session: None };
        of.chars()
            .zip(selection.takes(&checkpoints))
            .filter(|(_, is_taken)| *is_taken)
            .map(|(letter, _)| letter)
            .collect()
    }

    #[test]
    fn each_option_alone_selects_and_with_both_a_checkpoint_must_meet_both() {
        let check = |of: &str, older_than, keep_last, expected: &str| {
            assert_eq!(taken(of, older_than, keep_last), expected, "{of} {older_than:?} {keep_last:?}");
        };
        check("abcde", None, None, "");
        check("abcde", Some(7), None, "de");
        check("abcde", Some(100), None, "bcde");
        check("abcde", None, Some(2), "cde");
        check("abcde", None, Some(0), "bcde");
        check("abcde", Some(7), Some(4), "e");
        check("abcde", Some(6), Some(1), "e");
        check("aBcDe", None, Some(2), "e");
        check("Abcde", None, Some(0), "bcde");
        check("aBCDE", Some(100), Some(0), "");
        check("", Some(100), Some(0), "");
    }
}
