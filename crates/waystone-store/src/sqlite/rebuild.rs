//! A database made from mirror files, or what they hold more brought into one: first a survey of all of them, then group by group
//! in the order of their checkpoints. How a group is added is in [`group`], what a damaged database still gives in [`salvage`].

mod group;
mod salvage;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OptionalExtension, params};
use serde_json::json;
use waystone_core::api::{Finding, FindingKind};
use waystone_core::clock::Timestamp;
use waystone_core::store::Scope;

use super::connection::open_writer;
use super::counter::{continue_numbers, recount};
use super::error::DbResult;
use super::log::{Operation, append};
use super::maintenance::checkpoint;
use super::migration::{has_room, make};
use super::retention::remove_rows;
use crate::OpenError;
use crate::directory::DataDirectory;
use crate::mirror::tombstone::{self, Removed};
use crate::mirror::{Columns, Group, list_files, read_file};

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
    let failed = |error: &dyn std::fmt::Display| match has_room(database) {
        true => OpenError::Unrepaired { path: directory.database(), message: error.to_string() },
        false => OpenError::Full { path: directory.database() },
    };
    let db = open_writer(database).map_err(|error| failed(&error))?;
    db.execute_batch("BEGIN IMMEDIATE").map_err(|error| failed(&error))?;
    let removed = tombstone::read_all(directory).map_err(|error| failed(&error))?;
    let mut import =
        Import { db: &db, removed, sessions: HashMap::new(), seqs: HashMap::new(), findings: Vec::new(), restored: 0 };
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
                    let first_seq = seqs(&group).min().unwrap_or(i64::MAX);
                    self.survey(&group.without(&self.removed))?;
                    sources.push(Source { path, first_seq });
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
                && let Err(error) = self.add_group(&group.without(&self.removed))
            {
                self.tell(&source.path, &error);
            }
            progress(total / 2 + done as u64 + 1, total);
        }
        if let Some(damaged) = damaged {
            self.salvage(damaged);
        }
        self.remove_again()?;
        recount(self.db)?;
        continue_numbers(self.db)?;
        if self.restored > 0 { record(self.db, self.restored, at) } else { Ok(()) }
    }

    /// What was removed is not in the database either, whatever that was made from.
    fn remove_again(&self) -> DbResult<()> {
        let mut doomed: BTreeMap<i64, BTreeSet<i64>> = BTreeMap::new();
        for id in &self.removed {
            let found: Option<(i64, i64)> = self
                .db
                .prepare_cached("SELECT session, key FROM checkpoint WHERE id = ?1")?
                .query_row(params![id], |row| Ok((row.get(0)?, row.get(1)?)))
                .optional()?;
            if let Some((session, key)) = found {
                doomed.entry(session).or_default().insert(key);
            }
        }
        for (session, keys) in &doomed {
            remove_rows(self.db, *session, keys)?;
            self.db.execute("UPDATE checkpoint_group SET mirrored_seq = 0 WHERE session = ?1", params![session])?;
        }
        Ok(())
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
        Ok(())
    }
}

/// Whether a number is taken by another checkpoint.
fn is_anothers(db: &Connection, seq: i64, id: &str) -> DbResult<bool> {
    Ok(db.prepare_cached("SELECT 1 FROM checkpoint WHERE seq = ?1 AND id <> ?2")?.exists(params![seq, id])?)
}

fn seqs(group: &Group) -> impl Iterator<Item = i64> {
    group.checkpoints.iter().filter_map(|saved| saved.columns.seq())
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
