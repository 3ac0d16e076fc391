//! Looks at a database from outside and says what in it contradicts itself.

use std::path::Path;

use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags, Row};
use waystone_core::canon::Hash;

/// Queries that find nothing in a sound database. Each row found is a problem.
const PROBLEMS: [(&str, &str); 14] = [
    ("SQLite", "SELECT * FROM pragma_integrity_check WHERE integrity_check <> 'ok'"),
    ("a reference", "SELECT \"table\", rowid FROM pragma_foreign_key_check"),
    (
        "session.checkpoint_count",
        "SELECT id FROM session AS s WHERE checkpoint_count <>
             (SELECT count(*) FROM checkpoint WHERE session = s.key AND archived_at_ms IS NULL)",
    ),
    (
        "session.size_bytes",
        "SELECT id FROM session AS s
         WHERE size_bytes <> (SELECT coalesce(sum(size_bytes), 0) FROM checkpoint WHERE session = s.key)",
    ),
    (
        "session.head",
        "SELECT id FROM session AS s WHERE head IS NOT
             (SELECT key FROM checkpoint WHERE session = s.key AND archived_at_ms IS NULL ORDER BY seq DESC LIMIT 1)",
    ),
    (
        "space's counters",
        "SELECT space FROM space AS s WHERE session_count <> (SELECT count(*) FROM session WHERE archived_at_ms IS NULL)
             OR checkpoint_count <> (SELECT coalesce(sum(checkpoint_count), 0) FROM session WHERE archived_at_ms IS NULL)
             OR size_bytes <> (SELECT coalesce(sum(size_bytes), 0) FROM session) + (SELECT coalesce(sum(size_bytes), 0) FROM given_context)
                            + (SELECT coalesce(sum(size_bytes), 0) FROM segment)
             OR row_seq < (SELECT coalesce(max(seq), 0) FROM checkpoint) OR row_seq < (SELECT coalesce(max(seq), 0) FROM segment)
             OR operation_seq - (SELECT max(first_seq) - 1 FROM chain) <> (SELECT count(*) FROM operation
                 WHERE seq >= (SELECT max(first_seq) FROM chain))
             OR operation_seq < (SELECT coalesce(max(seq), 0) FROM operation)
             OR event_seq < (SELECT coalesce(max(seq), 0) FROM event)",
    ),
    (
        "checkpoint_group",
        "SELECT id FROM checkpoint_group AS g WHERE checkpoint_count < (SELECT count(*) FROM checkpoint WHERE group_key = g.key)
             OR checkpoint_count > 32 OR changed_seq > (SELECT operation_seq FROM space)",
    ),
    (
        "checkpoint_bytes",
        "SELECT id FROM checkpoint AS c LEFT JOIN checkpoint_bytes AS b ON b.checkpoint = c.key
         WHERE b.bytes IS NULL OR length(b.bytes) <> c.size_bytes AND (SELECT wrapped_key IS NULL FROM space)",
    ),
    (
        "checkpoint.base",
        "SELECT c.id FROM checkpoint AS c JOIN checkpoint AS b ON b.key = c.base
         WHERE b.group_key IS NOT c.group_key OR b.seq >= c.seq",
    ),
    ("checkpoint.seq", "SELECT seq FROM checkpoint GROUP BY space, seq HAVING count(*) > 1"),
    ("segment.seq", "SELECT seq FROM segment GROUP BY space, seq HAVING count(*) > 1"),
    (
        "usage",
        "SELECT project FROM
             (SELECT project, coalesce(task, 0) AS task, tier, type, count(*), sum(tokens), sum(pinned), sum(pinned * tokens)
              FROM segment GROUP BY 1, 2, 3, 4
              EXCEPT SELECT project, task, tier, type, segment_count, tokens, pinned_count, pinned_tokens FROM usage)
         UNION ALL SELECT project FROM
             (SELECT project, task, tier, type, segment_count, tokens, pinned_count, pinned_tokens FROM usage WHERE segment_count <> 0
              EXCEPT SELECT project, coalesce(task, 0), tier, type, count(*), sum(tokens), sum(pinned), sum(pinned * tokens)
              FROM segment GROUP BY 1, 2, 3, 4)",
    ),
    (
        "segment",
        "SELECT s.id FROM segment AS s LEFT JOIN segment_text AS x ON x.segment = s.key
         WHERE x.text IS NULL OR length(CAST(x.text AS BLOB)) <> s.size_bytes AND (SELECT wrapped_key IS NULL FROM space) OR tier NOT IN ('working', 'stashed', 'archive')
             OR (tier = 'working') <> (entered_seq IS NOT NULL) OR (tier = 'archive') <> (archived_at_ms IS NOT NULL)",
    ),
    (
        "operation.undone",
        "SELECT seq FROM operation AS o
         WHERE undone <> EXISTS (SELECT 1 FROM operation WHERE space = o.space AND undoes = o.seq AND undone = 0)",
    ),
];

/// What is wrong with the database in `data_dir`; nothing when it is sound.
pub fn audit(data_dir: &Path) -> Vec<String> {
    let db = open(data_dir);
    // All of it as it is at one moment: loads are recorded a little later, and may be meanwhile.
    db.execute_batch("BEGIN").unwrap();
    let mut problems: Vec<String> = PROBLEMS
        .iter()
        .flat_map(|(what, sql)| {
            let mut statement = db.prepare(sql).unwrap();
            let rows = statement.query_map([], |row| Ok(format!("{what}: {}", shown(row)))).unwrap();
            // What cannot be read is a problem too, and SQLite says so in the place of a row.
            rows.map(|row| row.unwrap_or_else(|error| format!("{what}: {error}"))).collect::<Vec<_>>()
        })
        .collect();
    problems.extend(broken_link(&db));
    problems
}

#[expect(clippy::disallowed_methods, reason = "it looks at the database from outside of the store")]
pub fn open(data_dir: &Path) -> Connection {
    let db = Connection::open_with_flags(data_dir.join("waystone.db"), OpenFlags::SQLITE_OPEN_READ_WRITE).unwrap();
    db.busy_timeout(std::time::Duration::from_secs(5)).unwrap();
    db
}

fn shown(row: &Row<'_>) -> String {
    format!("{:?}", row.get_ref(0).unwrap())
}

/// The first operation whose hash does not follow from the one before it.
fn broken_link(db: &Connection) -> Option<String> {
    let mut previous: [u8; 32] =
        db.query_row("SELECT genesis FROM chain ORDER BY first_seq DESC LIMIT 1", [], |row| row.get(0)).unwrap();
    let mut statement = db
        .prepare(
            "SELECT seq, at_ms, actor, kind, subject, payload, payload_hash, hash FROM operation
             WHERE seq >= (SELECT max(first_seq) FROM chain) ORDER BY seq",
        )
        .unwrap();
    let mut rows = statement.query([]).unwrap();
    while let Some(row) = rows.next().unwrap() {
        let (seq, at): (i64, i64) = (row.get(0).unwrap(), row.get(1).unwrap());
        let text = |column: usize| row.get::<_, String>(column).unwrap();
        let (payload_hash, hash): ([u8; 32], [u8; 32]) = (row.get(6).unwrap(), row.get(7).unwrap());
        let expected = Hash::of_parts(&[
            &[1],
            &previous,
            &seq.to_be_bytes(),
            &at.to_be_bytes(),
            text(2).as_bytes(),
            text(3).as_bytes(),
            text(4).as_bytes(),
            &payload_hash,
        ]);
        // One that was erased leaves its hash.
        let payload = match row.get_ref(5).unwrap() {
            ValueRef::Blob(sealed) => Some(format!("\"{}\"", hex::encode(sealed))),
            payload => payload.as_str_or_null().unwrap().map(str::to_owned),
        };
        if hash != expected.0 || payload.is_some_and(|payload| Hash::of(payload.as_bytes()).0 != payload_hash) {
            return Some(format!("operation {seq} does not follow from the one before it"));
        }
        previous = hash;
    }
    let head: [u8; 32] = db.query_row("SELECT operation_hash FROM space", [], |row| row.get(0)).unwrap();
    (head != previous).then(|| "the chain does not end at its head".to_owned())
}
