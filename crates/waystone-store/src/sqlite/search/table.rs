//! The tables of words: whether they can be used, and how they are made anew where they cannot. They hold nothing that is not elsewhere, so
//! damage in them is mended by who meets it and is no reason to give a database up.

use rusqlite::{Connection, OptionalExtension};

/// Each with its column.
const TABLES: [(&str, &str); 3] = [("segment_word", "text"), ("checkpoint_word", "text"), ("checkpoint_term", "terms")];
/// Whether a finding about a database is about words alone.
pub(crate) fn is_of_words(finding: &str) -> bool {
    let is_of_index = finding.starts_with("fts5: ") || finding.contains("inverted index for FTS5 table");
    is_of_index && TABLES.iter().any(|(table, _)| finding.contains(table))
}

/// Whether what one of them holds does not fit together.
pub(crate) fn is_any_damaged(db: &Connection) -> rusqlite::Result<bool> {
    for (table, _) in TABLES {
        let found: String = db.query_row(&format!("PRAGMA integrity_check({table})"), [], |row| row.get(0))?;
        if found != "ok" {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether a word can be put into each: it is, and is taken back. One that has lost its beginning fits together, and takes nothing.
pub(crate) fn is_any_closed(db: &Connection) -> rusqlite::Result<bool> {
    for (table, column) in TABLES {
        db.execute_batch("SAVEPOINT probe")?;
        // It is written at the next savepoint.
        let probe =
            format!("INSERT INTO {table} (rowid, {column}) VALUES (-1, 'probe'); SAVEPOINT written; RELEASE written");
        let tried = db.execute_batch(&probe);
        db.execute_batch("ROLLBACK TO probe; RELEASE probe")?;
        if tried.is_err() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Makes them anew, empty: from one that is damaged no word could be taken out.
pub(super) fn create_anew(db: &Connection) -> rusqlite::Result<()> {
    for (table, _) in TABLES {
        let sql: Option<String> =
            db.query_row("SELECT sql FROM sqlite_schema WHERE name = ?1", [table], |row| row.get(0)).optional()?;
        let Some(sql) = sql else { continue };
        db.execute_batch(&format!("DROP TABLE {table}; {sql}"))?;
    }
    Ok(())
}
