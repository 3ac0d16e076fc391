//! The table of settings as a JSON schema, for editors of `config.json`.

use serde_json::{Map, Value, json};
use waystone_core::api::{Class, ContextRule};

use super::{Kind, SCHEMA, SETTINGS, Setting, provider};

fn rule() -> Value {
    json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["pattern", "class"],
        "properties": {
            "pattern": { "type": "string", "format": "regex", "maxLength": ContextRule::PATTERN_MAX },
            "class": { "enum": Class::ALL },
            "reason": { "type": "string", "maxLength": 256 },
        },
    })
}

/// The schema of `config.json`.
pub(crate) fn schema() -> Value {
    let own = json!({ "type": "string", "description": "Where this schema is, for editors; it has no effect." });
    let properties = SETTINGS.iter().filter(|setting| setting.is_in_file()).map(|setting| {
        let mut property = match setting.kind {
            Kind::Text | Kind::Loopback => json!({ "type": "string" }),
            Kind::Number(min, max) => json!({ "type": "integer", "minimum": min, "maximum": max }),
            Kind::Servers => json!({ "type": "object", "additionalProperties": { "type": "object" } }),
            Kind::Names => json!({ "type": "array", "items": { "type": "string", "pattern": "^[A-Za-z0-9_-]*\\*?$", "minLength": 1 } }),
            Kind::Origins => json!({ "type": "array", "items": { "type": "string", "format": "uri" } }),
            Kind::Switch => json!({ "type": "boolean" }),
            Kind::OneOf(choices) => json!({ "enum": choices }),
            Kind::Models => provider::models_schema(),
            Kind::ModelLimits => provider::limits_schema(),
            Kind::Rules => json!({ "type": "array", "maxItems": ContextRule::RULES_MAX, "items": rule() }),
        };
        property["description"] =
            json!(format!("{}. Variable {}, flag --{}.", setting.about, variables(setting), setting.flag()));
        let default = (setting.default)();
        if !default.is_null() {
            property["default"] = default;
        }
        (setting.key.to_owned(), property)
    });
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Waystone configuration: config.json in the data directory",
        "type": "object",
        "additionalProperties": false,
        "properties": std::iter::once((SCHEMA.to_owned(), own)).chain(properties).collect::<Map<_, _>>(),
    })
}

/// All names of its variable.
fn variables(setting: &Setting) -> String {
    let names: Vec<&str> = [setting.variable].iter().chain(setting.aliases).copied().collect();
    names.join(", also ")
}
