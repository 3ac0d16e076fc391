//! A database made from mirror files, and groups brought back from them into one.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OptionalExtension, params};
use serde_json::{Value, json};
use waystone_core::api::{Finding, FindingKind};
use waystone_core::canon::Hash;
use waystone_core::clock::Timestamp;
use waystone_core::id::CheckpointId;
use waystone_core::pack::{Base, pack, pack_delta};
use waystone_core::store::Scope;

use super::columns::{find, insert, update};
use super::connection::{open_untouched, open_writer};
use super::doctor::list_files;
use super::error::{DbResult, unreadable};
use super::log::{Operation, append, next_row_seq};
use super::migration::make;
use super::mirror::{read_file, read_group, recount};
use super::upkeep::checkpoint;
use crate::OpenError;
use crate::directory::DataDirectory;
use crate::mirror::{Columns, Group, Saved};

/// Brings what is in mirror files, and then what can still be read of a damaged database, into a database that no one else uses, as
/// far as it is not there.
pub(crate) fn import_files(
    directory: &DataDirectory,
    database: &Path,
    damaged: Option<&Path>,
    at: Timestamp,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Vec<Finding>, OpenError> {
    make(database, at)?;
    let failed = |error: &dyn std::fmt::Display| OpenError::Unusable {
        path: database.to_owned(),
        error: std::io::Error::other(error.to_string()),
    };
    let db = open_writer(database).map_err(|error| failed(&error))?;
    db.execute_batch("BEGIN IMMEDIATE").map_err(|error| failed(&error))?;
    let mut import =
        Import { db: &db, sessions: HashMap::new(), seqs: HashMap::new(), findings: Vec::new(), restored: 0 };
    import.run(directory, damaged, at, progress).map_err(|error| failed(&error))?;
    let findings = std::mem::take(&mut import.findings);
    db.execute_batch("COMMIT").map_err(|error| failed(&error))?;
    // Only the file itself takes the place of another: all of it must be there.
    if !checkpoint(&db, "TRUNCATE").map_err(|error| failed(&error))? {
        return Err(failed(&"its log could not be folded back"));
    }
    db.close().map_err(|(_, error)| failed(&error))?;
    Ok(findings)
}

/// What the files say of a session.
struct Known {
    /// The number of the change that its fields are from.
    changed: i64,
    columns: Columns,
    /// Its checkpoints have numbers that others have too: they get new ones, in the same order.
    is_renumbered: bool,
}

/// Where a group's file is, and where the group stands in the order of all.
struct Source {
    path: PathBuf,
    first_seq: i64,
}

struct Import<'a> {
    db: &'a Connection,
    /// By id.
    sessions: HashMap<String, Known>,
    /// Which checkpoint has a number.
    seqs: HashMap<i64, String>,
    findings: Vec<Finding>,
    restored: u64,
}

impl Import<'_> {
    fn run(
        &mut self,
        directory: &DataDirectory,
        damaged: Option<&Path>,
        at: Timestamp,
        progress: &mut dyn FnMut(u64, u64),
    ) -> DbResult<()> {
        let (files, unread) = list_files(directory);
        self.findings.extend(unread);
        let (mut sources, total) = (Vec::new(), 2 * files.len() as u64);
        for (done, path) in files.into_iter().enumerate() {
            match read_file(&directory.root().join(&path)) {
                Ok(Ok(group)) if group.path().as_ref() == Some(&path) => {
                    self.survey(&group)?;
                    sources.push(Source { path, first_seq: seqs(&group).min().unwrap_or(i64::MAX) });
                }
                Ok(Ok(_)) => self.tell(&path, &"it is not where it belongs"),
                Ok(Err(error)) => self.tell(&path, &error),
                Err(error) => self.tell(&path, &error),
            }
            progress(done as u64 + 1, total);
        }
        // New numbers come after all that are known.
        let highest = self.seqs.keys().max().copied().unwrap_or(0);
        self.db.execute("UPDATE space SET row_seq = max(row_seq, ?1)", params![highest])?;
        // Parents come before their children.
        sources.sort_by_key(|source| source.first_seq);
        for (done, source) in sources.iter().enumerate() {
            if let Ok(Ok(group)) = read_file(&directory.root().join(&source.path))
                && let Err(error) = self.add_group(&group)
            {
                self.tell(&source.path, &error);
            }
            progress(total / 2 + done as u64 + 1, total);
        }
        if let Some(damaged) = damaged {
            self.salvage(damaged);
        }
        recount(self.db)?;
        continue_counters(self.db)?;
        if self.restored > 0 { record(self.db, self.restored, at) } else { Ok(()) }
    }

    fn tell(&mut self, path: &Path, error: &dyn std::fmt::Display) {
        let (subject, message) = (path.display().to_string(), format!("could not be brought back: {error}"));
        self.findings.push(Finding { kind: FindingKind::Unhealed, subject, message });
    }

    fn survey(&mut self, group: &Group) -> DbResult<()> {
        let (id, changed) = (group.session.id().to_owned(), group.changed_seq());
        let mut is_renumbered = false;
        for saved in &group.checkpoints {
            let seq = saved.columns.seq().unwrap_or(0);
            let own = saved.columns.id();
            let is_ours = *self.seqs.entry(seq).or_insert_with(|| own.to_owned()) == own;
            is_renumbered |= !is_ours || is_anothers(self.db, seq, own)?;
        }
        let known = Known { changed, columns: group.session.clone(), is_renumbered };
        match self.sessions.get_mut(&id) {
            None => drop(self.sessions.insert(id, known)),
            Some(before) => {
                before.is_renumbered |= is_renumbered;
                if changed >= before.changed {
                    (before.changed, before.columns) = (changed, known.columns);
                }
            }
        }
        Ok(())
    }

    /// What a damaged database still gives and no file has: what was saved last, or what was damaged in its file. A text proves itself by
    /// its hash, an id by a number that no other has; what cannot be read is left, and logged.
    fn salvage(&mut self, damaged: &Path) {
        let Ok(db) = open_untouched(damaged) else { return };
        let next = |after: i64| -> rusqlite::Result<Option<i64>> {
            db.prepare_cached("SELECT key FROM checkpoint_group WHERE key > ?1 ORDER BY key LIMIT 1")?
                .query_row(params![after], |row| row.get(0))
                .optional()
        };
        let mut after = 0;
        loop {
            let group = match next(after) {
                Ok(None) => return,
                Ok(Some(key)) => {
                    after = key;
                    read_group(&db, key).map_err(|error| error.to_string())
                }
                Err(error) => {
                    return tracing::warn!(%error, after, "groups of the damaged database cannot be read");
                }
            };
            let added = group.and_then(|group| {
                let Some(mut group) = group else { return Ok(()) };
                group.checkpoints.retain(|saved| {
                    let seq = saved.columns.seq().unwrap_or(0);
                    saved.text.is_some() && is_anothers(self.db, seq, saved.columns.id()).is_ok_and(|taken| !taken)
                });
                self.add_group(&group).map_err(|error| error.to_string())
            });
            if let Err(error) = added {
                tracing::warn!(error, group = after, "a group of the damaged database cannot be read");
            }
        }
    }

    /// Brings back what of a group is not there.
    fn add_group(&mut self, group: &Group) -> DbResult<()> {
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
            take(self.db, "checkpoint", &saved.columns, &["archived_at_ms", "archived_seq", "archived_why"])?;
        }
        match self.sessions.get(session).filter(|known| known.changed == changed) {
            Some(known) => {
                take(self.db, "session", &known.columns, &["name", "tags", "archived_at_ms", "archived_seq"])
            }
            None => Ok(()),
        }
    }

    fn try_add_group(&self, group: &Group) -> DbResult<(u64, Vec<Finding>)> {
        let space = group.row.space();
        let mut is_new = false;
        for saved in &group.checkpoints {
            is_new |= find(self.db, "checkpoint", space, saved.columns.id())?.is_none();
        }
        self.take_newer_state(group, space)?;
        if !is_new {
            return Ok((0, Vec::new()));
        }
        let id = group.session.id();
        let known = self.sessions.get(id);
        let mut findings = Vec::new();
        let session = match find(self.db, "session", space, id)? {
            Some(key) => key,
            None => {
                findings.push(finding(FindingKind::Restored, id, "a session came back from its files"));
                let mut columns = known.map_or_else(|| group.session.clone(), |known| known.columns.clone());
                columns.remove("key");
                columns.set("head", Value::Null);
                insert(self.db, "session", &columns)?
            }
        };
        let group_key = join_group(self.db, group, session)?;
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

/// Whether a number is taken by another checkpoint.
fn is_anothers(db: &Connection, seq: i64, id: &str) -> DbResult<bool> {
    Ok(db.prepare_cached("SELECT 1 FROM checkpoint WHERE seq = ?1 AND id <> ?2")?.exists(params![seq, id])?)
}

/// Gives the row with the same id those of `columns` that are named.
fn take(db: &Connection, table: &str, columns: &Columns, names: &[&str]) -> DbResult<()> {
    let key = find(db, table, columns.space(), columns.id())?;
    names.iter().try_for_each(|name| update(db, table, key, name, columns.get(name).unwrap_or(&Value::Null)))
}

fn seqs(group: &Group) -> impl Iterator<Item = i64> {
    group.checkpoints.iter().filter_map(|saved| saved.columns.seq())
}

fn finding(kind: FindingKind, subject: &str, message: &str) -> Finding {
    Finding { kind, subject: subject.to_owned(), message: message.to_owned() }
}

fn join_group(db: &Connection, group: &Group, session: i64) -> DbResult<i64> {
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
    saved: &Saved,
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
        columns.set("seq", next_row_seq(db, &Scope { space, actor: String::new() })?);
    }
    columns.set("session", session);
    columns.set("group_key", group);
    columns.set("parent", parent);
    columns.set("base", previous.map(|link| link.key));
    columns.set("size_bytes", packed.bytes.len());
    let key = insert(db, "checkpoint", &columns)?;
    db.prepare_cached("INSERT INTO checkpoint_bytes (checkpoint, bytes) VALUES (?1, ?2)")?
        .execute(params![key, packed.bytes])?;
    Ok(key)
}

/// Numbers go on after the highest one found. Operations before that are gone, so another chain begins.
fn continue_counters(db: &Connection) -> DbResult<()> {
    db.execute_batch(
        "UPDATE space AS p SET row_seq = max(row_seq,
             (SELECT coalesce(max(seq), 0) FROM checkpoint WHERE space = p.space),
             (SELECT coalesce(max(max(seq, accessed_seq)), 0) FROM session WHERE space = p.space));",
    )?;
    let highest: i64 = db.query_row(
        "SELECT max((SELECT coalesce(max(changed_seq), 0) FROM checkpoint_group),
                    (SELECT coalesce(max(max(saved_seq, coalesce(archived_seq, 0))), 0) FROM checkpoint))",
        [],
        |row| row.get(0),
    )?;
    let changed = db.execute(
        "UPDATE space SET operation_seq = ?1, operation_hash = randomblob(32), event_seq = max(event_seq, ?1)
         WHERE operation_seq < ?1",
        params![highest],
    )?;
    if changed > 0 {
        db.execute(
            "INSERT INTO chain (space, first_seq, genesis) SELECT space, operation_seq + 1, operation_hash FROM space",
            [],
        )?;
    }
    Ok(())
}

fn record(db: &Connection, restored: u64, at: Timestamp) -> DbResult<()> {
    let operation = Operation {
        at,
        kind: "store.rebuilt",
        project: "default",
        subject: Vec::new(),
        payload: json!({ "checkpoints": restored }),
    };
    append(db, &Scope::local("maintenance"), &operation).map(drop)
}
