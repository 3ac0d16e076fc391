//! From JSON to a request, with errors that name the field.

use std::fmt::Display;

use serde::de::DeserializeOwned;
use serde_json::Value;
use waystone_core::{Error, Result};

pub(crate) fn request_from<Request: DeserializeOwned>(value: Value) -> Result<Request> {
    // A list would be taken for the fields in their order.
    if !value.is_object() {
        return Err(Error::InvalidInput("the request is not a JSON object".to_owned()));
    }
    serde_path_to_error::deserialize(value).map_err(name_field)
}

/// The error, and which field it is about.
pub(crate) fn name_field<E: Display>(error: serde_path_to_error::Error<E>) -> Error {
    let path = error.path().to_string();
    let message = error.into_inner().to_string();
    let is_named = path == "." || message.starts_with("unknown field");
    Error::InvalidInput(if is_named { message } else { format!("{path}: {message}") })
}
