//! What readers of a conversation are told, however often and from wherever they come back.

use std::sync::Arc;

use serde_json::json;
use waystone_core::Frame;
use waystone_core::api::Deletion;
use waystone_testkit::model::Reply;

use super::{Talk, is_idle, told, until_state};

fn ids(frames: &[Arc<Frame>]) -> Vec<(String, String)> {
    frames.iter().map(|frame| (frame.id(), frame.data().to_owned())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_comes_back_with_an_id_is_told_the_rest_under_the_same_ids() {
    let t = Talk::new().await;
    t.fake.then(Reply::text("some words in a row"));
    let id = t.begin().await;
    let mut reader = t.follow(&id, None).await;
    t.try_say(&id, json!({ "content": "Hi" })).await.unwrap();
    let all = until_state(&mut reader, is_idle).await;
    drop(reader);
    for at in 0..all.len() - 1 {
        let mut reader = t.follow(&id, Some(&all[at].id())).await;
        let rest = until_state(&mut reader, is_idle).await;
        assert_eq!(ids(&rest), ids(&all[at + 1..]), "after {}", all[at].id());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_of_this_process_and_of_another_are_told_the_same() {
    let t = Talk::new().await;
    t.fake.then(Reply::text("one two three four five"));
    let id = t.begin().await;
    let other = t.h.second();
    let mut here = t.follow(&id, None).await;
    let mut there = other.follow_context(&t.h.scope, &id, None).await.unwrap();
    t.try_say(&id, json!({ "content": "Hi" })).await.unwrap();
    let (here, there) = tokio::join!(until_state(&mut here, is_idle), until_state(&mut there, is_idle));
    assert_eq!(ids(&here), ids(&there));
    other.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_comes_while_an_answer_is_streamed_misses_nothing_after_what_is_written() {
    let t = Talk::new().await;
    let words: Vec<String> = (0..200).map(|at| format!("w{at} ")).collect();
    t.fake.then(Reply::chunks(words.clone()).gated());
    let id = t.begin().await;
    let mut first = t.follow(&id, None).await;
    t.try_say(&id, json!({ "content": "Hi" })).await.unwrap();
    let mut late = Vec::new();
    for released in 0..200_u64 {
        t.fake.release(1);
        while !told(&first.next().await.unwrap()).iter().any(|(_, data)| data["sequence"] == released + 1) {}
        if released % 20 == 7 {
            late.push(t.follow(&id, None).await);
        }
    }
    t.fake.release(10);
    let whole = words.concat();
    for mut reader in late {
        let frames = until_state(&mut reader, is_idle).await;
        let told = told(&frames);
        let sequences: Vec<u64> = told.iter().filter_map(|(_, data)| data["sequence"].as_u64()).collect();
        let expected: Vec<u64> = (sequences[0]..=200).collect();
        assert_eq!(sequences, expected);
        let text: String = told.iter().filter_map(|(_, data)| data["delta"].as_str()).collect();
        assert!(whole.ends_with(&text));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_is_slow_is_told_what_belongs_together_as_one_and_misses_nothing() {
    let t = Talk::new().await;
    let words: Vec<String> = (0..1500).map(|at| format!("w{at} ")).collect();
    t.fake.then(Reply::chunks(words.clone()).gated());
    let id = t.begin().await;
    let (mut slow, mut quick) = (t.follow(&id, None).await, t.follow(&id, None).await);
    t.try_say(&id, json!({ "content": "Hi" })).await.unwrap();
    t.fake.release(1);
    // It has the first word as it is told, and is then far behind.
    let mut frames = Vec::new();
    while !told(&frames).iter().any(|(kind, _)| kind == "ContentDelta") {
        frames.extend(slow.next().await.unwrap());
    }
    t.fake.release(2000);
    until_state(&mut quick, is_idle).await;
    frames.extend(until_state(&mut slow, is_idle).await);
    let told = told(&frames);
    let deltas: Vec<_> = told.iter().filter(|(kind, _)| kind == "ContentDelta").collect();
    let text: String = deltas.iter().filter_map(|(_, data)| data["delta"].as_str()).collect();
    assert_eq!(text, words.concat());
    assert!(deltas.len() < 1500, "{} of 1500 were told one by one", deltas.len());
    let joined = deltas.iter().find(|(_, data)| data["first_sequence"].is_u64()).expect("some are joined");
    assert!(joined.1["first_sequence"].as_u64() < joined.1["sequence"].as_u64());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_id_that_leads_nowhere_is_answered_with_what_is_written() {
    let mut t = Talk::new().await;
    t.fake.then(Reply::text("the answer")).then(Reply::chunks(["half ", "whole"]).hang_after(1));
    let id = t.begin().await;
    t.say(&id, "Hi").await;
    let last = t.messages(&id, None).await[1].id.clone();
    for unknown in ["nonsense", "01a1e764-0fd8-766e-bd3f-f89f573284f5-9", "-", "a-99999999999999999999"] {
        let mut reader = t.follow(&id, Some(unknown)).await;
        let told = told(&reader.next().await.unwrap());
        assert_eq!(told[0].0, "Resync");
        assert_eq!(
            told[0].1,
            json!({
                "context_id": id, "current_state": "Idle", "message_id": last, "content": "the answer", "sequence": 2, "attempt": 1,
                "is_complete": true,
            })
        );
    }
    // What was told and never written is an id beyond the end of the log.
    let mut reader = t.follow(&id, None).await;
    t.try_say(&id, json!({ "content": "Ho" })).await.unwrap();
    let frames = until_state(&mut reader, |state| state == "StreamingLLMResponse").await;
    let (run, n) = frames.last().unwrap().id().rsplit_once('-').map(|(run, n)| (run.to_owned(), n.to_owned())).unwrap();
    let beyond = format!("{run}-{}", n.parse::<u64>().unwrap() + 50);
    t.restart().await;
    let mut reader = t.follow(&id, Some(&beyond)).await;
    let told = told(&reader.next().await.unwrap());
    assert_eq!((told[0].0.as_str(), &told[0].1["is_complete"]), ("Resync", &json!(false)));
}

#[tokio::test(flavor = "multi_thread")]
async fn who_reads_a_conversation_that_is_deleted_or_removed_is_told_all_and_then_ended() {
    let t = Talk::new().await;
    for purge in [false, true] {
        let id = t.begin().await;
        let mut reader = t.follow(&id, None).await;
        t.say(&id, "hello").await;
        t.h.engine.delete_context(&t.h.scope, &id, Deletion { purge }).await.unwrap();
        let mut told = Vec::new();
        while let Some(frames) = reader.next().await {
            told.extend(frames.iter().map(|frame| frame.kind().to_owned()));
        }
        assert!(told.contains(&"MessageCompleted".to_owned()), "{told:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_far_behind_in_a_conversation_that_is_removed_is_ended_too() {
    let t = Talk::new().await;
    let id = t.begin().await;
    let mut slow = t.follow(&id, None).await;
    t.fake.then(Reply::chunks((0..600).map(|n| format!("{n} "))));
    t.say(&id, "count").await;
    t.h.engine.delete_context(&t.h.scope, &id, Deletion { purge: true }).await.unwrap();
    while slow.next().await.is_some() {}
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_that_is_restored_is_read_again() {
    let t = Talk::new().await;
    let id = t.begin().await;
    let mut reader = t.follow(&id, None).await;
    t.h.engine.delete_context(&t.h.scope, &id, Deletion { purge: false }).await.unwrap();
    assert!(reader.next().await.is_none());
    t.h.engine.restore_session(&t.h.scope, &id).await.unwrap();
    let mut again = t.follow(&id, None).await;
    t.say(&id, "hello").await;
    until_state(&mut again, is_idle).await;
}
