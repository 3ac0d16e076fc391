//! Agent runs as branches: what was asked, called, returned and answered.

use std::fs;
use std::path::Path;

use anyhow::Context;
use serde::Deserialize;
use serde_json::{Value, json};
use waystone_core::api::{ContentPart, Message, MessageMetadata, MessageTokens, MessageType, Origin, Role};
use waystone_core::clock::Timestamp;
use waystone_core::tokens::count;
use waystone_core::window::Entry;

/// What of a branch is sent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Window,
    Everything,
    Newest,
}

#[derive(Default)]
pub(super) struct Run {
    pub(super) entries: Vec<Entry>,
    /// What the agent used after so many entries.
    pub(super) facts: Vec<(usize, Vec<String>)>,
}

#[derive(Deserialize)]
struct Written {
    goal: String,
    messages: Vec<Spoken>,
    facts: Vec<String>,
}

#[derive(Deserialize)]
struct Spoken {
    role: String,
    content: String,
}

pub(super) fn read(file: &Path) -> anyhow::Result<Vec<Run>> {
    let text = fs::read_to_string(file).with_context(|| format!("{} cannot be read", file.display()))?;
    let runs = text.lines().map(|line| Run::of(&serde_json::from_str(line)?));
    runs.collect()
}

impl Run {
    fn of(written: &Written) -> anyhow::Result<Self> {
        let mut run = Self::default();
        if written.messages.first().is_none_or(|first| first.content != written.goal) {
            run.add_text(Role::User, &written.goal)?;
        }
        let mut called = false;
        for (at, spoken) in written.messages.iter().enumerate() {
            let is_answered = written.messages.get(at + 1).is_some_and(|next| next.role == "obs");
            match spoken.role.as_str() {
                "obs" if called => run.add_result(&spoken.content)?,
                "assistant" if is_answered => run.add_call(&spoken.content)?,
                "assistant" => run.add_text(Role::Assistant, &spoken.content)?,
                _ => run.add_text(Role::User, &spoken.content)?,
            }
            called = spoken.role == "assistant" && is_answered;
        }
        run.facts.push((run.entries.len(), written.facts.clone()));
        Ok(run)
    }

    /// One run after another, as one conversation.
    pub(super) fn join(runs: &[Self]) -> Self {
        let mut all = Self::default();
        for run in runs {
            let before = all.entries.len();
            for entry in &run.entries {
                let position = all.entries.len() as u64 + 1;
                let message = Message { id: id(position), ..(*entry.message).clone() };
                let entry = Entry::new(position, message, entry.tokens);
                all.entries.push(entry);
            }
            all.facts.extend(run.facts.iter().map(|(at, facts)| (before + at, facts.clone())));
        }
        all
    }

    pub(super) fn tokens(&self) -> u64 {
        self.entries.iter().map(|entry| entry.tokens).sum()
    }

    fn add_text(&mut self, role: Role, text: &str) -> anyhow::Result<()> {
        self.add(role, MessageType::Text, vec![ContentPart::Text { text: text.to_owned() }])
    }

    /// A thought, and what is done: `CALL name {…}`, or a command between fences.
    fn add_call(&mut self, content: &str) -> anyhow::Result<()> {
        let (text, name, arguments) = match (content.split_once("CALL "), content.split_once("```")) {
            (Some((text, call)), _) => {
                let (name, arguments) = call.split_once(' ').unwrap_or((call, "{}"));
                let arguments = serde_json::from_str(arguments).unwrap_or_else(|_| Value::from(arguments));
                (text, name, arguments)
            }
            (None, Some((text, command))) => {
                (text, "bash", json!({ "command": command.trim_end_matches(['`', '\n']) }))
            }
            (None, None) => ("", "bash", json!({ "command": content })),
        };
        let id = format!("call_{}", self.entries.len()).parse().map_err(anyhow::Error::msg)?;
        let text = ContentPart::Text { text: text.trim().to_owned() };
        let call = ContentPart::ToolCall { id, name: name.to_owned(), arguments };
        self.add(Role::Assistant, MessageType::ToolCall, vec![text, call])
    }

    fn add_result(&mut self, text: &str) -> anyhow::Result<()> {
        let calls = self.entries.last().into_iter().flat_map(|entry| &entry.message.content);
        let mut called = calls.filter_map(|part| match part {
            ContentPart::ToolCall { id, name, .. } => Some((id.clone(), name.clone())),
            _ => None,
        });
        let (tool_call_id, tool_name) = called.next().context("a result without a call")?;
        let (content, arguments) = (Value::from(text), None);
        let part = ContentPart::ToolResult { tool_call_id, tool_name, content, arguments, is_error: false };
        self.add(Role::User, MessageType::ToolResult, vec![part])
    }

    fn add(&mut self, role: Role, message_type: MessageType, content: Vec<ContentPart>) -> anyhow::Result<()> {
        let position = self.entries.len() as u64 + 1;
        let tokens =
            MessageTokens { prompt: 0, completion: 0, total: 0, cache_read: 0, cache_write: 0, estimated: false };
        let metadata = MessageMetadata {
            created_at: Timestamp::from_ms(0),
            branch: "main".to_owned(),
            tokens,
            origin: Origin::Agent,
            model_id: None,
            cost_usd: None,
            cancelled: false,
            truncated: false,
        };
        let message = Message { id: id(position), role, content, message_type, metadata, parent_id: None };
        let calls = message.content.iter().filter(|part| matches!(part, ContentPart::ToolCall { .. }));
        let called: usize = calls.map(|call| count(&json!(call).to_string())).sum();
        let tokens = (count(&message.text()) + called) as u64;
        self.entries.push(Entry::new(position, message, tokens));
        Ok(())
    }
}

/// As long as those that the engine makes.
fn id(position: u64) -> waystone_core::id::SegmentId {
    format!("01k5b0000000000000{position:08}").parse().expect("letters and digits are an id")
}
