//! Search by words, in the database's own index, and by meaning, in memory: in segments, and in what sessions last saved. What is held in
//! memory is in [`corpus`], how the index of sessions follows them in [`upkeep`], and what a turn can look back at in [`message`].

mod corpus;
mod message;
mod table;
mod upkeep;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::{Connection, params};
use waystone_core::api::{CheckpointPage, Hit, ListCheckpoints, Segment, SegmentFilters};
use waystone_core::clock::Timestamp;
use waystone_core::search::{Found, NEAR, Snippet, join, snippet, text_of_context};
use waystone_core::store::{Scope, SegmentPage, SelectSegments};

use super::checkpoint;
use super::cursor;
use super::error::DbResult;
use super::segment::{FILTERS, bind, find_project, kept_projects, own_of, place_of, read_by_key};
use corpus::Corpus;
pub(crate) use message::search_messages;
pub(crate) use table::{is_any_closed, is_any_damaged, is_of_words};
pub(crate) use upkeep::{
    begin_anew, follow, is_made, make_anew, mark_all_stale, read_pending, read_unindexed, write_indexed,
};

/// As many of the nearest count as matches.
const NEAREST_COUNTED: usize = 50;

/// What is held of every project that was searched, and of sessions.
#[derive(Default)]
pub(crate) struct Corpora {
    projects: Mutex<HashMap<i64, Arc<Mutex<Corpus>>>>,
    sessions: Mutex<Corpus>,
}

impl Corpora {
    fn of(&self, project: i64) -> Arc<Mutex<Corpus>> {
        Arc::clone(self.projects.lock().unwrap_or_else(PoisonError::into_inner).entry(project).or_default())
    }
}

/// What was found, best first, by key.
struct Hits {
    keys: Vec<(i64, Found)>,
    matches: u64,
    is_cut: bool,
}

fn look(db: &Connection, corpus: &Corpus, table: &str, query: &str, allowed: &[bool]) -> DbResult<Hits> {
    let words = corpus.by_words(db, table, query, allowed)?;
    let nearest = corpus.by_meaning(query, allowed);
    let mut matched = words.matches;
    matched.extend(nearest.iter().filter(|(_, near)| *near > NEAR).take(NEAREST_COUNTED).map(|(place, _)| *place));
    let found = join(&words.places, &nearest, |place| corpus.beside(place));
    let keys = found.into_iter().filter(|found| allowed[found.place]);
    let keys: Vec<_> = keys.map(|found| (corpus.keys[found.place], found)).collect();
    // What only stands beside a match is found, too.
    Ok(Hits { matches: matched.len().max(keys.len()) as u64, keys, is_cut: words.is_cut })
}

fn search_project(
    db: &Connection,
    scope: &Scope,
    corpora: &Corpora,
    select: &SelectSegments,
    project: i64,
) -> DbResult<Hits> {
    let corpus = corpora.of(project);
    let mut corpus = corpus.lock().unwrap_or_else(PoisonError::into_inner);
    corpus.follow_segments(db, scope.space, project)?;
    let mut allowed = match select.filters == SegmentFilters::default() {
        true => corpus.tiers.iter().map(|tier| select.tiers.contains(tier)).collect(),
        false => corpus.places_of(&allowed(db, scope, select, project)?),
    };
    let hidden = hidden(db, project)?;
    if !hidden.is_empty() {
        let hidden = corpus.places_of(&hidden);
        allowed.iter_mut().zip(hidden).for_each(|(allowed, is_hidden)| *allowed &= !is_hidden);
    }
    look(db, &corpus, "segment_word", &select.query, &allowed)
}

/// The messages of conversations that were deleted.
fn hidden(db: &Connection, project: i64) -> DbResult<HashSet<i64>> {
    let mut statement = db.prepare_cached(
        "SELECT s.key FROM session AS c JOIN conversation AS t ON t.session = c.key JOIN segment AS s ON s.conversation = c.key
         WHERE c.archived_at_ms IS NOT NULL AND s.project = ?1",
    )?;
    let keys = statement.query_map(params![project], |row| row.get(0))?;
    Ok(keys.collect::<Result<_, _>>()?)
}

/// The segments that pass the filters.
fn allowed(db: &Connection, scope: &Scope, select: &SelectSegments, project: i64) -> DbResult<HashSet<i64>> {
    // Messages of conversations are found too.
    let sql = format!(
        "SELECT s.key FROM segment AS s WHERE s.project = :project AND {} AND {FILTERS}",
        place_of(false, false, select.tiers)
    );
    let mut statement = db.prepare_cached(&sql)?;
    let mut rows = bind(&mut statement, scope, Some(project), None, &select.filters)?;
    let mut keys = HashSet::new();
    while let Some(row) = rows.next()? {
        keys.insert(row.get(0)?);
    }
    Ok(keys)
}

/// The best of one project, or of all with the own one first.
pub(crate) fn search_segments(
    db: &Connection,
    scope: &Scope,
    corpora: &Corpora,
    select: &SelectSegments,
) -> DbResult<SegmentPage> {
    let skip = match &select.cursor {
        Some(_) => usize::try_from(cursor::read(select.cursor.as_deref())?).unwrap_or(usize::MAX),
        None => 0,
    };
    let own = own_of(db, scope, select)?;
    let projects = match &select.project {
        Some(id) => find_project(db, scope, id)?.map(|project| project.key).into_iter().collect(),
        None => kept_projects(db, scope)?,
    };
    let (mut hits, mut page) = (Vec::new(), SegmentPage::default());
    for project in projects {
        let mut found = search_project(db, scope, corpora, select, project)?;
        if let Some(fits) = select.fits {
            let best = found.keys.first().map_or(0.0, |(_, best)| best.score);
            found.keys.retain(|(_, found)| fits(found, best));
            found.matches = found.keys.len() as u64;
        }
        page.total += found.matches;
        page.total_is_lower_bound |= found.is_cut;
        // What is near in meaning alone is not worth more for being one's own.
        hits.extend(found.keys.into_iter().map(|(key, found)| (Some(project) == own && found.by_words, key, found)));
    }
    hits.sort_by(|a, b| b.0.cmp(&a.0).then(b.2.score.total_cmp(&a.2.score)).then(b.1.cmp(&a.1)));
    let end = skip.saturating_add(select.limit as usize).min(hits.len());
    for (_, key, found) in hits.get(skip..end).unwrap_or_default() {
        let read = read_by_key(db, *key, select.preview, |text| snippet(text, &select.query))?;
        let Some((segment, snippet)) = read else { continue };
        let hit = Some(hit(found, snippet, segment.created_at, select.now));
        page.segments.push(Segment { hit, ..segment });
    }
    page.next_cursor = (end < hits.len()).then(|| cursor::write(end as i64));
    Ok(page)
}

/// The sessions whose newest checkpoints fit best.
pub(crate) fn search_checkpoints(
    db: &Connection,
    scope: &Scope,
    corpora: &Corpora,
    filter: &ListCheckpoints,
    now: Timestamp,
) -> DbResult<CheckpointPage> {
    let query = filter.query.as_deref().unwrap_or_default();
    let mut corpus = corpora.sessions.lock().unwrap_or_else(PoisonError::into_inner);
    corpus.follow_checkpoints(db, scope.space)?;
    let indexed = checkpoint::list_indexed(db, scope, filter)?;
    let allowed = corpus.places_of(&indexed.keys().copied().collect());
    let hits = look(db, &corpus, "checkpoint_word", query, &allowed)?;
    drop(corpus);
    let skip = match &filter.cursor {
        Some(_) => usize::try_from(cursor::read(filter.cursor.as_deref())?).unwrap_or(usize::MAX),
        None => filter.offset as usize,
    };
    let end = skip.saturating_add(filter.limit as usize).min(hits.keys.len());
    let has_more = end < hits.keys.len();
    let next_cursor = has_more.then(|| cursor::write(end as i64));
    let mut page = CheckpointPage { total: hits.matches, has_more, next_cursor, ..CheckpointPage::default() };
    let is_behind = upkeep::is_behind(db, scope.space)?;
    page.warnings
        .extend(is_behind.then(|| "what was saved a moment ago is found as it is in a few seconds".to_owned()));
    for (key, found) in hits.keys.get(skip..end).unwrap_or_default() {
        let Some(checkpoint) = indexed.get(key) else { continue };
        let (mut row, text) = checkpoint::find_with_text(db, *checkpoint)?;
        let text = text.map(|raw| text_of_context(&raw)).unwrap_or_default();
        // The lines of what is indexed of a context are not its own.
        row.hit = Some(Hit { line: None, ..hit(found, snippet(&text, query), row.created_at, now) });
        page.checkpoints.push(row);
    }
    Ok(page)
}

/// Makes some of the index anew, or begins to. Returns how many texts are left.
pub(crate) fn reindex(db: &Connection, is_beginning: bool, at: Timestamp) -> DbResult<u64> {
    if is_beginning {
        begin_anew(db, true)?;
        return Ok(upkeep::count_segments(db)? + upkeep::count_stale(db)?);
    }
    let segments = make_anew(db)?;
    if segments == 0 {
        write_indexed(db, &read_pending(db, None)?, at)?;
    }
    Ok(segments + upkeep::count_stale(db)?)
}

fn hit(found: &Found, snippet: Snippet, since: Timestamp, now: Timestamp) -> Hit {
    let why = match (found.by_words, found.by_meaning) {
        (true, true) => "words and meaning",
        (true, false) => "words",
        (false, true) => "meaning",
        (false, false) => Hit::BESIDE,
    };
    Hit { score: f64::from(found.score), why, snippet: snippet.text, line: Some(snippet.line), age: now.age_of(since) }
}
