//! What is damaged, and goes or stays without holding up the rest.

use super::room::{delete_segment, put};
use super::*;

/// Garbles a value, as a page that was written over does.
fn garble(h: &Harness, sql: &str, of: &str) {
    let db = audit::open(h.data_dir());
    assert_eq!(db.execute(sql, [of]).unwrap(), 1);
}

fn count(h: &Harness, table: &str) -> u64 {
    let sql = format!("SELECT count(*) FROM {table}");
    audit::open(h.data_dir()).query_row(&sql, [], |row| row.get(0)).unwrap()
}

#[tokio::test]
async fn what_is_a_delta_against_what_goes_and_cannot_be_read_does_not_keep_it() {
    let mut h = Harness::new();
    let ids = save_all(&h, "s", 0..3).await;
    h.restart_mirrored().await;
    garble(&h, "UPDATE checkpoint SET raw_hash = x'00' WHERE id = ?1", ids[1].as_str());
    h.engine.delete_checkpoint(&h.scope, &ids[0], PURGE).await.unwrap();
    assert_eq!(count(&h, "checkpoint"), 2);
    for n in [1, 2] {
        assert_eq!(context_of(&h.load(&ids[n]).await), context("s", n as u64), "its file has it");
    }
}

#[tokio::test]
async fn what_cannot_be_read_keeps_nothing_else_from_being_removed_or_retired() {
    let (h, _turn) = without_house();
    let mut keeper = upkeep(&h);
    let notes = [put(&h, "a first note").await, put(&h, "a second note").await];
    for note in &notes {
        delete_segment(&h, note).await;
    }
    for session in ["broken", "gone", "unread", "idle"] {
        save_all(&h, session, 0..2).await;
        h.clock.advance_ms(1);
    }
    for session in ["broken", "gone"] {
        h.engine.delete_session(&h.scope, &id(session), Deletion::default()).await.unwrap();
        h.clock.advance_ms(1);
    }
    keeper.purge(&|| false).unwrap();
    garble(&h, "UPDATE segment SET type = 'garbled' WHERE id = ?1", &notes[0]);
    garble(&h, "UPDATE session SET project = CAST(x'ff' AS TEXT) WHERE id = ?1", "broken");
    garble(&h, "UPDATE session SET size_bytes = -1 WHERE id = ?1", "unread");
    for _ in 0..31 {
        h.clock.advance_ms(DAY_MS);
        keeper.purge(&|| false).unwrap();
    }
    let left =
        "SELECT group_concat(id || coalesce(archived_at_ms > 0, 0), ' ') FROM (SELECT * FROM session ORDER BY id)";
    let left: String = audit::open(h.data_dir()).query_row(left, [], |row| row.get(0)).unwrap();
    assert_eq!((left.as_str(), count(&h, "segment")), ("broken1 idle1 unread0", 1));
}
