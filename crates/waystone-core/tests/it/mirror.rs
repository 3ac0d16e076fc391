//! The second copy: files that stand alone, and what is healed from what.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};
use waystone_core::api::FindingKind;
use waystone_core::clock::Clock;
use waystone_core::store::Scope;
use waystone_core::{Engine, Error};
use waystone_store::Root;
use waystone_testkit::contexts::Random;
use waystone_testkit::harness::{context_of, copy_dir, key, private_dir, request_of};
use waystone_testkit::{Harness, audit};

/// Two sessions, one of them with two groups, closed and opened again: everything is mirrored.
async fn mirrored() -> (Harness, Vec<String>) {
    let mut h = Harness::new();
    let mut ids = Vec::new();
    for n in 0..40 {
        ids.push(h.save("Long", json!({ "n": n, "text": "a run of many steps" })).await.checkpoint_id.to_string());
    }
    let named = json!({ "sessionId": "b", "context": { "k": [1, 2] }, "metadata": { "name": "first", "tags": ["x"] } });
    ids.push(h.try_save(named).await.unwrap().checkpoint_id.to_string());
    h.restart_mirrored().await;
    (h, ids)
}

fn files(h: &Harness) -> Vec<PathBuf> {
    let entries = |path: &Path| fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
    let mut files: Vec<_> = entries(&h.data_dir().join("contexts")).iter().flat_map(|folder| entries(folder)).collect();
    files.sort();
    files
}

async fn everything(h: &Harness, ids: &[String]) -> Vec<Value> {
    everything_of(&h.engine, &h.scope, ids).await
}

async fn everything_of(engine: &Engine, scope: &Scope, ids: &[String]) -> Vec<Value> {
    let mut all = Vec::new();
    for id in ids {
        let request = serde_json::from_value(json!({ "checkpointId": id })).unwrap();
        let loaded = engine.load_checkpoint(scope, request).await;
        let mut loaded = serde_json::to_value(loaded.map_err(|error| error.to_string())).unwrap();
        // How it is kept may change, and is the file's own matter until it is written again.
        for field in ["sizeBytes", "contextSizeBytes", "blobPath"] {
            loaded["Ok"][field] = Value::Null;
        }
        all.push(loaded);
    }
    for session in ["Long", "b"] {
        let session = engine.find_session(scope, &session.parse().unwrap()).await;
        all.push(session.map_or(Value::Null, |session| json!([session.name, session.tags, session.checkpoint_count])));
    }
    all
}

#[tokio::test]
async fn a_clean_end_mirrors_every_group_into_a_file_of_plain_lines() {
    let (h, ids) = mirrored().await;
    let files = files(&h);
    let names: Vec<_> =
        files.iter().map(|path| path.strip_prefix(h.data_dir()).unwrap().display().to_string()).collect();
    let expected = [("%4Cong", &ids[0]), ("%4Cong", &ids[32]), ("b", &ids[40])];
    assert_eq!(names, expected.map(|(session, id)| format!("contexts/{session}/{id}.json.zst")));
    let printed = std::process::Command::new("zstdcat").arg(&files[1]).output();
    let printed =
        printed.map_or_else(|_| zstd::decode_all(fs::File::open(&files[1]).unwrap()).unwrap(), |done| done.stdout);
    let lines: Vec<Value> =
        String::from_utf8(printed).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.iter().map(|line| line["n"].as_u64().unwrap()).collect::<Vec<_>>(), (32..40).collect::<Vec<_>>());
    let loaded = h.load(&ids[40].parse().unwrap()).await;
    assert_eq!(loaded.blob_path, Some(names[2].clone()));
    assert_eq!(h.findings().await, []);
}

#[tokio::test]
async fn a_damaged_row_is_healed_from_its_file_when_it_is_loaded() {
    let (h, ids) = mirrored().await;
    let before = everything(&h, &ids).await;
    let db = audit::open(h.data_dir());
    db.execute_batch("UPDATE checkpoint_bytes SET bytes = randomblob(length(bytes))").unwrap();
    assert_eq!(everything(&h, &ids).await[..ids.len()], before[..ids.len()]);
    let mut h = h;
    h.restart().await;
    assert_eq!((everything(&h, &ids).await, h.findings().await), (before, vec![]));
    h.check_invariants().await;
}

#[tokio::test]
async fn damage_in_both_copies_is_told_and_stays_told() {
    let (mut h, ids) = mirrored().await;
    let file = fs::read(&files(&h)[2]).unwrap();
    fs::write(&files(&h)[2], &file[..file.len() - 1]).unwrap();
    audit::open(h.data_dir()).execute("UPDATE checkpoint_bytes SET bytes = x'00' WHERE checkpoint = 41", []).unwrap();
    let error = h.try_load(json!({ "checkpointId": ids[40] })).await.unwrap_err();
    assert!(matches!(error, Error::CheckpointCorrupt { .. }), "{error:?}");
    assert_eq!(h.findings().await, [FindingKind::Lost, FindingKind::MirrorHealed]);
    h.restart().await;
    assert_eq!(h.findings().await, [FindingKind::Lost]);
    let set_aside = fs::read_dir(h.data_dir().join("damaged")).unwrap().count();
    assert_eq!(set_aside, 1, "a damaged file is moved away, not deleted");
}

#[tokio::test]
async fn what_is_damaged_in_both_copies_is_healed_from_a_backup_as_far_as_one_has_it() {
    let (h, ids) = mirrored().await;
    h.clock.advance_ms(1000);
    h.engine.back_up(&h.scope, None).await.unwrap();
    let newer = h.save("new", json!({ "after": "the backup" })).await.checkpoint_id;
    let before = everything(&h, &ids).await;
    for path in files(&h) {
        fs::write(path, "garbled").unwrap();
    }
    let damage = "UPDATE checkpoint_bytes SET bytes = x'00' WHERE checkpoint IN (3, 41, 42)";
    audit::open(h.data_dir()).execute(damage, []).unwrap();
    let found = h.findings().await;
    assert!(found.contains(&FindingKind::RowHealed) && found.contains(&FindingKind::Lost), "{found:?}");
    assert_eq!(everything(&h, &ids).await, before);
    let error = h.try_load(json!({ "checkpointId": newer })).await.unwrap_err();
    assert!(matches!(error, Error::CheckpointCorrupt { .. }), "{error:?}");
    assert_eq!(h.findings().await, [FindingKind::Lost]);
}

#[tokio::test]
async fn a_column_that_was_garbled_gets_its_value_back() {
    let (h, ids) = mirrored().await;
    let before = everything(&h, &ids).await;
    let garble = [
        "UPDATE checkpoint SET metadata = '{}' WHERE key = 41",
        "UPDATE checkpoint SET context_hash = randomblob(32) WHERE key = 3",
        "UPDATE checkpoint SET raw_hash = randomblob(32) WHERE key = 7",
        "UPDATE checkpoint SET created_at_ms = 12 WHERE key = 33",
        "UPDATE session SET tags = '[\"y\"]', name = 'z'",
        "DELETE FROM checkpoint_bytes WHERE checkpoint = 12",
        "UPDATE checkpoint SET archived_at_ms = 1 WHERE key = 20",
    ];
    for sql in garble {
        audit::open(h.data_dir()).execute_batch(sql).unwrap();
        let found = h.findings().await;
        assert!(!found.is_empty() && found.iter().all(|kind| *kind == FindingKind::RowHealed), "{sql}: {found:?}");
        assert_eq!((everything(&h, &ids).await, h.findings().await), (before.clone(), vec![]), "{sql}");
    }
    h.check_invariants().await;
}

#[tokio::test]
async fn a_deletion_is_in_the_file_before_it_is_acknowledged() {
    let (mut h, ids) = mirrored().await;
    h.engine.delete_checkpoint(&h.scope, &ids[5].parse().unwrap(), Default::default()).await.unwrap();
    h.engine.delete_session(&h.scope, &"b".parse().unwrap(), Default::default()).await.unwrap();
    // As after a crash: nothing is closed, and the database is lost.
    let root = h.data_dir().to_owned();
    for name in ["waystone.db", "waystone.db-wal", "waystone.db-shm"] {
        fs::rename(root.join(name), root.join(format!("{name}.lost"))).unwrap();
    }
    h.engine.close().await;
    h.repair();
    h.restart().await;
    let listed = h.list(json!({ "limit": 1000 })).await;
    assert_eq!(listed.len(), 39);
    assert!(!listed.contains(&ids[5]) && !listed.contains(&ids[40]));
    assert!(h.load(&ids[5].parse().unwrap()).await.checkpoint.archived);
    h.check_invariants().await;
}

#[tokio::test]
async fn a_lost_database_is_refused_and_rebuilt_with_everything_that_was_mirrored() {
    let (mut h, ids) = mirrored().await;
    let rename = serde_json::from_value(json!({ "name": "long run", "tags": ["t"] })).unwrap();
    h.engine.update_session(&h.scope, &"Long".parse().unwrap(), rename).await.unwrap();
    h.engine.delete_checkpoint(&h.scope, &ids[1].parse().unwrap(), Default::default()).await.unwrap();
    h.restart_mirrored().await;
    let before = (everything(&h, &ids).await, h.list(json!({ "limit": 1000 })).await);
    h.engine.close().await;
    fs::remove_file(h.data_dir().join("waystone.db")).unwrap();
    let refused = waystone_store::Sqlite::open(
        Root { path: h.data_dir(), key: key().as_ref(), seals: key().is_some() },
        h.clock.clone(),
        &waystone_core::Limits::default(),
    )
    .err()
    .unwrap()
    .hint();
    assert!(refused.contains("doctor --repair"), "{refused}");
    assert!(!h.data_dir().join("waystone.db").exists(), "no fresh database hides what was saved");

    let repaired = h.repair();
    assert_eq!(repaired.damage.as_deref(), Some("it is missing"));
    h.restart().await;
    assert_eq!((everything(&h, &ids).await, h.list(json!({ "limit": 1000 })).await), before);
    assert_eq!(h.findings().await, []);
    h.save("Long", json!({ "n": 40 })).await;
    assert_eq!(context_of(&h.try_load(json!({ "sessionId": "Long" })).await.unwrap()), json!({ "n": 40 }));
    h.check_invariants().await;
}

#[tokio::test]
async fn a_group_that_is_only_in_its_file_is_named_and_comes_back() {
    let (mut h, ids) = mirrored().await;
    let before = everything(&h, &ids).await;
    let db = audit::open(h.data_dir());
    db.execute_batch(
        "PRAGMA foreign_keys = ON; UPDATE session SET head = NULL WHERE id = 'b'; DELETE FROM checkpoint WHERE key = 41;
         DELETE FROM checkpoint_group WHERE key = 3; DELETE FROM session WHERE id = 'b';",
    )
    .unwrap();
    drop(db);
    assert_eq!(h.findings().await, [FindingKind::RowHealed, FindingKind::Orphan], "sums follow what is there");
    h.engine.close().await;
    assert_eq!(h.repair().damage, None);
    h.restart().await;
    assert_eq!((everything(&h, &ids).await, h.findings().await), (before, vec![]));
    h.check_invariants().await;
}

#[tokio::test]
async fn a_database_of_a_newer_version_is_not_repaired_and_one_whose_number_is_garbled_is() {
    let (mut h, ids) = mirrored().await;
    let before = everything(&h, &ids).await;
    h.engine.close().await;
    let set = |pragmas: &str| audit::open(h.data_dir()).execute_batch(pragmas).unwrap();
    let version: u32 = audit::open(h.data_dir()).query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap();
    let (known, newer) = (0x5753_0000 + version, version + 1);
    set(&format!("PRAGMA user_version = {newer}; PRAGMA application_id = {};", known + 1));
    let refused = h.try_repair().unwrap_err().to_string();
    assert!(refused.contains("newer version"), "{refused}");
    for garbled in [0, 1, newer, 999_999] {
        set(&format!("PRAGMA user_version = {garbled}; PRAGMA application_id = {known};"));
        assert!(h.repair().damage.is_some(), "{garbled}");
    }
    h.restart().await;
    assert_eq!(everything(&h, &ids).await, before);
}

#[tokio::test]
async fn what_a_damaged_database_holds_and_no_file_does_is_brought_over() {
    let (h, mut ids) = mirrored().await;
    ids.push(h.save("Long", json!({ "n": 40, "text": "not mirrored yet" })).await.checkpoint_id.to_string());
    ids.push(h.save("fresh", json!({ "n": 0 })).await.checkpoint_id.to_string());
    let before = everything(&h, &ids).await;
    // As after a crash at this moment, with a page of the log of events gone.
    let copy = private_dir();
    let data_dir = copy.path();
    copy_dir(h.data_dir(), data_dir);
    let db = audit::open(data_dir);
    let page: usize =
        db.query_row("SELECT rootpage FROM sqlite_schema WHERE name = 'event'", [], |row| row.get(0)).unwrap();
    db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    drop(db);
    let mut bytes = fs::read(data_dir.join("waystone.db")).unwrap();
    bytes[(page - 1) * 4096..page * 4096].fill(0xa5);
    fs::write(data_dir.join("waystone.db"), bytes).unwrap();

    let clock: Arc<dyn Clock> = h.clock.clone();
    let repaired = waystone_store::repair(
        Root { path: data_dir, key: key().as_ref(), seals: key().is_some() },
        &clock,
        &mut |_, _| {},
    )
    .unwrap();
    assert!(repaired.damage.is_some() && repaired.set_aside.is_some());
    let rebuilt = h.at(data_dir);
    assert_eq!(everything_of(&rebuilt, &h.scope, &ids).await, before);
    rebuilt.close().await;
    assert_eq!(audit::audit(data_dir), Vec::<String>::new());
}

/// Deletions write files at once, so that files and rows change under the check all the time; with long texts it looks
/// for long.
#[tokio::test(flavor = "multi_thread")]
async fn a_check_beside_a_writer_finds_nothing_and_heals_nothing() {
    let h = Harness::new();
    let (writer, scope) = (h.second(), h.scope.clone());
    let text = Random::new(1).text(50_000);
    let writing = tokio::spawn(async move {
        for n in 0..32 {
            let session = if n % 4 == 0 { format!("s{n}") } else { "s".to_owned() };
            let request = json!({ "sessionId": session, "context": { "n": n, "text": text } });
            let saved = writer.save_checkpoint(&scope, request_of(request)).await.unwrap();
            writer.delete_checkpoint(&scope, &saved.checkpoint_id, Default::default()).await.unwrap();
        }
        writer.close().await;
    });
    let mut checks = 0;
    while !writing.is_finished() || checks == 0 {
        let checkup = h.check_copies().await;
        assert_eq!((checkup.findings, checkup.sound), (vec![], true), "check {checks}");
        checks += 1;
    }
    writing.await.unwrap();
    assert_eq!(h.findings().await, []);
    assert!(!h.data_dir().join("damaged").exists(), "nothing was set aside");
    h.check_invariants().await;
}

/// How many of this process's open files are `path`.
#[cfg(target_os = "linux")]
fn open_files(path: &Path) -> usize {
    let all = fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    all.filter(|open| open == path).count()
}

/// A file that another process wrote after the rows were read holds a newer state than they do.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_written_while_it_is_compared_is_no_finding() {
    let mut h = Harness::new();
    h.save("s", json!({ "n": 1 })).await;
    h.restart_mirrored().await;
    let lock = h.data_dir().join("mirror.lock");
    let turn = fs::File::open(&lock).unwrap();
    turn.lock().unwrap();
    let shift = |by: i64| {
        let db = audit::open(h.data_dir());
        db.execute("UPDATE checkpoint_group SET changed_seq = changed_seq + ?1", [by]).unwrap();
    };
    shift(-1);
    let (engine, scope) = (h.engine.clone(), h.scope.clone());
    let checking = tokio::spawn(async move { engine.check_copies(&scope, |_, _| {}).await.unwrap() });
    // Whoever waits for its turn has the file open.
    while open_files(&lock) < 2 && !checking.is_finished() {
        tokio::task::yield_now().await;
    }
    shift(1);
    drop(turn);
    assert_eq!(checking.await.unwrap().findings, []);
}

/// It is committed first and acknowledged when it is in its file, so this is the one failure after which something has
/// changed.
#[tokio::test]
async fn a_deletion_whose_file_cannot_be_written_is_made_but_not_acknowledged() {
    let mut h = Harness::new();
    let in_the_way = h.data_dir().join("contexts");
    fs::write(&in_the_way, "not a folder").unwrap();
    let ids = [h.save("s", json!({ "n": 0 })).await.checkpoint_id, h.save("s", json!({ "n": 1 })).await.checkpoint_id];
    let error = h.engine.delete_checkpoint(&h.scope, &ids[0], Default::default()).await.unwrap_err();
    assert_eq!(error.code(), "STORAGE_UNAVAILABLE");
    let hint = error.reply().error.hint;
    assert!(!hint.contains("nothing was changed"), "{hint}");
    assert_eq!(h.list(json!({ "limit": 10 })).await, [ids[1].to_string()], "it is hidden already");

    fs::remove_file(in_the_way).unwrap();
    h.close_mirrored().await;
    fs::remove_file(h.data_dir().join("waystone.db")).unwrap();
    h.repair();
    h.restart().await;
    assert_eq!(h.list(json!({ "limit": 10 })).await, [ids[1].to_string()], "the file followed by itself");
    h.check_invariants().await;
}
