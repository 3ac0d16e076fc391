//! A look at both copies of every checkpoint, and each healed from the other where only one is damaged.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OptionalExtension, params};
use serde_json::Value;
use waystone_core::api::{Finding, FindingKind};
use waystone_core::canon::hash_object;
use waystone_core::clock::Timestamp;
use waystone_core::store::CheckedGroup;

use super::error::{DbResult, file_error};
use super::mirror::{changed_seq, is_same, path_of, read_file, read_group};
use super::rebuild;
use crate::directory::DataDirectory;
use crate::mirror::{Group, SUFFIX, Saved};
use crate::platform::create_private_dir;

/// What a look at one group found.
pub(crate) struct Diagnosis {
    pub(crate) key: i64,
    pub(crate) checkpoints: u64,
    left: u64,
    /// Where the file is, from the data directory.
    path: PathBuf,
    /// Why the file is not a copy of the rows. Nothing when it is, or when it is known to lag behind.
    damage: Option<String>,
    /// The file can be read, so rows can be healed from it.
    pub(crate) has_copy: bool,
    /// What of the rows is damaged: ids.
    pub(crate) damaged: Vec<String>,
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
    let Some(group) = read_group(db, key)? else { return Ok(None) };
    let path = path_of(&group)?;
    let (mut damage, has_copy) = match read_file(&directory.root().join(&path)) {
        Err(error) => (Some(format!("it cannot be read: {error}")), false),
        Ok(Err(damaged)) => (Some(damaged.to_string()), false),
        Ok(Ok(copy)) if copy.row.get("id") != group.row.get("id") => (Some("it is another group's".to_owned()), false),
        Ok(Ok(copy)) if is_same(db, &group, &copy)? => (None, true),
        Ok(Ok(copy)) => (Some(difference(&group, &copy)), true),
    };
    if is_dirty && (has_copy || !directory.root().join(&path).exists()) {
        damage = None;
    }
    let damaged = group.checkpoints.iter().filter(|saved| !is_whole(saved)).map(id_of).collect();
    Ok(Some(Diagnosis { key, checkpoints: group.checkpoints.len() as u64, left, path, damage, has_copy, damaged }))
}

fn difference(group: &Group, copy: &Group) -> String {
    match changed_seq(group) == changed_seq(copy) {
        true => "it differs from the database".to_owned(),
        false => "it holds another state than the database".to_owned(),
    }
}

fn id_of(saved: &Saved) -> String {
    saved.columns.get("id").and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// Whether the text is there, is a context, and has the hash by which contexts are compared.
fn is_whole(saved: &Saved) -> bool {
    let Some(text) = &saved.text else { return false };
    let Ok(Value::Object(context)) = waystone_core::json::parse_trusted(text) else { return false };
    let hash = hash_object(&context).map(|hash| hash.to_string());
    hash.as_deref() == saved.columns.get("context_hash").and_then(|value| value.get("hex")).and_then(Value::as_str)
}

impl Diagnosis {
    /// Whether rows may be put right from the file.
    pub(crate) fn needs_healing(&self) -> bool {
        self.has_copy && (self.damage.is_some() || !self.damaged.is_empty())
    }

    /// Whether the file is to be written anew.
    pub(crate) fn needs_file(&self) -> bool {
        self.damage.is_some()
    }

    /// Moves a damaged file out of the way, where it can be looked at.
    pub(crate) fn set_aside(&self, directory: &DataDirectory, at: Timestamp) -> DbResult<()> {
        let path = directory.root().join(&self.path);
        if !path.exists() {
            return Ok(());
        }
        let aside = directory.damaged(at).join(&self.path);
        let folder = aside.parent().unwrap_or(&aside);
        create_private_dir(folder).and_then(|()| fs::rename(&path, &aside)).map_err(|error| file_error(&path, &error))
    }

    /// What is to be told, given what was healed and how things stand `now`.
    pub(crate) fn tell(self, healed: Vec<String>, now: &Self) -> CheckedGroup {
        let healed = healed.into_iter().map(|subject| Finding {
            kind: FindingKind::RowHealed,
            subject,
            message: "was damaged in the database and is healed from its file".to_owned(),
        });
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
            kind: FindingKind::Unhealed,
            subject: now.path.display().to_string(),
            message: damage,
        });
        let findings = healed.chain(lost).chain(file).chain(unhealed).collect();
        CheckedGroup { cursor: self.key, checkpoints: self.checkpoints, left: self.left, findings }
    }
}

/// What is wrong with the database itself, and files that belong to no group in it.
pub(crate) fn check_whole(directory: &DataDirectory, db: &Connection) -> DbResult<Vec<Finding>> {
    let mut findings = list_orphans(directory, db)?;
    findings.extend(rebuild::damage(db)?.map(|damage| Finding {
        kind: FindingKind::Unhealed,
        subject: "waystone.db".to_owned(),
        message: format!("{damage}; `waystone doctor --repair` rebuilds it from the files"),
    }));
    Ok(findings)
}

fn list_orphans(directory: &DataDirectory, db: &Connection) -> DbResult<Vec<Finding>> {
    let mut statement =
        db.prepare("SELECT s.id, g.id FROM checkpoint_group AS g JOIN session AS s ON s.key = g.session")?;
    let known: BTreeSet<PathBuf> = statement
        .query_map([], |row| Ok(crate::mirror::path_of(&row.get::<_, String>(0)?, &row.get::<_, String>(1)?)))?
        .collect::<Result<_, _>>()?;
    let orphan = |path: &Path| Finding {
        kind: FindingKind::Orphan,
        subject: path.display().to_string(),
        message: "is not in the database; `waystone doctor --repair` brings it back".to_owned(),
    };
    Ok(list_files(directory).iter().filter(|path| !known.contains(*path)).map(|path| orphan(path)).collect())
}

/// Every mirror file, from the data directory, in order.
pub(crate) fn list_files(directory: &DataDirectory) -> Vec<PathBuf> {
    let entries = |folder: PathBuf| fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let files = entries(directory.contexts()).flat_map(entries);
    let is_mirror = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().ends_with(SUFFIX));
    let mut files: Vec<PathBuf> = files
        .filter(is_mirror)
        .filter_map(|path| path.strip_prefix(directory.root()).ok().map(Path::to_owned))
        .collect();
    files.sort();
    files
}
