//! Room that is made when the quota or the disk is nearly used up.

use super::*;

/// Saves sessions of some bytes each that do not compress.
pub(super) async fn fill(h: &Harness, sessions: std::ops::Range<u64>) {
    for n in sessions {
        let mut random = Random::new(n);
        h.save(&format!("s{n:02}"), json!({ "text": random.text(20_000) })).await;
        h.clock.advance_ms(1000);
    }
}

#[tokio::test]
async fn a_store_that_is_nearly_full_gives_up_what_was_deleted_and_then_what_was_not_used_for_longest() {
    let first = Harness::new();
    fill(&first, 0..1).await;
    let one = first.engine.status(&first.scope).await.unwrap().total_size_bytes;
    let h = Harness::with_limits(Limits { total_bytes_max: 20 * one, ..Limits::default() });
    let mut keeper = upkeep(&h);
    keeper.purge(&|| false).unwrap();
    fill(&h, 0..16).await;
    let warned = h.save("s16", json!({ "text": Random::new(16).text(20_000) })).await.warnings;
    assert!(warned.iter().any(|warning| warning.contains("WAYSTONE_MAX_TOTAL_BYTES")), "{warned:?}");
    keeper.relieve(&|| false).unwrap();
    assert_eq!(sessions(&h, false).await.len(), 17, "up to 90 % nothing goes");
    for deleted in ["s05", "s03"] {
        h.engine.delete_session(&h.scope, &id(deleted), Deletion::default()).await.unwrap();
        h.clock.advance_ms(1000);
    }
    fill(&h, 17..19).await;
    keeper.relieve(&|| false).unwrap();
    assert_eq!((sessions(&h, false).await.len(), sessions(&h, true).await), (17, vec![]), "the deleted ones go first");
    fill(&h, 19..21).await;
    keeper.relieve(&|| false).unwrap();
    assert_eq!(sessions(&h, false).await.len(), 19, "every session was saved within the last hour");
    h.clock.advance_ms(HOUR_MS);
    h.save("s00", json!({ "n": "in use" })).await;
    keeper.relieve(&|| false).unwrap();
    let left = sessions(&h, false).await;
    assert!(left.contains(&"s00".to_owned()) && !left.contains(&"s01".to_owned()), "{left:?}");
    let used = h.engine.status(&h.scope).await.unwrap().total_size_bytes;
    assert!(used <= 17 * one && used > 15 * one, "{used} of {}", 20 * one);
    let cut: u64 = audit::open(h.data_dir())
        .query_row(
            "SELECT count(*) FROM operation WHERE kind = 'session.purged' AND payload ->> '$.graceCut'",
            [],
            |row| row.get(0),
        )
        .unwrap();
    assert!(cut >= 4, "every removal is an operation that says so");
    h.check_invariants().await;
}

#[tokio::test]
async fn a_full_disk_gives_back_what_was_deleted_and_nothing_that_is_live() {
    let h = Harness::new();
    fill(&h, 0..3).await;
    h.engine.delete_session(&h.scope, &id("s01"), Deletion::default()).await.unwrap();
    let mut keeper = upkeep(&h);
    keeper.keep_reserve().unwrap();
    let reserve = h.data_dir().join("reserve");
    assert!(reserve.metadata().unwrap().len() > 0);
    keeper.free_disk(u64::MAX).unwrap();
    assert_eq!((sessions(&h, false).await.len(), sessions(&h, true).await.len()), (2, 0));
    assert!(reserve.exists(), "it is set aside again");
    h.check_invariants().await;
}
