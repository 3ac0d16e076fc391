//! What a server answered to a call, as a model is told it.

use rmcp::model::{CallToolResponse, CallToolResult, ContentBlock, ResourceContents};
use serde_json::Value;
use waystone_core::tools::ToolOutput;

const UNKNOWN: &str = "[content of an unknown kind]";

pub(super) fn output(response: CallToolResponse) -> ToolOutput {
    match response {
        CallToolResponse::Complete(result) => complete(result),
        CallToolResponse::InputRequired(_) => {
            ToolOutput::error("the tool wants to ask a person for more, which cannot be done here")
        }
        _ => ToolOutput::error("the tool wants to go on without an answer, which cannot be followed here"),
    }
}

/// What is structured is taken as it is; the blocks beside it say the same in text.
fn complete(result: CallToolResult) -> ToolOutput {
    let is_error = result.is_error.unwrap_or(false);
    let content = match result.structured_content {
        Some(structured) if !structured.is_null() => structured,
        _ => Value::String(result.content.into_iter().map(text).collect::<Vec<_>>().join("\n")),
    };
    ToolOutput { content, is_error }
}

fn text(block: ContentBlock) -> String {
    match block {
        ContentBlock::Text(text) => text.text,
        ContentBlock::Image(image) => format!("[image {}, {} bytes]", image.mime_type, size_bytes(&image.data)),
        ContentBlock::Audio(audio) => format!("[audio {}, {} bytes]", audio.mime_type, size_bytes(&audio.data)),
        ContentBlock::ResourceLink(link) => format!("[resource {}]", link.uri),
        ContentBlock::Resource(embedded) => match embedded.resource {
            ResourceContents::TextResourceContents { text, .. } => text,
            ResourceContents::BlobResourceContents { uri, mime_type, blob, .. } => {
                let kind = mime_type.map(|kind| format!(" {kind}")).unwrap_or_default();
                format!("[resource {uri}{kind}, {} bytes]", size_bytes(&blob))
            }
            _ => UNKNOWN.to_owned(),
        },
        _ => UNKNOWN.to_owned(),
    }
}

/// How much `base64` stands for.
fn size_bytes(base64: &str) -> usize {
    base64.trim_end_matches('=').len() * 3 / 4
}
