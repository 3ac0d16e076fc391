//! Conversations as they are kept: after a restart, as sessions and segments, deleted, removed and listed.

use serde_json::json;
use waystone_core::api::{CleanUp, Deletion, FindContext, ListCheckpoints, ListContexts, ListMessages, SaveContext};
use waystone_core::error::Conflict;
use waystone_core::{Error, Limits};
use waystone_testkit::audit;
use waystone_testkit::harness::copy_dir;
use waystone_testkit::model::Reply;

use super::Talk;

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_survives_a_restart_as_it_was() {
    let mut t = Talk::new().await;
    t.fake.then(Reply::text("A1"));
    let id = t.create(json!({ "mode": "code", "parameters": { "temperature": 0.5 } })).await.id;
    t.say(&id, "Q1").await;
    let before = t.context(&id).await;
    t.restart().await;
    assert_eq!(t.context(&id).await, before);
    assert!(t.h.findings().await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_is_a_session_that_takes_no_checkpoint_and_is_deleted_with_it() {
    let t = Talk::new().await;
    let id = t.begin().await;
    t.say(&id, "Hi").await;
    let refused = t.h.try_save(json!({ "sessionId": id, "context": { "a": 1 } })).await.unwrap_err();
    assert_eq!(refused, Error::Conflict(Conflict::IsConversation(id.clone())));
    t.h.engine.delete_session(&t.h.scope, &id, Deletion { purge: false }).await.unwrap();
    let gone = t.h.engine.find_context(&t.h.scope, &id, FindContext { message_pool: false }).await.unwrap_err();
    assert_eq!(gone, Error::ContextNotFound(id.clone()));
    assert!(t.h.engine.list_contexts(&t.h.scope, ListContexts::default()).await.unwrap().contexts.is_empty());
    t.h.engine.restore_session(&t.h.scope, &id).await.unwrap();
    assert_eq!(t.texts(&id, None).await, ["Hi", "Hi"]);
    t.h.engine.delete_context(&t.h.scope, &id, Deletion { purge: false }).await.unwrap();
    let gone = t.h.engine.find_session(&t.h.scope, &id).await.unwrap_err();
    assert_eq!(gone, Error::SessionNotFound(id));
    t.h.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_are_segments_that_a_project_leaves_alone_unless_their_task_is_named() {
    let t = Talk::new().await;
    t.fake.then(Reply::text("the ledger is in cents"));
    let id = t.begin().await;
    t.say(&id, "how is the ledger kept?").await;
    let list = |task: Option<&str>| json!({ "project_id": "project", "task_id": task });
    let request = |task| serde_json::from_value(list(task)).unwrap();
    let all = t.h.engine.list_working_set(&t.h.scope, request(None)).await.unwrap();
    assert_eq!((all.segments.len(), all.segment_count, all.total_tokens), (0, 0, 0));
    let named = t.h.engine.list_working_set(&t.h.scope, request(Some(id.as_str()))).await.unwrap();
    assert_eq!(named.segment_count, 2);
    let messages = t.messages(&id, None).await;
    assert_eq!(named.segments[0].segment_id, messages[0].id);
    let stashed =
        t.h.engine.stash_segments(&t.h.scope, serde_json::from_value(json!({ "project_id": "project" })).unwrap());
    assert!(stashed.await.unwrap().stashed_segments.is_empty(), "a project's stash leaves them alone");
    // Two messages that say the same are two, and text that is put is no message.
    let put = json!({ "project_id": "project", "text": "the ledger is in cents", "type": "message" });
    let put = t.h.engine.put_segments(&t.h.scope, serde_json::from_value(put).unwrap()).await.unwrap();
    assert_eq!((put.added, put.touched), (1, 0));
    t.h.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_that_is_removed_leaves_nothing_and_no_backup_brings_it_back() {
    const SECRET: &str = "xylophone-quartz-veldt";
    let mut t = Talk::new().await;
    t.fake.then(Reply::text(&format!("the word is {SECRET}")));
    let id = t.create(json!({ "mode": SECRET })).await.id;
    t.say(&id, &format!("remember {SECRET}")).await;
    let other = t.begin().await;
    t.say(&other, "still here").await;
    // Indexes of words are merged meanwhile, and leave pages behind.
    for round in 0..20 {
        t.say(&other, &format!("word{round} another{round}")).await;
    }
    t.h.clock.advance_ms(1000);
    t.h.engine.back_up(&t.h.scope, None).await.unwrap();
    t.h.engine.delete_context(&t.h.scope, &id, Deletion { purge: true }).await.unwrap();
    assert_eq!(t.texts(&other, None).await.len(), 42);
    t.h.check_invariants().await;
    t.restart().await;
    t.h.engine.close().await;
    // The log of what was written before is folded back, and what was freed is overwritten.
    let copy = waystone_testkit::harness::private_dir();
    copy_dir(t.h.data_dir(), copy.path());
    for file in files(copy.path()) {
        let bytes = std::fs::read(&file).unwrap();
        let found = bytes.windows(SECRET.len()).any(|window| window == SECRET.as_bytes());
        assert!(!found, "{} still has it", file.display());
    }
}

fn files(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_have_the_last_used_first_and_go_on_with_a_cursor() {
    let t = Talk::new().await;
    let mut ids = Vec::new();
    for _ in 0..5 {
        ids.push(t.begin().await);
    }
    t.say(&ids[1], "used again").await;
    let mut seen = Vec::new();
    let mut cursor = None;
    loop {
        let request = ListContexts { limit: 2, cursor, ..ListContexts::default() };
        let page = t.h.engine.list_contexts(&t.h.scope, request).await.unwrap();
        seen.extend(page.contexts.iter().map(|context| context.id.clone()));
        assert!(page.contexts.iter().all(|context| context.message_pool.is_none() && context.branches.is_none()));
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(seen, [1, 4, 3, 2, 0].map(|at: usize| ids[at].clone()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_says_how_each_conversation_begins() {
    let t = Talk::new().await;
    t.begin().await;
    for text in ["one\n  two", &"é ".repeat(300), "x"] {
        let id = t.begin().await;
        t.say(&id, text).await;
        t.say(&id, "more").await;
    }
    let page = t.h.engine.list_contexts(&t.h.scope, ListContexts::default()).await.unwrap();
    let titles: Vec<Option<String>> = page.contexts.into_iter().rev().map(|context| context.title).collect();
    let cut = "é ".repeat(40).trim_end().to_owned() + "…";
    assert_eq!(titles, [None, Some("one two".to_owned()), Some(cut), Some("x".to_owned())]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_of_conversations_reads_no_message() {
    let t = Talk::new().await;
    let id = t.begin().await;
    t.say(&id, "how it begins").await;
    let db = audit::open(t.h.data_dir());
    assert!(db.execute("UPDATE segment_text SET text = x'00'", []).unwrap() > 0);
    let page = t.h.engine.list_contexts(&t.h.scope, ListContexts::default()).await.unwrap();
    assert_eq!(page.contexts[0].title.as_deref(), Some("how it begins"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_does_not_fit_into_the_store_is_refused_and_changes_nothing() {
    let mut t = Talk::new().await;
    let id = t.begin().await;
    t.h.limits = Limits { total_bytes_max: 1000, ..Limits::default() };
    t.restart().await;
    let refused = t.try_say(&id, json!({ "content": "x".repeat(2000) })).await.unwrap_err();
    assert_eq!(refused.code(), "STORAGE_QUOTA_EXCEEDED");
    assert!(t.texts(&id, None).await.is_empty());
    assert!(t.state(&id).await.can_send_message);
}

/// Where a conversation stands is one thing, what was said in it another.
#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_that_is_removed_takes_no_conversation_with_it_out_of_a_backup() {
    let mut t = Talk::new().await;
    let id = t.begin().await;
    t.say(&id, "hello").await;
    t.h.clock.advance_ms(1000);
    t.h.engine.back_up(&t.h.scope, None).await.unwrap();
    let filter = ListCheckpoints { session_id: Some(id.clone()), ..ListCheckpoints::default() };
    let made = t.h.engine.list_checkpoints(&t.h.scope, filter).await.unwrap().checkpoints;
    assert_eq!(made.len(), 1);
    t.h.engine.delete_checkpoint(&t.h.scope, &made[0].checkpoint_id, Deletion { purge: true }).await.unwrap();
    t.h.engine.close().await;
    let backup = files(&t.h.data_dir().join("backups")).into_iter().find(|path| path.ends_with("waystone.db")).unwrap();
    for beside in ["waystone.db-wal", "waystone.db-shm"] {
        let _ = std::fs::remove_file(t.h.data_dir().join(beside));
    }
    std::fs::copy(backup, t.h.data_dir().join("waystone.db")).unwrap();
    t.restart().await;
    assert_eq!(t.texts(&id, None).await.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_room_for_where_a_conversation_stands_loses_no_answer() {
    let mut t = Talk::new().await;
    t.h.limits = Limits { session_bytes_max: 10, ..Limits::default() };
    t.restart().await;
    let id = t.begin().await;
    t.say(&id, "hello").await;
    assert_eq!(t.texts(&id, None).await.len(), 2);
    let filter = ListCheckpoints { session_id: Some(id.clone()), ..ListCheckpoints::default() };
    assert!(t.h.engine.list_checkpoints(&t.h.scope, filter).await.unwrap().checkpoints.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn cleaning_up_leaves_where_conversations_stand_and_what_is_resumed_is_no_conversation() {
    let t = Talk::new().await;
    let id = t.begin().await;
    for said in ["one", "two", "three"] {
        t.say(&id, said).await;
    }
    let cleaned = CleanUp { keep_last: Some(1), ..CleanUp::default() };
    let cleaned = t.h.engine.clean_up(&t.h.scope, cleaned, |_, _| {}).await.unwrap();
    assert_eq!(cleaned.checkpoints, 0, "{cleaned:?}");
    let resumed = t.h.engine.resume_sessions(&t.h.scope, serde_json::from_value(json!({})).unwrap()).await.unwrap();
    assert!(resumed.sessions.is_empty(), "{resumed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn where_a_conversation_stands_is_kept_also_when_an_older_message_cannot_be_read() {
    let t = Talk::new().await;
    let id = t.begin().await;
    t.say(&id, "first").await;
    t.say(&id, "second").await;
    audit::open(t.h.data_dir()).execute_batch("UPDATE message SET facts = x'00' WHERE position = 1").unwrap();
    let request = SaveContext { branch: None, metadata: None, idempotency_key: None };
    t.h.engine.save_context(&t.h.scope, &id, request).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_is_not_found_by_how_it_is_led() {
    let mut t = Talk::new().await;
    let id = t.create(json!({ "system_prompt_id": "heliotrope" })).await.id;
    t.say(&id, "Hi").await;
    t.h.save("session", json!({ "goal": "plant heliotrope" })).await;
    t.h.restart_mirrored().await;
    for query in ["heliotrope", "system_prompt_id", "temperature of a model"] {
        let request = json!({ "query": query, "content": true });
        let found = t.h.engine.list_checkpoints(&t.h.scope, serde_json::from_value(request).unwrap()).await.unwrap();
        let sessions: Vec<&str> = found.checkpoints.iter().map(|found| found.session_id.as_str()).collect();
        assert!(!sessions.contains(&id.as_str()), "{query}: {sessions:?}");
        assert_eq!(sessions.contains(&"session"), query == "heliotrope", "{query}: {sessions:?}");
    }
    t.h.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_branch_whose_forks_lead_in_a_circle_is_damaged_and_read_to_no_end() {
    let t = Talk::new().await;
    let id = t.begin().await;
    t.say(&id, "Hi").await;
    let garbled = "UPDATE branch SET fork = head WHERE session = (SELECT key FROM session WHERE id = ?1)";
    assert_eq!(audit::open(t.h.data_dir()).execute(garbled, [id.as_str()]).unwrap(), 1);
    let refused = t.h.engine.list_messages(&t.h.scope, &id, ListMessages { limit: 10, ..Default::default() }).await;
    assert!(refused.unwrap_err().to_string().contains("lead in a circle"));
}
