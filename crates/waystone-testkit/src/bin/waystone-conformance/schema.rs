//! What tools take, and what they ask people for. The suite looks at how these come through.

use serde_json::{Value, json};

/// What `tool` takes.
pub(crate) fn input(tool: &str) -> Value {
    match tool {
        "test_sampling" => json!({ "type": "object", "properties": { "prompt": { "type": "string" } } }),
        "test_elicitation" => json!({ "type": "object", "properties": { "message": { "type": "string" } } }),
        "test_custom_header" => {
            json!({ "type": "object", "properties": { "region": { "type": "string", "x-mcp-header": "Region" } } })
        }
        "json_schema_2020_12_tool" => vocabulary(),
        _ => json!({ "type": "object" }),
    }
}

/// Keywords that a server may lose on the way.
fn vocabulary() -> Value {
    let address = json!({
        "$anchor": "addressDef",
        "type": "object",
        "properties": { "street": { "type": "string" }, "city": { "type": "string" } },
    });
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": { "address": address },
        "properties": {
            "name": { "type": "string" },
            "address": { "$ref": "#/$defs/address" },
            "contactMethod": { "type": "string", "enum": ["phone", "email"] },
            "phone": { "type": "string" },
            "email": { "type": "string" },
        },
        "allOf": [{ "anyOf": [{ "required": ["phone"] }, { "required": ["email"] }] }],
        "if": { "properties": { "contactMethod": { "const": "phone" } }, "required": ["contactMethod"] },
        "then": { "required": ["phone"] },
        "else": { "required": ["email"] },
        "additionalProperties": false,
    })
}

pub(crate) fn person() -> Value {
    json!({ "username": { "type": "string" }, "email": { "type": "string" } })
}

pub(crate) fn defaults() -> Value {
    json!({
        "name": { "type": "string", "default": "John Doe" },
        "age": { "type": "integer", "default": 30 },
        "score": { "type": "number", "default": 95.5 },
        "status": { "type": "string", "enum": ["active", "inactive", "pending"], "default": "active" },
        "verified": { "type": "boolean", "default": true },
    })
}

pub(crate) fn enums() -> Value {
    let titled = json!([{ "const": "value1", "title": "First" }, { "const": "value2", "title": "Second" }]);
    let (names, titles) = (["opt1", "opt2"], ["Option One", "Option Two"]);
    json!({
        "untitledSingle": { "type": "string", "enum": ["option1", "option2"] },
        "titledSingle": { "type": "string", "oneOf": titled },
        "legacyEnum": { "type": "string", "enum": names, "enumNames": titles },
        "untitledMulti": { "type": "array", "items": { "type": "string", "enum": ["option1", "option2"] } },
        "titledMulti": { "type": "array", "items": { "anyOf": titled } },
    })
}
