//! Windows as rows: what models were told, call by call. Which messages the next one is assembled from is in [`entry`].

mod entry;

use rusqlite::{Connection, OptionalExtension, params};
use serde_json::{Value, json};
use waystone_core::api::Digest;
use waystone_core::clock::Timestamp;
use waystone_core::id::{BranchName, SegmentId, SessionId};
use waystone_core::store::{MadeWindow, Manifest, NewWindow, Scope, WindowPart, WindowRows};
use waystone_core::window::{Cut, Room};

use super::branch;
use super::conversation::{self, ConversationRow};
use super::error::{DbResult, unreadable};
use super::message::{self, Span};

/// Of the windows that were made last so many are looked at: the one before it, too, where the last one is to be seen.
const MADE: usize = 1;
const MADE_TO_SEE: usize = 2;

pub(crate) fn load(
    db: &Connection,
    scope: &Scope,
    id: &SessionId,
    branch: Option<&BranchName>,
    part: WindowPart,
) -> DbResult<WindowRows> {
    let row = conversation::find_row(db, scope, id)?;
    let branch = match branch {
        Some(name) => branch::find(db, row.session, id, name)?,
        None => branch::find_by_key(db, row.active_branch)?,
    };
    let spans = message::spans(db, branch)?;
    let most = if part == WindowPart::Whole { MADE_TO_SEE } else { MADE };
    let made = list(db, row.session, &spans, most)?;
    let (digested_to, at_hand) = match part {
        WindowPart::Whole => (0, None),
        WindowPart::AfterCut { at_hand } => (made.first().map_or(0, |last| last.manifest.cut.digested_to), at_hand),
    };
    entry::load(db, row.session, &spans, digested_to, at_hand.as_ref(), made)
}

/// The windows that were made last on the way to the end of a branch, newest first.
fn list(db: &Connection, session: i64, spans: &[Span], most: usize) -> DbResult<Vec<MadeWindow>> {
    let mut made = Vec::new();
    for span in spans.iter().rev() {
        let mut statement = db.prepare_cached(
            "SELECT w.head, w.tokens, w.made_at_ms, unsealed(m.manifest, 'window', m.id, 'session:' || c.id, c.wrapped_key)
             FROM window AS w JOIN window AS m ON m.key = coalesce(w.same_as, w.key) JOIN session AS c ON c.key = w.session
             WHERE w.session = ?1 AND w.branch = ?2 AND w.head <= ?3 ORDER BY w.key DESC LIMIT ?4",
        )?;
        let mut rows = statement.query(params![session, span.branch, span.last, most - made.len()])?;
        while let Some(row) = rows.next()? {
            made.push(MadeWindow {
                head: row.get(0)?,
                tokens: row.get(1)?,
                at: Timestamp::from_ms(row.get(2)?),
                manifest: read(&row.get::<_, String>(3)?)?,
            });
        }
        if made.len() >= most {
            break;
        }
    }
    Ok(made)
}

pub(crate) fn add(db: &Connection, row: &ConversationRow, branch: i64, new: &NewWindow, at: Timestamp) -> DbResult<()> {
    let before: Option<(i64, String)> = db
        .prepare_cached(
            "SELECT m.key, unsealed(m.manifest, 'window', m.id, 'session:' || c.id, c.wrapped_key)
             FROM window AS w JOIN window AS m ON m.key = coalesce(w.same_as, w.key) JOIN session AS c ON c.key = w.session
             WHERE w.session = ?1 AND w.branch = ?2 ORDER BY w.key DESC LIMIT 1",
        )?
        .query_row(params![row.session, branch], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let manifest = write(&new.manifest).to_string();
    // It changes rarely, and is kept once.
    let same_as = before.filter(|(_, before)| *before == manifest).map(|(key, _)| key);
    let manifest = same_as.is_none().then_some(manifest);
    db.prepare_cached(
        "INSERT INTO window (session, id, branch, head, tokens, made_at_ms, manifest, same_as)
         SELECT c.key, ?2, ?3, ?4, ?5, ?6, sealed(?7, 'window', ?2, 'session:' || c.id, c.wrapped_key), ?8
         FROM session AS c WHERE c.key = ?1",
    )?
    .execute(params![row.session, new.id, branch, new.head, new.tokens, at.ms(), manifest, same_as])?;
    Ok(())
}

fn write(manifest: &Manifest) -> Value {
    let Manifest { model, limit, room, system, cut, pinned, stashed, has_own_tools } = manifest;
    json!({
        "model": model, "limit": limit, "budget": room.budget, "system_tokens": room.system, "tools_tokens": room.tools,
        "system": system, "digested_to": cut.digested_to, "elided_to": cut.elided_to, "digest": cut.digest, "told": cut.told,
        "result_max": cut.result_max, "pinned": pinned, "stashed": stashed, "own_tools": has_own_tools,
    })
}

fn read(text: &str) -> DbResult<Manifest> {
    let wrong = |error: String| unreadable("a window", error);
    let mut manifest: Value = serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
    let digest: Digest = serde_json::from_value(manifest["digest"].take()).map_err(|error| wrong(error.to_string()))?;
    let number = |name: &str| manifest[name].as_u64().unwrap_or_default();
    let text = |name: &str| manifest[name].as_str().unwrap_or_default().to_owned();
    let ids = |name: &str| -> DbResult<Vec<SegmentId>> {
        let ids = manifest[name].as_array().into_iter().flatten().filter_map(Value::as_str);
        ids.map(|id| id.parse().map_err(wrong)).collect()
    };
    Ok(Manifest {
        model: text("model"),
        limit: number("limit"),
        room: Room { budget: number("budget"), system: number("system_tokens"), tools: number("tools_tokens") },
        system: text("system"),
        cut: Cut {
            digested_to: number("digested_to"),
            elided_to: number("elided_to"),
            result_max: number("result_max"),
            digest,
            told: text("told"),
        },
        has_own_tools: manifest["own_tools"].as_bool().unwrap_or_default(),
        pinned: ids("pinned")?,
        stashed: ids("stashed")?,
    })
}
