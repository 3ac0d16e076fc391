//! From JSON to a request, with errors that name the field.

use std::fmt::Display;

use serde::de::DeserializeOwned;
use serde_json::{Number, Value};
use waystone_core::{Error, Result};

pub(crate) fn request_from<Request: DeserializeOwned>(value: Value) -> Result<Request> {
    // A list would be taken for the fields in their order.
    let Value::Object(mut fields) = value else {
        return Err(Error::InvalidInput("the request is not a JSON object".to_owned()));
    };
    // What a tool returned is kept as it was written, whatever it is.
    for (_, field) in fields.iter_mut().filter(|(name, _)| *name != "result") {
        if let Some(whole) = whole_number(field) {
            *field = whole.into();
        }
    }
    serde_path_to_error::deserialize(Value::Object(fields)).map_err(name_field)
}

/// `60.0` as the whole number that it is. Only for fields of a request: what a client wants kept is deeper inside, and stays as it was written.
fn whole_number(value: &Value) -> Option<Number> {
    const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
    let number = value.as_number().filter(|number| number.is_f64())?.as_f64()?;
    (number.fract() == 0.0 && number.abs() < EXACT_MAX).then(|| Number::from(number as i64))
}

/// What a parser wants, in words that are not Rust's.
const WANTED: [(&str, &str); 9] = [
    ("expected u64", "expected a whole number"),
    ("expected u32", "expected a whole number"),
    ("expected i64", "expected a whole number"),
    ("expected f64", "expected a number"),
    ("invalid digit found in string", "expected a whole number"),
    ("expected a sequence", "expected a list"),
    ("expected a map", "expected an object"),
    ("invalid type: map", "invalid type: object"),
    ("invalid type: sequence", "invalid type: list"),
];

/// The error, and which field it is about.
pub(crate) fn name_field<E: Display>(error: serde_path_to_error::Error<E>) -> Error {
    let path = error.path().to_string();
    let message = error.into_inner().to_string();
    let message = WANTED.iter().fold(message, |message, (rust, plain)| message.replace(rust, plain));
    let is_named = path == "." || message.starts_with("unknown field");
    Error::InvalidInput(if is_named { message } else { format!("{path}: {message}") })
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    struct Request {
        #[serde(default)]
        limit: u32,
        #[serde(default)]
        tags: Vec<String>,
        #[serde(default)]
        context: Value,
    }

    #[test]
    fn a_whole_number_may_be_written_with_a_point_and_what_is_kept_stays_as_it_was() {
        let read = |value| request_from::<Request>(value).map_err(|error| error.to_string());
        let context = json!({ "n": 60.0 });
        let expected = Request { limit: 60, tags: Vec::new(), context: context.clone() };
        assert_eq!(read(json!({ "limit": 60.0, "context": context })), Ok(expected));
        let check = |value, message: &str| assert_eq!(read(value), Err(message.to_owned()));
        check(json!({ "limit": 1.5 }), "limit: invalid type: floating point `1.5`, expected a whole number");
        check(json!({ "limit": "60" }), "limit: invalid type: string \"60\", expected a whole number");
        check(json!({ "tags": "a" }), "tags: invalid type: string \"a\", expected a list");
        check(json!({ "limit": -1.0 }), "limit: invalid value: integer `-1`, expected a whole number");
    }
}
