//! A look at both copies of every checkpoint, and each healed from the other where only one is damaged. What else there is, is in [`records`].

mod records;

use std::collections::BTreeSet;
use std::path::PathBuf;

use rusqlite::{Connection, OptionalExtension, params};
use serde_json::Value;
use waystone_core::api::{Finding, FindingKind};
use waystone_core::canon::hash_object;
use waystone_core::store::CheckedGroup;

use super::damage;
use super::error::{DbResult, behind, missing_id};
use super::mirror::{holds_more, is_same, read_group};
use crate::directory::{DATABASE, DataDirectory};
use crate::mirror::{Group, MirroredCheckpoint, list_files, path_of, read_file, tombstone};
pub(crate) use records::{Walk, heal_derived, is_chain_whole, needs_healing, walk_operations, walk_segments};

/// What a look at one group found.
pub(crate) struct Diagnosis {
    pub(crate) key: i64,
    checkpoints: u64,
    left: u64,
    /// Where the file is, from the data directory.
    path: PathBuf,
    /// Why the file is not a copy of the rows. Nothing when it is, or when it is known to lag behind.
    damage: Option<String>,
    /// The file can be read, so rows can be healed from it.
    has_copy: bool,
    /// The file has checkpoints that the database does not have.
    is_ahead: bool,
    /// What of the rows is damaged: ids.
    damaged: Vec<String>,
}

/// Looks at the first group after `after`.
pub(crate) fn look(directory: &DataDirectory, db: &Connection, after: i64) -> DbResult<Option<Diagnosis>> {
    let found: Option<(i64, bool, u64)> = db
        .prepare_cached(
            "SELECT key, mirrored_seq < changed_seq, (SELECT count(*) FROM checkpoint_group WHERE key > g.key)
             FROM checkpoint_group AS g WHERE key > ?1 ORDER BY key LIMIT 1",
        )?
        .query_row(params![after], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .optional()?;
    let Some((key, is_dirty, left)) = found else { return Ok(None) };
    behind(after, key)?;
    let Some(group) = read_group(db, key)? else { return Ok(None) };
    let path = group.path().ok_or_else(missing_id)?;
    let removed = tombstone::read(directory, group.session.id()).unwrap_or_default();
    let (mut damage, mut has_copy, mut is_ahead) = (None, false, false);
    match read_file(&directory.root().join(&path), directory.keys()) {
        Err(error) => damage = Some(format!("it cannot be read: {error}")),
        Ok(Err(damaged)) => damage = Some(damaged.to_string()),
        Ok(Ok(copy)) if copy.row.id() != group.row.id() => damage = Some("it is another group's".to_owned()),
        Ok(Ok(copy)) => {
            let copy = copy.without(&removed);
            is_ahead = holds_more(&copy, &group) || copy.changed_seq() > group.changed_seq();
            has_copy = true;
            if !is_same(db, &group, &copy)? {
                damage = Some(difference(&group, &copy));
            }
        }
    }
    let lags_behind = is_dirty && (has_copy || !directory.root().join(&path).exists());
    damage = damage.filter(|_| is_ahead || !lags_behind);
    let damaged =
        group.checkpoints.iter().filter(|saved| !is_whole(saved)).map(|saved| saved.columns.id().to_owned()).collect();
    let checkpoints = group.checkpoints.len() as u64;
    Ok(Some(Diagnosis { key, checkpoints, left, path, damage, has_copy, is_ahead, damaged }))
}

fn difference(group: &Group, copy: &Group) -> String {
    match group.changed_seq() == copy.changed_seq() {
        true => "it differs from the database".to_owned(),
        false => "it holds another state than the database".to_owned(),
    }
}

/// A parsed context takes many times its size. The text of a larger one is proven by its own hash; the other is compared with the file's.
const PARSED_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Whether the text is there, is a context, and has the hash by which contexts are compared.
fn is_whole(saved: &MirroredCheckpoint) -> bool {
    let Some(text) = &saved.text else { return false };
    if text.len() > PARSED_BYTES_MAX {
        return true;
    }
    let Ok(Value::Object(context)) = waystone_core::json::parse_trusted(text) else { return false };
    hash_object(&context) == saved.columns.hash("context_hash")
}

impl Diagnosis {
    pub(crate) fn is_sound(&self) -> bool {
        self.damage.is_none() && self.damaged.is_empty()
    }

    /// Whether rows may be put right from the file.
    pub(crate) fn needs_healing(&self) -> bool {
        self.has_copy && (self.damage.is_some() || !self.damaged.is_empty())
    }

    /// Whether there may be rows that the file does not heal.
    pub(crate) fn is_any_lost(&self) -> bool {
        !self.damaged.is_empty()
    }

    /// Whether the file is to be written anew. One that has more than the database is left for a repair.
    pub(crate) fn needs_file(&self) -> bool {
        self.damage.is_some() && !self.is_ahead
    }

    /// What is to be told, given what was healed and how things stand `now`.
    pub(crate) fn tell(self, healed: Vec<String>, from_backup: Vec<String>, now: &Self) -> CheckedGroup {
        let row_healed =
            |subject, message: &str| Finding { kind: FindingKind::RowHealed, subject, message: message.to_owned() };
        let from_file = "was damaged in the database and is healed from its file";
        let healed = healed.into_iter().map(|subject| row_healed(subject, from_file));
        let from_both = "was damaged in both copies and is healed from a backup";
        let from_backup = from_backup.into_iter().map(|subject| row_healed(subject, from_both));
        let lost = now.damaged.iter().map(|subject| Finding {
            kind: FindingKind::Lost,
            subject: subject.clone(),
            message: "is damaged in both copies".to_owned(),
        });
        let file = self.damage.filter(|_| healed.len() == 0 && now.damage.is_none()).map(|damage| Finding {
            kind: FindingKind::MirrorHealed,
            subject: self.path.display().to_string(),
            message: format!("{damage}; it was written anew"),
        });
        let unhealed = now.damage.clone().map(|damage| Finding {
            kind: if now.is_ahead { FindingKind::Orphan } else { FindingKind::Unhealed },
            subject: now.path.display().to_string(),
            message: match now.is_ahead {
                true => {
                    "holds more, or a newer state, than the database; `waystone doctor --repair` takes it in".to_owned()
                }
                false => damage,
            },
        });
        let findings = healed.chain(from_backup).chain(lost).chain(file).chain(unhealed).collect();
        CheckedGroup { cursor: self.key, checkpoints: self.checkpoints, left: self.left, findings }
    }
}

const BRINGS_BACK: &str = "`waystone doctor --repair` brings them back";

/// What is wrong with the database as a whole.
pub(crate) fn check_database(db: &Connection) -> DbResult<Option<Finding>> {
    Ok(damage::damage(db)?.map(|damage| Finding {
        kind: FindingKind::Unhealed,
        subject: DATABASE.to_owned(),
        message: format!("{damage}; `waystone doctor --repair` rebuilds it from the files"),
    }))
}

/// What conversations save stands in no file.
pub(crate) fn count_single_copies(db: &Connection, space: i64) -> DbResult<u64> {
    let count = "SELECT count(*) FROM checkpoint WHERE space = ?1 AND group_key IS NULL";
    Ok(db.prepare_cached(count)?.query_row(params![space], |row| row.get(0))?)
}

/// Files that belong to no group in the database, and folders that cannot be looked into.
pub(crate) fn list_orphans(directory: &DataDirectory, db: &Connection) -> DbResult<Vec<Finding>> {
    // Before the rows: a group is in the database before it is in a file.
    let (files, unread) = list_files(directory);
    let mut statement =
        db.prepare("SELECT s.id, g.id FROM checkpoint_group AS g JOIN session AS s ON s.key = g.session")?;
    let known: BTreeSet<PathBuf> = statement
        .query_map([], |row| Ok(path_of(&row.get::<_, String>(0)?, &row.get::<_, String>(1)?)))?
        .collect::<Result<_, _>>()?;
    let orphan = |path: &PathBuf| Finding {
        kind: FindingKind::Orphan,
        subject: path.display().to_string(),
        message: format!("is not in the database; {BRINGS_BACK}"),
    };
    Ok(files.iter().filter(|path| !known.contains(*path)).map(orphan).chain(unread).collect())
}
