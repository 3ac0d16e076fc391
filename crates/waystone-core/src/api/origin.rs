//! Where stored text came from. What a client says of itself is taken; that something was imported no one can say or hide.

use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::SegmentType;
use crate::error::{Error, Result};

/// Where a text came from, in falling order of trust.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum Origin {
    /// A person wrote it.
    User,
    /// A model wrote it.
    #[default]
    Agent,
    /// A tool returned it: a command, a file, a page.
    Tool,
    /// It came with a document from elsewhere, whatever that says of it.
    Import,
}

impl Origin {
    pub const ALL: [Self; 4] = [Self::User, Self::Agent, Self::Tool, Self::Import];
    /// What a client may say that its text is.
    pub const CLAIMED: [Self; 3] = [Self::User, Self::Agent, Self::Tool];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Agent => "agent",
            Self::Tool => "tool",
            Self::Import => "import",
        }
    }

    /// What several texts are together.
    #[must_use]
    pub fn lowest(self, other: Self) -> Self {
        self.max(other)
    }

    /// What it counts as, if it may have been imported.
    #[must_use]
    pub fn shown(self, is_imported: bool) -> Self {
        if is_imported { Self::Import } else { self }
    }

    /// What a text is of which nothing is said, from who would else count as `self`.
    #[must_use]
    pub(crate) fn of_text(self, kind: SegmentType, role: Option<&str>) -> Self {
        match (kind, role) {
            (SegmentType::Log, _) | (_, Some("tool" | "function")) => self.lowest(Self::Tool),
            _ => self,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

pub(super) fn claimed_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": ["string", "null"], "enum": ["user", "agent", "tool", null] })
}

pub(crate) fn check_claimed(origin: Option<Origin>) -> Result<()> {
    match origin {
        Some(Origin::Import) => Err(Error::InvalidInput("origin is user, agent or tool".to_owned())),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_texts_are_trusted_as_the_least_of_them() {
        for (at, one) in Origin::ALL.into_iter().enumerate() {
            for (before, other) in Origin::ALL.into_iter().enumerate() {
                let lowest = Origin::ALL[at.max(before)];
                assert_eq!((one.lowest(other), other.lowest(one)), (lowest, lowest));
            }
            assert_eq!((one.shown(false), one.shown(true)), (one, Origin::Import));
        }
    }

    #[test]
    fn what_nothing_is_said_of_is_its_writers_unless_a_tool_returned_it() {
        use SegmentType::{Log, Message, Note};
        let check = |origin: Origin, kind, role, expected| assert_eq!(origin.of_text(kind, role), expected);
        check(Origin::User, Note, None, Origin::User);
        check(Origin::User, Log, None, Origin::Tool);
        check(Origin::Agent, Message, Some("user"), Origin::Agent);
        check(Origin::Agent, Message, Some("tool"), Origin::Tool);
    }
}
