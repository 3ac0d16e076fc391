//! What follows from something else, compared with it: sums, hashes of the log, texts of segments, what is searched.

use rusqlite::{Connection, params};
use waystone_core::api::{Finding, FindingKind};
use waystone_core::audit;
use waystone_core::canon::Hash;

use crate::sqlite::audit::{list_chains, read as read_audit};
use crate::sqlite::counter::{recount, recount_usage};
use crate::sqlite::error::{DbResult, behind};
use crate::sqlite::seal::{segment_text, text_owner};
use crate::sqlite::search;

/// So many rows are looked at in one read.
const PAGE: usize = 5000;

fn finding(kind: FindingKind, subject: &str, message: &str) -> Finding {
    Finding { kind, subject: subject.to_owned(), message: message.to_owned() }
}

/// How far a walk has come.
pub(crate) enum Walk<T> {
    /// Go on from there.
    At(T),
    Done,
    Broken(Finding),
}

/// Goes on along the newest chain of operations, from its beginning where none was begun.
pub(crate) fn walk_operations(db: &Connection, space: i64, begun: Option<audit::Walk>) -> DbResult<Walk<audit::Walk>> {
    let mut walk = match begun {
        Some(walk) => walk,
        None => audit::Walk::of_newest(list_chains(db, space)?),
    };
    let part = read_audit(db, space, walk.last_seq())?;
    part.records.iter().for_each(|record| walk.step(record));
    if part.next.is_some() && walk.broken().is_empty() {
        return Ok(Walk::At(walk));
    }
    let Some(broken) = walk.end(&part.head).broken.into_iter().next() else { return Ok(Walk::Done) };
    let message = format!("{}; `waystone doctor --repair` begins another chain after it", broken.why);
    Ok(Walk::Broken(finding(FindingKind::Unhealed, &format!("operation {}", broken.seq), &message)))
}

/// Whether the newest chain of operations holds.
pub(crate) fn is_chain_whole(db: &Connection, space: i64) -> DbResult<bool> {
    let mut begun = None;
    loop {
        match walk_operations(db, space, begun)? {
            Walk::At(walk) => begun = Some(walk),
            Walk::Done => return Ok(true),
            Walk::Broken(_) => return Ok(false),
        }
    }
}

/// Goes on through the texts of segments, after one with that key. They have no second copy but in backups.
pub(crate) fn walk_segments(db: &Connection, after: i64, damaged: &mut Vec<Finding>) -> DbResult<Walk<i64>> {
    let mut statement = db.prepare_cached(concat!(
        "SELECT s.key, s.id, s.text_hash, CAST(",
        segment_text!(),
        " AS BLOB), ",
        text_owner!(),
        " FROM segment AS s
         LEFT JOIN segment_text AS x ON x.segment = s.key WHERE s.key > ?1 ORDER BY s.key LIMIT ?2"
    ))?;
    let mut keyed = db.prepare_cached("SELECT keyed(?1, ?2, ?3)")?;
    let (mut rows, mut count, mut last) = (statement.query(params![after, PAGE])?, 0, after);
    while let Some(row) = rows.next()? {
        (last, count) = (behind(last, row.get(0)?)?, count + 1);
        let text: Option<Vec<u8>> = row.get(3)?;
        let expected: Option<Vec<u8>> = match text {
            Some(text) => {
                let (owner, key): (String, Option<Vec<u8>>) = (row.get(4)?, row.get(5)?);
                keyed.query_row(params![Hash::of(&text).0, owner, key], |row| row.get(0))?
            }
            None => None,
        };
        if expected.is_none() || row.get(2).ok() != expected {
            let message = "is damaged; a backup may have it whole";
            damaged.push(finding(FindingKind::Lost, &row.get::<_, String>(1)?, message));
        }
    }
    Ok(if count == PAGE { Walk::At(last) } else { Walk::Done })
}

/// Queries that find something where sums are not what they sum up, and what of it is said.
const SUMS: [(&str, &str); 4] = [
    (
        "SELECT 1 FROM session AS s WHERE
             checkpoint_count <> (SELECT count(*) FROM checkpoint WHERE session = s.key AND archived_at_ms IS NULL)
             OR size_bytes <> (SELECT coalesce(sum(size_bytes), 0) FROM checkpoint WHERE session = s.key)
             OR head IS NOT (SELECT key FROM checkpoint WHERE session = s.key AND archived_at_ms IS NULL ORDER BY seq DESC LIMIT 1)",
        "sums of sessions",
    ),
    (
        "SELECT 1 FROM space AS p WHERE
             session_count <> (SELECT count(*) FROM session WHERE space = p.space AND archived_at_ms IS NULL)
             OR checkpoint_count <> (SELECT coalesce(sum(checkpoint_count), 0) FROM session
                                     WHERE space = p.space AND archived_at_ms IS NULL)
             OR size_bytes <> (SELECT coalesce(sum(size_bytes), 0) FROM session WHERE space = p.space)
                            + (SELECT coalesce(sum(size_bytes), 0) FROM given_context WHERE space = p.space)
                            + (SELECT coalesce(sum(size_bytes), 0) FROM segment WHERE space = p.space)",
        "sums of the store",
    ),
    (
        "SELECT 1 FROM
             (SELECT project, coalesce(task, 0), tier, type, count(*), sum(tokens), sum(pinned), sum(pinned * tokens)
              FROM segment GROUP BY 1, 2, 3, 4
              EXCEPT SELECT project, task, tier, type, segment_count, tokens, pinned_count, pinned_tokens FROM usage)
         UNION ALL SELECT 1 FROM
             (SELECT project, task, tier, type, segment_count, tokens, pinned_count, pinned_tokens FROM usage WHERE segment_count <> 0
              EXCEPT SELECT project, coalesce(task, 0), tier, type, count(*), sum(tokens), sum(pinned), sum(pinned * tokens)
              FROM segment GROUP BY 1, 2, 3, 4)",
        "sums of segments",
    ),
    (
        "SELECT 1 FROM branch AS b WHERE
             message_count <> (SELECT count(*) FROM message WHERE branch = b.key)
             OR head IS NOT (SELECT segment FROM message WHERE branch = b.key ORDER BY position DESC LIMIT 1)",
        "ends of branches",
    ),
];

fn wrong_sums(db: &Connection) -> rusqlite::Result<Vec<&'static str>> {
    let wrong = |(sql, what): &(&str, &'static str)| Ok(db.prepare(sql)?.exists([])?.then_some(*what));
    SUMS.iter().filter_map(|sum| wrong(sum).transpose()).collect()
}

/// Whether texts are not in what is searched. What is due is brought up to date by housekeeping.
fn lacks_index(db: &Connection) -> rusqlite::Result<bool> {
    let missing = "SELECT 1 FROM segment AS s LEFT JOIN segment_index AS i ON i.segment = s.key
                   WHERE i.segment IS NULL AND s.tier <> 'archive' AND NOT EXISTS (SELECT 1 FROM search_index WHERE next_segment IS NOT NULL)
                       AND (SELECT wrapped_key IS NULL FROM space)
                   UNION ALL SELECT 1 FROM session AS s LEFT JOIN checkpoint_index AS i ON i.session = s.key
                   WHERE i.session IS NULL AND s.archived_at_ms IS NULL
                       AND NOT EXISTS (SELECT 1 FROM conversation WHERE session = s.key)
                       AND NOT EXISTS (SELECT 1 FROM search_index AS f JOIN operation AS o ON o.space = f.space AND o.seq > f.followed_seq
                                       WHERE o.kind <> 'checkpoint.loaded')";
    db.prepare(missing)?.exists([])
}

pub(crate) fn needs_healing(db: &Connection) -> DbResult<bool> {
    Ok(!wrong_sums(db)?.is_empty() || lacks_index(db)?)
}

/// Makes anew what does not follow from what it is made from, as it is now; and the tables of words, if they are damaged.
pub(crate) fn heal_derived(db: &Connection, is_damaged: bool) -> DbResult<Vec<Finding>> {
    let (sums, lacks_index) = (wrong_sums(db)?, lacks_index(db)?);
    if !sums.is_empty() {
        recount(db)?;
        recount_usage(db)?;
    }
    if lacks_index || is_damaged {
        search::begin_anew(db, true)?;
    }
    let healed = |what: &str, message: &str| finding(FindingKind::RowHealed, what, message);
    let sums = sums.into_iter().map(|what| healed(what, "were not what they sum up, and are counted anew"));
    let why = if is_damaged { "was damaged" } else { "did not have everything" };
    let anew = || healed("search", &format!("{why}, and is made anew by housekeeping"));
    let index = (lacks_index || is_damaged).then(anew);
    Ok(sums.chain(index).collect())
}
