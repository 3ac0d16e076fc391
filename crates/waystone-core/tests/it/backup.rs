//! Copies of the whole store: taken while others write, put back, and begun with when the database is lost.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::json;
use waystone_core::api::{Deletion, FindingKind, ListSegments};
use waystone_core::clock::Clock;
use waystone_core::id::CheckpointId;
use waystone_store::{OpenError, Repaired, Root};
use waystone_testkit::harness::{context_of, copy_dir, key, private_dir};
use waystone_testkit::{Harness, audit};

async fn back_up(h: &Harness) -> PathBuf {
    h.clock.advance_ms(1000);
    h.engine.back_up(&h.scope, None).await.unwrap().path.into()
}

fn restore_from(h: &Harness, from: &Path) -> Result<Repaired, OpenError> {
    let clock: Arc<dyn Clock> = h.clock.clone();
    h.clock.advance_ms(1000);
    waystone_store::restore_from(
        Root { path: h.data_dir(), key: key().as_ref(), seals: key().is_some() },
        from,
        &clock,
        &mut |_, _| {},
    )
}

fn lose_database(h: &Harness) {
    for name in ["waystone.db", "waystone.db-wal", "waystone.db-shm"] {
        let _ = fs::remove_file(h.data_dir().join(name));
    }
}

async fn put(h: &Harness, text: &str) {
    h.engine.put_segments(&h.scope, serde_json::from_value(json!({ "text": text })).unwrap()).await.unwrap();
}

async fn texts(h: &Harness) -> Vec<String> {
    let request: ListSegments = serde_json::from_value(json!({ "project_id": "project" })).unwrap();
    let set = h.engine.list_working_set(&h.scope, request).await.unwrap();
    set.segments.iter().map(|segment| segment.text.clone()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_taken_while_others_write_restores_to_a_whole_state() {
    let h = Harness::new();
    let before: Vec<CheckpointId> = {
        let mut ids = Vec::new();
        for n in 0..40 {
            ids.push(h.save("first", json!({ "n": n })).await.checkpoint_id);
        }
        ids
    };
    let writer = h.second();
    let scope = h.scope.clone();
    let (stop, mut stopped) = tokio::sync::oneshot::channel::<()>();
    let writing = tokio::spawn(async move {
        let mut n = 0;
        while stopped.try_recv().is_err() {
            let request = json!({ "sessionId": format!("w{}", n % 5), "context": { "n": n, "pad": "x".repeat(2000) } });
            writer.save_checkpoint(&scope, serde_json::from_value(request).unwrap()).await.unwrap();
            n += 1;
        }
        writer.close().await;
    });
    let target = private_dir();
    let copies: Vec<PathBuf> = (0..3).map(|n| target.path().join(format!("copy-{n}"))).collect();
    for copy in &copies {
        h.engine.back_up(&h.scope, copy.to_str()).await.unwrap();
    }
    stop.send(()).unwrap();
    writing.await.unwrap();
    for copy in &copies {
        let mut other = Harness::new();
        other.engine.close().await;
        restore_from(&other, copy).unwrap();
        other.restart_mirrored().await;
        assert_eq!(other.findings().await, []);
        for (n, id) in before.iter().enumerate() {
            assert_eq!(context_of(&other.load(id).await), json!({ "n": n }));
        }
        other.check_invariants().await;
    }
    let refused = h.engine.back_up(&h.scope, copies[0].to_str()).await.unwrap_err();
    assert_eq!(refused.code(), "INVALID_INPUT", "it would mix two backups");
}

#[tokio::test]
async fn a_lost_database_begins_with_the_newest_good_backup_and_gets_what_is_newer_from_the_files() {
    let mut h = Harness::new();
    put(&h, "only a backup has this").await;
    h.save("s", json!({ "n": 0 })).await;
    let good = back_up(&h).await;
    put(&h, "and this is newer").await;
    let bad = back_up(&h).await;
    let newer = h.save("s", json!({ "n": 1 })).await.checkpoint_id;
    let deleted = h.save("s", json!({ "n": 2 })).await.checkpoint_id;
    h.engine.delete_checkpoint(&h.scope, &deleted, Deletion::default()).await.unwrap();
    h.close_mirrored().await;
    fs::write(bad.join("waystone.db"), b"not a database").unwrap();
    lose_database(&h);
    let refused = waystone_store::Sqlite::open(
        Root { path: h.data_dir(), key: key().as_ref(), seals: key().is_some() },
        h.clock.clone(),
        &h.limits,
    )
    .err()
    .unwrap();
    assert!(matches!(refused, OpenError::Lost { .. }));
    let repaired = h.repair();
    assert_eq!(repaired.backup, Some(good));
    h.restart_mirrored().await;
    assert_eq!(texts(&h).await, ["only a backup has this"]);
    assert_eq!(context_of(&h.load(&newer).await), json!({ "n": 1 }));
    assert_eq!(h.list(json!({})).await.len(), 2, "what was deleted since the backup stays deleted");
    assert_eq!(h.findings().await, []);
    h.check_invariants().await;
}

#[tokio::test]
async fn a_backup_without_mirrors_is_not_hidden_by_a_fresh_database() {
    let mut h = Harness::new();
    put(&h, "kept").await;
    back_up(&h).await;
    h.close_mirrored().await;
    lose_database(&h);
    let refused = waystone_store::Sqlite::open(
        Root { path: h.data_dir(), key: key().as_ref(), seals: key().is_some() },
        h.clock.clone(),
        &h.limits,
    )
    .err()
    .unwrap();
    assert!(matches!(refused, OpenError::Lost { .. }));
    h.repair();
    h.restart().await;
    assert_eq!(texts(&h).await, ["kept"]);
}

#[tokio::test]
async fn what_is_restored_goes_on_with_numbers_above_all_that_were_given() {
    let mut h = Harness::new();
    let old = h.save("s", json!({ "n": 0 })).await.checkpoint_id;
    let backup = back_up(&h).await;
    for n in 1..5 {
        h.save("s", json!({ "n": n })).await;
        h.save("later", json!({ "n": n })).await;
    }
    let numbers = |h: &Harness| -> (i64, i64, i64) {
        audit::open(h.data_dir())
            .query_row("SELECT row_seq, operation_seq, event_seq FROM space", [], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?))
            })
            .unwrap()
    };
    h.close_mirrored().await;
    let before = numbers(&h);
    let restored = restore_from(&h, &backup).unwrap();
    let aside = restored.set_aside.unwrap();
    assert!(aside.join("waystone.db").is_file() && aside.join("contexts/later").is_dir());
    h.restart_mirrored().await;
    let after = numbers(&h);
    assert!(after.0 >= before.0 && after.1 > before.1 && after.2 >= before.2, "{before:?} {after:?}");
    assert_eq!(h.list(json!({})).await, [old.as_str()], "files are not merged");
    assert!(h.data_dir().join("contexts/s").is_dir() && !h.data_dir().join("contexts/later").exists());
    let sources: String = audit::open(h.data_dir())
        .query_row("SELECT payload ->> '$.sources[0]' FROM operation WHERE kind = 'store.restored'", [], |row| {
            row.get(0)
        })
        .unwrap();
    assert!(sources.contains("backups"), "{sources}");
    assert_eq!(h.findings().await, []);
    h.save("s", json!({ "n": "goes on" })).await;
    h.check_invariants().await;
}

/// Turns tell of much that is no operation, so events are numbered far ahead of what files and backups know.
#[tokio::test]
async fn who_listens_learns_that_a_restore_or_a_repair_took_events_away() {
    for is_lost in [false, true] {
        let mut h = Harness::new();
        h.save("s", json!({ "n": 0 })).await;
        let backup = back_up(&h).await;
        let known = h.engine.list_events(&h.scope, Some(0)).await.unwrap().newest;
        audit::open(h.data_dir()).execute("UPDATE space SET event_seq = event_seq + 1000", []).unwrap();
        h.save("s", json!({ "n": 1 })).await;
        let newest = h.engine.list_events(&h.scope, Some(0)).await.unwrap().newest;
        h.close_mirrored().await;
        if is_lost {
            lose_database(&h);
            h.repair();
        } else {
            restore_from(&h, &backup).unwrap();
        }
        h.restart().await;
        for n in 2..6 {
            for after in [known, newest - 500, newest] {
                let page = h.engine.list_events(&h.scope, Some(after)).await.unwrap();
                assert!(page.is_gap && page.newest > newest, "{after} of {newest}: {page:?}");
            }
            h.save("s", json!({ "n": n })).await;
        }
        h.check_invariants().await;
    }
}

#[tokio::test]
async fn what_was_removed_is_removed_from_backups_too_and_none_brings_it_back() {
    let mut h = Harness::new();
    let gone = h.save("gone", json!({ "secret": "the launch code is 0000" })).await.checkpoint_id;
    h.save("stays", json!({ "n": 1 })).await;
    let inside = back_up(&h).await;
    let outside = private_dir();
    copy_dir(&inside, outside.path());
    h.engine.delete_session(&h.scope, &"gone".parse().unwrap(), Deletion { purge: true }).await.unwrap();
    let count = |path: &Path| -> u64 {
        audit::open(path).query_row("SELECT count(*) FROM checkpoint", [], |row| row.get(0)).unwrap()
    };
    assert_eq!((count(&inside), count(outside.path())), (1, 2));
    let holds = |path: &Path| {
        let bytes = fs::read(path.join("waystone.db")).unwrap();
        bytes.windows(11).any(|window| window == b"launch code")
    };
    assert!(holds(outside.path()) && !holds(&inside));
    h.close_mirrored().await;
    let told = restore_from(&h, outside.path()).unwrap().findings;
    assert_eq!(told.iter().map(|finding| finding.kind).collect::<Vec<_>>(), [FindingKind::HeldBack]);
    h.restart_mirrored().await;
    assert_eq!(h.try_load(json!({ "checkpointId": gone })).await.unwrap_err().code(), "CHECKPOINT_NOT_FOUND");
    assert_eq!(h.list(json!({})).await.len(), 1);
    h.check_invariants().await;
}

#[tokio::test]
async fn what_is_no_backup_is_refused_and_changes_nothing() {
    let mut h = Harness::new();
    h.save("s", json!({ "n": 1 })).await;
    h.close_mirrored().await;
    let other = private_dir();
    let refused = |path: &Path| restore_from(&h, path).unwrap_err().to_string();
    assert!(refused(&other.path().join("missing")).contains("no backup"));
    assert!(refused(other.path()).contains("no backup"));
    assert!(refused(h.data_dir()).contains("itself"));
    fs::write(other.path().join("waystone.db"), b"garbage that is long enough to be looked at".repeat(100)).unwrap();
    assert!(refused(other.path()).contains("not a database"));
    h.restart().await;
    assert_eq!(h.list(json!({})).await.len(), 1);
    assert_eq!(h.findings().await, []);
}

#[tokio::test]
async fn doctor_finds_what_does_not_follow_and_makes_it_anew_where_it_can() {
    let mut h = Harness::new();
    put(&h, "a text").await;
    for n in 0..3 {
        h.save("s", json!({ "n": n })).await;
    }
    h.restart_mirrored().await;
    for (sql, healed) in [
        ("UPDATE space SET size_bytes = size_bytes + 7", "sums of the store"),
        ("UPDATE session SET size_bytes = 1, checkpoint_count = 9", "sums of sessions"),
        ("UPDATE usage SET tokens = tokens + 1", "sums of segments"),
        ("DELETE FROM segment_index", "search"),
        ("DELETE FROM checkpoint_index", "search"),
    ] {
        audit::open(h.data_dir()).execute_batch(sql).unwrap();
        let checkup = h.check_copies().await;
        assert!(checkup.sound && checkup.findings.iter().any(|found| found.subject == healed), "{sql}: {checkup:?}");
        h.restart_mirrored().await;
        assert_eq!(h.findings().await, [], "{sql}");
        h.check_invariants().await;
    }
    audit::open(h.data_dir()).execute("UPDATE segment_text SET text = 'another'", []).unwrap();
    assert_eq!(h.findings().await, [FindingKind::Lost]);
    audit::open(h.data_dir()).execute("UPDATE segment_text SET text = 'a text'", []).unwrap();

    let seq = "UPDATE operation SET actor = 'someone else' WHERE seq = 2";
    audit::open(h.data_dir()).execute(seq, []).unwrap();
    let checkup = h.check_copies().await;
    assert_eq!((checkup.sound, checkup.findings[0].subject.as_str()), (false, "operation 2"));
    h.close_mirrored().await;
    h.repair();
    h.restart().await;
    assert_eq!(h.findings().await, [], "another chain begins after it");
    h.check_invariants().await;
}

/// They hold nothing that is not elsewhere, and nothing else is given up because of them.
#[tokio::test]
async fn words_that_are_damaged_are_made_anew_and_texts_are_taken_again() {
    for sql in [
        "UPDATE segment_word_data SET block = zeroblob(length(block)) WHERE id = 10",
        "UPDATE segment_word_data SET block = x'ffff' WHERE id = 10",
        "UPDATE segment_word_data SET block = zeroblob(length(block)) WHERE id > 100",
        "DELETE FROM checkpoint_word_data",
        "DELETE FROM checkpoint_term_data",
    ] {
        let mut h = Harness::new();
        h.save("s", json!({ "n": "a word" })).await;
        put(&h, "a marmalade").await;
        h.restart_mirrored().await;
        back_up(&h).await;
        put(&h, "newer than the backup").await;
        h.close_mirrored().await;
        audit::open(h.data_dir()).execute_batch(sql).unwrap();
        assert_eq!(h.repair().damage, None, "{sql}: it is no reason to go back to a backup");
        h.restart().await;
        let checkup = h.check_copies().await;
        assert!(checkup.sound && checkup.findings.iter().any(|found| found.subject == "search"), "{sql}: {checkup:?}");
        put(&h, "a text after that").await;
        h.restart_mirrored().await;
        assert_eq!(h.findings().await, [], "{sql}");
        assert_eq!(texts(&h).await.len(), 3, "{sql}");
        h.check_invariants().await;
    }
}

#[tokio::test]
async fn what_an_old_backup_has_does_not_go_because_of_its_age() {
    let mut h = Harness::new();
    h.save("s", json!({ "n": 1 })).await;
    h.save("deleted", json!({ "n": 1 })).await;
    h.engine.delete_session(&h.scope, &"deleted".parse().unwrap(), Deletion::default()).await.unwrap();
    let backup = back_up(&h).await;
    h.close_mirrored().await;
    h.clock.advance_ms(60 * 24 * 60 * 60 * 1000);
    restore_from(&h, &backup).unwrap();
    for _ in 0..3 {
        h.restart().await;
        h.engine.clean_up(&h.scope, serde_json::from_value(json!({})).unwrap(), |_, _| {}).await.unwrap();
    }
    assert_eq!(h.list(json!({})).await.len(), 1);
    h.engine.restore_session(&h.scope, &"deleted".parse().unwrap()).await.unwrap();
}

#[tokio::test]
async fn a_repair_after_a_restore_begins_with_what_was_restored() {
    let mut h = Harness::new();
    h.save("s", json!({ "n": 0 })).await;
    let old = back_up(&h).await;
    h.save("given-up", json!({ "n": 1 })).await;
    back_up(&h).await;
    h.close_mirrored().await;
    restore_from(&h, &old).unwrap();
    h.restart_mirrored().await;
    h.engine.close().await;
    lose_database(&h);
    h.repair();
    h.restart_mirrored().await;
    assert_eq!(h.list(json!({ "limit": 100 })).await.len(), 1);
    h.check_invariants().await;
}

/// What a session became after it was copied stands only in the file of its newest group.
#[tokio::test]
async fn a_repair_that_begins_with_a_backup_brings_marks_names_and_deletions_that_are_newer() {
    let mut h = Harness::new();
    for session in ["marked", "deleted"] {
        for n in 0..32 {
            h.save(session, json!({ "n": n, "goal": session })).await;
        }
    }
    back_up(&h).await;
    for session in ["marked", "deleted"] {
        h.save(session, json!({ "n": 32, "goal": session })).await;
    }
    let mark = json!({ "sessionId": "marked", "contextKey": "goal" });
    h.engine.mark_critical(&h.scope, serde_json::from_value(mark).unwrap()).await.unwrap();
    let name = serde_json::from_value(json!({ "name": "newer than the backup" })).unwrap();
    h.engine.update_session(&h.scope, &"marked".parse().unwrap(), name).await.unwrap();
    h.engine.delete_session(&h.scope, &"deleted".parse().unwrap(), Deletion::default()).await.unwrap();
    h.close_mirrored().await;
    lose_database(&h);
    assert!(h.repair().backup.is_some());
    h.restart_mirrored().await;
    let marked = h.engine.find_session(&h.scope, &"marked".parse().unwrap()).await.unwrap();
    assert_eq!(
        (marked.name.as_deref(), marked.critical_keys),
        (Some("newer than the backup"), vec!["goal".to_owned()])
    );
    let deleted = h.try_load(json!({ "sessionId": "deleted" })).await.unwrap_err();
    assert_eq!(deleted.code(), "SESSION_NOT_FOUND");
    assert_eq!(h.findings().await, []);
    h.check_invariants().await;
}

/// The newest group may have lost all its checkpoints, and still be the one that tells what the session became.
#[tokio::test]
async fn a_repair_takes_marks_from_a_file_whose_checkpoints_are_all_removed() {
    for is_noted in [false, true] {
        let mut h = Harness::new();
        for n in 0..32 {
            h.save("s", json!({ "n": n, "goal": "g" })).await;
        }
        back_up(&h).await;
        let last = h.save("s", json!({ "n": 32, "goal": "g" })).await.checkpoint_id;
        let mark = json!({ "sessionId": "s", "contextKey": "goal" });
        if is_noted {
            // Its removal died when it had taken note.
            h.engine.mark_critical(&h.scope, serde_json::from_value(mark).unwrap()).await.unwrap();
            h.close_mirrored().await;
            let folder = h.data_dir().join("contexts/.deleted");
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("s.txt"), format!("{last}\n")).unwrap();
        } else {
            h.engine.delete_checkpoint(&h.scope, &last, Deletion { purge: true }).await.unwrap();
            h.engine.mark_critical(&h.scope, serde_json::from_value(mark).unwrap()).await.unwrap();
            h.close_mirrored().await;
        }
        lose_database(&h);
        assert!(h.repair().backup.is_some());
        h.restart_mirrored().await;
        let session = h.engine.find_session(&h.scope, &"s".parse().unwrap()).await.unwrap();
        assert_eq!((session.critical_keys, session.checkpoint_count), (vec!["goal".to_owned()], 32), "{is_noted}");
        assert_eq!(h.findings().await, []);
        h.check_invariants().await;
    }
}

/// Until the database that a repair made is in use, the files are what the next repair begins with.
#[tokio::test]
async fn a_repair_that_cannot_put_its_database_in_place_has_taken_no_file_away() {
    let mut h = Harness::new();
    for n in 0..32 {
        h.save("s", json!({ "n": n, "goal": "g" })).await;
    }
    back_up(&h).await;
    let last = h.save("s", json!({ "n": 32, "goal": "g" })).await.checkpoint_id;
    let mark = json!({ "sessionId": "s", "contextKey": "goal" });
    h.engine.mark_critical(&h.scope, serde_json::from_value(mark).unwrap()).await.unwrap();
    h.close_mirrored().await;
    let folder = h.data_dir().join("contexts/.deleted");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("s.txt"), format!("{last}\n")).unwrap();
    lose_database(&h);
    fs::write(h.data_dir().join("waystone.db"), "no database").unwrap();
    // Where the damaged one is to be set aside stands something else.
    fs::write(h.data_dir().join("damaged"), "").unwrap();
    h.try_repair().unwrap_err();
    fs::remove_file(h.data_dir().join("damaged")).unwrap();
    assert!(h.repair().backup.is_some());
    h.restart_mirrored().await;
    let session = h.engine.find_session(&h.scope, &"s".parse().unwrap()).await.unwrap();
    assert_eq!((session.critical_keys, session.checkpoint_count), (vec!["goal".to_owned()], 32));
    assert_eq!(h.findings().await, []);
    h.check_invariants().await;
}

/// Formats from which a migration fails in each of its ways: a table, an index or a column is there already.
#[tokio::test]
async fn a_backup_whose_header_names_an_older_format_is_passed_over_for_an_older_backup() {
    for format in [1_u32, 2, 5, 6, 7, 11, 12] {
        let mut h = Harness::new();
        put(&h, "kept").await;
        let good = back_up(&h).await;
        let newest = back_up(&h).await;
        h.engine.close().await;
        let path = newest.join("waystone.db");
        let mut bytes = fs::read(&path).unwrap();
        bytes[60..64].copy_from_slice(&format.to_be_bytes());
        fs::write(&path, bytes).unwrap();
        lose_database(&h);
        assert_eq!(
            h.repair().backup.map(|path| path.file_name().map(ToOwned::to_owned)),
            Some(good.file_name().map(ToOwned::to_owned)),
            "{format}"
        );
        h.restart().await;
        assert_eq!(texts(&h).await, ["kept"]);
        h.check_invariants().await;
    }
}
