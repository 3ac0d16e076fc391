//! Messages of conversations as rows. Each is a segment too, with the same key; its text is there. How it is read part by part is in
//! [`content`].

mod content;

use rusqlite::{Connection, OptionalExtension, Row, params};
use serde_json::{Value, json};
use waystone_core::Error;
use waystone_core::api::{ContentPart, Message, MessageMetadata, MessageTokens, MessageType, Role, SegmentType, Tier};
use waystone_core::canon::Hash;
use waystone_core::clock::{Clock, Timestamp};
use waystone_core::id::{SegmentId, SessionId};
use waystone_core::meaning::Piece;
use waystone_core::store::{
    MessageFacts, Messages, NewConversation, NewMessage, NewSegment, NewSegments, Scope, WhichMessages,
};

use super::branch::{self, BranchRow};
use super::conversation::{self, ConversationRow};
use super::error::{DbResult, unreadable};
use super::origin::read_origin;
use super::seal::SEGMENT_TEXT;
use super::segment::{self, Edit, ProjectRow, check_room, tier_of};

pub(crate) use content::{read_content, streamed, streamed_by};

/// Where a message goes, and what tells of it.
pub(crate) struct Target<'a> {
    pub(crate) row: &'a ConversationRow,
    pub(crate) branch: &'a BranchRow,
    pub(crate) operation: i64,
    pub(crate) at: Timestamp,
    pub(crate) total_bytes_max: u64,
    /// What someone did to the message that this one is a copy of.
    pub(crate) treated: Treated,
}

/// Whether a message stays in the window, or out of it, because someone said so.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Treated {
    is_pinned: bool,
    tier: Tier,
}

impl Treated {
    /// As messages are that are new.
    pub(crate) const NOT: Self = Self { is_pinned: false, tier: Tier::Working };
}

/// Adds a message at the end of a branch. What it costs does not depend on how many there are.
pub(crate) fn add(db: &Connection, scope: &Scope, target: &Target<'_>, new: &NewMessage) -> DbResult<i64> {
    let Target { row, branch, operation, at, total_bytes_max, treated } = *target;
    let size = new.text.len() as u64;
    check_room(db, scope, size, total_bytes_max)?;
    let segment = NewSegment {
        id: new.id.clone(),
        text: new.text.clone(),
        text_hash: new.text_hash,
        kind: SegmentType::Message,
        origin: new.origin,
        tokens: Some(new.tokens),
        is_estimate: false,
        pieces: new.pieces.clone(),
        role: Some(new.role.as_str().to_owned()),
        created: at,
    };
    let with = NewSegments {
        project: row.project.clone(),
        task: None,
        segments: Vec::new(),
        tags: Vec::new(),
        file_path: None,
        line_range: None,
        topic: None,
        pinned: treated.is_pinned,
        stash: treated.tier != Tier::Working,
        at,
        total_bytes_max,
    };
    let project = ProjectRow { key: row.project_key, current_task: None, changed: at };
    let place =
        segment::Place { project: &project, task: Some(row.task), conversation: Some(row.session), calls: &new.parts };
    let mut image = segment::add(db, scope, &place, &with, (&segment, new.tokens, 0), operation)?;
    if treated.tier == Tier::Archive {
        db.prepare_cached("UPDATE segment SET tier = 'archive', archived_at_ms = ?2 WHERE key = ?1")?
            .execute(params![image.key, at.ms()])?;
        image.tier = Tier::Archive;
    }
    let mut edit = Edit::begin(db, scope, row.project_key, operation, at)?;
    edit.added(&image)?;
    edit.finish()?;
    db.prepare_cached("UPDATE space SET size_bytes = size_bytes + ?2 WHERE space = ?1")?
        .execute(params![scope.space, size])?;
    let parent = branch.tip();
    db.prepare_cached(
        "INSERT INTO message (segment, session, branch, parent, position, role, type, parts, facts)
         SELECT ?2, s.key, ?3, ?4, coalesce((SELECT position FROM message WHERE segment = ?4), 0) + 1, ?5, ?6,
                sealed(?9, 'parts', ?8, 'session:' || s.id, s.wrapped_key),
                sealed(?7, 'facts', ?8, 'session:' || s.id, s.wrapped_key)
         FROM session AS s WHERE s.key = ?1",
    )?
    .execute(params![
        row.session,
        image.key,
        branch.key,
        parent,
        new.role.as_str(),
        new.kind.as_str(),
        write_facts(&new.facts, row.draft_seq).to_string(),
        new.id.as_str(),
        (!new.parts.is_empty()).then(|| json!(new.parts).to_string()),
    ])?;
    if parent.is_none() && new.role == Role::User && new.kind == MessageType::Text {
        conversation::begin_with(db, row.session, &new.text)?;
    }
    db.prepare_cached("UPDATE branch SET head = ?2, message_count = message_count + 1 WHERE key = ?1")?
        .execute(params![branch.key, image.key])?;
    Ok(image.key)
}

/// `after` is the newest event before it was written.
fn write_facts(facts: &MessageFacts, after: i64) -> Value {
    let mut written = json!({
        "prompt": facts.prompt_tokens, "completion": facts.completion_tokens, "estimated": facts.is_estimate, "model": facts.model,
        "cancelled": facts.is_cancelled, "attempt": facts.attempt, "sequence": facts.sequence, "after": after,
    });
    let cached = [("cache_read", facts.cache_read_tokens), ("cache_write", facts.cache_write_tokens)];
    for (name, tokens) in cached.into_iter().filter(|(_, tokens)| *tokens > 0) {
        written[name] = json!(tokens);
    }
    if let Some(cost) = facts.cost_usd {
        written["cost_usd"] = json!(cost);
    }
    if facts.is_cut {
        written["cut"] = json!(true);
    }
    written
}

fn read_facts(text: &str) -> DbResult<(MessageFacts, i64)> {
    let facts: Value = serde_json::from_str(text).map_err(|error| unreadable("a message", error))?;
    let number = |name: &str| facts[name].as_u64().unwrap_or_default();
    let read = MessageFacts {
        prompt_tokens: number("prompt"),
        completion_tokens: number("completion"),
        cache_read_tokens: number("cache_read"),
        cache_write_tokens: number("cache_write"),
        cost_usd: facts["cost_usd"].as_f64(),
        is_estimate: facts["estimated"].as_bool().unwrap_or_default(),
        model: facts["model"].as_str().map(str::to_owned),
        is_cancelled: facts["cancelled"].as_bool().unwrap_or_default(),
        is_cut: facts["cut"].as_bool().unwrap_or_default(),
        attempt: number("attempt"),
        sequence: number("sequence"),
    };
    Ok((read, facts["after"].as_i64().unwrap_or_default()))
}

/// What [`read`] reads, from [`FROM`].
pub(crate) fn columns() -> String {
    format!(
        "s.id, m.role, m.type, {SEGMENT_TEXT}, unsealed(m.facts, 'facts', s.id, 'session:' || c.id, c.wrapped_key), s.created_at_ms,
         (SELECT unsealed(b.name, 'branch', 'session:' || c.id, 'session:' || c.id, c.wrapped_key) FROM branch AS b WHERE b.key = m.branch),
         (SELECT id FROM segment WHERE key = m.parent), s.origin, s.imported,
         unsealed(m.parts, 'parts', s.id, 'session:' || c.id, c.wrapped_key), m.position, s.tokens, s.pinned, s.tier"
    )
}

pub(crate) const FROM: &str =
    "FROM message AS m JOIN segment AS s ON s.key = m.segment JOIN session AS c ON c.key = m.session
    JOIN segment_text AS x ON x.segment = m.segment";

pub(crate) fn read(row: &Row<'_>) -> DbResult<Message> {
    let wrong = |error: String| unreadable("a message", error);
    let (role, kind): (String, String) = (row.get(1)?, row.get(2)?);
    let (facts, _) = read_facts(&row.get::<_, String>(4)?)?;
    let tokens = MessageTokens {
        prompt: facts.prompt_tokens,
        completion: facts.completion_tokens,
        total: facts.prompt_tokens + facts.completion_tokens,
        cache_read: facts.cache_read_tokens,
        cache_write: facts.cache_write_tokens,
        estimated: facts.is_estimate,
    };
    Ok(Message {
        id: row.get::<_, String>(0)?.parse().map_err(wrong)?,
        role: Role::ALL.into_iter().find(|known| known.as_str() == role).ok_or_else(|| wrong(role))?,
        content: ContentPart::with_text(read_parts(row.get(10)?)?, row.get(3)?),
        message_type: MessageType::ALL.into_iter().find(|known| known.as_str() == kind).ok_or_else(|| wrong(kind))?,
        metadata: MessageMetadata {
            created_at: Timestamp::from_ms(row.get(5)?),
            branch: row.get(6)?,
            tokens,
            origin: read_origin(row, 8)?.1,
            model_id: facts.model,
            cost_usd: facts.cost_usd,
            cancelled: facts.is_cancelled,
            truncated: facts.is_cut,
        },
        parent_id: row.get::<_, Option<String>>(7)?.map(|id| id.parse()).transpose().map_err(wrong)?,
    })
}

pub(crate) fn read_parts(text: Option<String>) -> DbResult<Vec<ContentPart>> {
    let parts = text.map(|text| serde_json::from_str(&text).map_err(|error| unreadable("a message", error)));
    Ok(parts.transpose()?.unwrap_or_default())
}

fn read_all(db: &Connection, condition: &str, parameters: &[&dyn rusqlite::ToSql]) -> DbResult<Vec<Message>> {
    let mut statement = db.prepare_cached(&format!("SELECT {} {FROM} WHERE {condition}", columns()))?;
    let mut rows = statement.query(parameters)?;
    let mut messages = Vec::new();
    while let Some(row) = rows.next()? {
        messages.push(read(row)?);
    }
    Ok(messages)
}

/// Every message of a conversation, oldest first.
pub(crate) fn list_all(db: &Connection, session: i64) -> DbResult<Vec<Message>> {
    read_all(db, "m.session = ?1 ORDER BY m.segment", params![session])
}

pub(crate) fn ids_of_branch(db: &Connection, branch: i64) -> DbResult<Vec<SegmentId>> {
    let mut statement = db.prepare_cached(
        "SELECT s.id FROM message AS m JOIN segment AS s ON s.key = m.segment WHERE m.branch = ?1 ORDER BY m.position",
    )?;
    let ids = statement.query_map(params![branch], |row| row.get::<_, String>(0))?;
    ids.map(|id| id?.parse().map_err(|error| unreadable("a message's id", error))).collect()
}

pub(crate) fn list(db: &Connection, scope: &Scope, id: &SessionId, which: &WhichMessages) -> DbResult<Messages> {
    let row = conversation::find_row(db, scope, id)?;
    match which {
        WhichMessages::Ids(ids) => {
            let mut messages = Vec::new();
            for wanted in ids {
                let condition = "s.space = ?1 AND s.id = ?2 AND m.session = ?3";
                messages.extend(read_all(db, condition, params![scope.space, wanted.as_str(), row.session])?);
            }
            Ok(Messages { total: messages.len() as u64, messages })
        }
        WhichMessages::UpTo(last) => {
            let (branch, position) = place_of(db, find_key(db, row.session, id, last)?)?;
            list_span(db, branch::find_by_key(db, branch)?, 1, position)
        }
        WhichMessages::Branch { name, offset, limit } => {
            let branch = match name {
                Some(name) => branch::find(db, row.session, id, name)?,
                None => branch::find_by_key(db, row.active_branch)?,
            };
            list_span(db, branch, offset + 1, offset.saturating_add(*limit))
        }
    }
}

/// The messages on the way to the end of a branch, from one position to another.
fn list_span(db: &Connection, branch: BranchRow, from: u64, to: u64) -> DbResult<Messages> {
    let spans = spans(db, branch)?;
    let total = spans.last().map_or(0, |span| span.last);
    let mut messages = Vec::new();
    for span in spans.iter().filter(|span| span.first <= to && from <= span.last) {
        let condition = "m.branch = ?1 AND m.position BETWEEN ?2 AND ?3 ORDER BY m.position";
        let (first, last) = (span.first.max(from), span.last.min(to));
        messages.extend(read_all(db, condition, params![span.branch, first, last])?);
    }
    Ok(Messages { messages, total })
}

/// Messages that follow each other on one branch.
pub(crate) struct Span {
    pub(crate) branch: i64,
    pub(crate) first: u64,
    pub(crate) last: u64,
}

/// The way from the beginning of a conversation to the end of a branch, which leads over as many branches as it was forked.
pub(crate) fn spans(db: &Connection, mut branch: BranchRow) -> DbResult<Vec<Span>> {
    let (mut spans, mut forked) = (Vec::new(), None);
    let mut last = branch.tip().map(|tip| place_of(db, tip)).transpose()?.map_or(0, |(_, position)| position);
    loop {
        let fork = branch.fork.map(|fork| place_of(db, fork)).transpose()?;
        let before = fork.map_or(0, |(_, position)| position);
        if last > before {
            spans.push(Span { branch: branch.key, first: before + 1, last });
        }
        let Some((next, position)) = fork else { break };
        // A fork is of a message of the other branch, which lies before what that one was forked from in its turn.
        if next == branch.key || forked.is_some_and(|forked| position >= forked) {
            return Err(unreadable("a branch", "its forks lead in a circle"));
        }
        forked = Some(position);
        (branch, last) = (branch::find_by_key(db, next)?, position);
    }
    spans.reverse();
    Ok(spans)
}

/// The branch and position of a message.
fn place_of(db: &Connection, key: i64) -> DbResult<(i64, u64)> {
    Ok(db
        .prepare_cached("SELECT branch, position FROM message WHERE segment = ?1")?
        .query_row(params![key], |row| Ok((row.get(0)?, row.get(1)?)))?)
}

pub(crate) fn id_of(db: &Connection, key: i64) -> DbResult<SegmentId> {
    let id: String =
        db.prepare_cached("SELECT id FROM segment WHERE key = ?1")?.query_row(params![key], |row| row.get(0))?;
    id.parse().map_err(|error| unreadable("a message's id", error))
}

/// The branch that a message was said on.
pub(crate) fn branch_of(db: &Connection, session: i64, context: &SessionId, id: &SegmentId) -> DbResult<BranchRow> {
    let (branch, _) = place_of(db, find_key(db, session, context, id)?)?;
    branch::find_by_key(db, branch)
}

pub(crate) fn parent_of(db: &Connection, key: i64) -> DbResult<Option<i64>> {
    Ok(db.prepare_cached("SELECT parent FROM message WHERE segment = ?1")?.query_row(params![key], |row| row.get(0))?)
}

pub(crate) fn find_key(db: &Connection, session: i64, context: &SessionId, id: &SegmentId) -> DbResult<i64> {
    let found: Option<i64> = db
        .prepare_cached(
            "SELECT m.segment FROM segment AS s JOIN message AS m ON m.segment = s.key
             WHERE s.space = (SELECT space FROM session WHERE key = ?1) AND s.id = ?2 AND m.session = ?1",
        )?
        .query_row(params![session, id.as_str()], |row| row.get(0))
        .optional()?;
    found.ok_or_else(|| Error::MessageNotFound { context: context.clone(), message: id.clone() }.into())
}

/// Whether a message that was being written has become one.
pub(crate) fn is_whole(db: &Connection, session: i64, id: &SegmentId) -> DbResult<bool> {
    let sql = "SELECT 1 FROM segment AS s JOIN message AS m ON m.segment = s.key
               WHERE s.space = (SELECT space FROM session WHERE key = ?1) AND s.id = ?2 AND m.session = ?1";
    Ok(db.prepare_cached(sql)?.exists(params![session, id.as_str()])?)
}

/// The message with that key.
pub(crate) fn find_by_key(db: &Connection, key: i64) -> DbResult<Option<Message>> {
    Ok(read_all(db, "m.segment = ?1", params![key])?.pop())
}

/// What follows from the text of a message and is kept with it. In a sealed store nothing is kept to search by.
fn counted(db: &Connection, session: i64, id: &SegmentId) -> DbResult<(u64, Vec<Piece>, Treated)> {
    let sql = "SELECT s.tokens, coalesce(i.pieces, x''), s.pinned, s.tier FROM message AS m JOIN segment AS s ON s.key = m.segment
               LEFT JOIN segment_index AS i ON i.segment = s.key WHERE m.session = ?1 AND s.id = ?2";
    let (tokens, pieces, is_pinned, tier): (u64, Vec<u8>, bool, String) = db
        .prepare_cached(sql)?
        .query_row(params![session, id.as_str()], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))?;
    let treated = Treated { is_pinned, tier: tier_of(&tier)? };
    let pieces = pieces.chunks_exact(2).map(|piece| Piece::from_le_bytes([piece[0], piece[1]])).collect();
    Ok((tokens, pieces, treated))
}

/// What a message says besides its text, as it is kept.
fn parts_of(message: &Message) -> Vec<ContentPart> {
    let parts = message.content.iter().filter(|part| !matches!(part, ContentPart::Text { .. })).cloned();
    let kept = parts.map(|mut part| {
        if let ContentPart::ToolResult { content, .. } = &mut part {
            *content = if content.is_string() { Value::Null } else { Value::Bool(true) };
        }
        part
    });
    kept.collect()
}

/// Begins a conversation with the messages of another's active branch, under ids of their own. What left the window there is not in this one's.
pub(crate) fn copy_branch(
    db: &Connection,
    scope: &Scope,
    clock: &dyn Clock,
    from: &ConversationRow,
    (row, branch): (&ConversationRow, i64),
    (operation, new): (i64, &NewConversation),
) -> DbResult<()> {
    for span in spans(db, branch::find_by_key(db, from.active_branch)?)? {
        let condition = "m.branch = ?1 AND m.position BETWEEN ?2 AND ?3 ORDER BY m.position";
        for message in read_all(db, condition, params![span.branch, span.first, span.last])? {
            let (text, parts) = (message.text(), parts_of(&message));
            let MessageTokens { prompt, completion, cache_read, cache_write, estimated, .. } = message.metadata.tokens;
            let (tokens, pieces, treated) = counted(db, from.session, &message.id)?;
            let copy = NewMessage {
                id: clock.new_id().parse().map_err(|error| unreadable("an id", error))?,
                role: message.role,
                kind: message.message_type,
                text_hash: Hash::of(text.as_bytes()),
                pieces,
                tokens,
                origin: message.metadata.origin,
                facts: MessageFacts {
                    prompt_tokens: prompt,
                    completion_tokens: completion,
                    cache_read_tokens: cache_read,
                    cache_write_tokens: cache_write,
                    cost_usd: message.metadata.cost_usd,
                    is_estimate: estimated,
                    model: message.metadata.model_id,
                    is_cancelled: message.metadata.cancelled,
                    is_cut: message.metadata.truncated,
                    ..MessageFacts::default()
                },
                text,
                parts,
            };
            let branch = branch::find_by_key(db, branch)?;
            let (at, total_bytes_max) = (new.at, new.total_bytes_max);
            add(db, scope, &Target { row, branch: &branch, operation, at, total_bytes_max, treated }, &copy)?;
        }
    }
    Ok(())
}
