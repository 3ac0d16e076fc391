//! Which tools run unasked.

use std::time::Duration;

use crate::api::Tool;

/// Which tools run unasked.
#[derive(Debug, Clone, Default)]
pub struct ToolPolicy {
    pub kind: PolicyKind,
    /// Names, or beginnings of names with a `*` after them.
    pub allowed: Vec<String>,
    /// How long a call waits for someone to decide; for ever when left out.
    pub approval_max: Option<Duration>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PolicyKind {
    /// None.
    Manual,
    /// Those that are listed.
    AllowList,
    /// Those that change nothing, and those that are listed.
    #[default]
    Auto,
}

impl PolicyKind {
    pub const NAMES: &[&str] = &["manual", "allow-list", "auto"];

    /// By its name, as in [`Self::NAMES`].
    pub fn named(name: &str) -> Option<Self> {
        let all = [Self::Manual, Self::AllowList, Self::Auto];
        Self::NAMES.iter().zip(all).find(|(known, _)| **known == name).map(|(_, kind)| kind)
    }
}

impl ToolPolicy {
    pub(in crate::engine) fn allows(&self, tool: &Tool) -> bool {
        let is_listed = || self.allowed.iter().any(|allowed| is_named(allowed, &tool.name));
        match self.kind {
            PolicyKind::Manual => false,
            PolicyKind::AllowList => is_listed(),
            PolicyKind::Auto => tool.read_only || is_listed(),
        }
    }
}

fn is_named(allowed: &str, name: &str) -> bool {
    allowed.strip_suffix('*').map_or(allowed == name, |beginning| name.starts_with(beginning))
}
