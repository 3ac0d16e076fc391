//! Figures of what is kept, and what was measured. Measurements are gathered in memory and written every few seconds with a later commit.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rusqlite::{Connection, params};
use waystone_core::api::{LargeSession, Stats, Tier, TierStats};
use waystone_core::histogram::{Kind, Measured};
use waystone_core::store::Scope;

use super::error::{DbResult, unreadable};
use super::seal::session_column;

/// Measurements are written no more often.
const REST: Duration = Duration::from_secs(5);
const LARGEST_MAX: usize = 10;

/// What was measured and is not written yet: how many, and what they add up to.
pub(crate) struct Measures(Mutex<Pending>);

struct Pending {
    buckets: HashMap<(i64, Kind, String, u16), (u64, u64)>,
    written_at: Instant,
}

impl Default for Measures {
    fn default() -> Self {
        Self(Mutex::new(Pending { buckets: HashMap::new(), written_at: Instant::now() }))
    }
}

impl Measures {
    /// Adds a measurement. Returns whether it is time to write.
    pub(crate) fn add(&self, space: i64, kind: Kind, name: &str, value: u64) -> bool {
        let mut pending = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let bucket = pending.buckets.entry((space, kind, name.to_owned(), kind.bucket(value))).or_default();
        *bucket = (bucket.0 + 1, bucket.1.saturating_add(value));
        let is_time = pending.written_at.elapsed() >= REST;
        if is_time {
            pending.written_at = Instant::now();
        }
        is_time
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).buckets.is_empty()
    }

    /// Writes all that was measured. What cannot be written is let go: it is no data.
    pub(crate) fn write(&self, db: &Connection) -> DbResult<()> {
        let buckets = std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner).buckets);
        let mut statement = db.prepare_cached(
            "INSERT INTO histogram (space, kind, name, bucket, count, total) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
             ON CONFLICT (space, kind, name, bucket)
                 DO UPDATE SET count = count + excluded.count, total = min(total + excluded.total, ?7)",
        )?;
        for ((space, kind, name, bucket), (count, total)) in buckets {
            // Far from where SQLite would make a sum a floating-point number.
            const TOTAL_MAX: i64 = i64::MAX / 4;
            let total = i64::try_from(total).unwrap_or(TOTAL_MAX).min(TOTAL_MAX);
            statement.execute(params![space, kind.as_str(), name, bucket, count, total, TOTAL_MAX])?;
        }
        Ok(())
    }

    /// What was written, by whichever process, and what this one has not written yet.
    pub(crate) fn list(&self, db: &Connection, scope: &Scope) -> DbResult<Vec<Measured>> {
        let mut statement =
            db.prepare_cached("SELECT kind, name, bucket, count, total FROM histogram WHERE space = ?1")?;
        let mut rows = statement.query(params![scope.space])?;
        let mut measured = Vec::new();
        while let Some(row) = rows.next()? {
            let kind: String = row.get(0)?;
            let Some(kind) = Kind::ALL.into_iter().find(|known| known.as_str() == kind) else { continue };
            let (name, bucket, count, total) = (row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?);
            measured.push(Measured { kind, name, bucket, count, total });
        }
        let pending = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for ((_, kind, name, bucket), (count, total)) in pending.buckets.iter().filter(|(key, _)| key.0 == scope.space)
        {
            match measured.iter_mut().find(|one| one.kind == *kind && one.name == *name && one.bucket == *bucket) {
                Some(one) => (one.count, one.total) = (one.count + count, one.total.saturating_add(*total)),
                None => {
                    let (kind, name, bucket, count, total) = (*kind, name.clone(), *bucket, *count, *total);
                    measured.push(Measured { kind, name, bucket, count, total });
                }
            }
        }
        Ok(measured)
    }
}

pub(crate) fn read(db: &Connection, scope: &Scope) -> DbResult<Stats> {
    let mut stats = db.query_row(
        "SELECT session_count, checkpoint_count, size_bytes, operation_seq,
             (SELECT count(*) FROM session WHERE space = ?1 AND archived_at_ms IS NOT NULL),
             (SELECT coalesce(sum(size_bytes), 0) FROM session WHERE space = ?1)
         FROM space WHERE space = ?1",
        params![scope.space],
        |row| {
            Ok(Stats {
                session_count: row.get(0)?,
                checkpoint_count: row.get(1)?,
                quota_used_bytes: row.get(2)?,
                operation_count: row.get(3)?,
                archived_session_count: row.get(4)?,
                stored_bytes: row.get(5)?,
                ..Stats::default()
            })
        },
    )?;
    let (count, raw_bytes): (u64, u64) = db.query_row(
        "SELECT count(*), coalesce(sum(raw_bytes), 0) FROM checkpoint WHERE space = ?1",
        params![scope.space],
        |row| Ok((row.get(0)?, row.get(1)?)),
    )?;
    stats.raw_bytes = raw_bytes;
    stats.archived_checkpoint_count = count.saturating_sub(stats.checkpoint_count);
    for tier in [Tier::Working, Tier::Stashed, Tier::Archive] {
        let (segment_count, tokens) = db
            .prepare_cached(
                "SELECT coalesce(sum(u.segment_count), 0), coalesce(sum(u.tokens), 0) FROM usage AS u
                 JOIN project AS p ON p.key = u.project WHERE p.space = ?1 AND u.tier = ?2",
            )?
            .query_row(params![scope.space, tier.as_str()], |row| Ok((row.get(0)?, row.get(1)?)))?;
        stats.tiers.push(TierStats { tier, segment_count, tokens });
    }
    stats.largest_sessions = largest(db, scope)?;
    Ok(stats)
}

fn largest(db: &Connection, scope: &Scope) -> DbResult<Vec<LargeSession>> {
    let mut statement = db.prepare_cached(concat!(
        "SELECT id, project, ",
        session_column!("s", "name", "s"),
        ", size_bytes, checkpoint_count FROM session AS s
         WHERE space = ?1 AND archived_at_ms IS NULL ORDER BY size_bytes DESC, key LIMIT ?2"
    ))?;
    let mut rows = statement.query(params![scope.space, LARGEST_MAX])?;
    let mut largest = Vec::new();
    while let Some(row) = rows.next()? {
        let (id, project): (String, String) = (row.get(0)?, row.get(1)?);
        largest.push(LargeSession {
            session_id: id.parse().map_err(|error| unreadable("a session's id", error))?,
            project_id: project.parse().map_err(|error| unreadable("a session's project", error))?,
            name: row.get(2)?,
            size_bytes: row.get(3)?,
            checkpoint_count: row.get(4)?,
        });
    }
    Ok(largest)
}
