//! Tools of our own: what a window leaves out is one call away for the model too.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::api::{ChatConfig, Segment, Tool};
use crate::engine::Engine;
use crate::engine::secret::cover_text;
use crate::error::{Error, Result};
use crate::handle::{Handle, Holder, Range};
use crate::id::SessionId;
use crate::offload::offload_unless;
use crate::prose::{NOTICE, entry, fence};
use crate::store::{Scope, SearchMessages, Turn};
use crate::tokens;
use crate::tools::ToolOutput;

const SEARCH: &str = "context_search_stashed";
const EXPAND: &str = "context_expand";
const FOUND_MAX: u32 = 8;
const PREVIEW_CHARS: usize = 300;
/// So much is returned at once, and less to a model that holds little: the result is to be seen whole.
const PAGE_TOKENS_MAX: u64 = 2500;
/// Characters of a token, about: where to begin with.
const TOKEN_CHARS: u64 = 4;

/// Those that are none of `others`.
pub(in crate::engine) fn own_tools(others: &[Tool]) -> impl Iterator<Item = Tool> + use<> {
    let own = [
        tool(
            SEARCH,
            "Finds what was said or returned earlier in this conversation and is not in view. Returns handles.",
            &json!({ "query": { "type": "string", "description": "words, or what it is about" } }),
            "query",
        ),
        tool(
            EXPAND,
            "Returns the whole of what a handle (ws:segment:…) stands for; more of a long one with offset.",
            &json!({
                "handle": { "type": "string" },
                "offset": { "type": "integer", "minimum": 0, "description": "characters to pass over" },
            }),
            "handle",
        ),
    ];
    let free: Vec<Tool> = own.into_iter().filter(|own| others.iter().all(|other| other.name != own.name)).collect();
    free.into_iter()
}

/// Whether an offered tool is one of ours.
pub(super) fn is_own(tool: &Tool) -> bool {
    own_tools(&[]).any(|own| own == *tool)
}

fn tool(name: &str, description: &str, properties: &Value, required: &str) -> Tool {
    let schema = json!({ "type": "object", "properties": properties, "required": [required] });
    let Value::Object(input_schema) = schema else { unreachable!("it is an object") };
    let (name, description) = (name.to_owned(), description.to_owned());
    Tool { name, description, input_schema, read_only: true, idempotent: true }
}

impl Engine {
    /// What one of our own tools returns; `None` if it is none of ours.
    pub(super) async fn call_own(
        &self,
        scope: &Scope,
        context: &SessionId,
        tool: &str,
        arguments: &Map<String, Value>,
    ) -> Option<ToolOutput> {
        let text = |name: &str| arguments.get(name).and_then(Value::as_str).unwrap_or_default();
        let done = match tool {
            SEARCH => self.search_conversation(scope, context, text("query")).await,
            EXPAND => {
                let offset = arguments.get("offset").and_then(Value::as_u64).unwrap_or_default();
                self.expand_message(scope, context, text("handle"), offset).await
            }
            _ => return None,
        };
        Some(match done {
            Ok(text) => ToolOutput::text(text),
            Err(error) => ToolOutput::error(error.to_string()),
        })
    }

    async fn search_conversation(&self, scope: &Scope, context: &SessionId, query: &str) -> Result<String> {
        if query.trim().is_empty() {
            return Err(Error::InvalidInput("query is empty".to_owned()));
        }
        let Turn { branch, config, .. } = self.store.find_turn(scope, context).await?;
        let search = SearchMessages {
            context: context.clone(),
            branch,
            query: query.to_owned(),
            // Whoever looks for something is not to find that it was looked for.
            passed_over: own_tools(&config.tools).map(|tool| tool.name).collect(),
            limit: FOUND_MAX,
            // Before something is cut off secrets are looked for.
            preview: if self.secrets.shown().is_some() { usize::MAX } else { PREVIEW_CHARS },
            now: self.clock.now(),
        };
        let mut found = self.store.search_messages(scope, search).await?;
        if found.is_empty() {
            return Ok("nothing was found; other words may help".to_owned());
        }
        let (most, secrets) = (self.page_tokens(&config), Arc::clone(&self.secrets));
        let list = move || {
            if let Some(cover) = secrets.shown() {
                for segment in &mut found {
                    cover_text(cover, &mut segment.text);
                    segment.text = segment.text.chars().take(PREVIEW_CHARS).collect();
                }
            }
            list(&found, most)
        };
        offload_unless(false, list).await
    }

    async fn expand_message(&self, scope: &Scope, context: &SessionId, handle: &str, offset: u64) -> Result<String> {
        let handle: Handle = handle.parse().map_err(Error::InvalidInput)?;
        let Holder::Segment(id) = &handle.holder else {
            return Err(Error::InvalidInput(format!("`{handle}` is not of this conversation")));
        };
        let mut message = self.find_message(scope, context, id).await?;
        let config = self.store.find_turn(scope, context).await?.config;
        let (most, secrets) = (self.page_tokens(&config), Arc::clone(&self.secrets));
        let page = move || {
            // All of it: a page may begin in the middle of a secret.
            secrets.shown().map(|cover| message.cover(cover));
            page(&message.whole_text(), handle.range, offset, most)
        };
        offload_unless(false, page).await?
    }

    fn page_tokens(&self, config: &ChatConfig) -> u64 {
        (self.chat.model.describe(&config.model_id).limit / 16).clamp(1, PAGE_TOKENS_MAX)
    }
}

/// What was found, the best first: as many as there is room for, and of the best at least where it is.
fn list(found: &[Segment], tokens_max: u64) -> String {
    let told = |count: usize, chars: usize| {
        let entries = found.iter().take(count).map(|segment| {
            let handle = Handle::to_segment(&segment.segment_id).to_string();
            entry(&handle, segment.origin, &segment.text.chars().take(chars).collect::<String>())
        });
        format!("{NOTICE}{}", fence(&entries.collect::<String>()))
    };
    let wholes = (1..=found.len()).rev().map(|count| (count, usize::MAX));
    let cuts = std::iter::successors(Some(PREVIEW_CHARS), |chars| (*chars > 0).then_some(chars / 2));
    let mut all = wholes.chain(cuts.map(|chars| (1, chars))).map(|(count, chars)| told(count, chars)).peekable();
    loop {
        let told = all.next().unwrap_or_default();
        if all.peek().is_none() || tokens::count(&told) as u64 <= tokens_max {
            return told;
        }
    }
}

fn page(text: &str, range: Option<Range>, offset: u64, tokens_max: u64) -> Result<String> {
    let outside = || Error::InvalidInput(format!("it has {} lines and {} bytes", text.lines().count(), text.len()));
    let text = range.map_or(Some(text), |range| range.of(text)).ok_or_else(outside)?;
    let from = usize::try_from(offset).unwrap_or(usize::MAX);
    let rest = text.char_indices().nth(from).map_or("", |(start, _)| &text[start..]);
    let mut chars = usize::try_from(tokens_max * TOKEN_CHARS).unwrap_or(usize::MAX);
    let cut = |chars: usize| rest.char_indices().nth(chars).map_or(rest, |(end, _)| &rest[..end]);
    while chars > 1 && tokens::count(cut(chars)) as u64 > tokens_max {
        chars = chars * 3 / 4;
    }
    let shown = cut(chars);
    let next = from + shown.chars().count();
    let more = if shown.len() < rest.len() { format!("\n[there is more: offset {next}]") } else { String::new() };
    Ok(format!("{shown}{more}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pages_of_a_text_are_the_text() {
        let text: String = (0..3000).map(|number| format!("line {number} äöü 漢字\n")).collect();
        let (mut whole, mut offset) = (String::new(), 0);
        loop {
            let shown = page(&text, None, offset, 200).unwrap();
            let (part, more) = shown.rsplit_once("\n[there is more: offset ").unwrap_or((&shown, ""));
            assert!(tokens::count(part) <= 200);
            whole.push_str(part);
            let Some(next) = more.strip_suffix(']') else { break };
            offset = next.parse().unwrap();
        }
        assert_eq!(whole, text);
    }

    #[test]
    fn lines_of_a_text_are_a_part_of_it() {
        assert_eq!(page("a\nb\nc", Some(Range::Lines(2, 2)), 0, 100).unwrap(), "b");
        assert!(page("a\nb\nc", Some(Range::Lines(4, 4)), 0, 100).is_err());
    }

    #[test]
    fn a_tool_of_the_clients_that_has_the_name_of_ours_is_the_clients() {
        let theirs = tool(SEARCH, "theirs", &json!({}), "query");
        let names: Vec<String> = own_tools(&[theirs]).map(|tool| tool.name).collect();
        assert_eq!(names, [EXPAND]);
    }
}
