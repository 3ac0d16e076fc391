//! The audit: every operation and every load, chained by hashes. What a hash covers and when a chain holds is in [`crate::audit`].

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use super::{LIMIT_MAX, check_limit};
use crate::clock::{Since, Timestamp};
use crate::error::{Error, Result};
use crate::id::SessionId;

/// Most characters of a filter.
const FILTER_MAX: usize = 128;

/// Which records to list.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListAudit {
    /// Only what was done since then; or since so long ago, such as `24h`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Since>,
    /// Only what was done before then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// Only what was done by this agent, client or user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = FILTER_MAX))]
    pub actor: Option<String>,
    /// Only records of this kind, such as `checkpoint.loaded`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = FILTER_MAX))]
    pub kind: Option<String>,
    /// Only what is about this session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    /// How many to return, 1 to 1000.
    #[serde(default = "ListAudit::default_limit")]
    #[schemars(range(min = 1, max = LIMIT_MAX))]
    pub limit: u32,
    /// `nextCursor` of the page before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^[0-7]?[0-9a-f]{1,15}$"))]
    pub cursor: Option<String>,
}

impl ListAudit {
    pub fn default_limit() -> u32 {
        50
    }

    pub(crate) fn check(&self) -> Result<()> {
        for (name, text) in [("actor", &self.actor), ("kind", &self.kind)] {
            if text.as_ref().is_some_and(|text| text.chars().count() > FILTER_MAX) {
                return Err(Error::InvalidInput(format!("{name} has more than {FILTER_MAX} characters")));
            }
        }
        check_limit(self.limit)
    }
}

/// One record, with all that its hash covers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(inline)]
pub struct AuditRecord {
    /// Its number, one more than that of the record before it in its chain.
    pub seq: i64,
    pub at: Timestamp,
    /// Who did it.
    pub actor: String,
    /// What became true, such as `checkpoint.saved`.
    pub kind: String,
    /// Handles of what it is about, byte for byte as they are hashed.
    #[schemars(schema_with = "any")]
    pub subject: Exact,
    /// Ids and small fields, byte for byte as they are hashed; null once erased.
    #[schemars(schema_with = "any")]
    pub payload: Option<Exact>,
    /// SHA-256 of the payload as it was written.
    pub payload_hash: String,
    /// SHA-256 over the hash before it and all of the above but the payload, of which its hash is in it.
    pub hash: String,
}

fn any(_: &mut SchemaGenerator) -> Schema {
    json_schema!({})
}

/// JSON that is kept byte for byte. What is not JSON on one line goes over the wire as a text, and no longer has its hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exact(pub String);

impl Serialize for Exact {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        match serde_json::from_str::<&RawValue>(&self.0) {
            Ok(raw) if raw.get().len() == self.0.len() && !self.0.contains('\n') => raw.serialize(serializer),
            _ => serializer.serialize_str(&self.0),
        }
    }
}

impl<'de> Deserialize<'de> for Exact {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        Ok(Self(Box::<str>::from(Box::<RawValue>::deserialize(deserializer)?).into_string()))
    }
}

/// Records, newest first.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuditPage {
    pub records: Vec<AuditRecord>,
    /// Where to go on; also when this page has fewer than asked for, since only so many records are looked at for one page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    /// What a client should know, such as that nothing is kept beyond the end of the process.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// A record by its number and hash. The newest one stands for all before it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub struct AuditHead {
    pub seq: i64,
    pub hash: String,
}

/// Where a chain begins: the first one with the store, another one with each repair that replaced something, or restore.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AuditChain {
    pub first_seq: i64,
    /// What stands for the hash before its first record.
    pub genesis: String,
}

/// What a look at every record found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct VerifiedAudit {
    /// How many records were looked at.
    pub records: u64,
    pub chains: u64,
    /// The newest record.
    pub head: AuditHead,
    /// The first bad record of each chain that does not hold.
    pub broken: Vec<BrokenRecord>,
    /// Every chain holds.
    pub sound: bool,
}

/// A record that is not as it was written, or not there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BrokenRecord {
    pub seq: i64,
    pub why: Cow<'static, str>,
}
