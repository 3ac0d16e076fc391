//! What a client attaches to checkpoints and sessions to find them by: names, tags and other small fields, within limits.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use crate::json;
use crate::secret::Cover;

/// How long a name or a tag may be, in characters, and how many tags there may be.
pub(super) const TEXT_MAX: usize = 256;
pub(super) const TAGS_MAX: usize = 64;

pub(super) fn is_short(text: &str) -> bool {
    (1..=TEXT_MAX).contains(&text.chars().count())
}

/// What a client attaches to a checkpoint: an object whose `name` and `tags`, when present, have been checked.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Metadata(Map<String, Value>);

impl Metadata {
    pub fn new(object: Map<String, Value>) -> Result<Self, String> {
        const BYTES_MAX: usize = 16 * 1024;
        const DEPTH_MAX: usize = 32;
        let size = serde_json::to_string(&object).map_or(usize::MAX, |text| text.len());
        if size > BYTES_MAX {
            return Err(format!("metadata has {size} bytes, at most {BYTES_MAX} are allowed"));
        }
        if object.values().any(|value| json::is_deeper(value, DEPTH_MAX - 1)) {
            return Err(format!("metadata is nested deeper than {DEPTH_MAX} levels"));
        }
        let short = |value: &Value| value.as_str().is_some_and(is_short);
        if object.get("name").is_some_and(|name| !short(name)) {
            return Err(format!("metadata.name must be text of 1 to {TEXT_MAX} characters"));
        }
        let good_tags =
            |tags: &Value| tags.as_array().is_some_and(|tags| tags.len() <= TAGS_MAX && tags.iter().all(short));
        if object.get("tags").is_some_and(|tags| !good_tags(tags)) {
            return Err(format!(
                "metadata.tags must be an array of at most {TAGS_MAX} texts of 1 to {TEXT_MAX} characters"
            ));
        }
        Ok(Self(object))
    }

    /// The same without what we say in it: a client may send back what it loaded.
    #[must_use]
    pub fn without_critical_keys(mut self) -> Self {
        self.0.shift_remove("criticalKeys");
        self
    }

    /// The same, with the keys that are marked in its session.
    #[must_use]
    pub fn with_critical_keys(mut self, keys: &[String]) -> Self {
        if !keys.is_empty() {
            self.0.insert("criticalKeys".to_owned(), keys.into());
        }
        self
    }

    pub(crate) fn fields(&self) -> &Map<String, Value> {
        &self.0
    }

    /// Takes secrets out of its texts, and says how many had some. Names and tags stay as short as they must be.
    pub(crate) fn cover(&mut self, cover: Cover<'_>) -> u64 {
        let count = cover.object(&mut self.0);
        let tags = self.0.get_mut("tags").and_then(Value::as_array_mut).map(std::mem::take).unwrap_or_default();
        let short = |value: Value| value.as_str().map_or_else(|| value.clone(), |text| first_chars(text).into());
        if let Some(name) = self.0.get_mut("name") {
            *name = short(name.take());
        }
        if let Some(kept) = self.0.get_mut("tags") {
            *kept = tags.into_iter().map(short).collect();
        }
        count
    }

    pub fn name(&self) -> Option<&str> {
        self.0.get("name").and_then(Value::as_str)
    }

    pub fn tags(&self) -> impl Iterator<Item = &str> {
        self.0.get("tags").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
    }

    /// Gives every text and number, wherever it stands.
    pub fn each_text(&self, give: &mut dyn FnMut(&str)) {
        fn each(value: &Value, give: &mut dyn FnMut(&str)) {
            match value {
                Value::String(text) => give(text),
                Value::Number(number) => give(&number.to_string()),
                Value::Array(items) => items.iter().for_each(|item| each(item, give)),
                Value::Object(map) => map.values().for_each(|item| each(item, give)),
                Value::Null | Value::Bool(_) => {}
            }
        }
        self.0.values().for_each(|value| each(value, give));
    }

    /// Whether every word of `query` occurs in one of the texts or numbers, whatever the case.
    pub fn has_words(&self, query: &str) -> bool {
        let query = query.to_lowercase();
        let mut missing: Vec<&str> = query.split_whitespace().collect();
        self.each_text(&mut |text| {
            if !missing.is_empty() {
                let text = text.to_lowercase();
                missing.retain(|word| !text.contains(word));
            }
        });
        missing.is_empty()
    }
}

fn first_chars(text: &str) -> String {
    text.chars().take(TEXT_MAX).collect()
}

impl<'de> Deserialize<'de> for Metadata {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(json::object(deserializer)?).map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for Metadata {
    fn schema_name() -> Cow<'static, str> {
        "Metadata".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "object",
            "properties": {
                "name": { "type": "string", "minLength": 1, "maxLength": TEXT_MAX, "description": "A short name for people." },
                "tags": {
                    "type": "array", "maxItems": TAGS_MAX, "description": "Words to filter by.",
                    "items": { "type": "string", "minLength": 1, "maxLength": TEXT_MAX }
                }
            }
        })
    }
}
