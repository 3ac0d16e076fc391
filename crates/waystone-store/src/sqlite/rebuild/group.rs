//! A group brought back: its session, its row and those of its checkpoints that are not in the database.

use rusqlite::{Connection, OptionalExtension, params};
use serde_json::{Value, json};
use waystone_core::api::{Finding, FindingKind};
use waystone_core::canon::Hash;
use waystone_core::id::CheckpointId;
use waystone_core::pack::{Base, pack, pack_delta};
use waystone_core::store::Scope;

use super::Import;
use crate::mirror::{Columns, Group, MirroredCheckpoint};
use crate::sqlite::checkpoint::write_bytes;
use crate::sqlite::columns::{find, insert, update};
use crate::sqlite::error::{DbResult, unreadable};
use crate::sqlite::log::next_row_seq;

impl Import<'_> {
    /// Brings back what of a group is not there.
    pub(super) fn add_group(&mut self, group: &Group) -> DbResult<()> {
        self.db.execute_batch("SAVEPOINT import")?;
        let done = self.try_add_group(group);
        self.db.execute_batch(if done.is_ok() { "RELEASE import" } else { "ROLLBACK TO import; RELEASE import" })?;
        let (restored, findings) = done?;
        self.restored += restored;
        self.findings.extend(findings);
        Ok(())
    }

    /// Where a file holds a newer state than the database does, what was deleted since is deleted, and the session is as it was then.
    fn take_newer_state(&self, group: &Group, space: i64) -> DbResult<()> {
        let (session, changed) = (group.session.id(), group.changed_seq());
        let taken = self.db.execute(
            "UPDATE checkpoint_group SET changed_seq = ?4, mirrored_seq = 0
             WHERE id = ?3 AND changed_seq < ?4 AND session = (SELECT key FROM session WHERE space = ?1 AND id = ?2)",
            params![space, session, group.row.id(), changed],
        )?;
        if taken == 0 {
            return Ok(());
        }
        for saved in &group.checkpoints {
            self.take("checkpoint", &saved.columns, &["archived_at_ms", "archived_seq", "archived_why"])?;
        }
        self.take_session(group)
    }

    /// Lets a session be as a group's file has it, if no other file has a newer state.
    fn take_session(&self, group: &Group) -> DbResult<()> {
        let known = self.sessions.get(group.session.id()).filter(|known| known.changed == group.changed_seq());
        let fields = ["name", "tags", "critical_keys", "context_rules", "archived_at_ms", "archived_seq"];
        known.map_or(Ok(()), |known| self.take("session", &known.columns, &fields))
    }

    /// Gives the row with the same id those of `columns` that are named. The grace of what is deleted by that begins now: nobody could have
    /// restored it here before.
    fn take(&self, table: &str, columns: &Columns, names: &[&str]) -> DbResult<()> {
        let key = find(self.db, table, columns.space(), columns.id())?;
        names.iter().try_for_each(|name| {
            let value = columns.get(name).unwrap_or(&Value::Null);
            let value = match value.as_i64() {
                Some(archived) if *name == "archived_at_ms" => &json!(archived.max(self.at.ms())),
                _ => value,
            };
            update(self.db, table, key, name, value)
        })
    }

    fn try_add_group(&self, group: &Group) -> DbResult<(u64, Vec<Finding>)> {
        let space = group.row.space();
        let mut is_new = false;
        for saved in &group.checkpoints {
            is_new |= find(self.db, "checkpoint", space, saved.columns.id())?.is_none();
        }
        self.take_newer_state(group, space)?;
        let id = group.session.id();
        let found = find(self.db, "session", space, id)?;
        // What the session became after it was copied stands in the file of a group that the copy has not, and which may be empty by now.
        if let Some(key) = found
            && newest_change(self.db, key)? < group.changed_seq()
        {
            self.take_session(group)?;
            find_or_add_group(self.db, group, key)?;
        }
        if !is_new {
            return Ok((0, Vec::new()));
        }
        let known = self.sessions.get(id);
        let mut findings = Vec::new();
        let session = match found {
            Some(key) => key,
            None => {
                findings.push(finding(FindingKind::Restored, id, "a session came back from its files"));
                let mut columns = known.map_or_else(|| group.session.clone(), |known| known.columns.clone());
                columns.remove("key");
                columns.set("head", Value::Null);
                insert(self.db, "session", &columns)?
            }
        };
        let group_key = find_or_add_group(self.db, group, session)?;
        let is_renumbered = known.is_some_and(|known| known.is_renumbered);
        let mut previous: Option<Link<'_>> = None;
        let mut count = 0;
        for saved in &group.checkpoints {
            let id = saved.columns.id();
            if find(self.db, "checkpoint", space, id)?.is_some() {
                continue;
            }
            let Some(context) = saved.text.as_deref() else {
                findings.push(finding(FindingKind::Lost, id, "is damaged in its file too"));
                continue;
            };
            let key = add_checkpoint(self.db, saved, context, (session, group_key), previous.as_ref(), is_renumbered)?;
            previous = Some(Link { key, id: id.parse().map_err(|error| unreadable("an id", error))?, context });
            count += 1;
        }
        if count > 0 {
            self.db.execute("UPDATE checkpoint_group SET mirrored_seq = 0 WHERE key = ?1", params![group_key])?;
        }
        Ok((count, findings))
    }
}

fn finding(kind: FindingKind, subject: &str, message: &str) -> Finding {
    Finding { kind, subject: subject.to_owned(), message: message.to_owned() }
}

/// The number of the newest change to a session that its groups tell of.
fn newest_change(db: &Connection, session: i64) -> DbResult<i64> {
    Ok(db
        .prepare_cached("SELECT coalesce(max(changed_seq), 0) FROM checkpoint_group WHERE session = ?1")?
        .query_row(params![session], |row| row.get(0))?)
}

fn find_or_add_group(db: &Connection, group: &Group, session: i64) -> DbResult<i64> {
    let found: Option<i64> = db
        .prepare_cached(
            "UPDATE checkpoint_group SET changed_seq = max(changed_seq, ?3) WHERE session = ?1 AND id = ?2 RETURNING key",
        )?
        .query_row(params![session, group.row.id(), group.changed_seq()], |row| row.get(0))
        .optional()?;
    if let Some(key) = found {
        return Ok(key);
    }
    let mut columns = group.row.clone();
    columns.remove("key");
    columns.set("session", session);
    // Its rows get other keys, so the file is written anew.
    columns.set("mirrored_seq", 0);
    insert(db, "checkpoint_group", &columns)
}

/// The checkpoint that was added before another one of the same group.
struct Link<'a> {
    key: i64,
    id: CheckpointId,
    context: &'a [u8],
}

fn add_checkpoint(
    db: &Connection,
    saved: &MirroredCheckpoint,
    context: &[u8],
    (session, group): (i64, i64),
    previous: Option<&Link<'_>>,
    is_renumbered: bool,
) -> DbResult<i64> {
    let packed = match previous {
        Some(link) => {
            let base = Base { id: link.id.clone(), raw_hash: Hash::of(link.context) };
            pack_delta(context, base, link.context)
        }
        None => pack(context),
    };
    let packed = packed.map_err(|error| unreadable("a context", error))?;
    let mut columns = saved.columns.clone();
    columns.remove("key");
    let space = columns.space();
    let parent = find(db, "checkpoint", space, columns.text("parent_id").unwrap_or_default())?;
    if is_renumbered {
        columns.set("seq", next_row_seq(db, &Scope { space, ..Scope::local("") })?);
    }
    columns.set("session", session);
    columns.set("group_key", group);
    columns.set("parent", parent);
    columns.set("base", previous.map(|link| link.key));
    columns.set("size_bytes", packed.bytes.len());
    let key = insert(db, "checkpoint", &columns)?;
    write_bytes(db, key, &packed.bytes)?;
    Ok(key)
}
