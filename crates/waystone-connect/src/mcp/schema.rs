//! What a tool takes, in a form that providers accept: they refuse a whole request for one schema that they do not like.
//!
//! A schema is only ever made wider. Whether arguments are right the server itself sees.

use serde_json::{Map, Value};

const SCHEMA_BYTES_MAX: usize = 64 * 1024;
/// What providers refuse at the top of a schema.
const REFUSED: [&str; 5] = ["oneOf", "anyOf", "allOf", "enum", "not"];

/// `schema` as one of an object; an error says why it cannot be made one.
pub(super) fn accepted(schema: &Map<String, Value>) -> Result<Map<String, Value>, String> {
    let size_bytes = serde_json::to_string(schema).map_or(usize::MAX, |text| text.len());
    if size_bytes > SCHEMA_BYTES_MAX {
        return Err(format!("its schema is longer than {} KiB", SCHEMA_BYTES_MAX >> 10));
    }
    if !is_of_object(schema.get("type")) {
        return Err("its schema is not of an object".to_owned());
    }
    let mut accepted = schema.clone();
    accepted.insert("type".to_owned(), "object".into());
    let mut properties = match accepted.remove("properties") {
        Some(Value::Object(properties)) => properties,
        _ => Map::new(),
    };
    for alternative in REFUSED.iter().filter_map(|key| accepted.remove(*key)) {
        add_properties(&mut properties, &alternative);
    }
    accepted.insert("properties".to_owned(), properties.into());
    Ok(accepted)
}

/// Who says nothing of the type means an object: arguments are never anything else.
fn is_of_object(kind: Option<&Value>) -> bool {
    match kind {
        None | Some(Value::Null) => true,
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "object"),
        Some(kind) => kind == "object",
    }
}

/// Those of all alternatives that are not there yet, so that a model learns of them.
fn add_properties(properties: &mut Map<String, Value>, alternatives: &Value) {
    for alternative in alternatives.as_array().into_iter().flatten() {
        for (name, property) in alternative["properties"].as_object().into_iter().flatten() {
            properties.entry(name.clone()).or_insert_with(|| property.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(schema: Value, expected: Result<Value, &str>) {
        let Value::Object(given) = &schema else { panic!("{schema} is no object") };
        assert_eq!(accepted(given).map(Value::Object), expected.map_err(str::to_owned), "{schema}");
    }

    #[test]
    fn a_schema_is_made_one_of_an_object() {
        let empty = json!({ "type": "object", "properties": {} });
        let path = json!({ "path": { "type": "string" } });
        check(json!({}), Ok(empty.clone()));
        check(json!({ "type": "object" }), Ok(empty.clone()));
        check(json!({ "type": null, "properties": null }), Ok(empty.clone()));
        check(json!({ "type": ["object", "null"], "properties": [] }), Ok(empty));
        check(json!({ "properties": path }), Ok(json!({ "type": "object", "properties": path })));
        let whole = json!({ "type": "object", "properties": path, "required": ["path"], "$defs": { "a": {} } });
        check(whole.clone(), Ok(whole));
    }

    #[test]
    fn alternatives_at_the_top_become_properties_that_may_be_given() {
        let one = json!({ "properties": { "a": { "type": "string" } }, "required": ["a"] });
        let other = json!({ "properties": { "a": { "type": "number" }, "b": {} } });
        let expected = json!({ "type": "object", "properties": { "a": { "type": "string" }, "b": {} } });
        for key in ["oneOf", "anyOf", "allOf"] {
            check(json!({ "type": "object", key: [one, other, 1] }), Ok(expected.clone()));
        }
        let empty = json!({ "type": "object", "properties": {} });
        check(json!({ "type": "object", "enum": [{}], "not": {}, "anyOf": 1 }), Ok(empty));
    }

    #[test]
    fn what_is_of_something_else_or_too_long_is_refused() {
        check(json!({ "type": "string" }), Err("its schema is not of an object"));
        check(json!({ "type": ["array", "null"] }), Err("its schema is not of an object"));
        let of_length = |length: usize| json!({ "type": "object", "properties": {}, "title": "x".repeat(length) });
        let room = SCHEMA_BYTES_MAX - of_length(0).to_string().len();
        check(of_length(room), Ok(of_length(room)));
        check(of_length(room + 1), Err("its schema is longer than 64 KiB"));
    }
}
