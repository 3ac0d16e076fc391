//! A database made from mirror files, or what they hold more brought into one: first a survey of all of them, then group by group
//! in the order of their checkpoints. How a group is added is in [`group`], what a damaged database still gives in [`salvage`].

mod group;
mod salvage;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, params};
use serde_json::{Value, json};
use waystone_core::api::{AuditHead, Finding, FindingKind};
use waystone_core::audit::CONTINUES;
use waystone_core::clock::Timestamp;
use waystone_core::store::Scope;

use super::connection::{self, open_untouched, open_writer};
use super::counter::{Numbers, continue_numbers, recount, recount_usage};
use super::doctor::is_chain_whole;
use super::error::DbResult;
use super::log::{Operation, append};
use super::maintenance::checkpoint;
use super::migration::{has_room, make, unlock};
use super::retention::{forget_live, remove_again};
use super::seal::Keys;
use crate::OpenError;
use crate::directory::{CONTEXTS, DATABASE, DataDirectory, TOMBSTONES};
use crate::mirror::tombstone::{self, Removed};
use crate::mirror::{Columns, Group, list_files, read_file};

/// What a database is made from besides the mirror files.
pub(crate) enum Base<'a> {
    /// It is the one in use, and only gets what it lacks.
    Itself,
    /// It takes the place of one that is damaged, and began as a copy of a backup, if there was a good one.
    Damaged { database: &'a Path, backup: Option<&'a Path> },
    /// It is the copy of a backup, and the files are not taken in.
    Backup(&'a Path),
}

/// What a database got.
pub(crate) struct Imported {
    pub(crate) findings: Vec<Finding>,
    /// Files of which all was removed, by who died before they were: they go once the database that was made is the one in use, since what
    /// else they tell stands there then.
    pub(crate) emptied: Vec<PathBuf>,
}

/// Brings what is in mirror files, and then what can still be read of a damaged database, into a database that no one else uses, as
/// far as it is not there. Begins the numbers and the log of what takes the place of another above all that is known.
pub(crate) fn import_files(
    directory: &DataDirectory,
    target: &DataDirectory,
    base: &Base<'_>,
    at: Timestamp,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Imported, OpenError> {
    let database = &target.database();
    make(database, directory.keys(), at)?;
    unlock(&connection::Source::Beside(target.clone()))?;
    let failed = |error: &dyn std::fmt::Display| match has_room(database) {
        true => OpenError::Unrepaired { path: directory.database(), message: error.to_string() },
        false => OpenError::Full { path: directory.database() },
    };
    let db = open_writer(database, directory.keys()).map_err(|error| failed(&error))?;
    db.execute_batch("BEGIN IMMEDIATE").map_err(|error| failed(&error))?;
    let mut removed = tombstone::read_all(directory).map_err(|error| failed(&error))?;
    if matches!(base, Base::Itself) {
        forget_live(directory, &db, &mut removed).map_err(|error| failed(&error))?;
    }
    let mut import = Import {
        db: &db,
        removed,
        sessions: HashMap::new(),
        seqs: HashMap::new(),
        changed: 0,
        findings: Vec::new(),
        emptied: Vec::new(),
        at,
        restored: 0,
    };
    import.run(directory, base, progress).map_err(|error| failed(&error))?;
    let Import { findings, emptied, .. } = import;
    db.execute_batch("COMMIT").map_err(|error| failed(&error))?;
    // Only the file itself takes the place of another: all of it must be there.
    if !checkpoint(&db, "TRUNCATE").map_err(|error| failed(&error))? {
        return Err(failed(&"its log could not be folded back"));
    }
    db.close().map_err(|(_, error)| failed(&error))?;
    Ok(Imported { findings, emptied })
}

/// What the files say of a session.
struct FiledSession {
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
    /// What does not come back.
    removed: Removed,
    /// By id.
    sessions: HashMap<String, FiledSession>,
    /// Which checkpoint has a number.
    seqs: HashMap<i64, String>,
    /// The highest number of a change that a file holds.
    changed: i64,
    findings: Vec<Finding>,
    emptied: Vec<PathBuf>,
    /// When it is done.
    at: Timestamp,
    restored: u64,
}

impl Import<'_> {
    fn run(&mut self, directory: &DataDirectory, base: &Base<'_>, progress: &mut dyn FnMut(u64, u64)) -> DbResult<()> {
        let at = self.at;
        self.learn_numbers()?;
        let sources = self.survey_all(directory, progress);
        // New numbers come after all that are known.
        let highest = self.seqs.keys().max().copied().unwrap_or(0);
        self.db.execute("UPDATE space SET row_seq = max(row_seq, ?1)", params![highest])?;
        match base {
            Base::Backup(_) => begin_anew(self.db, at)?,
            Base::Itself | Base::Damaged { .. } => self.add_all(directory, &sources, progress)?,
        }
        if let Base::Damaged { database, .. } = base {
            self.learn_numbers()?;
            self.salvage(database, directory.keys());
        }
        let held_back = remove_again(self.db, &self.removed)?;
        if held_back > 0 {
            let message = format!("{held_back} checkpoints that were removed for good stay removed");
            let subject = TOMBSTONES.to_owned();
            self.findings.push(Finding { kind: FindingKind::HeldBack, subject, message });
        }
        recount(self.db)?;
        recount_usage(self.db)?;
        let known = self.highest_known(directory, base);
        // What does not follow in the log stays as it is, and another chain begins after it.
        let is_new_chain = !matches!(base, Base::Itself) || !is_chain_whole(self.db, Scope::local("").space)?;
        let is_new_chain = continue_numbers(self.db, known, is_new_chain)?;
        match base {
            Base::Itself if self.restored == 0 && !is_new_chain => Ok(()),
            Base::Itself => record(self.db, "store.rebuilt", json!({ "checkpoints": self.restored }), at),
            Base::Damaged { backup, .. } => {
                let backup = backup.map(|path| path.display().to_string());
                let sources: Vec<String> =
                    backup.into_iter().chain([CONTEXTS.to_owned(), DATABASE.to_owned()]).collect();
                let payload = json!({ "checkpoints": self.restored, "sources": sources });
                record(self.db, "store.rebuilt", payload, at)
            }
            Base::Backup(path) => {
                record(self.db, "store.restored", json!({ "sources": [path.display().to_string()] }), at)
            }
        }
    }

    /// Reads every file once, to know all sessions and numbers. Returns those that can be taken in, parents before their children.
    fn survey_all(&mut self, directory: &DataDirectory, progress: &mut dyn FnMut(u64, u64)) -> Vec<Source> {
        let (files, unread) = list_files(directory);
        self.findings.extend(unread);
        let (mut sources, total) = (Vec::new(), 2 * files.len() as u64);
        for (done, path) in files.into_iter().enumerate() {
            match read_file(&directory.root().join(&path), directory.keys()) {
                Ok(Ok(group)) if group.path().as_ref() == Some(&path) => {
                    let first_seq = seqs(&group).min().unwrap_or(i64::MAX);
                    self.changed = self.changed.max(group.changed_seq());
                    self.survey(&group.without(&self.removed));
                    sources.push(Source { path, first_seq });
                }
                Ok(Ok(_)) => self.tell(&path, &"it is not where it belongs"),
                Ok(Err(error)) => self.tell(&path, &error),
                Err(error) => self.tell(&path, &error),
            }
            progress(done as u64 + 1, total);
        }
        sources.sort_by_key(|source| source.first_seq);
        sources
    }

    fn add_all(
        &mut self,
        directory: &DataDirectory,
        sources: &[Source],
        progress: &mut dyn FnMut(u64, u64),
    ) -> DbResult<()> {
        for (done, source) in sources.iter().enumerate() {
            let path = directory.root().join(&source.path);
            if let Ok(Ok(group)) = read_file(&path, directory.keys()) {
                let had_checkpoints = !group.checkpoints.is_empty();
                let group = group.without(&self.removed);
                if let Err(error) = self.add_group(&group) {
                    self.tell(&source.path, &error);
                } else if had_checkpoints && group.checkpoints.is_empty() {
                    self.emptied.push(path);
                }
            }
            progress((sources.len() + done) as u64 + 1, 2 * sources.len() as u64);
        }
        Ok(())
    }

    /// The highest numbers in the files, and in the database that is replaced as far as it can be read.
    fn highest_known(&self, directory: &DataDirectory, base: &Base<'_>) -> Numbers {
        let replaced = match base {
            Base::Itself => Numbers { row: 0, operation: 0, event: Some(0) },
            Base::Damaged { database, .. } => numbers_of(database, directory.keys()),
            Base::Backup(_) => numbers_of(&directory.database(), directory.keys()),
        };
        let rows = self.seqs.keys().max().copied().unwrap_or(0);
        Numbers { row: replaced.row.max(rows), operation: replaced.operation.max(self.changed), ..replaced }
    }

    fn tell(&mut self, path: &Path, error: &dyn std::fmt::Display) {
        let (subject, message) = (path.display().to_string(), format!("could not be brought back: {error}"));
        self.findings.push(Finding { kind: FindingKind::Unhealed, subject, message });
    }

    /// Which checkpoints of the database have which numbers.
    fn learn_numbers(&mut self) -> DbResult<()> {
        let mut statement = self.db.prepare("SELECT seq, id FROM checkpoint")?;
        for row in statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))? {
            let (seq, id) = row?;
            self.seqs.insert(seq, id);
        }
        Ok(())
    }

    fn survey(&mut self, group: &Group) {
        let (id, changed) = (group.session.id().to_owned(), group.changed_seq());
        let mut is_renumbered = false;
        for saved in &group.checkpoints {
            let seq = saved.columns.seq().unwrap_or(0);
            let own = saved.columns.id();
            let is_ours = *self.seqs.entry(seq).or_insert_with(|| own.to_owned()) == own;
            is_renumbered |= !is_ours;
        }
        let known = FiledSession { changed, columns: group.session.clone(), is_renumbered };
        match self.sessions.get_mut(&id) {
            None => drop(self.sessions.insert(id, known)),
            Some(before) => {
                before.is_renumbered |= is_renumbered;
                if changed >= before.changed {
                    (before.changed, before.columns) = (changed, known.columns);
                }
            }
        }
    }
}

fn seqs(group: &Group) -> impl Iterator<Item = i64> {
    group.checkpoints.iter().filter_map(|saved| saved.columns.seq())
}

/// What is restored has no files yet, and its time begins now: nothing goes because its backup is old.
fn begin_anew(db: &Connection, at: Timestamp) -> DbResult<()> {
    db.execute("UPDATE checkpoint_group SET mirrored_seq = 0", [])?;
    for sql in [
        "UPDATE session SET last_accessed_at_ms = max(last_accessed_at_ms, ?1)",
        "UPDATE session SET archived_at_ms = max(archived_at_ms, ?1) WHERE archived_at_ms IS NOT NULL",
        "UPDATE checkpoint SET archived_at_ms = max(archived_at_ms, ?1) WHERE archived_at_ms IS NOT NULL",
        "UPDATE segment SET archived_at_ms = max(archived_at_ms, ?1) WHERE archived_at_ms IS NOT NULL",
        "UPDATE snapshot SET archived_at_ms = max(archived_at_ms, ?1) WHERE archived_at_ms IS NOT NULL",
        "UPDATE given_context SET used_at_ms = max(used_at_ms, ?1)",
    ] {
        db.execute(sql, params![at.ms()])?;
    }
    Ok(())
}

/// Every file of a database is to be written again.
pub(crate) fn forget_files(directory: &DataDirectory) -> rusqlite::Result<()> {
    open_writer(&directory.database(), directory.keys())?.execute_batch("UPDATE checkpoint_group SET mirrored_seq = 0")
}

/// A number beyond this is a damaged one.
const NUMBER_MAX: i64 = 1 << 52;

/// The highest numbers of a database that is not ours to touch, as far as they can be read and can be ones.
fn numbers_of(path: &Path, keys: &Arc<Keys>) -> Numbers {
    let read = |sql: &str| -> Option<i64> {
        let number: i64 = open_untouched(path, keys).ok()?.query_row(sql, [], |row| row.get(0)).ok()?;
        (0..NUMBER_MAX).contains(&number).then_some(number)
    };
    let (row, operation) = (read("SELECT max(row_seq) FROM space"), read("SELECT max(operation_seq) FROM space"));
    let event = read("SELECT max(event_seq, (SELECT coalesce(max(seq), 0) FROM event)) FROM space ORDER BY 1 DESC");
    Numbers { row: row.unwrap_or(0), operation: operation.unwrap_or(0), event }
}

/// Records what was done, and after which operation: if that one goes later, it shows.
fn record(db: &Connection, kind: &str, mut payload: Value, at: Timestamp) -> DbResult<()> {
    let last = "SELECT seq, lower(hex(hash)) FROM operation ORDER BY seq DESC LIMIT 1";
    let last: Option<(i64, String)> = db.query_row(last, [], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
    if let Some((seq, hash)) = last {
        payload[CONTINUES] = json!(AuditHead { seq, hash });
    }
    let operation = Operation { at, kind, project: "default", subject: Vec::new(), payload };
    append(db, &Scope::local("maintenance"), &operation).map(drop)
}
