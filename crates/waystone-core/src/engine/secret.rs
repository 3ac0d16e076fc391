//! Secrets: looked for in what is to be kept, and left out of what is shown. What counts as one is in [`crate::secret`].

use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};

use super::Engine;
use super::checkpoint::parse_context;
use crate::api::{
    ChatConfig, CheckpointRecord, ContentPart, Digest, Message, Metadata, SegmentRecord, SessionRecord, Tool,
};
use crate::canon::hash_object;
use crate::error::{Error, Result};
use crate::json::too_deep;
use crate::secret::{Cover, Scan};
use crate::transcript::{Said, Turn};

impl Engine {
    pub(super) fn scan(&self) -> Scan {
        Scan::new(&self.secrets)
    }

    /// What a client is told of secrets in a checkpoint; an error if it must not be kept.
    pub(super) fn scan_checkpoint(&self, context: &Map<String, Value>, metadata: &Metadata) -> Result<Vec<String>> {
        let mut scan = self.scan();
        scan.object("", context);
        scan.object("/metadata", metadata.fields());
        scan.end()
    }

    /// A checkpoint as it is exported, and how many of its texts are not shown as they are. The hash is that of what stands in the document.
    pub(super) fn cover_checkpoint(
        &self,
        mut record: CheckpointRecord<'static>,
        context: Box<RawValue>,
    ) -> Result<(CheckpointRecord<'static>, Box<RawValue>, u64)> {
        let Some(cover) = self.secrets.shown() else { return Ok((record, context, 0)) };
        let mut covered = parse_context(&context)?;
        let in_metadata = record.metadata.cover(cover);
        let count = cover.object(&mut covered);
        if count == 0 {
            return Ok((record, context, in_metadata));
        }
        let hash = hash_object(&covered).ok_or_else(|| Error::broken(too_deep()))?;
        record.context_hash = hash.to_string();
        let context = to_raw_value(&covered).map_err(|error| Error::broken(format!("context: {error}")))?;
        Ok((record, context, count + in_metadata))
    }
}

/// Takes secrets out of a text, and counts it if it had some.
pub(super) fn cover_text(cover: Cover<'_>, text: &mut String) -> u64 {
    let covered = cover.text(text);
    let is_changed = covered.is_some();
    covered.into_iter().for_each(|covered| *text = covered);
    u64::from(is_changed)
}

pub(super) fn cover_session(cover: Cover<'_>, session: &mut SessionRecord) -> u64 {
    session.name.iter_mut().chain(&mut session.tags).map(|text| cover_text(cover, text)).sum()
}

pub(super) fn cover_segment(cover: Cover<'_>, segment: &mut SegmentRecord) -> u64 {
    let texts = segment.file_path.iter_mut().chain(&mut segment.tags).chain([&mut segment.text]);
    texts.map(|text| cover_text(cover, text)).sum()
}

/// What a model is told of tools, without secrets.
pub(super) fn cover_tools(cover: Cover<'_>, tools: &mut [Tool]) -> u64 {
    tools.iter_mut().map(|tool| cover_text(cover, &mut tool.description) + cover.object(&mut tool.input_schema)).sum()
}

impl ChatConfig {
    /// Takes secrets out of how a conversation is led, and counts the texts that had some.
    pub fn cover(&mut self, cover: Cover<'_>) -> u64 {
        let texts = [&mut self.mode, &mut self.agent_role].into_iter().chain(&mut self.workspace_path);
        let covered: u64 = texts.map(|text| cover_text(cover, text)).sum();
        covered + cover.object(&mut self.parameters) + cover_tools(cover, &mut self.tools)
    }
}

impl Message {
    /// Takes secrets out of all that it says, and counts the texts that had some. Values are looked through as they are: in their JSON the escapes
    /// hide where a secret begins. Whatever cuts a message is given it so: of a secret that is cut nothing would be known as one.
    pub fn cover(&mut self, cover: Cover<'_>) -> u64 {
        let covered = self.content.iter_mut().map(|part| match part {
            ContentPart::Text { text } => cover_text(cover, text),
            ContentPart::ToolCall { arguments, .. } => cover.value(arguments),
            ContentPart::ToolResult { content, arguments, .. } => {
                cover.value(content) + arguments.as_mut().map_or(0, |edited| cover.value(edited))
            }
        });
        covered.sum()
    }
}

pub(super) fn cover_digest(cover: Cover<'_>, digest: &Digest) -> Digest {
    let Value::Object(mut fields) = json!(digest) else { unreachable!("a digest is an object") };
    cover.object(&mut fields);
    serde_json::from_value(fields.into()).unwrap_or_default()
}

pub(super) fn cover_turn(cover: Cover<'_>, turn: &mut Turn) {
    let texts = match &mut turn.said {
        Said::Request(text) | Said::Reply(text) | Said::Summary(text) => [Some(text), None],
        Said::Result { text, task, .. } => [Some(text), task.as_mut().map(|(_, about)| about)],
        Said::Call { input, .. } => {
            cover.value(input);
            [None, None]
        }
    };
    for text in texts.into_iter().flatten() {
        cover_text(cover, text);
    }
}
