//! Where in a git repository something was saved.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A branch's name is text from outside: a longer one is none.
const BRANCH_CHARS_MAX: usize = 255;

/// Where the repository around the working directory stood.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Git {
    /// The branch; not there when none is checked out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// The commit; not there before the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<String>,
}

impl Git {
    /// `None` if there is neither a branch nor a commit in what was read.
    pub fn new(branch: Option<String>, head: Option<String>) -> Option<Self> {
        let is_branch = |name: &String| {
            (1..=BRANCH_CHARS_MAX).contains(&name.chars().count())
                && !name.contains(|c: char| c.is_control() || c.is_whitespace())
        };
        let is_commit = |id: &String| matches!(id.len(), 40 | 64) && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        let (branch, head) = (branch.filter(is_branch), head.filter(is_commit));
        (branch.is_some() || head.is_some()).then_some(Self { branch, head })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_can_be_a_branch_or_a_commit_is_taken() {
        let commit = "0123456789abcdef0123456789abcdef01234567";
        let check = |branch: &str, head: &str, kept: Option<(Option<&str>, Option<&str>)>| {
            let git = Git::new(Some(branch.to_owned()), Some(head.to_owned()));
            let git = git.as_ref().map(|git| (git.branch.as_deref(), git.head.as_deref()));
            assert_eq!(git, kept, "{branch:?} {head:?}");
        };
        check("feat/größe", commit, Some((Some("feat/größe"), Some(commit))));
        check("main", "ref: refs/heads/x", Some((Some("main"), None)));
        check("", &commit[1..], None);
        check("a\u{1b}[31m", commit, Some((None, Some(commit))));
        check("a b", "", None);
        check(&"é".repeat(255), "", Some((Some(&"é".repeat(255)), None)));
        check(&"é".repeat(256), "", None);
    }
}
