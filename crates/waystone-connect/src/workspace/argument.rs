//! What a model gave a tool, checked as it is taken. `null` counts as absent: some models give all arguments there are.

use serde_json::{Map, Value};
use waystone_core::api::Tool;
use waystone_core::prose::quoted;

pub(super) struct Arguments<'a>(&'a Map<String, Value>);

impl<'a> Arguments<'a> {
    /// Refuses those that `tool` does not know.
    pub(super) fn new(tool: &Tool, given: &'a Map<String, Value>) -> Result<Self, String> {
        let known = tool.input_schema["properties"].as_object().expect("the schemas of our tools have properties");
        match given.keys().find(|name| !known.contains_key(*name)) {
            None => Ok(Self(given)),
            Some(unknown) => {
                let known = known.keys().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
                Err(format!("there is no argument {}: {} takes {known}", quoted(unknown), tool.name))
            }
        }
    }

    pub(super) fn text(&self, name: &str) -> Result<Option<&'a str>, String> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(format!("`{name}` must be a string, not {}", kind(other))),
        }
    }

    pub(super) fn required_text(&self, name: &str) -> Result<&'a str, String> {
        self.text(name)?.ok_or_else(|| format!("`{name}` is missing: it must be a string"))
    }

    /// A whole number from 1 on.
    pub(super) fn count(&self, name: &str) -> Result<Option<usize>, String> {
        let Some(value) = self.0.get(name).filter(|value| !value.is_null()) else {
            return Ok(None);
        };
        let expected = || format!("`{name}` must be a whole number from 1 on");
        let number = value.as_number().ok_or_else(|| format!("{}, not {}", expected(), kind(value)))?;
        // To JSON Schema 3.0 is a whole number too.
        let whole =
            || number.as_f64().filter(|number| number.fract() == 0.0 && *number > 0.0).map(|number| number as u64);
        let count = number.as_u64().or_else(whole).filter(|count| *count > 0).ok_or_else(expected)?;
        Ok(Some(usize::try_from(count).unwrap_or(usize::MAX)))
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}
