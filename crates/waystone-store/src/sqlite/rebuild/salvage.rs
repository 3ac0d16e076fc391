//! What a damaged database still gives and no file has: what was saved last, or what was damaged in its file.

use std::path::Path;
use std::sync::Arc;

use rusqlite::{OptionalExtension, params};

use super::Import;
use crate::sqlite::connection::open_untouched;
use crate::sqlite::error::{DbResult, behind};
use crate::sqlite::mirror::read_group;
use crate::sqlite::seal::Keys;

impl Import<'_> {
    /// A text proves itself by its hash, an id by a number that no other has; what cannot be read is left, and logged.
    pub(super) fn salvage(&mut self, damaged: &Path, keys: &Arc<Keys>) {
        let Ok(db) = open_untouched(damaged, keys) else { return };
        let next = |after: i64| -> DbResult<Option<i64>> {
            let found = db
                .prepare_cached("SELECT key FROM checkpoint_group WHERE key > ?1 ORDER BY key LIMIT 1")?
                .query_row(params![after], |row| row.get(0))
                .optional()?;
            found.map(|key| behind(after, key)).transpose()
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
                    let id = saved.columns.id();
                    saved.text.is_some()
                        && !self.removed.contains(id)
                        && *self.seqs.entry(seq).or_insert_with(|| id.to_owned()) == id
                });
                self.add_group(&group).map_err(|error| error.to_string())
            });
            if let Err(error) = added {
                tracing::warn!(error, group = after, "a group of the damaged database cannot be read");
            }
        }
    }
}
