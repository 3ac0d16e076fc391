//! A row by the names of its columns, as a mirror file's index holds it. How it is read from and written to a table is in
//! `sqlite/columns.rs`.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use waystone_core::canon::Hash;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Columns(Map<String, Value>);

impl Columns {
    pub(crate) fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.get(name)?.as_str()
    }

    pub(crate) fn number(&self, name: &str) -> Option<i64> {
        self.get(name)?.as_i64()
    }

    pub(crate) fn hash(&self, name: &str) -> Option<Hash> {
        Some(Hash(unhex(self.get(name)?)?.try_into().ok()?))
    }

    /// The public id. A row without one equals no other: every id has a character.
    pub(crate) fn id(&self) -> &str {
        self.text("id").unwrap_or_default()
    }

    /// The key in the database that the row was read from.
    pub(crate) fn key(&self) -> Option<i64> {
        self.number("key")
    }

    /// The number by which checkpoints are in order.
    pub(crate) fn seq(&self) -> Option<i64> {
        self.number("seq")
    }

    /// One machine has one space, also where the number is damaged.
    pub(crate) fn space(&self) -> i64 {
        self.number("space").unwrap_or(1)
    }

    pub(crate) fn set(&mut self, name: &str, value: impl Into<Value>) {
        self.0.insert(name.to_owned(), value.into());
    }

    pub(crate) fn remove(&mut self, name: &str) {
        self.0.remove(name);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }
}

impl FromIterator<(String, Value)> for Columns {
    fn from_iter<I: IntoIterator<Item = (String, Value)>>(columns: I) -> Self {
        Self(columns.into_iter().collect())
    }
}

/// Bytes as they stand in JSON.
pub(crate) fn hex(bytes: &[u8]) -> Value {
    json!({ "hex": hex::encode(bytes) })
}

pub(crate) fn unhex(value: &Value) -> Option<Vec<u8>> {
    hex::decode(value.get("hex")?.as_str()?).ok()
}
