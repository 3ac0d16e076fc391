//! Texts that are searched together, as they are held in memory: what each means, and where it stands.
//!
//! They are loaded when they are first searched, and then only what is new or has moved, whichever process did it. All of it follows from
//! what is in the database.

use std::collections::{HashMap, HashSet};

use rusqlite::{CachedStatement, Connection, Row, ToSql, params, params_from_iter};
use waystone_core::api::Tier;
use waystone_core::meaning::{Frequencies, Piece, Vector, dots, norm, pieces};
use waystone_core::search::{EXACT, NEAREST, Wanted, indexed, searched_message, text_of_context, wanted};

use crate::sqlite::checkpoint::find_with_text;
use crate::sqlite::connection::open_empty;
use crate::sqlite::error::{DbResult, unreadable};
use crate::sqlite::message::read_parts;
use crate::sqlite::seal::{SEGMENT_CALLS, SEGMENT_TEXT, is_sealed};
use crate::sqlite::segment::tier_of;

/// No place in a task before the first.
const NONE: u32 = u32::MAX;
/// What was made anew or removed is passed over, until there is more of it than of the rest, and this much.
const LEFT_OVER_MAX: usize = 1000;

/// So many are compared at once.
const BLOCK: usize = 256;
/// So many are scored in full by their words.
const PROMISING: usize = 500;
/// How the index itself scores words (BM25): how soon one more of the same counts no more, how much a long text counts less, and what a word
/// counts that most texts have.
const SATURATION: f32 = 1.2;
const LENGTH_SHARE: f32 = 0.75;
const WEIGHT_MIN: f32 = 1e-6;

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
    /// In pieces.
    lengths: Vec<u16>,
    lengths_sum: u64,
    /// The one before and after each in its task.
    before: Vec<u32>,
    after: Vec<u32>,
    newest_of_task: HashMap<i64, u32>,
    frequencies: Frequencies,
    /// The index of words, where the store is sealed: nothing of it is on the disk.
    words: Option<Connection>,
}

/// What was found by its words.
pub(super) struct ByWords {
    /// The best, with a score for each.
    pub(super) places: Vec<(usize, f32)>,
    /// All of them.
    pub(super) matches: HashSet<usize>,
    /// Not all texts with a word of the query were looked at.
    pub(super) is_cut: bool,
}

/// Finds places of keys that come in order.
struct Places<'a> {
    keys: &'a [i64],
    /// Where the last one was found, or would be.
    at: usize,
}

impl<'a> Places<'a> {
    fn of(keys: &'a [i64]) -> Self {
        Self { keys, at: 0 }
    }

    fn find(&mut self, key: i64) -> Option<usize> {
        // Where keys have no gaps, it is as many places further as its key is larger. It cannot be beyond that.
        let ahead = usize::try_from(key - self.keys.get(self.at)?).ok()?;
        let last = self.at.saturating_add(ahead).min(self.keys.len() - 1);
        if self.keys[last] == key {
            self.at = last;
            return Some(last);
        }
        self.at += self.keys[self.at..last].partition_point(|other| *other < key);
        (self.keys[self.at] == key).then_some(self.at)
    }
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
        let place = |row: &Row<'_>| -> DbResult<(i64, i64, Tier)> {
            Ok((row.get(0)?, row.get(1)?, tier_of(row.get_ref(2)?.as_str().unwrap_or_default())?))
        };
        let from = [project, self.last_key()];
        if is_sealed(db)? {
            let mut new = db.prepare_cached(&format!(
                "SELECT s.key, coalesce(s.task, 0), s.tier, {SEGMENT_TEXT}, {SEGMENT_CALLS} FROM segment AS s
                 JOIN segment_text AS x ON x.segment = s.key WHERE s.project = ?1 AND s.key > ?2 ORDER BY s.key"
            ))?;
            let text = |row: &Row<'_>| {
                let calls = read_parts(row.get(4)?)?;
                Ok(searched_message(row.get_ref(3)?.as_str().unwrap_or_default(), &calls).into_owned())
            };
            self.read_texts(&mut new, &from, "segment_word", place, text)?;
        } else {
            let mut new = db.prepare_cached(
                "SELECT s.key, coalesce(s.task, 0), s.tier, i.pieces FROM segment AS s
                 JOIN segment_index AS i ON i.segment = s.key WHERE s.project = ?1 AND s.key > ?2 ORDER BY s.key",
            )?;
            self.read_new(&mut new, &from, place)?;
        }
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
        let mut new = db.prepare_cached(
            "SELECT key, session, pieces, checkpoint FROM checkpoint_index WHERE key > ?1 ORDER BY key",
        )?;
        let place = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?, Tier::Working));
        if !is_sealed(db)? {
            return self.read_new(&mut new, &[self.last_key()], place);
        }
        let text = |row: &Row<'_>| match row.get(3)? {
            Some(key) => Ok(find_with_text(db, key)?.1.map(|raw| text_of_context(&raw)).unwrap_or_default()),
            None => Ok(String::new()),
        };
        self.read_texts(&mut new, &[self.last_key()], "checkpoint_word", place, text)
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

    /// Adds texts: key, task and tier as `read` has them, and in the column of that name the pieces. They are read twice, since how rare
    /// each piece is must be known before the first vector, and all of them together would take much memory.
    fn read_new(
        &mut self,
        statement: &mut CachedStatement<'_>,
        from: &[i64],
        read: impl Fn(&Row<'_>) -> DbResult<(i64, i64, Tier)>,
    ) -> DbResult<()> {
        let mut rows = statement.query(params_from_iter(from))?;
        while let Some(row) = rows.next()? {
            self.frequencies.add(&read_pieces(row)?);
        }
        drop(rows);
        let mut rows = statement.query(params_from_iter(from))?;
        while let Some(row) = rows.next()? {
            let (key, task, tier) = read(row)?;
            self.add(key, task, tier, &read_pieces(row)?);
        }
        Ok(())
    }

    /// Adds texts of a sealed store, with an index of their words.
    fn read_texts(
        &mut self,
        statement: &mut CachedStatement<'_>,
        from: &[i64],
        table: &str,
        read: impl Fn(&Row<'_>) -> DbResult<(i64, i64, Tier)>,
        text: impl Fn(&Row<'_>) -> DbResult<String>,
    ) -> DbResult<()> {
        if self.words.is_none() {
            let words = open_empty()?;
            words.execute_batch(&format!(
                "CREATE VIRTUAL TABLE {table} USING fts5(text, content = '', contentless_delete = 1, tokenize = 'porter unicode61')"
            ))?;
            self.words = Some(words);
        }
        let (mut rows, mut new) = (statement.query(params_from_iter(from))?, Vec::new());
        let insert = format!("INSERT OR REPLACE INTO {table} (rowid, text) VALUES (?1, ?2)");
        while let Some(row) = rows.next()? {
            let ((key, task, tier), text) = (read(row)?, text(row)?);
            if let Some(words) = &self.words {
                words.prepare_cached(&insert)?.execute(params![key, indexed(&text)])?;
            }
            new.push((key, task, tier, pieces(&text)));
        }
        new.iter().for_each(|(.., pieces)| self.frequencies.add(pieces));
        new.into_iter().for_each(|(key, task, tier, pieces)| self.add(key, task, tier, &pieces));
        Ok(())
    }

    fn add(&mut self, key: i64, task: i64, tier: Tier, pieces: &[Piece]) {
        let place = u32::try_from(self.keys.len()).unwrap_or(NONE);
        let before = self.newest_of_task.insert(task, place).unwrap_or(NONE);
        if let Some(after) = self.after.get_mut(before as usize) {
            *after = place;
        }
        let vector = self.frequencies.vector(pieces);
        let length = u16::try_from(pieces.len()).unwrap_or(u16::MAX);
        self.lengths.push(length);
        self.lengths_sum += u64::from(length);
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

    /// What has words of the query in `table`, with a score for each. Words that very many texts have are looked for only if nothing has
    /// another one.
    pub(super) fn by_words(&self, db: &Connection, table: &str, query: &str, allowed: &[bool]) -> DbResult<ByWords> {
        let db = self.words.as_ref().unwrap_or(db);
        let mut wanted = wanted(query, |word| self.frequencies.of_word(word));
        let found = self.by_wanted(db, table, &wanted, allowed)?;
        match wanted.common.take() {
            Some(common) if found.places.is_empty() => {
                let only = Wanted { words: Some(common), is_cut: true, ..Wanted::default() };
                self.by_wanted(db, table, &only, allowed)
            }
            _ => Ok(found),
        }
    }

    fn by_wanted(&self, db: &Connection, table: &str, wanted: &Wanted, allowed: &[bool]) -> DbResult<ByWords> {
        let (mut filter, mut matches) = ("", None);
        let mut promising = String::new();
        if self.keys.len() > PROMISING {
            let rough = self.by_words_roughly(db, table, wanted, allowed)?;
            matches = Some(rough.iter().map(|(place, _)| *place).collect());
            promising = self.keys_of_best(rough);
            // The plus keeps the index from being asked for them one by one.
            filter = "AND +rowid IN (SELECT value FROM json_each(?2))";
        }
        let sql = format!("SELECT rowid, -bm25({table}) FROM {table} WHERE {table} MATCH ?1 {filter} ORDER BY rowid");
        let mut statement = db.prepare_cached(&sql)?;
        let mut scores: HashMap<usize, f32> = HashMap::new();
        for (terms, weight) in [(&wanted.words, 1.0), (&wanted.exact, EXACT)] {
            let Some(terms) = terms else { continue };
            let given: [&dyn ToSql; 2] = [terms, &promising];
            let mut rows = statement.query(&given[..if filter.is_empty() { 1 } else { 2 }])?;
            let mut places = Places::of(&self.keys);
            while let Some(row) = rows.next()? {
                if let Some(place) = places.find(row.get(0)?)
                    && allowed[place]
                {
                    *scores.entry(place).or_default() += weight * row.get::<_, f64>(1)? as f32;
                }
            }
        }
        let matches = matches.unwrap_or_else(|| scores.keys().copied().collect());
        Ok(ByWords { places: scores.into_iter().collect(), matches, is_cut: wanted.is_cut })
    }

    /// The same, as if a text had each of its words once. How often it has them and how long it is takes the index most of its time, so
    /// that is asked for those alone which score high here.
    fn by_words_roughly(
        &self,
        db: &Connection,
        table: &str,
        wanted: &Wanted,
        allowed: &[bool],
    ) -> DbResult<Vec<(usize, f32)>> {
        let sql = format!("SELECT rowid FROM {table} WHERE {table} MATCH ?1 ORDER BY rowid");
        let mut statement = db.prepare_cached(&sql)?;
        let texts = self.keys.len() as f32;
        let average = self.lengths_sum as f32 / texts;
        let (mut scores, mut found) = (vec![0f32; self.keys.len()], Vec::new());
        for word in wanted.each_word() {
            let (mut having, mut places) = (Vec::new(), Places::of(&self.keys));
            let mut rows = statement.query(params![word])?;
            while let Some(row) = rows.next()? {
                having.extend(places.find(row.get(0)?));
            }
            let count = having.len() as f32;
            let weight = ((texts - count + 0.5) / (count + 0.5)).ln().max(WEIGHT_MIN);
            for place in having.into_iter().filter(|place| allowed[*place]) {
                if scores[place] == 0.0 {
                    found.push(place);
                }
                let length = f32::from(self.lengths[place]) / average;
                scores[place] += weight / (1.0 + SATURATION * (1.0 - LENGTH_SHARE + LENGTH_SHARE * length));
            }
        }
        Ok(found.into_iter().map(|place| (place, scores[place])).collect())
    }

    /// As a JSON array.
    fn keys_of_best(&self, mut scores: Vec<(usize, f32)>) -> String {
        if scores.len() > PROMISING {
            scores.select_nth_unstable_by(PROMISING, |a, b| b.1.total_cmp(&a.1).then(b.0.cmp(&a.0)));
            scores.truncate(PROMISING);
        }
        let keys: Vec<String> = scores.into_iter().map(|(place, _)| self.keys[place].to_string()).collect();
        format!("[{}]", keys.join(","))
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
        for (first, allowed) in (0..).step_by(BLOCK).zip(allowed.chunks(BLOCK)) {
            // What is put together is mostly moved together too.
            if !allowed.contains(&true) {
                continue;
            }
            let block = first..first + allowed.len();
            let dots = dots(&self.vectors[block.clone()], &wanted);
            for ((place, dot), is_allowed) in block.zip(dots).zip(allowed) {
                let near = dot as f32 / (self.norms[place] * length).max(1.0);
                if near < least || !is_allowed {
                    continue;
                }
                best.push((place, near));
                if best.len() == 4 * (NEAREST + 1) {
                    best.select_nth_unstable_by(NEAREST, by_nearness);
                    best.truncate(NEAREST + 1);
                    least = best[NEAREST].1;
                }
            }
        }
        best.sort_by(by_nearness);
        best.truncate(NEAREST + 1);
        best
    }
}

fn read_pieces(row: &Row<'_>) -> DbResult<Vec<Piece>> {
    let bytes = row.get_ref("pieces")?.as_blob().map_err(|error| unreadable("a text's pieces", error))?;
    Ok(bytes.chunks_exact(2).map(|pair| Piece::from_le_bytes([pair[0], pair[1]])).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::connection::open_empty;

    #[test]
    fn places_are_found_in_order_with_gaps_and_without() {
        let check = |keys: &[i64], looked_for: &[i64], expected: &[Option<usize>]| {
            let mut places = Places::of(keys);
            let found: Vec<Option<usize>> = looked_for.iter().map(|key| places.find(*key)).collect();
            assert_eq!(found, expected, "{looked_for:?} in {keys:?}");
        };
        check(&[5, 6, 7, 8], &[5, 7, 8], &[Some(0), Some(2), Some(3)]);
        check(&[2, 3, 10, 11, 40], &[1, 3, 5, 11, 12, 40, 41], &[None, Some(1), None, Some(3), None, Some(4), None]);
        check(&[7], &[1, 7, i64::MAX], &[None, Some(0), None]);
        check(&[], &[1], &[None]);
    }

    /// Texts in an index, and as they are held in memory.
    fn index(texts: &[String]) -> (Connection, Corpus) {
        let db = open_empty().unwrap();
        db.execute_batch("CREATE VIRTUAL TABLE word USING fts5(text, content = '', tokenize = 'porter unicode61')")
            .unwrap();
        let mut corpus = Corpus::default();
        let all: Vec<Vec<Piece>> = texts.iter().map(|text| pieces(text)).collect();
        all.iter().for_each(|pieces| corpus.frequencies.add(pieces));
        for ((text, pieces), key) in texts.iter().zip(&all).zip(1i64..) {
            db.execute("INSERT INTO word (rowid, text) VALUES (?1, ?2)", params![key, text]).unwrap();
            corpus.add(key, 1, Tier::Stashed, pieces);
        }
        (db, corpus)
    }

    #[test]
    fn common_words_are_looked_for_when_nothing_has_another_one() {
        let texts: Vec<String> =
            (0..5100).map(|n| format!("alpha {}", if n % 2 == 0 { "even" } else { "odd" })).collect();
        let (db, corpus) = index(&texts);
        let allowed = vec![true; texts.len()];
        let found = |query: &str| corpus.by_words(&db, "word", query, &allowed).unwrap();
        assert_eq!(found("alpha kangaroo").matches.len(), 5100);
        assert!(found("alpha kangaroo").is_cut);
        assert_eq!((found("alpha odd").matches.len(), found("odd").is_cut), (2550, false));
        assert_eq!(found("kangaroo").matches.len(), 0);
    }

    #[test]
    fn of_many_texts_the_best_are_scored_as_if_all_were() {
        let text = |n: usize| {
            format!(
                "the ledger {} {}",
                if n.is_multiple_of(3) { "balance" } else { "account" },
                "filler ".repeat(n % 50)
            )
        };
        let texts: Vec<String> = (1..=4 * PROMISING).map(text).collect();
        let (db, corpus) = index(&texts);
        let found = corpus.by_words(&db, "word", "ledger balance", &vec![true; texts.len()]).unwrap();
        assert_eq!((found.matches.len(), found.places.len(), found.is_cut), (texts.len(), PROMISING, false));
        let sql =
            "SELECT rowid - 1, -bm25(word) FROM word WHERE word MATCH 'ledger OR balance' ORDER BY 2 DESC LIMIT 20";
        let mut statement = db.prepare(sql).unwrap();
        let best = statement.query_map([], |row| Ok((row.get::<_, usize>(0)?, row.get::<_, f64>(1)? as f32))).unwrap();
        for best in best.map(Result::unwrap) {
            assert!(found.places.contains(&best), "{best:?}");
        }
    }
}
