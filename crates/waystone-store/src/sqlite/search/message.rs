//! Messages of one branch that are searched: those before its last request, on the way from the beginning of the conversation to there.

use std::collections::HashSet;
use std::sync::PoisonError;

use rusqlite::{Connection, params};
use waystone_core::api::{ContentPart, MessageType, Role, Segment};
use waystone_core::search::snippet;
use waystone_core::store::{Scope, SearchMessages};

use super::{Corpora, hit, look};
use crate::sqlite::branch::{self, BranchRow};
use crate::sqlite::conversation;
use crate::sqlite::error::{DbResult, unreadable};
use crate::sqlite::message::spans;
use crate::sqlite::segment::read_by_key;

pub(crate) fn search_messages(
    db: &Connection,
    scope: &Scope,
    corpora: &Corpora,
    search: &SearchMessages,
) -> DbResult<Vec<Segment>> {
    let row = conversation::find_row(db, scope, &search.context)?;
    let branch = branch::find(db, row.session, &search.context, &search.branch)?;
    let allowed = allowed(db, branch, &search.passed_over)?;
    let corpus = corpora.of(row.project_key);
    let mut corpus = corpus.lock().unwrap_or_else(PoisonError::into_inner);
    corpus.follow_segments(db, scope.space, row.project_key)?;
    let hits = look(db, &corpus, "segment_word", &search.query, &corpus.places_of(&allowed))?;
    drop(corpus);
    let mut segments = Vec::new();
    for (key, found) in hits.keys.iter().take(search.limit as usize) {
        let read = read_by_key(db, *key, Some(search.preview), |text| snippet(text, &search.query))?;
        let Some((segment, snippet)) = read else { continue };
        segments.push(Segment { hit: Some(hit(found, snippet, segment.created_at, search.now)), ..segment });
    }
    Ok(segments)
}

/// The keys of what is searched.
fn allowed(db: &Connection, branch: BranchRow, passed_over: &[String]) -> DbResult<HashSet<i64>> {
    // What calls no tool and is no result needs no look at its parts.
    let mut statement = db.prepare_cached(
        "SELECT m.segment, m.role, m.type,
                iif(m.type IN ('tool_call', 'tool_result'), unsealed(m.parts, 'parts', s.id, 'session:' || c.id, c.wrapped_key), NULL)
         FROM message AS m JOIN segment AS s ON s.key = m.segment JOIN session AS c ON c.key = m.session
         WHERE m.branch = ?1 AND m.position <= ?2 ORDER BY m.position",
    )?;
    let (mut keys, mut end) = (Vec::new(), None);
    for span in spans(db, branch)? {
        let mut rows = statement.query(params![span.branch, span.last])?;
        while let Some(row) = rows.next()? {
            let (role, kind) =
                (row.get_ref(1)?.as_str().unwrap_or_default(), row.get_ref(2)?.as_str().unwrap_or_default());
            if role == Role::User.as_str() && kind != MessageType::ToolResult.as_str() {
                end = Some(keys.len());
            }
            let parts: Option<String> = row.get(3)?;
            keys.push((row.get::<_, i64>(0)?, is_of_tools(parts.as_deref(), passed_over)?));
        }
    }
    keys.truncate(end.unwrap_or(keys.len()));
    Ok(keys.into_iter().filter(|(_, is_passed_over)| !is_passed_over).map(|(key, _)| key).collect())
}

/// Whether a message only calls these tools, or is what one of them returned.
fn is_of_tools(parts: Option<&str>, tools: &[String]) -> DbResult<bool> {
    let Some(parts) = parts else { return Ok(false) };
    let parts: Vec<ContentPart> = serde_json::from_str(parts).map_err(|error| unreadable("a message", error))?;
    let mut named = parts.iter().filter_map(|part| match part {
        ContentPart::ToolCall { name, .. } | ContentPart::ToolResult { tool_name: name, .. } => Some(name),
        ContentPart::Text { .. } => None,
    });
    Ok(named.all(|name| tools.contains(name)))
}
