//! JSON schemas of requests and replies, for MCP tools and OpenAPI alike.

use schemars::generate::SchemaSettings;
use schemars::transform::{RecursiveTransform, Transform};
use schemars::{JsonSchema, Schema};
use serde_json::{Map, Value, json};

/// The schema of a tool's arguments in few words, and the tool's description apart: a model reads them in every conversation, whether it
/// calls the tool or not. What breaks a bound that is not told is refused with a reason.
pub(crate) fn of_arguments<T: JsonSchema>() -> (Map<String, Value>, String) {
    let (mut schema, description) = of_request::<T>();
    // Some clients refuse a tool that does not say which arguments it has, though it has none.
    if let Value::Object(properties) = schema.entry("properties").or_insert_with(|| json!({})) {
        for property in properties.values_mut().filter_map(Value::as_object_mut) {
            let told = property.remove("description");
            shorten(property);
            // The first sentence says what it is; the others are for who reads the documentation.
            let told =
                told.as_ref().and_then(Value::as_str).and_then(|text| text.split(". ").next()).unwrap_or_default();
            let told = told.trim_end_matches('.');
            let told = match members(property) {
                Some(names) if told.is_empty() => names,
                Some(names) => format!("{told}: {names}"),
                None => told.to_owned(),
            };
            if !told.is_empty() {
                property.insert("description".to_owned(), told.into());
            }
        }
    }
    (schema, description)
}

/// The schema of what a tool returns: the fields that are always there, each with its type. A model sees what is in them when it has called
/// the tool.
pub(crate) fn of_result<T: JsonSchema>() -> Map<String, Value> {
    let (schema, _) = of_reply::<T>();
    let fields = schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    let typed = |name: &str| {
        let mut field = schema["properties"][name].as_object().cloned().unwrap_or_default();
        let is_null = |choice: &Value| choice["type"] == "null";
        let may_be_null = field.get("anyOf").and_then(Value::as_array).is_some_and(|all| all.iter().any(is_null));
        shorten(&mut field);
        let mut types: Vec<Value> = field.get("anyOf").and_then(Value::as_array).cloned().unwrap_or_default();
        types.extend(field.get("type").map(|kind| json!({ "type": kind })));
        types.extend(may_be_null.then(|| json!({ "type": "null" })));
        (name.to_owned(), if types.len() == 1 { types.remove(0) } else { json!({ "anyOf": types }) })
    };
    let properties: Map<_, _> = fields.map(typed).collect();
    Map::from_iter([("type".to_owned(), json!("object")), ("properties".to_owned(), properties.into())])
}

/// So many values of a member are named.
const FEW: usize = 4;

/// The names of what an object, or each item of a list, has. They say enough: what is not so is refused with a reason.
fn members(schema: &mut Map<String, Value>) -> Option<String> {
    let holder = match schema.get_mut("items").and_then(Value::as_object_mut) {
        Some(items) if items.contains_key("properties") => items,
        _ => schema,
    };
    let Some(Value::Object(properties)) = holder.remove("properties") else { return None };
    holder.remove("required");
    let told = |(name, member): (&String, &Value)| match member.get("enum").and_then(Value::as_array) {
        Some(values) if values.len() <= FEW => {
            let values: Vec<&str> = values.iter().filter_map(Value::as_str).collect();
            format!("{name}: {}", values.join("|"))
        }
        _ => name.clone(),
    };
    Some(format!("{{{}}}", properties.iter().map(told).collect::<Vec<_>>().join(", ")))
}

/// Takes out of a schema what a model does not need in order to call right.
fn shorten(schema: &mut Map<String, Value>) {
    for bound in [
        "minLength",
        "maxLength",
        "minItems",
        "maxItems",
        "minimum",
        "maximum",
        "pattern",
        "format",
        "additionalProperties",
    ] {
        schema.remove(bound);
    }
    let is_plain = |value: &Value| value.is_null() || value.is_object() || *value == json!(false) || *value == json!(0);
    if schema.get("default").is_some_and(is_plain) {
        schema.remove("default");
    }
    schema.remove("description");
    for key in ["anyOf", "oneOf"] {
        if let Some(Value::Array(choices)) = schema.remove(key) {
            join(choices, schema);
        }
    }
    if let Some(Value::Object(items)) = schema.get_mut("items") {
        shorten(items);
    }
}

/// Makes one schema of several: values become a list of them, and of the rest the types are left. That something may be null is not said.
fn join(choices: Vec<Value>, into: &mut Map<String, Value>) {
    let (mut types, mut values) = (Vec::new(), Vec::new());
    for mut choice in choices.into_iter().filter_map(|choice| choice.as_object().cloned()) {
        shorten(&mut choice);
        values.extend(choice.remove("const"));
        types.extend(choice.remove("type").filter(|kind| kind != "null" && !types.contains(kind)));
        into.extend(choice);
    }
    match types.as_slice() {
        [kind] => into.insert("type".to_owned(), kind.clone()),
        // Some clients do not understand a list of types.
        _ => into.insert("anyOf".to_owned(), types.iter().map(|kind| json!({ "type": kind })).collect()),
    };
    if !values.is_empty() {
        into.insert("enum".to_owned(), values.into());
    }
}

/// The schema of what a client sends, with a field that may be left out as it is when it is there, and its description apart.
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
            if let Some(Value::Array(values)) = property.get_mut("enum") {
                values.retain(|value| !value.is_null());
            }
        }
    }
}

fn unwrap_lines(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
