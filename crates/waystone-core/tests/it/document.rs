//! Sessions and projects exported into a document and imported again.

mod refusal;

use serde_json::{Value, json};
use waystone_core::api::{ImportStatus, Imported, Tier};
use waystone_core::{Error, Limits};
use waystone_testkit::Harness;
use waystone_testkit::audit;
use waystone_testkit::contexts::Random;
use waystone_testkit::fault::import::{fuzz, valid};

fn checkpoints(imported: &Imported) -> (ImportStatus, u64, u64) {
    (imported.status, imported.checkpoints_added.unwrap(), imported.checkpoints_known.unwrap())
}

/// A harness whose ids do not meet those of another.
fn elsewhere() -> Harness {
    Harness::counting_from(1_000_000)
}

fn count(h: &Harness, sql: &str) -> i64 {
    audit::open(h.data_dir()).query_row(sql, [], |row| row.get(0)).unwrap()
}

#[tokio::test]
async fn whatever_a_session_has_it_has_after_it_was_exported_and_imported() {
    for seed in 0..12 {
        let (h, mut there, mut random) = (Harness::new(), elsewhere(), Random::new(seed));
        there.clock.advance_ms(365 * 24 * 60 * 60 * 1000);
        valid::make_session(&h, "s", 1 + random.below(80), &mut random).await;
        let document = h.export_session("s").await.unwrap();
        let imported = there.import(document.clone()).await.unwrap();
        assert_eq!(imported.status, ImportStatus::Imported, "{seed}");
        assert_eq!(there.export_session("s").await.unwrap(), document, "{seed}");
        let ids = h.list(json!({ "sessionId": "s", "limit": 1000 })).await;
        assert_eq!(there.list(json!({ "sessionId": "s", "limit": 1000 })).await, ids);
        for id in &ids {
            let id = id.parse().unwrap();
            assert_eq!(h.load(&id).await.context.get(), there.load(&id).await.context.get());
        }
        there.check_invariants().await;
        there.restart_mirrored().await;
        assert_eq!(there.findings().await, vec![]);
        assert_eq!(there.export_session("s").await.unwrap(), document, "{seed}");
    }
}

#[tokio::test]
async fn whatever_a_project_has_it_has_after_it_was_exported_and_imported() {
    for seed in 0..12 {
        let (h, there, mut random) = (Harness::new(), elsewhere(), Random::new(seed));
        valid::make_project(&h, "p", 1 + random.below(30), &mut random).await;
        there.clock.advance_ms(10_000_000);
        let document = h.export_project("p").await.unwrap();
        assert_eq!(there.import(document.clone()).await.unwrap().status, ImportStatus::Imported, "{seed}");
        assert_eq!(there.export_project("p").await.unwrap(), document, "{seed}");
        there.check_invariants().await;
        let again = there.import(document.clone()).await.unwrap();
        assert_eq!((again.status, again.segments_added), (ImportStatus::Unchanged, Some(0)), "{seed}");
        assert_eq!(there.export_project("p").await.unwrap(), document, "{seed}");
    }
}

#[tokio::test]
async fn the_same_document_again_changes_nothing() {
    let (h, there) = (Harness::new(), elsewhere());
    valid::make_session(&h, "s", 5, &mut Random::new(1)).await;
    let document = h.export_session("s").await.unwrap();
    let first = there.import(document.clone()).await.unwrap();
    let before = waystone_testkit::fault::import::state(there.data_dir());
    let again = there.import(document.clone()).await.unwrap();
    let (_, added, _) = checkpoints(&first);
    assert_eq!(checkpoints(&again), (ImportStatus::Unchanged, 0, added));
    assert_eq!(again.warnings, Vec::<String>::new());
    assert_eq!(waystone_testkit::fault::import::state(there.data_dir()), before);
    assert_eq!(checkpoints(&h.import(document).await.unwrap()), (ImportStatus::Unchanged, 0, added));
}

#[tokio::test]
async fn a_session_that_has_fewer_checkpoints_gets_the_others_and_goes_on_from_the_last() {
    let (h, there) = (Harness::new(), elsewhere());
    for n in 0..3 {
        h.save("s", json!({ "n": n })).await;
    }
    there.import(h.export_session("s").await.unwrap()).await.unwrap();
    for n in 3..40 {
        h.save("s", json!({ "n": n })).await;
    }
    let document = h.export_session("s").await.unwrap();
    assert_eq!(checkpoints(&there.import(document.clone()).await.unwrap()), (ImportStatus::Imported, 37, 3));
    assert_eq!(there.export_session("s").await.unwrap(), document);
    let latest = there.try_load(json!({ "sessionId": "s" })).await.unwrap();
    assert_eq!(latest.context.get(), r#"{"n":39}"#);
    let saved = there.save("s", json!({ "n": 40 })).await;
    assert_eq!(saved.parent_checkpoint_id, Some(latest.checkpoint.checkpoint_id));
    there.check_invariants().await;
}

#[tokio::test]
async fn what_is_imported_is_packed_as_saves_are_and_was_used_now() {
    let (h, there) = (Harness::new(), elsewhere());
    let text = Random::new(1).text(50_000);
    for n in 0..70 {
        h.save("s", json!({ "n": n, "text": text })).await;
    }
    there.clock.advance_ms(90 * 24 * 60 * 60 * 1000);
    let now = there.clock.as_ref();
    let now = waystone_core::clock::Clock::now(now);
    there.import(h.export_session("s").await.unwrap()).await.unwrap();
    let sizes = "SELECT sum(size_bytes) FROM session";
    assert_eq!(count(&there, sizes), count(&h, sizes));
    assert_eq!(count(&there, "SELECT count(*) FROM checkpoint_group"), 3);
    let session = there.engine.find_session(&there.scope, &"s".parse().unwrap()).await.unwrap();
    assert_eq!((session.last_accessed_at, session.created_at.ms()), (now, 1_767_225_600_000));
    assert_eq!(count(&there, "SELECT count(*) FROM operation WHERE kind = 'session.imported'"), 1);
    assert_eq!(count(&there, "SELECT count(*) FROM event WHERE kind = 'session.imported'"), 1);
}

#[tokio::test]
async fn a_parent_that_is_deleted_is_not_in_the_document() {
    let (h, there) = (Harness::new(), elsewhere());
    h.save("s", json!({ "n": 0 })).await;
    let gone = h.save("s", json!({ "n": 1 })).await;
    h.save("s", json!({ "n": 2 })).await;
    h.engine.delete_checkpoint(&h.scope, &gone.checkpoint_id, Default::default()).await.unwrap();
    let document = h.export_session("s").await.unwrap();
    assert!(!document.contains(gone.checkpoint_id.as_str()), "{document}");
    there.import(document.clone()).await.unwrap();
    assert_eq!(there.export_session("s").await.unwrap(), document);
}

#[tokio::test]
async fn a_damaged_checkpoint_is_named_and_not_left_out() {
    let mut h = Harness::new();
    h.save("s", json!({ "n": 0 })).await;
    let damaged = h.save("s", json!({ "n": 1 })).await;
    h.save("s", json!({ "n": 2 })).await;
    h.restart().await;
    let spoil =
        "UPDATE checkpoint_bytes SET bytes = x'00' WHERE checkpoint = (SELECT key FROM checkpoint WHERE id = ?1)";
    audit::open(h.data_dir()).execute(spoil, [damaged.checkpoint_id.as_str()]).unwrap();
    // As long as its file is whole it is healed from there.
    assert!(h.export_session("s").await.is_ok());
    audit::open(h.data_dir()).execute(spoil, [damaged.checkpoint_id.as_str()]).unwrap();
    std::fs::remove_dir_all(h.data_dir().join("contexts")).unwrap();
    h.restart().await;
    match h.export_session("s").await {
        Err(Error::CheckpointCorrupt { id, .. }) => assert_eq!(id, damaged.checkpoint_id),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn what_others_wrote_by_hand_is_kept_as_it_means() {
    let h = Harness::new();
    h.save("s", json!({ "b": [1, { "z": "x y", "a": null }], "a": "é" })).await;
    let document = h.export_session("s").await.unwrap();
    let mut pretty: Value = serde_json::from_str(&document).unwrap();
    pretty["session"]["name"] = json!("by hand");
    let there = elsewhere();
    there.import(serde_json::to_string_pretty(&pretty).unwrap().replace('é', "\\u00e9")).await.unwrap();
    let loaded = there.try_load(json!({ "sessionId": "s" })).await.unwrap();
    assert_eq!(loaded.context.get(), r#"{"b":[1,{"z":"x y","a":null}],"a":"\u00e9"}"#);
    // The same context saved is unchanged.
    let saved = there.save("s", json!({ "a": "é", "b": [1, { "a": null, "z": "x y" }] })).await;
    assert_eq!(saved.status, waystone_core::api::SaveStatus::SkippedUnchanged);
    let again = there.import(document).await.unwrap();
    assert_eq!(again.warnings.len(), 1, "{:?}", again.warnings);
}

#[tokio::test]
async fn imported_segments_are_found_counted_and_can_be_restored() {
    let (h, mut there) = (Harness::new(), elsewhere());
    let put = |text: &str| serde_json::from_value(json!({ "project_id": "p", "task_id": "t", "text": text })).unwrap();
    let first = h.engine.put_segments(&h.scope, put("an otter swims")).await.unwrap().segment_ids;
    h.engine.put_segments(&h.scope, put("a badger digs")).await.unwrap();
    let task = json!({ "project_id": "p", "task_id": "t", "name": "both" });
    h.engine.create_snapshot(&h.scope, serde_json::from_value(task).unwrap()).await.unwrap();
    // The same text under another id is another segment, as two turns of a transcript are.
    there.engine.put_segments(&there.scope, put("a badger digs")).await.unwrap();
    let imported = there.import(h.export_project("p").await.unwrap()).await.unwrap();
    assert_eq!((imported.segments_added, imported.segments_known), (Some(2), Some(0)));
    assert_eq!(imported.snapshots_added, Some(1));
    let search = json!({ "project_id": "p", "query": "otter", "filters": { "tier": "working" } });
    let found = there.engine.search_stashed(&there.scope, serde_json::from_value(search).unwrap()).await.unwrap();
    let found: Vec<_> = found.segments.iter().map(|segment| (&segment.segment_id, segment.tier)).collect();
    assert_eq!(found.first(), Some(&(&first[0], Tier::Working)));
    let stash = json!({ "project_id": "p" });
    there.engine.stash_segments(&there.scope, serde_json::from_value(stash.clone()).unwrap()).await.unwrap();
    let restored = there.engine.restore_snapshot(&there.scope, serde_json::from_value(stash).unwrap()).await.unwrap();
    assert_eq!(restored.segments_restored, 2);
    there.restart_mirrored().await;
    there.check_invariants().await;
}

#[tokio::test]
async fn a_snapshot_whose_segments_are_gone_is_left_out_whole() {
    let (h, there) = (Harness::new(), elsewhere());
    valid::make_project(&h, "p", 10, &mut Random::new(2)).await;
    let gone = json!({ "project_id": "p", "task_id": "t", "text": "goes away" });
    let gone = h.engine.put_segments(&h.scope, serde_json::from_value(gone).unwrap()).await.unwrap().segment_ids;
    let task = json!({ "project_id": "p", "task_id": "t", "name": "with what goes" });
    h.engine.create_snapshot(&h.scope, serde_json::from_value(task).unwrap()).await.unwrap();
    let delete = json!({ "project_id": "p", "segment_ids": gone, "action": "delete", "confirm": true });
    h.engine.prune_segments(&h.scope, serde_json::from_value(delete).unwrap()).await.unwrap();
    let document = h.export_project("p").await.unwrap();
    assert!(!document.contains("with what goes") && !document.contains("goes away"));
    assert_eq!(there.import(document).await.unwrap().snapshots_added, Some(1));
}

#[tokio::test]
async fn an_import_that_fails_at_any_step_is_whole_or_absent() {
    let h = Harness::new();
    valid::make_session(&h, "s", 5, &mut Random::new(3)).await;
    let document = h.export_session("s").await.unwrap();
    for steps in 0.. {
        let mut there = elsewhere();
        there.fail_after(steps).await;
        let imported = there.import(document.clone()).await;
        there.restart().await;
        match there.export_session("s").await {
            Ok(whole) => assert_eq!(whole, document),
            Err(error) => assert_eq!(error.code(), "SESSION_NOT_FOUND"),
        }
        there.check_invariants().await;
        if imported.is_ok() {
            return;
        }
    }
}

/// The long form is `cargo xtask faults import`.
#[tokio::test]
async fn a_spoilt_document_is_taken_whole_or_changes_nothing() {
    let report = fuzz(7, 400).await;
    assert_eq!((report.panics, report.half_imported), (vec![], vec![]));
    assert!(
        report.taken > 10 && report.refused.values().sum::<u32>() > 200,
        "{} taken, {:?}",
        report.taken,
        report.refused
    );
}

#[tokio::test]
async fn many_that_import_the_same_at_once_import_it_once() {
    let h = Harness::with_limits(Limits::default());
    valid::make_session(&h, "s", 5, &mut Random::new(4)).await;
    let document = h.export_session("s").await.unwrap();
    let there = elsewhere();
    let imports = (0..6).map(|_| {
        let (engine, scope, document) = (there.engine.clone(), there.scope.clone(), document.clone());
        tokio::spawn(async move { engine.import_document(&scope, std::io::Cursor::new(document.into_bytes())).await })
    });
    let mut imported = 0;
    for import in imports.collect::<Vec<_>>() {
        match import.await.unwrap() {
            Ok(done) => imported += u32::from(done.status == ImportStatus::Imported),
            Err(error) => assert_eq!((error.code(), error.http_status()), ("STORAGE_UNAVAILABLE", 503), "{error}"),
        }
    }
    assert_eq!(imported, 1);
    assert_eq!(there.export_session("s").await.unwrap(), document);
    there.check_invariants().await;
}
