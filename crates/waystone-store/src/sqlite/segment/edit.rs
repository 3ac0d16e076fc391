//! An operation under way: what it does to segments is recorded so that it can be undone, and counted.

use std::collections::HashSet;

use rusqlite::{Connection, Row, params};
use waystone_core::api::{SegmentType, Tier};
use waystone_core::clock::Timestamp;
use waystone_core::id::SegmentId;
use waystone_core::store::Scope;

use super::{kind_of, tier_of, touch_place};
use crate::sqlite::clock::last_believed;
use crate::sqlite::error::{DbResult, unreadable};
use crate::sqlite::usage::{Counted, Sums};

/// All of a segment that operations change, and what is needed to do so.
#[derive(Clone, PartialEq)]
pub(crate) struct Image {
    pub(crate) key: i64,
    pub(crate) tier: Tier,
    pub(crate) pinned: bool,
    pub(crate) entered_seq: Option<i64>,
    pub(crate) survived: u64,
    pub(crate) mentions: u64,
    pub(crate) tokens: u64,
    pub(crate) task: Option<i64>,
    pub(crate) kind: SegmentType,
}

/// What [`read_image`] reads, from `segment AS s`.
pub(crate) const IMAGE: &str =
    "s.key, s.tier, s.pinned, s.entered_seq, s.survived, s.mentions, s.tokens, s.task, s.type, s.id";

pub(crate) fn read_image(row: &Row<'_>) -> DbResult<(Image, SegmentId)> {
    let image = Image {
        key: row.get(0)?,
        tier: tier_of(row.get_ref(1)?.as_str().unwrap_or_default())?,
        pinned: row.get(2)?,
        entered_seq: row.get(3)?,
        survived: row.get(4)?,
        mentions: row.get(5)?,
        tokens: row.get(6)?,
        task: row.get(7)?,
        kind: kind_of(row.get_ref(8)?.as_str().unwrap_or_default())?,
    };
    let id = row.get::<_, String>(9)?.parse().map_err(|error| unreadable("a segment's id", error))?;
    Ok((image, id))
}

/// A segment as it is now.
pub(crate) fn image_of(db: &Connection, key: i64) -> DbResult<Option<Image>> {
    let mut statement = db.prepare_cached(&format!("SELECT {IMAGE} FROM segment AS s WHERE s.key = ?1"))?;
    let mut rows = statement.query(params![key])?;
    Ok(rows.next()?.map(read_image).transpose()?.map(|(image, _)| image))
}

impl Image {
    pub(crate) fn counted(&self) -> Counted {
        let Self { task, tier, kind, tokens, pinned, .. } = *self;
        Counted { task, tier, kind, tokens, pinned }
    }
}

/// Collections of a project between two operations.
pub(crate) fn collections_between(db: &Connection, project: i64, after: Option<i64>, before: i64) -> DbResult<u64> {
    Ok(db
        .prepare_cached("SELECT count(*) FROM collection WHERE project = ?1 AND seq > ?2 AND seq < ?3")?
        .query_row(params![project, after, before], |row| row.get(0))?)
}

pub(crate) struct Edit<'a> {
    db: &'a Connection,
    scope: &'a Scope,
    project: i64,
    pub(crate) operation: i64,
    at: Timestamp,
    /// From when on what it deletes is archived.
    archived_at_ms: i64,
    sums: Sums,
    tasks: HashSet<Option<i64>>,
}

impl<'a> Edit<'a> {
    pub(crate) fn begin(
        db: &'a Connection,
        scope: &'a Scope,
        project: i64,
        operation: i64,
        at: Timestamp,
    ) -> DbResult<Self> {
        let archived_at_ms = last_believed(db, at)?;
        Ok(Self { db, scope, project, operation, at, archived_at_ms, sums: Sums::default(), tasks: HashSet::new() })
    }

    /// A segment was added.
    pub(crate) fn added(&mut self, image: &Image) -> DbResult<()> {
        self.sums.add(self.project, &image.counted());
        self.tasks.insert(image.task);
        self.record(image, None)
    }

    /// Moves or pins a segment.
    pub(crate) fn move_to(&mut self, before: &Image, tier: Tier, pinned: bool) -> DbResult<()> {
        let mut after = Image { tier, pinned, ..before.clone() };
        if before.tier == Tier::Working && tier != Tier::Working {
            after.survived += collections_between(self.db, self.project, before.entered_seq, self.operation)?;
            after.entered_seq = None;
        } else if before.tier != Tier::Working && tier == Tier::Working {
            after.entered_seq = Some(self.operation);
        }
        self.set(before, &after)
    }

    /// Makes a segment what `after` says.
    pub(crate) fn set(&mut self, before: &Image, after: &Image) -> DbResult<()> {
        self.record(after, Some(before))?;
        self.sums.remove(self.project, &before.counted());
        self.sums.add(self.project, &after.counted());
        self.tasks.insert(before.task);
        self.db
            .prepare_cached(
                "UPDATE segment SET tier = ?2, pinned = ?3, entered_seq = ?4, survived = ?5, mentions = ?6, archived_at_ms = ?7
                 WHERE key = ?1",
            )?
            .execute(params![
                before.key,
                after.tier.as_str(),
                after.pinned,
                after.entered_seq,
                after.survived,
                after.mentions,
                (after.tier == Tier::Archive).then_some(self.archived_at_ms),
            ])?;
        Ok(())
    }

    /// What the segment was before; `None` if it was not there.
    fn record(&self, after: &Image, before: Option<&Image>) -> DbResult<()> {
        self.db
            .prepare_cached(
                "INSERT INTO segment_change (space, operation, segment, tier, pinned, entered_seq, survived, mentions)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            )?
            .execute(params![
                self.scope.space,
                self.operation,
                after.key,
                before.map(|before| before.tier.as_str()),
                before.is_some_and(|before| before.pinned),
                before.and_then(|before| before.entered_seq),
                before.map_or(0, |before| before.survived),
                after.mentions,
            ])?;
        Ok(())
    }

    pub(crate) fn finish(self) -> DbResult<()> {
        for task in self.tasks {
            touch_place(self.db, self.project, task, self.at)?;
        }
        self.sums.write(self.db)
    }
}
