//! Where text came from, as numbers: of several the lowest trust is the greatest, so that SQL finds it with `max`.

use rusqlite::Row;
use waystone_core::api::Origin;

pub(crate) fn number_of(origin: Origin) -> i64 {
    match origin {
        Origin::User => 0,
        Origin::Agent => 1,
        Origin::Tool => 2,
        Origin::Import => 3,
    }
}

/// A number that is none of ours is damaged, and not trusted.
pub(crate) fn origin_of(number: i64) -> Origin {
    Origin::ALL.into_iter().find(|origin| number_of(*origin) == number).unwrap_or(Origin::Import)
}

/// What was said of a text, and what it counts as, from the columns `origin` and `imported` that begin there.
pub(crate) fn read_origin(row: &Row<'_>, column: usize) -> rusqlite::Result<(Origin, Origin)> {
    // A value of another type is damaged, too.
    let said = origin_of(row.get(column).unwrap_or(-1));
    let is_imported = row.get::<_, i64>(column + 1).unwrap_or(1) != 0;
    Ok((said, said.shown(is_imported)))
}
