//! JSON schemas of requests and replies, for MCP tools and OpenAPI alike.

use schemars::generate::SchemaSettings;
use schemars::transform::{RecursiveTransform, Transform};
use schemars::{JsonSchema, Schema};
use serde_json::{Map, Value};

/// The schema of what a client sends, as models are told it, and its description apart.
pub(crate) fn of_request<T: JsonSchema>() -> (Map<String, Value>, String) {
    let mut schema = schema::<T>(SchemaSettings::draft2020_12());
    RecursiveTransform(without_null).transform(&mut schema);
    parts(schema)
}

/// The schema of a JSON body, to the letter: a field that may be left out may also be `null`.
pub(crate) fn of_body<T: JsonSchema>() -> Map<String, Value> {
    parts(schema::<T>(SchemaSettings::draft2020_12())).0
}

/// The schema of what a client receives, and its description apart.
pub(crate) fn of_reply<T: JsonSchema>() -> (Map<String, Value>, String) {
    let mut schema = schema::<T>(SchemaSettings::draft2020_12().for_serialize());
    RecursiveTransform(without_null).transform(&mut schema);
    parts(schema)
}

/// The schema of a type, whole in one object.
fn schema<T: JsonSchema>(mut settings: SchemaSettings) -> Schema {
    settings.inline_subschemas = true;
    settings.meta_schema = None;
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    RecursiveTransform(plain_types).transform(&mut schema);
    schema
}

fn parts(mut schema: Schema) -> (Map<String, Value>, String) {
    let object = schema.ensure_object();
    let description =
        object.remove("description").and_then(|text| text.as_str().map(str::to_owned)).unwrap_or_default();
    object.remove("title");
    (std::mem::take(object), description)
}

/// Says what models and clients understand: formats such as `uint32` are Rust's, not JSON Schema's, and lines of a
/// description end where the source did.
fn plain_types(schema: &mut Schema) {
    let Some(object) = schema.as_object_mut() else { return };
    let is_ours =
        |format: &Value| format.as_str().is_some_and(|format| format.starts_with("uint") || format.starts_with("int"));
    if object.get("format").is_some_and(is_ours) {
        object.remove("format");
    }
    if let Some(Value::String(text)) = object.get_mut("description") {
        *text = unwrap_lines(text);
    }
}

/// A field that may be left out is left out when there is nothing to say, so it need not be said to be `null` as well.
fn without_null(schema: &mut Schema) {
    let Some(object) = schema.as_object_mut() else { return };
    let required = object.get("required").cloned().unwrap_or_default();
    let is_required =
        |name: &str| required.as_array().is_some_and(|names| names.iter().any(|required| required == name));
    let Some(Value::Object(properties)) = object.get_mut("properties") else { return };
    for (_, property) in properties.iter_mut().filter(|(name, _)| !is_required(name)) {
        if let Some(Value::Array(types)) = property.get("type")
            && let [kind, Value::String(null)] = types.as_slice()
            && null == "null"
        {
            property["type"] = kind.clone();
        }
    }
}

fn unwrap_lines(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
