//! Search as the store does it, in steps that can be taken one without the other. What decides the order is the product's own code in
//! `waystone-core`; what is written anew here are the steps of `waystone-store/src/sqlite/search.rs` and `search/corpus.rs` around it.
//! The store scores only the most promising in full by their words; here all are, which differs in the third digit at most.

use std::collections::HashMap;

use anyhow::Context;
use rusqlite::{Connection, params};
use waystone_core::meaning::{Frequencies, Piece, Vector, dots, norm, pieces};
use waystone_core::search::{EXACT, Found, NEAREST, indexed, join, wanted};

/// Where the index of words is made.
const SCHEMA: &str = include_str!("../../../../crates/waystone-store/migrations/sqlite/0004_segment.sql");

/// Texts that are being put in.
pub(super) struct Index {
    db: Connection,
    place_of: HashMap<String, usize>,
    tasks: HashMap<String, Vec<usize>>,
    texts: Vec<Vec<Piece>>,
}

impl Index {
    pub(super) fn new() -> anyhow::Result<Self> {
        let start = SCHEMA.find("CREATE VIRTUAL TABLE segment_word").context("the schema has no index of words")?;
        let end = SCHEMA[start..].find(';').context("the index of words does not end")?;
        let db = Connection::open_in_memory()?;
        db.execute_batch(&SCHEMA[start..start + end])?;
        Ok(Self { db, place_of: HashMap::new(), tasks: HashMap::new(), texts: Vec::new() })
    }

    /// Returns the place of a text. One that is known stays where it is.
    pub(super) fn add(&mut self, task: &str, text: &str) -> anyhow::Result<usize> {
        if let Some(place) = self.place_of.get(text) {
            return Ok(*place);
        }
        let place = self.texts.len();
        let mut insert = self.db.prepare_cached("INSERT INTO segment_word (rowid, text) VALUES (?1, ?2)")?;
        insert.execute(params![rowid_of(place), indexed(text)])?;
        self.place_of.insert(text.to_owned(), place);
        self.tasks.entry(task.to_owned()).or_default().push(place);
        self.texts.push(pieces(text));
        Ok(place)
    }

    /// All texts are counted before the first is weighed.
    pub(super) fn finish(self) -> Searchable {
        let mut frequencies = Frequencies::default();
        self.texts.iter().for_each(|pieces| frequencies.add(pieces));
        let vectors: Vec<Vector> = self.texts.iter().map(|pieces| frequencies.vector(pieces)).collect();
        let mut beside = vec![[[None; 2]; 2]; vectors.len()];
        for places in self.tasks.values() {
            for (at, place) in places.iter().enumerate() {
                let before = |steps: usize| at.checked_sub(steps).map(|at| places[at]);
                let after = |steps: usize| places.get(at + steps).copied();
                beside[*place] = [1, 2].map(|steps| [before(steps), after(steps)]);
            }
        }
        Searchable { db: self.db, frequencies, vectors, beside }
    }
}

pub(super) struct Searchable {
    db: Connection,
    frequencies: Frequencies,
    vectors: Vec<Vector>,
    /// Of each: the texts one step away in its task, and two.
    beside: Vec<[[Option<usize>; 2]; 2]>,
}

impl Searchable {
    pub(super) fn by_words(&self, query: &str) -> anyhow::Result<Vec<(usize, f32)>> {
        let wanted = wanted(query, |word| self.frequencies.of_word(word));
        let mut scores: HashMap<usize, f32> = HashMap::new();
        let sql = "SELECT rowid, -bm25(segment_word) FROM segment_word WHERE segment_word MATCH ?1";
        let mut statement = self.db.prepare_cached(sql)?;
        for (terms, weight) in [(&wanted.words, 1.0), (&wanted.exact, EXACT)] {
            let Some(terms) = terms else { continue };
            let mut rows = statement.query(params![terms])?;
            while let Some(row) = rows.next()? {
                let place = usize::try_from(row.get::<_, i64>(0)?)? - 1;
                *scores.entry(place).or_default() += weight * row.get::<_, f64>(1)? as f32;
            }
        }
        Ok(scores.into_iter().collect())
    }

    /// The nearest, and one more, which says how near the others are.
    pub(super) fn by_meaning(&self, query: &str) -> Vec<(usize, f32)> {
        let wanted = self.frequencies.vector(&pieces(query));
        let length = norm(&wanted);
        if length == 0.0 {
            return Vec::new();
        }
        let dots = dots(&self.vectors, &wanted).into_iter().zip(&self.vectors).enumerate();
        let mut all: Vec<(usize, f32)> =
            dots.map(|(place, (dot, vector))| (place, dot as f32 / (norm(vector) * length).max(1.0))).collect();
        all.sort_by(|a, b| b.1.total_cmp(&a.1).then(b.0.cmp(&a.0)));
        all.truncate(NEAREST + 1);
        all
    }

    pub(super) fn join(&self, words: &[(usize, f32)], nearest: &[(usize, f32)]) -> Vec<Found> {
        join(words, nearest, |place| self.beside[place])
    }
}

/// Rows are numbered from one on.
fn rowid_of(place: usize) -> i64 {
    place as i64 + 1
}
