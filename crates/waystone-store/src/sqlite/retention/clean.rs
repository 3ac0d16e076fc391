//! What is old enough to be deleted: sessions that no one uses, and checkpoints that a person selects.

use rusqlite::{Connection, Row, params};
use serde_json::json;
use waystone_core::api::Cleaned;
use waystone_core::clock::Timestamp;
use waystone_core::id::SessionId;
use waystone_core::retention::{Kept, Selection};
use waystone_core::store::Scope;

use super::recount_session;
use crate::sqlite::checkpoint::mark_archived;
use crate::sqlite::conversation;
use crate::sqlite::error::{DbResult, unreadable};
use crate::sqlite::log::{Operation, append_and_publish, handle};
use crate::sqlite::session;

/// What would go, session by session, in the order in which they were last used.
pub(crate) fn list_removable(db: &Connection, scope: &Scope, selection: &Selection) -> DbResult<Vec<Cleaned>> {
    let mut statement = db.prepare_cached(
        "SELECT id FROM session WHERE space = ?1 AND archived_at_ms IS NULL AND (?2 IS NULL OR id = ?2)
             AND (NOT ?3 OR last_accessed_at_ms < ?4)
         ORDER BY last_accessed_at_ms",
    )?;
    let id = selection.session.as_ref().map(|id| id.as_str());
    let of_sessions = selection.is_of_sessions();
    let mut rows = statement.query(params![scope.space, id, of_sessions, selection.idle_since.ms()])?;
    let mut removable = Vec::new();
    while let Some(row) = rows.next()? {
        // What is damaged does not keep the others from going.
        match read_removable(db, scope, row, selection) {
            Err(error) if error.is_damage() => tracing::warn!(%error, "a session that cannot be read is passed over"),
            selected => removable.extend(selected?.map(|selected| selected.cleaned)),
        }
    }
    Ok(removable)
}

fn read_removable(db: &Connection, scope: &Scope, row: &Row<'_>, selection: &Selection) -> DbResult<Option<Selected>> {
    let id: String = row.get(0)?;
    let id = id.parse().map_err(|error| unreadable("a session's id", error))?;
    select(db, scope, &id, selection)
}

/// What goes of a session.
struct Selected {
    session: i64,
    project: String,
    /// Keys and ids; of a whole session they are not named.
    checkpoints: Vec<(i64, String)>,
    cleaned: Cleaned,
}

fn select(db: &Connection, scope: &Scope, id: &SessionId, selection: &Selection) -> DbResult<Option<Selected>> {
    let Some(row) = session::find_row(db, scope, id)?.filter(|row| !row.is_archived) else { return Ok(None) };
    let session = session::find(db, scope, id)?;
    let mut cleaned = Cleaned {
        session_id: id.clone(),
        name: session.name,
        whole_session: true,
        checkpoints: session.checkpoint_count,
        size_bytes: session.total_size_bytes,
        last_accessed_at: session.last_accessed_at,
    };
    if selection.is_of_sessions() {
        let is_idle = session.last_accessed_at < selection.idle_since;
        // The messages of a conversation go with it.
        cleaned.size_bytes += db
            .prepare_cached("SELECT coalesce(sum(size_bytes), 0) FROM segment WHERE conversation = ?1")?
            .query_row(params![row.key], |row| row.get::<_, u64>(0))?;
        return Ok(is_idle.then_some(Selected {
            session: row.key,
            project: row.project,
            checkpoints: Vec::new(),
            cleaned,
        }));
    }
    // Those of conversations refer to what is there anyway.
    if conversation::is_one(db, row.key)? {
        return Ok(None);
    }
    let (mut kept, mut checkpoints) = (Vec::new(), Vec::new());
    let mut statement = db.prepare_cached(
        "SELECT key, id, size_bytes, created_at_ms, spared
             OR (SELECT count(*) FROM (SELECT 1 FROM checkpoint WHERE parent = c.key LIMIT 2)) > 1
         FROM checkpoint AS c WHERE session = ?1 AND archived_at_ms IS NULL ORDER BY seq DESC",
    )?;
    let mut rows = statement.query(params![row.key])?;
    while let Some(row) = rows.next()? {
        kept.push(Kept { created_at: Timestamp::from_ms(row.get(3)?), is_spared: row.get(4)? });
        checkpoints.push(((row.get(0)?, row.get(1)?), row.get::<_, u64>(2)?));
    }
    let taken = selection.takes(&kept);
    let taken: Vec<_> = checkpoints.into_iter().zip(taken).filter(|(_, is_taken)| *is_taken).collect();
    (cleaned.whole_session, cleaned.checkpoints) = (false, taken.len() as u64);
    cleaned.size_bytes = taken.iter().map(|((_, size), _)| size).sum();
    let checkpoints: Vec<(i64, String)> = taken.into_iter().map(|((found, _), _)| found).collect();
    let selected = Selected { session: row.key, project: row.project, checkpoints, cleaned };
    Ok((!selected.checkpoints.is_empty()).then_some(selected))
}

/// Archives what goes of a session, as it is now. Returns it with the groups whose files are to say so.
pub(crate) fn clean_session(
    db: &Connection,
    scope: &Scope,
    id: &SessionId,
    selection: &Selection,
    at: Timestamp,
) -> DbResult<Option<(Cleaned, Vec<i64>)>> {
    let Some(selected) = select(db, scope, id, selection)? else { return Ok(None) };
    if selected.cleaned.whole_session {
        let (_, group) = session::archive(db, scope, id, at)?;
        return Ok(Some((selected.cleaned, group.into_iter().collect())));
    }
    let ids: Vec<&str> = selected.checkpoints.iter().map(|(_, id)| id.as_str()).collect();
    let subject = ids.iter().map(|id| handle("checkpoint", id)).chain([handle("session", id.as_str())]).collect();
    let project = selected.project.as_str();
    let payload = json!({ "sessionId": id, "projectId": project, "checkpointIds": ids });
    let operation = Operation { at, kind: "checkpoint.pruned", project, subject, payload };
    let seq = append_and_publish(db, scope, &operation)?;
    for (key, _) in &selected.checkpoints {
        mark_archived(db, *key, at, seq, "pruned")?;
    }
    recount_session(db, selected.session)?;
    let mut statement =
        db.prepare_cached("SELECT key FROM checkpoint_group WHERE session = ?1 AND changed_seq = ?2")?;
    let groups = statement.query_map(params![selected.session, seq], |row| row.get(0))?.collect::<Result<_, _>>()?;
    Ok(Some((selected.cleaned, groups)))
}
