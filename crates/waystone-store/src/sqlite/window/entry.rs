//! The messages that a window is assembled from. Behind a cut only few of them matter, however long the branch is; those are found by
//! the indexes of positions and of marks.

use rusqlite::{Connection, OptionalExtension, params};
use waystone_core::api::Tier;
use waystone_core::id::SegmentId;
use waystone_core::store::{AtHand, MadeWindow, WindowRows};
use waystone_core::window::Entry;

use crate::sqlite::error::{DbResult, unreadable};
use crate::sqlite::message::{FROM, Span, columns, read};

/// What the user says.
const IS_REQUEST: &str = "role = 'user' AND type <> 'tool_result'";
const CALLS: &str = "type = 'tool_call'";
/// What begins a message, or a message with the results of its calls.
const BEGINS_BLOCK: &str = "type <> 'tool_result'";

/// A message that someone pinned or put aside.
struct Mark {
    id: SegmentId,
    position: u64,
    is_pinned: bool,
    is_stashed: bool,
}

pub(super) fn load(
    db: &Connection,
    session: i64,
    spans: &[Span],
    digested_to: u64,
    at_hand: Option<&AtHand>,
    made: Vec<MadeWindow>,
) -> DbResult<WindowRows> {
    let total = spans.last().map_or(0, |span| span.last);
    let marks = list_marks(db, session, spans)?;
    let last_request = find_last(db, spans, total, IS_REQUEST)?.unwrap_or(total + 1);
    let from = last_request.min(first_after(db, spans, digested_to, total)?);
    let mut wanted = Vec::new();
    for mark in marks.iter().filter(|mark| mark.is_pinned && mark.position < from) {
        let first = find_last(db, spans, mark.position, BEGINS_BLOCK)?.unwrap_or(mark.position);
        let next = find_next(db, spans, mark.position + 1, BEGINS_BLOCK)?.unwrap_or(total + 1);
        wanted.push((first, (next - 1).min(from - 1)));
    }
    wanted.extend(find_last(db, spans, from - 1, IS_REQUEST)?.map(|request| (request, request)));
    let at_hand = match at_hand {
        Some(AtHand { from: first, last }) => {
            from.max(*first)..find_position(db, session, spans, last)?.map_or(0, |last| last + 1)
        }
        None => 0..0,
    };
    match at_hand.is_empty() {
        true => wanted.push((from, total)),
        false => wanted.extend([(from, at_hand.start - 1), (at_hand.end, total)]),
    }
    wanted.sort_unstable();
    let (mut entries, mut next) = (Vec::new(), 1);
    for (first, last) in wanted {
        list(db, spans, first.max(next), last, &mut entries)?;
        next = next.max(last + 1);
    }
    let ids = |is_so: fn(&Mark) -> bool| marks.iter().filter(|mark| is_so(mark)).map(|mark| mark.id.clone()).collect();
    Ok(WindowRows {
        passed_over: total - entries.len() as u64 - at_hand.end.saturating_sub(at_hand.start),
        entries,
        at_hand,
        pinned: ids(|mark| mark.is_pinned),
        stashed: ids(|mark| mark.is_stashed),
        made,
    })
}

/// Where a message is, if it is on the branch.
fn find_position(db: &Connection, session: i64, spans: &[Span], id: &SegmentId) -> DbResult<Option<u64>> {
    let mut statement = db.prepare_cached(
        "SELECT m.branch, m.position FROM segment AS s JOIN message AS m ON m.segment = s.key WHERE s.id = ?1 AND s.space = (SELECT space FROM session WHERE key = ?2) AND m.session = ?2",
    )?;
    let found = statement.query_row(params![id.as_str(), session], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
    Ok(found.filter(|(branch, position)| is_on(spans, *branch, *position)).map(|(_, position)| position))
}

fn is_on(spans: &[Span], branch: i64, position: u64) -> bool {
    spans.iter().any(|span| span.branch == branch && (span.first..=span.last).contains(&position))
}

/// The first message behind a cut. Results that came later belong to their call, which is before it.
fn first_after(db: &Connection, spans: &[Span], digested_to: u64, total: u64) -> DbResult<u64> {
    let Some(begins) = find_last(db, spans, digested_to, BEGINS_BLOCK)? else { return Ok(digested_to + 1) };
    let calls = format!("position = {begins} AND {CALLS}");
    if find_last(db, spans, begins, &calls)?.is_none() {
        return Ok(digested_to + 1);
    }
    Ok(find_next(db, spans, digested_to + 1, BEGINS_BLOCK)?.unwrap_or(total + 1))
}

fn list(db: &Connection, spans: &[Span], from: u64, to: u64, entries: &mut Vec<Entry>) -> DbResult<()> {
    for span in spans.iter().filter(|span| span.first <= to && from <= span.last) {
        let condition = "m.branch = ?1 AND m.position BETWEEN ?2 AND ?3 ORDER BY m.position";
        let mut statement = db.prepare_cached(&format!("SELECT {} {FROM} WHERE {condition}", columns()))?;
        let mut rows = statement.query(params![span.branch, span.first.max(from), span.last.min(to)])?;
        while let Some(row) = rows.next()? {
            let is_stashed = is_stashed(row.get_ref(14)?.as_str().unwrap_or_default());
            let entry = Entry::new(row.get(11)?, read(row)?, row.get(12)?);
            entries.push(entry.marked(row.get(13)?, is_stashed));
        }
    }
    Ok(())
}

fn is_stashed(tier: &str) -> bool {
    tier != Tier::Working.as_str()
}

/// In the order of the branch.
fn list_marks(db: &Connection, session: i64, spans: &[Span]) -> DbResult<Vec<Mark>> {
    let mut statement = db.prepare_cached(
        "SELECT s.id, m.branch, m.position, s.pinned, s.tier FROM segment AS s JOIN message AS m ON m.segment = s.key
         WHERE s.conversation = ?1 AND s.conversation IS NOT NULL AND (s.pinned = 1 OR s.tier <> 'working') ORDER BY m.position",
    )?;
    let mut rows = statement.query(params![session])?;
    let mut marks = Vec::new();
    while let Some(row) = rows.next()? {
        let (branch, position): (i64, u64) = (row.get(1)?, row.get(2)?);
        if is_on(spans, branch, position) {
            let id = row.get::<_, String>(0)?.parse().map_err(|error| unreadable("a message's id", error))?;
            let is_stashed = is_stashed(row.get_ref(4)?.as_str().unwrap_or_default());
            marks.push(Mark { id, position, is_pinned: row.get(3)?, is_stashed });
        }
    }
    Ok(marks)
}

/// The position of the last message up to one that is so.
fn find_last(db: &Connection, spans: &[Span], to: u64, is_so: &str) -> DbResult<Option<u64>> {
    for span in spans.iter().rev().filter(|span| span.first <= to) {
        let sql = format!(
            "SELECT position FROM message WHERE branch = ?1 AND position BETWEEN ?2 AND ?3 AND {is_so} ORDER BY position DESC LIMIT 1"
        );
        let found = params![span.branch, span.first, span.last.min(to)];
        if let Some(found) = db.prepare_cached(&sql)?.query_row(found, |row| row.get(0)).optional()? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// The position of the first message from one on that is so.
fn find_next(db: &Connection, spans: &[Span], from: u64, is_so: &str) -> DbResult<Option<u64>> {
    for span in spans.iter().filter(|span| from <= span.last) {
        let sql = format!(
            "SELECT position FROM message WHERE branch = ?1 AND position BETWEEN ?2 AND ?3 AND {is_so} ORDER BY position LIMIT 1"
        );
        let found = params![span.branch, span.first.max(from), span.last];
        if let Some(found) = db.prepare_cached(&sql)?.query_row(found, |row| row.get(0)).optional()? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}
