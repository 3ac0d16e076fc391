//! The text of a message part by part, also while it is written: what was streamed of it is in the events.

use rusqlite::{Connection, params};
use serde_json::Value;
use waystone_core::api::MessageContent;
use waystone_core::id::{SegmentId, SessionId};
use waystone_core::store::Scope;

use super::{FROM, find_key, read_facts};
use crate::sqlite::conversation;
use crate::sqlite::error::{DbResult, unreadable};
use crate::sqlite::seal::SEGMENT_TEXT;

/// The text of a message from a sequence on, as far as it is written.
pub(crate) fn read_content(
    db: &Connection,
    scope: &Scope,
    id: &SessionId,
    message: &SegmentId,
    from: u64,
) -> DbResult<MessageContent> {
    let row = conversation::find_row(db, scope, id)?;
    if row.draft.as_deref() == Some(message.as_str()) {
        let parts = streamed(db, row.session, row.draft_seq, message, row.attempt)?;
        let next_sequence = parts.len() as u64 + 1;
        let skipped = usize::try_from(from - 1).unwrap_or(usize::MAX);
        return Ok(MessageContent {
            message_id: message.clone(),
            content: parts.into_iter().skip(skipped).collect(),
            from_sequence: from,
            next_sequence,
            attempt: row.attempt,
            is_complete: false,
        });
    }
    let key = find_key(db, row.session, id, message)?;
    let sql = format!(
        "SELECT {SEGMENT_TEXT}, unsealed(m.facts, 'facts', s.id, 'session:' || c.id, c.wrapped_key) {FROM} WHERE m.segment = ?1"
    );
    let (text, facts): (String, String) =
        db.prepare_cached(&sql)?.query_row(params![key], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let (facts, after) = read_facts(&facts)?;
    let whole = MessageContent {
        message_id: message.clone(),
        content: text,
        from_sequence: 1,
        next_sequence: facts.sequence.max(1) + 1,
        attempt: facts.attempt.max(1),
        is_complete: true,
    };
    if from == 1 {
        return Ok(whole);
    }
    // What was not streamed is one part.
    if facts.sequence == 0 {
        return Ok(MessageContent { content: String::new(), from_sequence: from, ..whole });
    }
    let parts = streamed(db, row.session, after, message, facts.attempt)?;
    if parts.concat() != whole.content {
        // Where its sequences began is not known any more, or never was.
        return Ok(whole);
    }
    let skipped = usize::try_from(from - 1).unwrap_or(usize::MAX);
    Ok(MessageContent { content: parts.into_iter().skip(skipped).collect(), from_sequence: from, ..whole })
}

/// What was streamed of a message in an attempt, in order.
pub(crate) fn streamed(
    db: &Connection,
    session: i64,
    after: i64,
    message: &SegmentId,
    attempt: u64,
) -> DbResult<Vec<String>> {
    let rows = "SELECT unsealed(payload, 'event', seq) FROM event
                WHERE session = ?1 AND seq > ?2 AND kind = 'ContentDelta' ORDER BY seq";
    join(db.prepare_cached(rows)?.query(params![session, after])?, message, attempt)
}

/// The same, of what a run has streamed.
pub(crate) fn streamed_by(
    db: &Connection,
    session: i64,
    run: &str,
    message: &SegmentId,
    attempt: u64,
) -> DbResult<Vec<String>> {
    let rows = "SELECT unsealed(payload, 'event', seq) FROM event
                WHERE session = ?1 AND run = ?2 AND kind = 'ContentDelta' ORDER BY seq";
    join(db.prepare_cached(rows)?.query(params![session, run])?, message, attempt)
}

fn join(mut rows: rusqlite::Rows<'_>, message: &SegmentId, attempt: u64) -> DbResult<Vec<String>> {
    let mut parts = Vec::new();
    while let Some(row) = rows.next()? {
        let payload: String = row.get(0)?;
        let mut payload: Value = serde_json::from_str(&payload).map_err(|error| unreadable("an event", error))?;
        if payload["message_id"] != message.as_str() || payload["attempt"] != attempt {
            continue;
        }
        if let Value::Array(deltas) = payload["deltas"].take() {
            parts.extend(deltas.into_iter().filter_map(|delta| match delta {
                Value::String(text) => Some(text),
                _ => None,
            }));
        }
    }
    Ok(parts)
}
