//! The resources that the suite reads.

use rmcp::ErrorData;
use rmcp::model::{ReadResourceResponse, ReadResourceResult};
use serde_json::{Value, json};

use crate::from_json;
use crate::tool::PNG;

pub(crate) fn list() -> Value {
    json!({ "resultType": "complete", "resources": [
        { "uri": "test://static-text", "name": "static-text", "mimeType": "text/plain" },
        { "uri": "test://static-binary", "name": "static-binary", "mimeType": "image/png" },
        { "uri": "test://watched-resource", "name": "watched-resource", "mimeType": "text/plain" },
    ] })
}

pub(crate) fn templates() -> Value {
    json!({ "resultType": "complete", "resourceTemplates": [
        { "uriTemplate": "test://template/{id}/data", "name": "template", "mimeType": "application/json" },
    ] })
}

pub(crate) fn read(uri: &str) -> Result<ReadResourceResponse, ErrorData> {
    let template = uri.strip_prefix("test://template/").and_then(|rest| rest.strip_suffix("/data"));
    let content = match (uri, template) {
        ("test://static-text" | "test://watched-resource", _) => {
            json!({ "uri": uri, "mimeType": "text/plain", "text": "This is the content of a text resource." })
        }
        ("test://static-binary", _) => json!({ "uri": uri, "mimeType": "image/png", "blob": PNG }),
        (_, Some(id)) => {
            let text = json!({ "id": id, "templateTest": true }).to_string();
            json!({ "uri": uri, "mimeType": "application/json", "text": text })
        }
        _ => return Err(ErrorData::resource_not_found("no such resource", Some(json!({ "uri": uri })))),
    };
    Ok(ReadResourceResult::new(from_json(json!([content]))?).into())
}
