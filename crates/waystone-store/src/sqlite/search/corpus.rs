//! Texts that are searched together, as they are held in memory: what each means, and where it stands.
//!
//! They are loaded when they are first searched, and then only what is new or has moved, whichever process did it. All of it follows from
//! what is in the database.

use std::collections::{HashMap, HashSet};

use rusqlite::{Connection, Row, params};
use waystone_core::api::Tier;
use waystone_core::meaning::{Frequencies, Piece, Vector, dots, norm, pieces};
use waystone_core::search::{EXACT, NEAREST, wanted};

use crate::sqlite::error::{DbResult, unreadable};
use crate::sqlite::segment::tier_of;

/// No place in a task before the first.
const NONE: u32 = u32::MAX;
/// What was made anew or removed is passed over, until there is more of it than of the rest, and this much.
const LEFT_OVER_MAX: usize = 1000;

/// In the order of their keys.
#[derive(Default)]
pub(super) struct Corpus {
    /// Which making of the index this is from.
    round: i64,
    /// Newest operation that was looked at for segments that moved.
    followed_seq: i64,
    pub(super) keys: Vec<i64>,
    pub(super) tiers: Vec<Tier>,
    vectors: Vec<Vector>,
    norms: Vec<f32>,
    /// The one before and after each in its task.
    before: Vec<u32>,
    after: Vec<u32>,
    newest_of_task: HashMap<i64, u32>,
    frequencies: Frequencies,
}

/// What was found by its words.
pub(super) struct ByWords {
    pub(super) places: Vec<(usize, f32)>,
    /// Not all texts with a word of the query were looked at.
    pub(super) is_cut: bool,
}

impl Corpus {
    /// Reads what was put into a project since, and what moved.
    pub(super) fn follow_segments(&mut self, db: &Connection, space: i64, project: i64) -> DbResult<()> {
        let newest = self.begin(db, space)?;
        if newest > self.followed_seq && !self.keys.is_empty() {
            let mut moved = db.prepare_cached(
                "SELECT s.key, s.tier FROM segment_change AS c JOIN segment AS s ON s.key = c.segment
                 WHERE c.space = ?1 AND c.operation > ?2 AND s.project = ?3",
            )?;
            let mut rows = moved.query(params![space, self.followed_seq, project])?;
            while let Some(row) = rows.next()? {
                if let Ok(place) = self.keys.binary_search(&row.get(0)?) {
                    self.tiers[place] = tier_of(row.get_ref(1)?.as_str().unwrap_or_default())?;
                }
            }
        }
        let new = db.prepare_cached(
            "SELECT s.key, coalesce(s.task, 0), s.tier, i.pieces FROM segment AS s
             JOIN segment_index AS i ON i.segment = s.key WHERE s.project = ?1 AND s.key > ?2 ORDER BY s.key",
        );
        self.read_new(new?.query(params![project, self.last_key()])?, |row| {
            Ok((row.get(0)?, row.get(1)?, tier_of(row.get_ref(2)?.as_str().unwrap_or_default())?))
        })?;
        self.followed_seq = self.followed_seq.max(newest);
        Ok(())
    }

    /// Reads what was indexed of sessions since. Each is a task of its own: none stands beside another.
    pub(super) fn follow_checkpoints(&mut self, db: &Connection, space: i64) -> DbResult<()> {
        self.begin(db, space)?;
        let count: usize =
            db.prepare_cached("SELECT count(*) FROM checkpoint_index")?.query_row([], |row| row.get(0))?;
        if self.keys.len() > 2 * count + LEFT_OVER_MAX {
            *self = Self { round: self.round, ..Self::default() };
        }
        let new = db.prepare_cached("SELECT key, session, pieces FROM checkpoint_index WHERE key > ?1 ORDER BY key");
        self.read_new(new?.query(params![self.last_key()])?, |row| Ok((row.get(0)?, row.get(1)?, Tier::Working)))
    }

    /// Forgets what was made anew. Returns the number of the newest operation.
    fn begin(&mut self, db: &Connection, space: i64) -> DbResult<i64> {
        let (round, newest) = db
            .prepare_cached(
                "SELECT i.round, s.operation_seq FROM search_index AS i JOIN space AS s ON s.space = i.space
                 WHERE i.space = ?1",
            )?
            .query_row(params![space], |row| Ok((row.get(0)?, row.get(1)?)))?;
        if self.round != round {
            *self = Self { round, ..Self::default() };
        }
        Ok(newest)
    }

    fn last_key(&self) -> i64 {
        self.keys.last().copied().unwrap_or(0)
    }

    /// Adds texts: key, task and tier as `read` has them, and in the last column the pieces.
    fn read_new(
        &mut self,
        mut rows: rusqlite::Rows<'_>,
        read: impl Fn(&Row<'_>) -> DbResult<(i64, i64, Tier)>,
    ) -> DbResult<()> {
        let mut new: Vec<((i64, i64, Tier), Vec<Piece>)> = Vec::new();
        while let Some(row) = rows.next()? {
            let bytes = row.get_ref("pieces")?.as_blob().map_err(|error| unreadable("a text's pieces", error))?;
            let pieces = bytes.chunks_exact(2).map(|pair| Piece::from_le_bytes([pair[0], pair[1]])).collect();
            new.push((read(row)?, pieces));
        }
        new.iter().for_each(|(_, pieces)| self.frequencies.add(pieces));
        for ((key, task, tier), pieces) in new {
            self.add(key, task, tier, &pieces);
        }
        Ok(())
    }

    fn add(&mut self, key: i64, task: i64, tier: Tier, pieces: &[Piece]) {
        let place = u32::try_from(self.keys.len()).unwrap_or(NONE);
        let before = self.newest_of_task.insert(task, place).unwrap_or(NONE);
        if let Some(after) = self.after.get_mut(before as usize) {
            *after = place;
        }
        let vector = self.frequencies.vector(pieces);
        self.keys.push(key);
        self.tiers.push(tier);
        self.norms.push(norm(&vector));
        self.vectors.push(vector);
        self.before.push(before);
        self.after.push(NONE);
    }

    /// The texts beside one in its task: one step away, and two.
    pub(super) fn beside(&self, place: usize) -> [[Option<usize>; 2]; 2] {
        let step = |list: &[u32], from: Option<usize>| {
            let to = *list.get(from?)?;
            (to != NONE).then_some(to as usize)
        };
        let (before, after) = (step(&self.before, Some(place)), step(&self.after, Some(place)));
        [[before, after], [step(&self.before, before), step(&self.after, after)]]
    }

    /// Which places have one of these keys.
    pub(super) fn places_of(&self, keys: &HashSet<i64>) -> Vec<bool> {
        self.keys.iter().map(|key| keys.contains(key)).collect()
    }

    /// What has words of the query in `table`, with a score for each.
    pub(super) fn by_words(&self, db: &Connection, table: &str, query: &str, allowed: &[bool]) -> DbResult<ByWords> {
        let wanted = wanted(query, |word| self.frequencies.of_word(word));
        let mut scores: HashMap<usize, f32> = HashMap::new();
        let sql = format!("SELECT rowid, -bm25({table}) FROM {table} WHERE {table} MATCH ?1");
        let mut statement = db.prepare_cached(&sql)?;
        for (terms, weight) in [(&wanted.words, 1.0), (&wanted.exact, EXACT)] {
            let Some(terms) = terms else { continue };
            let mut rows = statement.query(params![terms])?;
            while let Some(row) = rows.next()? {
                if let Ok(place) = self.keys.binary_search(&row.get(0)?)
                    && allowed[place]
                {
                    *scores.entry(place).or_default() += weight * row.get::<_, f64>(1)? as f32;
                }
            }
        }
        Ok(ByWords { places: scores.into_iter().collect(), is_cut: wanted.is_cut })
    }

    /// The nearest, and one more, which says how near the others are.
    pub(super) fn by_meaning(&self, query: &str, allowed: &[bool]) -> Vec<(usize, f32)> {
        let wanted = self.frequencies.vector(&pieces(query));
        let length = norm(&wanted);
        if length == 0.0 {
            return Vec::new();
        }
        let by_nearness = |a: &(usize, f32), b: &(usize, f32)| b.1.total_cmp(&a.1).then(b.0.cmp(&a.0));
        // Most are farther than the hundredth so far, and are passed over at once.
        let (mut best, mut least): (Vec<(usize, f32)>, f32) = (Vec::new(), f32::NEG_INFINITY);
        for (place, dot) in dots(&self.vectors, &wanted).into_iter().enumerate() {
            let near = dot as f32 / (self.norms[place] * length).max(1.0);
            if near < least || !allowed[place] {
                continue;
            }
            best.push((place, near));
            if best.len() == 4 * (NEAREST + 1) {
                best.select_nth_unstable_by(NEAREST, by_nearness);
                best.truncate(NEAREST + 1);
                least = best[NEAREST].1;
            }
        }
        best.sort_by(by_nearness);
        best.truncate(NEAREST + 1);
        best
    }
}
