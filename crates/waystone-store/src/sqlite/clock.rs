//! Whether the time can be believed, before something is removed for good because of it.

use rusqlite::{Connection, OptionalExtension, params};
use waystone_core::clock::Timestamp;

const DAY_MS: i64 = 24 * 60 * 60 * 1000;

/// Whether the clock can be right. A time more than a day beyond the newest one that was believed is doubted until a later start of the
/// program sees it too: what is removed for good because of a wrong clock does not come back. So is one more than a day before it; then it
/// was the one that was believed that was wrong.
pub(crate) fn is_believed(db: &Connection, now_ms: i64, start: &str) -> rusqlite::Result<bool> {
    let known: Option<(i64, Option<String>)> = db
        .query_row("SELECT seen_at_ms, doubted_by FROM clock", [], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let Some((seen, doubted_by)) = known else {
        db.execute("INSERT INTO clock (seen_at_ms) VALUES (?1)", params![now_ms])?;
        return Ok(true);
    };
    let jump = match now_ms - seen {
        _ if is_within_a_day(now_ms, seen) => {
            db.execute("UPDATE clock SET seen_at_ms = max(seen_at_ms, ?1), doubted_by = NULL", params![now_ms])?;
            return Ok(true);
        }
        1.. => "forward ",
        _ => "back ",
    };
    let is_confirmed = doubted_by.as_deref().and_then(|doubt| doubt.strip_prefix(jump)).is_some_and(|by| by != start);
    match is_confirmed {
        true => db.execute("UPDATE clock SET seen_at_ms = ?1, doubted_by = NULL", params![now_ms])?,
        // The first start that doubts it is not the one that confirms it, however often it looks.
        false => db.execute(
            "UPDATE clock SET doubted_by = ?1 WHERE doubted_by IS NULL OR doubted_by NOT LIKE ?2",
            params![format!("{jump}{start}"), format!("{jump}%")],
        )?,
    };
    Ok(is_confirmed)
}

fn is_within_a_day(now_ms: i64, seen: i64) -> bool {
    (seen.saturating_sub(DAY_MS)..=seen.saturating_add(DAY_MS)).contains(&now_ms)
}

/// From when on something is archived, or was last used: the newest time that was believed, if the clock was set back since. Otherwise its
/// grace would be over, or it idle for long, as soon as the clock is right again.
pub(crate) fn last_believed(db: &Connection, at: Timestamp) -> rusqlite::Result<i64> {
    let seen: Option<i64> = db.prepare_cached("SELECT max(seen_at_ms) FROM clock")?.query_row([], |row| row.get(0))?;
    Ok(at.ms().max(seen.unwrap_or(i64::MIN)))
}

/// The same for who is no start of the program but acts for one: it doubts and confirms nothing.
pub(crate) fn is_near(db: &Connection, now_ms: i64) -> rusqlite::Result<bool> {
    let seen: Option<i64> = db.query_row("SELECT seen_at_ms FROM clock", [], |row| row.get(0)).optional()?;
    Ok(seen.is_none_or(|seen| is_within_a_day(now_ms, seen)))
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
        // One that is set back is no better, and confirms no jump the other way.
        check(50, "c", false);
        check(111, "c", true);
        check(50, "c", false);
        check(113, "d", false);
        check(50, "c", false);
        check(50, "d", true);
        check(52, "d", false);
        check(111, "e", true);
    }
}
