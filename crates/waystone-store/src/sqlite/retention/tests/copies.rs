//! Copies that are made by themselves.

use std::cell::Cell;
use std::path::PathBuf;

use super::room::{delete_segment, fill, put};
use super::*;

fn backups(h: &Harness) -> usize {
    fs::read_dir(h.data_dir().join("backups")).map_or(0, Iterator::count)
}

#[tokio::test]
async fn a_copy_is_made_each_day_and_the_newest_three_are_kept() {
    let h = Harness::new();
    let mut keeper = upkeep(&h);
    assert!(keeper.begin_backup().unwrap().is_none(), "there is nothing to copy");
    save_all(&h, "s", 0..2).await;
    let mut make = || {
        let Some(copying) = keeper.begin_backup().unwrap() else { return false };
        while !copying.is_finished() {
            std::thread::yield_now();
        }
        true
    };
    assert!(make());
    assert!(!make(), "it is not a day ago");
    for day in 1..5 {
        h.clock.advance_ms(DAY_MS);
        assert!(make());
        assert_eq!(backups(&h), (1 + day).min(3));
    }
    h.clock.advance_ms(-4 * DAY_MS);
    assert!(make(), "one from the future is not believed");
    fs::write(h.data_dir().join("backups/notes.txt"), "a person's").unwrap();
    h.clock.advance_ms(5 * DAY_MS);
    assert!(make());
    assert!(h.data_dir().join("backups/notes.txt").exists(), "what is not a backup is left alone");
}

#[tokio::test]
async fn a_copy_that_is_broken_off_leaves_nothing() {
    let h = Harness::new();
    fill(&h, 0..20).await;
    for _ in 0..5 {
        drop(upkeep(&h).begin_backup().unwrap());
        let left = fs::read_dir(h.data_dir().join("backups")).into_iter().flatten().flatten();
        for folder in left {
            let database = folder.path().join("waystone.db");
            assert!(database.exists(), "it is whole or not there: {}", folder.path().display());
            fs::remove_dir_all(folder.path()).unwrap();
        }
    }
    h.check_invariants().await;
}

#[tokio::test]
async fn a_clock_that_was_ahead_and_what_a_person_put_there_do_not_stop_backups() {
    let h = Harness::new();
    save_all(&h, "s", 0..2).await;
    let make = async || h.engine.back_up(&h.scope, None).await.unwrap().path;
    h.clock.advance_ms(365 * DAY_MS);
    for _ in 0..3 {
        h.clock.advance_ms(DAY_MS);
        make().await;
    }
    h.clock.advance_ms(-365 * DAY_MS);
    let right = make().await;
    assert!(Path::new(&right).is_dir(), "the one just made is not the one that goes");
    fs::create_dir(h.data_dir().join("backups/keep")).unwrap();
    fs::copy(Path::new(&right).join("waystone.db"), h.data_dir().join("backups/keep/waystone.db")).unwrap();
    assert!(upkeep(&h).begin_backup().unwrap().is_none(), "the newest is not a day old");
    let directory = DataDirectory::prepare(h.data_dir()).unwrap();
    let now = h.clock.now();
    assert_eq!(crate::backup::list(&directory, now).unwrap()[0], Path::new(&right));
}

#[tokio::test]
async fn a_backup_from_which_nothing_can_be_removed_is_named() {
    let h = Harness::new();
    save_all(&h, "s", 0..2).await;
    let mut made = Vec::new();
    for _ in 0..2 {
        made.push(h.engine.back_up(&h.scope, None).await.unwrap().path);
        h.clock.advance_ms(1000);
    }
    fs::write(Path::new(&made[0]).join("waystone.db"), "no database").unwrap();
    let removed = h.engine.delete_session(&h.scope, &id("s"), PURGE).await.unwrap();
    let named = |path: &String| removed.warnings.iter().any(|warning| warning.starts_with(path.as_str()));
    assert!(named(&made[0]) && !named(&made[1]), "{:?}", removed.warnings);
    assert!(!is_anywhere(Path::new(&made[1]), "s keeps"));
}

#[tokio::test]
async fn what_a_process_that_died_had_begun_to_write_goes_with_what_is_removed() {
    let mut h = Harness::new();
    save_all(&h, "s", 0..40).await;
    h.restart_mirrored().await;
    let files: Vec<_> =
        fs::read_dir(h.data_dir().join("contexts/s")).unwrap().map(|file| file.unwrap().path()).collect();
    assert_eq!(files.len(), 2);
    for file in files {
        fs::write(file.with_extension("new"), "s keeps 1").unwrap();
    }
    let directory = DataDirectory::prepare(h.data_dir()).unwrap();
    let begin = |ms| crate::backup::Unfinished::begin(&directory.backup(Timestamp::from_ms(ms))).unwrap();
    let (died, lives) = (begin(1), begin(2));
    let (left, held) = (died.path(), lives.path());
    drop(died);
    fs::write(&left, "s keeps 2").unwrap();
    h.engine.delete_session(&h.scope, &id("s"), PURGE).await.unwrap();
    assert!(!is_anywhere(h.data_dir(), "s keeps") && !h.data_dir().join("contexts/s").exists());
    assert!(held.exists() && !left.exists(), "what someone is at is left alone");
}

/// Whoever deletes something waits for the turn to write files for some seconds only.
#[tokio::test]
async fn what_was_removed_is_looked_for_in_parts_and_only_where_something_may_be_left() {
    let (h, _turn) = without_house();
    let ids = save_all(&h, "s", 0..2).await;
    let directory = DataDirectory::prepare(h.data_dir()).unwrap();
    let back_up = async || {
        h.clock.advance_ms(1000);
        PathBuf::from(h.engine.back_up(&h.scope, None).await.unwrap().path)
    };
    let backup = back_up().await;
    let many: Vec<String> = (0..6000).map(|n| format!("ckpt-gone-{n}")).collect();
    for (of, part) in many.chunks(1500).enumerate() {
        tombstone::add(&directory, &format!("gone-{of}"), part.iter().map(String::as_str)).unwrap();
    }
    let parts = Cell::new(0);
    let mut keeper = upkeep(&h);
    let mut clear = || {
        parts.set(0);
        let is_over = || {
            let lock = fs::File::open(directory.mirror_lock()).unwrap();
            lock.try_lock().expect("others get their turn in between");
            parts.set(parts.get() + 1);
            false
        };
        assert!(keeper.clear_leftovers(&is_over).unwrap());
        parts.get()
    };
    assert_eq!((clear(), clear()), (4, 1), "nothing was left since");
    tombstone::add(&directory, "s", [ids[0].as_str()]).unwrap();
    h.engine.delete_session(&h.scope, &id("s"), Deletion::default()).await.unwrap();
    let holds = |n: usize| {
        let db = open_writer(&backup.join("waystone.db"), directory.keys()).unwrap();
        db.prepare("SELECT 1 FROM checkpoint WHERE id = ?1").unwrap().exists([ids[n].as_str()]).unwrap()
    };
    assert!(holds(0));
    clear();
    assert!(!holds(0) && holds(1), "one whose removal broke off");
    back_up().await;
    assert!(clear() > 3, "in another backup all may be left");
}

#[tokio::test]
async fn whatever_is_restored_from_an_old_backup_has_its_whole_grace() {
    let h = Harness::new();
    let ids = save_all(&h, "s", 0..2).await;
    save_all(&h, "t", 0..2).await;
    let task = json!({ "project_id": "project", "task_id": "task" });
    h.engine.set_current_task(&h.scope, serde_json::from_value(task.clone()).unwrap()).await.unwrap();
    let segment = put(&h, "a note").await;
    h.engine.create_snapshot(&h.scope, serde_json::from_value(task.clone()).unwrap()).await.unwrap();
    let undo = json!({ "project_id": "project" });
    h.engine.undo_operation(&h.scope, serde_json::from_value(undo).unwrap()).await.unwrap();
    delete_segment(&h, &segment).await;
    let context = json!({ "text": "much of it ".repeat(50) });
    let given = serde_json::from_value(json!({ "context": context, "targetTokens": 5 })).unwrap();
    h.engine.compress_context(&h.scope, given).await.unwrap();
    h.engine.delete_checkpoint(&h.scope, &ids[0], Deletion::default()).await.unwrap();
    h.engine.delete_session(&h.scope, &id("t"), Deletion::default()).await.unwrap();
    let backup = h.engine.back_up(&h.scope, None).await.unwrap().path;
    h.engine.close().await;
    h.clock.advance_ms(100 * DAY_MS);
    let clock: Arc<dyn Clock> = h.clock.clone();
    crate::restore_from(h.data_dir(), Path::new(&backup), &clock, &mut |_, _| {}).unwrap();
    let db = audit::open(h.data_dir());
    for (table, time) in [
        ("session", "archived_at_ms"),
        ("checkpoint", "archived_at_ms"),
        ("segment", "archived_at_ms"),
        ("snapshot", "archived_at_ms"),
        ("given_context", "used_at_ms"),
    ] {
        let sql = format!("SELECT min({time}) FROM {table}");
        let from: Option<i64> = db.query_row(&sql, [], |row| row.get(0)).unwrap();
        assert_eq!(from, Some(h.clock.now().ms()), "{table}");
    }
}

/// What a session is called and whether it is deleted stands in the file of its newest group, which may go before the others.
#[tokio::test]
async fn what_a_session_is_stays_in_a_file_when_its_newest_group_is_removed() {
    let mut h = Harness::new();
    let ids = save_all(&h, "s", 0..33).await;
    h.engine.delete_session(&h.scope, &id("s"), Deletion::default()).await.unwrap();
    h.restart_mirrored().await;
    h.engine.restore_session(&h.scope, &id("s")).await.unwrap();
    let named = serde_json::from_value(json!({ "name": "the ledger" })).unwrap();
    h.engine.update_session(&h.scope, &id("s"), named).await.unwrap();
    h.restart_mirrored().await;
    h.engine.delete_checkpoint(&h.scope, &ids[32], PURGE).await.unwrap();
    h.restart_mirrored().await;
    assert_eq!(h.check_copies().await.findings, []);
    rebuild(&mut h).await;
    assert_eq!(sessions(&h, false).await, ["s"], "it is not deleted");
    let session = h.engine.find_session(&h.scope, &id("s")).await.unwrap();
    assert_eq!((session.name.as_deref(), session.checkpoint_count), (Some("the ledger"), 32));
    h.check_invariants().await;
}
