//! Search in the stash: by words in the database's own index, by meaning in memory.
//!
//! What segments mean is kept as the pieces they consist of and held in memory as vectors, by project: loaded when it is first searched, and
//! then only what is new, whichever process wrote it. All of it follows from the texts.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::{Connection, params};
use waystone_core::api::{Segment, SegmentFilters};
use waystone_core::meaning::{Frequencies, Piece, Vector, dot, norm, pieces};
use waystone_core::search::{Found, NEAREST, join, wanted};
use waystone_core::store::{Scope, SegmentPage, SelectSegments};

use super::cursor;
use super::error::{DbResult, unreadable};
use super::segment::{FILTERS, bind, find_project, kept_projects, place_of, read_by_key};

/// As many of the nearest count as matches.
const NEAREST_COUNTED: usize = 50;
/// No place in a task before the first.
const NONE: u32 = u32::MAX;

/// What is held of every project that was searched.
#[derive(Default)]
pub(crate) struct Meanings(Mutex<HashMap<i64, Arc<Mutex<Meaning>>>>);

impl Meanings {
    fn of(&self, project: i64) -> Arc<Mutex<Meaning>> {
        Arc::clone(self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(project).or_default())
    }
}

/// The segments of a project, in their order.
#[derive(Default)]
struct Meaning {
    keys: Vec<i64>,
    vectors: Vec<Vector>,
    norms: Vec<f32>,
    /// The segment before and after each in its task.
    before: Vec<u32>,
    after: Vec<u32>,
    newest_of_task: HashMap<i64, u32>,
    frequencies: Frequencies,
}

impl Meaning {
    /// Reads what was put since.
    fn refresh(&mut self, db: &Connection, project: i64) -> DbResult<()> {
        let mut statement = db.prepare_cached(
            "SELECT s.key, coalesce(s.task, 0), i.pieces FROM segment AS s JOIN segment_index AS i ON i.segment = s.key
             WHERE s.project = ?1 AND s.key > ?2 ORDER BY s.key",
        )?;
        let mut rows = statement.query(params![project, self.keys.last().copied().unwrap_or(0)])?;
        let mut new: Vec<(i64, i64, Vec<Piece>)> = Vec::new();
        while let Some(row) = rows.next()? {
            let bytes = row.get_ref(2)?.as_blob().map_err(|error| unreadable("a segment's pieces", error))?;
            let read = bytes.chunks_exact(2).map(|pair| Piece::from_le_bytes([pair[0], pair[1]])).collect();
            new.push((row.get(0)?, row.get(1)?, read));
        }
        new.iter().for_each(|(.., pieces)| self.frequencies.add(pieces));
        for (key, task, pieces) in new {
            self.add(key, task, &pieces);
        }
        Ok(())
    }

    fn add(&mut self, key: i64, task: i64, pieces: &[Piece]) {
        let place = u32::try_from(self.keys.len()).unwrap_or(NONE);
        let before = self.newest_of_task.insert(task, place).unwrap_or(NONE);
        if let Some(after) = self.after.get_mut(before as usize) {
            *after = place;
        }
        let vector = self.frequencies.vector(pieces);
        self.keys.push(key);
        self.norms.push(norm(&vector));
        self.vectors.push(vector);
        self.before.push(before);
        self.after.push(NONE);
    }

    /// The segments beside one in its task: one step away, and two.
    fn beside(&self, place: usize) -> [[Option<usize>; 2]; 2] {
        let step = |list: &[u32], from: Option<usize>| {
            let to = *list.get(from?)?;
            (to != NONE).then_some(to as usize)
        };
        let (before, after) = (step(&self.before, Some(place)), step(&self.after, Some(place)));
        [[before, after], [step(&self.before, before), step(&self.after, after)]]
    }

    fn by_words(&self, db: &Connection, query: &str, allowed: &HashSet<i64>) -> DbResult<Vec<(usize, f32)>> {
        let Some(wanted) = wanted(query, |word| self.frequencies.of_word(word)) else { return Ok(Vec::new()) };
        let mut statement =
            db.prepare_cached("SELECT rowid, -bm25(segment_word) FROM segment_word WHERE segment_word MATCH ?1")?;
        let mut rows = statement.query(params![wanted])?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            let key: i64 = row.get(0)?;
            if let (true, Ok(place)) = (allowed.contains(&key), self.keys.binary_search(&key)) {
                found.push((place, row.get::<_, f64>(1)? as f32));
            }
        }
        Ok(found)
    }

    /// The nearest, and one more, which says how near the others are.
    fn by_meaning(&self, query: &str, allowed: &HashSet<i64>) -> Vec<(usize, f32)> {
        let wanted = self.frequencies.vector(&pieces(query));
        let length = norm(&wanted);
        if length == 0.0 {
            return Vec::new();
        }
        let near = |place: usize| dot(&self.vectors[place], &wanted) as f32 / (self.norms[place] * length).max(1.0);
        let places = (0..self.keys.len()).filter(|place| allowed.contains(&self.keys[*place]));
        let mut all: Vec<(usize, f32)> = places.map(|place| (place, near(place))).collect();
        let by_nearness = |a: &(usize, f32), b: &(usize, f32)| b.1.total_cmp(&a.1).then(b.0.cmp(&a.0));
        if all.len() > NEAREST + 1 {
            all.select_nth_unstable_by(NEAREST, by_nearness);
            all.truncate(NEAREST + 1);
        }
        all.sort_by(by_nearness);
        all
    }
}

/// What one project has, best first.
struct Hits {
    keys: Vec<(i64, Found)>,
    matches: u64,
}

fn search_project(
    db: &Connection,
    scope: &Scope,
    meanings: &Meanings,
    select: &SelectSegments,
    project: i64,
) -> DbResult<Hits> {
    let allowed = allowed(db, scope, select, project)?;
    let meaning = meanings.of(project);
    let mut meaning = meaning.lock().unwrap_or_else(PoisonError::into_inner);
    meaning.refresh(db, project)?;
    let words = meaning.by_words(db, &select.query, &allowed)?;
    let nearest = meaning.by_meaning(&select.query, &allowed);
    let mut matched: HashSet<usize> = words.iter().map(|(place, _)| *place).collect();
    matched.extend(nearest.iter().filter(|(_, near)| *near > 0.0).take(NEAREST_COUNTED).map(|(place, _)| *place));
    let found = join(&words, &nearest, |place| meaning.beside(place));
    let keys = found.into_iter().map(|found| (meaning.keys[found.place], found));
    Ok(Hits { keys: keys.filter(|(key, _)| allowed.contains(key)).collect(), matches: matched.len() as u64 })
}

/// The segments that pass the filters.
fn allowed(db: &Connection, scope: &Scope, select: &SelectSegments, project: i64) -> DbResult<HashSet<i64>> {
    let place = place_of(true, false, select.tiers);
    // Without filters the index alone answers.
    let sql = match select.filters == SegmentFilters::default() {
        true => format!("SELECT s.key FROM segment AS s WHERE {place}"),
        false => format!("SELECT s.key FROM segment AS s WHERE {place} AND {FILTERS}"),
    };
    let mut statement = db.prepare_cached(&sql)?;
    let mut rows = bind(&mut statement, scope, Some(project), None, &select.filters)?;
    let mut keys = HashSet::new();
    while let Some(row) = rows.next()? {
        keys.insert(row.get(0)?);
    }
    Ok(keys)
}

/// The best of one project, or of all with the own one first.
pub(crate) fn search(
    db: &Connection,
    scope: &Scope,
    meanings: &Meanings,
    select: &SelectSegments,
) -> DbResult<SegmentPage> {
    let skip = match &select.cursor {
        Some(_) => usize::try_from(cursor::read(select.cursor.as_deref())?).unwrap_or(usize::MAX),
        None => 0,
    };
    let own = find_project(db, scope, &select.first)?.map(|project| project.key);
    let projects = match &select.project {
        Some(id) => find_project(db, scope, id)?.map(|project| project.key).into_iter().collect(),
        None => kept_projects(db, scope)?,
    };
    let (mut hits, mut total) = (Vec::new(), 0);
    for project in projects {
        let found = search_project(db, scope, meanings, select, project)?;
        total += found.matches;
        hits.extend(found.keys.into_iter().map(|(key, found)| (Some(project) == own, key, found)));
    }
    hits.sort_by(|a, b| b.0.cmp(&a.0).then(b.2.score.total_cmp(&a.2.score)).then(b.1.cmp(&a.1)));
    let end = skip.saturating_add(select.limit as usize).min(hits.len());
    let mut page = SegmentPage { total, ..SegmentPage::default() };
    for (_, key, found) in hits.get(skip..end).unwrap_or_default() {
        page.segments.extend(read_by_key(db, *key, select.preview)?.map(|segment| Segment {
            score: Some(f64::from(found.score)),
            matched_by: Some(why(found)),
            ..segment
        }));
    }
    page.next_cursor = (end < hits.len()).then(|| cursor::write(end as i64));
    Ok(page)
}

fn why(found: &Found) -> &'static str {
    match (found.by_words, found.by_meaning) {
        (true, true) => "words and meaning",
        (true, false) => "words",
        (false, true) => "meaning",
        (false, false) => "beside a match",
    }
}
