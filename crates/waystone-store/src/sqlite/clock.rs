//! Whether the time can be believed, before something is removed for good because of it.

use rusqlite::{Connection, OptionalExtension, params};

const DAY_MS: i64 = 24 * 60 * 60 * 1000;

/// Whether the clock can be right. A time more than a day beyond the newest one that was believed is doubted until a later start of the
/// program sees it too: what is removed for good because of a wrong clock does not come back.
pub(crate) fn is_believed(db: &Connection, now_ms: i64, start: &str) -> rusqlite::Result<bool> {
    let known: Option<(i64, Option<String>)> = db
        .query_row("SELECT seen_at_ms, doubted_by FROM clock", [], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let Some((seen, doubted_by)) = known else {
        db.execute("INSERT INTO clock (seen_at_ms) VALUES (?1)", params![now_ms])?;
        return Ok(true);
    };
    let is_confirmed = doubted_by.is_some_and(|doubted_by| doubted_by != start);
    if now_ms > seen + DAY_MS && !is_confirmed {
        db.execute("UPDATE clock SET doubted_by = ?1", params![start])?;
        return Ok(false);
    }
    db.execute("UPDATE clock SET seen_at_ms = max(seen_at_ms, ?1), doubted_by = NULL", params![now_ms])?;
    Ok(true)
}

/// The same for who is no start of the program but acts for one: it doubts and confirms nothing.
pub(crate) fn is_near(db: &Connection, now_ms: i64) -> rusqlite::Result<bool> {
    let seen: Option<i64> = db.query_row("SELECT seen_at_ms FROM clock", [], |row| row.get(0)).optional()?;
    Ok(seen.is_none_or(|seen| now_ms <= seen + DAY_MS))
}

#[cfg(test)]
mod tests {
    use waystone_testkit::{Harness, audit};

    use super::*;

    #[tokio::test]
    async fn a_clock_that_jumps_is_doubted_until_another_start_sees_the_same() {
        let h = Harness::new();
        let db = audit::open(h.data_dir());
        db.execute("DELETE FROM clock", []).unwrap();
        let check = |days: i64, start: &str, expected: bool| {
            // Who only acts for a start believes no more than it, and changes nothing.
            let is_near = is_near(&db, days * DAY_MS).unwrap();
            assert_eq!(is_believed(&db, days * DAY_MS, start).unwrap(), expected, "{days} {start}");
            assert!(expected || !is_near, "{days} {start}");
        };
        check(100, "a", true);
        check(101, "a", true);
        check(103, "a", false);
        check(104, "a", false);
        check(101, "a", true);
        check(110, "a", false);
        check(110, "b", true);
        check(111, "b", true);
        check(50, "c", true);
        check(111, "c", true);
        check(113, "c", false);
    }
}
