//! Lists of segments.

use rusqlite::{CachedStatement, Connection, Rows, ToSql, params};
use waystone_core::api::{SegmentFilters, Tier};
use waystone_core::id::TaskId;
use waystone_core::store::{Scope, SegmentPage, SelectSegments, WhichTask};

use super::{COLUMNS, FROM, ProjectRow, Within, find_project, read, resolve, task_id};
use crate::sqlite::cursor;
use crate::sqlite::error::DbResult;
use crate::sqlite::seal::segment_column;

/// The filters, as text that is always the same: what was not given is NULL and lets everything pass.
pub(crate) const FILTERS: &str = concat!(
    "
    s.space = :space
    AND (:task IS NULL OR s.task = :task)
    AND (:task_id IS NULL OR s.task IN (SELECT key FROM task WHERE id = :task_id))
    AND (:file IS NULL OR s.file_path =
         (SELECT sealed_alike(:file, 'file_path', 'project:' || id, wrapped_key) FROM project WHERE key = s.project))
    AND (:type IS NULL OR s.type = :type)
    AND (:after IS NULL OR s.created_at_ms >= :after)
    AND (:before IS NULL OR s.created_at_ms < :before)
    AND NOT EXISTS (SELECT 1 FROM json_each(:tags) AS wanted
                    WHERE wanted.value NOT IN (SELECT value FROM json_each(",
    segment_column!("s", "tags"),
    ")))"
);

/// Runs a statement that has [`FILTERS`] and `:project`.
pub(crate) fn bind<'a>(
    statement: &'a mut CachedStatement<'_>,
    scope: &Scope,
    project: Option<i64>,
    task: Option<i64>,
    filters: &SegmentFilters,
) -> DbResult<Rows<'a>> {
    let tags = serde_json::json!(filters.tags).to_string();
    let (task_id, kind) = (filters.task_id.as_ref().map(|id| id.as_str()), filters.kind.map(|kind| kind.as_str()));
    let (after, before) = (filters.created_after.map(|at| at.ms()), filters.created_before.map(|at| at.ms()));
    let values: [(&str, &dyn ToSql); 9] = [
        (":space", &scope.space),
        (":project", &project),
        (":task", &task),
        (":task_id", &task_id),
        (":file", &filters.file_path),
        (":type", &kind),
        (":after", &after),
        (":before", &before),
        (":tags", &tags),
    ];
    for (name, value) in values {
        if let Some(index) = statement.parameter_index(name)? {
            statement.raw_bind_parameter(index, value)?;
        }
    }
    Ok(statement.raw_query())
}

/// What all segments of a list are in.
struct Place {
    project: Option<ProjectRow>,
    within: Within,
}

pub(crate) fn list(db: &Connection, scope: &Scope, select: &SelectSegments) -> DbResult<SegmentPage> {
    cursor::read(select.cursor.as_deref())?;
    let Some(place) = find_place(db, scope, select)? else {
        // Of a task that no one has used yet.
        return Ok(SegmentPage { task: named(select).cloned(), ..SegmentPage::default() });
    };
    // With all projects the own one comes first: its numbers are raised above all others.
    let own = match &place.project {
        Some(_) => None,
        None => own_of(db, scope, select)?,
    };
    let mut page = read_page(db, scope, select, &place, own)?;
    (page.total, page.tokens) = count(db, scope, select, &place)?;
    page.task = task_id(db, place.within.task())?;
    page.changed = match (&place.project, place.within.task()) {
        (_, Some(task)) => Some(changed(db, task)?),
        (Some(project), None) => Some(project.changed),
        (None, None) => None,
    };
    Ok(page)
}

/// The project that comes before all others.
pub(crate) fn own_of(db: &Connection, scope: &Scope, select: &SelectSegments) -> DbResult<Option<i64>> {
    let Some(id) = &select.first else { return Ok(None) };
    Ok(find_project(db, scope, id)?.map(|project| project.key))
}

fn find_place(db: &Connection, scope: &Scope, select: &SelectSegments) -> DbResult<Option<Place>> {
    let Some(id) = &select.project else {
        return Ok(Some(Place { project: None, within: Within::Project }));
    };
    let Some(project) = find_project(db, scope, id)? else { return Ok(None) };
    let named = named(select).cloned().map(WhichTask::Named);
    let within = resolve(db, &project, named.as_ref().unwrap_or(&select.task))?;
    Ok(if let Within::Nothing = within { None } else { Some(Place { project: Some(project), within }) })
}

/// The task that is asked for by its id.
fn named(select: &SelectSegments) -> Option<&TaskId> {
    select.filters.task_id.as_ref().or(match &select.task {
        WhichTask::Named(id) => Some(id),
        WhichTask::Any | WhichTask::Current => None,
    })
}

fn changed(db: &Connection, task: i64) -> DbResult<waystone_core::clock::Timestamp> {
    Ok(db
        .prepare_cached("SELECT changed_at_ms FROM task WHERE key = ?1")?
        .query_row(params![task], |row| row.get(0).map(waystone_core::clock::Timestamp::from_ms))?)
}

/// Raises the numbers of one project above those of all others.
const OWN_FIRST: i64 = 1 << 62;

/// One page.
fn read_page(
    db: &Connection,
    scope: &Scope,
    select: &SelectSegments,
    place: &Place,
    own: Option<i64>,
) -> DbResult<SegmentPage> {
    let order = if own.is_some() { "(s.seq + iif(s.project = :own, :raise, 0))" } else { "s.seq" };
    let (end, direction) = if select.is_ascending { (">", "ASC") } else { ("<", "DESC") };
    let sql = format!(
        "SELECT {COLUMNS}, {order} {FROM} WHERE {} AND {order} {end} :cursor AND {FILTERS}
         ORDER BY {order} {direction} LIMIT :limit",
        within(select, place)
    );
    let start = match (&select.cursor, select.is_ascending) {
        (None, true) => 0,
        (given, _) => cursor::read(given.as_deref())?,
    };
    let limit = i64::from(select.limit) + 1;
    let mut statement = db.prepare_cached(&sql)?;
    for (name, value) in [(":own", own), (":raise", Some(OWN_FIRST)), (":cursor", Some(start)), (":limit", Some(limit))]
    {
        if let Some(index) = statement.parameter_index(name)? {
            statement.raw_bind_parameter(index, value)?;
        }
    }
    let project = place.project.as_ref().map(|project| project.key);
    let mut rows = bind(&mut statement, scope, project, place.within.task(), &select.filters)?;
    let (mut page, mut last, mut has_more) = (SegmentPage::default(), None, false);
    while let Some(row) = rows.next()? {
        has_more = page.segments.len() == select.limit as usize;
        if !has_more {
            last = Some(row.get(23)?);
            page.segments.push(read(row, select.preview)?);
        }
    }
    page.next_cursor = last.filter(|_| has_more).map(cursor::write);
    Ok(page)
}

/// The condition that the index is chosen by.
pub(crate) fn place_of(has_project: bool, has_task: bool, tiers: &[Tier]) -> &'static str {
    match (has_project, has_task, tiers) {
        (true, true, [Tier::Working]) => "s.task = :task AND s.tier = 'working' AND +s.project = :project",
        (true, true, [Tier::Stashed]) => "s.task = :task AND s.tier = 'stashed' AND +s.project = :project",
        (true, true, _) => "s.task = :task AND s.tier <> 'archive' AND +s.project = :project",
        (true, false, [Tier::Working]) => "s.project = :project AND s.conversation IS NULL AND s.tier = 'working'",
        (true, false, [Tier::Stashed]) => "s.project = :project AND s.conversation IS NULL AND s.tier = 'stashed'",
        (true, false, _) => "s.project = :project AND s.conversation IS NULL AND s.tier <> 'archive'",
        (false, _, [Tier::Working]) => "s.tier = 'working'",
        (false, _, [Tier::Stashed]) => "s.tier = 'stashed'",
        (false, ..) => "s.tier <> 'archive'",
    }
}

fn within(select: &SelectSegments, place: &Place) -> &'static str {
    place_of(place.project.is_some(), place.within.task().is_some(), select.tiers)
}

/// How many there are and their tokens: from the running sums where nothing but place and tier is asked for.
fn count(db: &Connection, scope: &Scope, select: &SelectSegments, place: &Place) -> DbResult<(u64, u64)> {
    let is_plain = SegmentFilters { task_id: None, ..select.filters.clone() } == SegmentFilters::default();
    if let (true, Some(project)) = (is_plain, &place.project) {
        let tiers: Vec<&str> = select.tiers.iter().map(|tier| tier.as_str()).collect();
        return Ok(db
            .prepare_cached(
                "SELECT coalesce(sum(segment_count), 0), coalesce(sum(tokens), 0) FROM usage
                 WHERE project = ?1 AND (task = ?2 OR ?2 IS NULL AND task NOT IN (SELECT task FROM conversation)) AND tier IN (SELECT value FROM json_each(?3))",
            )?
            .query_row(params![project.key, place.within.task(), serde_json::json!(tiers).to_string()], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })?);
    }
    let sql = format!(
        "SELECT count(*), coalesce(sum(s.tokens), 0) FROM segment AS s WHERE {} AND {FILTERS}",
        within(select, place)
    );
    let mut statement = db.prepare_cached(&sql)?;
    let project = place.project.as_ref().map(|project| project.key);
    let mut rows = bind(&mut statement, scope, project, place.within.task(), &select.filters)?;
    match rows.next()? {
        Some(row) => Ok((row.get(0)?, row.get(1)?)),
        None => Ok((0, 0)),
    }
}
