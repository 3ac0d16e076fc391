//! Undo: whose operations it takes back, in which order, and when it refuses.

use serde_json::{Value, json};
use waystone_core::Error;
use waystone_core::api::{PutReply, Tier, UndoneOperation};
use waystone_core::error::Conflict;
use waystone_core::store::Scope;
use waystone_testkit::{Harness, audit};

use super::{
    add, add_one, find, in_window, operations, pin, prune, put, retrieve, set_task, stash, state, undo, unpin,
};

async fn put_as(h: &Harness, scope: &Scope, text: &str) -> PutReply {
    let request = serde_json::from_value(json!({ "project_id": "p", "text": text })).unwrap();
    h.engine.put_segments(scope, request).await.unwrap()
}

async fn undo_as(h: &Harness, scope: &Scope) -> Result<UndoneOperation, Error> {
    let request = serde_json::from_value(json!({ "project_id": "p" })).unwrap();
    h.engine.undo_operation(scope, request).await
}

fn between(error: Error) -> Vec<i64> {
    match error {
        Error::Conflict(Conflict::ChangedSince { between, .. }) => between,
        other => panic!("{other}"),
    }
}

fn number(operation: Option<&String>) -> i64 {
    operation.unwrap().parse().unwrap()
}

/// What is there, without the log and the times that say that something was undone.
async fn visible(h: &Harness) -> Value {
    let mut state = state(h).await;
    for name in ["operations", "tasks"] {
        state.as_object_mut().unwrap().remove(name);
    }
    state["window"]["working_set"]["last_updated"].take();
    state
}

#[tokio::test]
async fn every_kind_of_change_is_undone_and_done_again() {
    let mut h = Harness::new();
    let ids = add(&h, json!({ "texts": ["a", "b", "c"], "task_id": "t" })).await;
    pin(&h, json!({ "segment_ids": [ids[0]] })).await.unwrap();
    let kept = super::snapshot(&h, json!({ "task_id": "t" })).await.unwrap().snapshot_id;
    prune(&h, json!({ "segment_ids": [ids[1]], "action": "stash" })).await.unwrap();
    for kind in 0..11 {
        let before = visible(&h).await;
        let operation = match kind {
            0 => put(&h, json!({ "texts": ["new", "newer"], "pinned": true })).await.unwrap().operation_id,
            1 => put(&h, json!({ "text": "old", "type": "log", "stash": true })).await.unwrap().operation_id,
            2 => pin(&h, json!({ "segment_ids": ids })).await.unwrap().operation_id,
            3 => unpin(&h, json!({ "segment_ids": ids })).await.unwrap().operation_id,
            4 => stash(&h, json!({})).await.unwrap().operation_id,
            5 => retrieve(&h, json!({ "move_to_active": true })).await.unwrap().operation_id,
            6 => prune(&h, json!({ "segment_ids": ids[1..], "action": "stash" })).await.unwrap().operation_id,
            7 => {
                let request = json!({ "segment_ids": ids[1..], "action": "delete", "confirm": true });
                prune(&h, request).await.unwrap().operation_id
            }
            8 => set_task(&h, json!({ "task_id": "t" })).await.unwrap().operation_id,
            9 => super::snapshot(&h, json!({ "task_id": "t" })).await.unwrap().operation_id,
            _ => super::restore(&h, json!({ "snapshot_id": kept })).await.unwrap().operation_id,
        };
        let after = visible(&h).await;
        assert_ne!(after, before, "{kind}");
        let undone = undo(&h, json!({})).await.unwrap();
        assert_eq!(Some(&undone.undone.operation_id), operation.as_ref());
        assert!(undone.undone.undone && !undone.undone.can_undo);
        assert_eq!(visible(&h).await, before, "{kind}");
        if kind == 5 {
            h.restart().await;
        }
        undo(&h, json!({ "operation_id": undone.operation_id })).await.unwrap();
        assert_eq!(visible(&h).await, after, "{kind} is done again");
        let again = undo(&h, json!({})).await.unwrap();
        assert_eq!(Some(again.undone.operation_id), operation);
    }
    h.check_invariants().await;
}

#[tokio::test]
async fn without_an_id_an_agent_takes_back_its_own_and_a_person_anyones() {
    let h = Harness::new();
    let (one, two) = (Scope::local("one").for_agent(), Scope::local("two").for_agent());
    let person = Scope::local("person");
    let first = put_as(&h, &one, "first").await.operation_id;
    let second = put_as(&h, &one, "second").await.operation_id;
    let third = put_as(&h, &two, "third").await.operation_id;
    put(&h, json!({ "project_id": "q", "text": "elsewhere" })).await.unwrap();
    assert_eq!(Some(undo_as(&h, &one).await.unwrap().undone.operation_id), second);
    assert_eq!(Some(undo_as(&h, &person).await.unwrap().undone.operation_id), third);
    assert!(matches!(undo_as(&h, &two).await, Err(Error::NothingToUndo(..))));
    assert_eq!(Some(undo_as(&h, &person).await.unwrap().undone.operation_id), first, "again goes further back");
    assert!(matches!(undo_as(&h, &person).await, Err(Error::NothingToUndo(..))));
    assert_eq!(in_window(&h).await, Vec::<String>::new());
    let log = operations(&h, json!({})).await.unwrap().operations;
    let log: Vec<(&str, &str, bool)> =
        log.iter().map(|one| (one.kind.as_str(), one.actor.as_str(), one.undone)).collect();
    let undone = |actor| ("operation.undone", actor, false);
    let put = |actor| ("segment.put", actor, true);
    assert_eq!(log, [undone("person"), undone("person"), undone("one"), put("two"), put("one"), put("one")]);
}

#[tokio::test]
async fn what_was_changed_since_is_not_undone_before_that_is() {
    let h = Harness::new();
    let put = put(&h, json!({ "texts": ["a", "b"] })).await.unwrap();
    let id = put.segment_ids[0].to_string();
    let other = pin(&h, json!({ "segment_ids": [put.segment_ids[1]] })).await.unwrap().operation_id;
    let pinned = pin(&h, json!({ "segment_ids": [id] })).await.unwrap().operation_id;
    let unpinned = unpin(&h, json!({ "segment_ids": [id] })).await.unwrap().operation_id;
    let before = state(&h).await;
    let elsewhere = undo(&h, json!({ "project_id": "q", "operation_id": unpinned })).await.unwrap_err();
    assert!(matches!(elsewhere, Error::OperationNotFound(_)), "{elsewhere}");
    let refused = undo(&h, json!({ "operation_id": put.operation_id })).await.unwrap_err();
    let expected = [&other, &pinned, &unpinned].map(|operation| number(operation.as_ref()));
    assert_eq!(between(refused), expected);
    let refused = undo(&h, json!({ "operation_id": pinned })).await.unwrap_err();
    assert_eq!(between(refused), [number(unpinned.as_ref())]);
    assert_eq!(state(&h).await, before);
    undo(&h, json!({ "operation_id": other })).await.unwrap();
    assert!(!find(&h, &id).await.unwrap().pinned, "what is about other segments is no matter");
    undo(&h, json!({ "operation_id": unpinned })).await.unwrap();
    undo(&h, json!({ "operation_id": pinned })).await.unwrap();
    undo(&h, json!({ "operation_id": put.operation_id })).await.unwrap();
    let again = undo(&h, json!({ "operation_id": put.operation_id })).await.unwrap_err();
    assert!(matches!(again, Error::Conflict(Conflict::UndoneAlready(_))));
    assert_eq!(in_window(&h).await, Vec::<String>::new());
}

#[tokio::test]
async fn what_was_undone_is_not_done_again_on_another_ground() {
    let h = Harness::new();
    let id = add_one(&h, json!({ "text": "a" })).await;
    let stashed = stash(&h, json!({})).await.unwrap().operation_id;
    let pinned = pin(&h, json!({ "segment_ids": [id] })).await.unwrap().operation_id;
    let unpinning = undo(&h, json!({ "operation_id": pinned })).await.unwrap().operation_id;
    let unstashing = undo(&h, json!({ "operation_id": stashed })).await.unwrap().operation_id;
    let refused = undo(&h, json!({ "operation_id": unpinning })).await.unwrap_err();
    assert_eq!(between(refused), [unstashing.parse::<i64>().unwrap()], "that would stash it again");
    let found = find(&h, &id).await.unwrap();
    assert_eq!((found.tier, found.pinned), (Tier::Working, false));
    undo(&h, json!({ "operation_id": unstashing })).await.unwrap();
    undo(&h, json!({ "operation_id": unpinning })).await.unwrap();
    let found = find(&h, &id).await.unwrap();
    assert_eq!((found.tier, found.pinned), (Tier::Stashed, true));
    h.check_invariants().await;
}

#[tokio::test]
async fn which_task_was_current_is_not_brought_back_on_another_ground() {
    let h = Harness::new();
    let current = async || super::working_set(&h, json!({})).await.unwrap().working_set.task_id;
    let a = set_task(&h, json!({ "task_id": "a" })).await.unwrap().operation_id;
    let b = set_task(&h, json!({ "task_id": "b" })).await.unwrap().operation_id;
    let refused = undo(&h, json!({ "operation_id": a })).await.unwrap_err();
    assert_eq!(between(refused), [number(b.as_ref())]);
    let not_b = undo(&h, json!({ "operation_id": b })).await.unwrap().operation_id;
    assert_eq!(json!(current().await), "a");
    let not_a = undo(&h, json!({ "operation_id": a })).await.unwrap().operation_id;
    assert_eq!(current().await, None);
    let refused = undo(&h, json!({ "operation_id": not_b })).await.unwrap_err();
    assert_eq!(between(refused), [not_a.parse::<i64>().unwrap()]);
    undo(&h, json!({ "operation_id": not_a })).await.unwrap();
    undo(&h, json!({ "operation_id": not_b })).await.unwrap();
    assert_eq!(json!(current().await), "b");
}

#[tokio::test]
async fn what_someone_else_put_too_stays_when_the_first_put_is_undone() {
    let h = Harness::new();
    let (one, two) = (Scope::local("one").for_agent(), Scope::local("two").for_agent());
    put_as(&h, &one, "shared").await;
    put_as(&h, &one, "own").await;
    let told = put_as(&h, &two, "shared").await;
    assert_eq!((told.added, told.touched), (0, 1));
    assert_eq!(undo_as(&h, &one).await.unwrap().segments_changed, 1);
    let undone = undo_as(&h, &one).await.unwrap();
    assert_eq!(undone.segments_changed, 0);
    assert!(undone.message.contains("1 stays, as it was put again since"), "{}", undone.message);
    assert_eq!(in_window(&h).await, [told.segment_ids[0].as_str()]);
    h.check_invariants().await;
}

#[tokio::test]
async fn what_was_collected_while_it_was_stashed_a_segment_has_not_survived() {
    let h = Harness::new();
    let ids = add(&h, json!({ "texts": ["a", "b", "c"] })).await;
    prune(&h, json!({ "segment_ids": [ids[2]], "action": "stash" })).await.unwrap();
    let stashed = prune(&h, json!({ "segment_ids": [ids[0]], "action": "stash" })).await.unwrap().operation_id;
    prune(&h, json!({ "segment_ids": [ids[1]], "action": "stash" })).await.unwrap();
    undo(&h, json!({ "operation_id": stashed })).await.unwrap();
    assert_eq!(find(&h, &ids[0]).await.unwrap().gc_survival_count, 1);
}

#[tokio::test]
async fn who_undoes_a_deletion_is_told_how_it_is_restored() {
    let h = Harness::new();
    let first = put_as(&h, &h.scope, "first").await.operation_id;
    h.try_save(json!({ "sessionId": "s", "projectId": "p", "context": { "n": 1 } })).await.unwrap();
    h.engine.delete_session(&h.scope, &"s".parse().unwrap(), Default::default()).await.unwrap();
    let deleted = operations(&h, json!({})).await.unwrap().operations.remove(0).operation_id;
    let how = format!(
        "operation {deleted} deleted session `s`, which is restored and not undone: `waystone session restore s`"
    );
    let named = undo(&h, json!({ "project_id": "p", "operation_id": deleted })).await.unwrap_err();
    assert_eq!(named, Error::InvalidInput(how.clone()));
    let newest = undo_as(&h, &h.scope).await.unwrap();
    assert_eq!((Some(newest.undone.operation_id), newest.warnings), (first, vec![how]));

    h.engine.restore_session(&h.scope, &"s".parse().unwrap()).await.unwrap();
    assert_eq!(undo_as(&h, &h.scope).await, Err(Error::NothingToUndo("p".parse().unwrap(), None)));
    h.engine.delete_session(&h.scope, &"s".parse().unwrap(), Default::default()).await.unwrap();
    let nothing = undo_as(&h, &h.scope).await.unwrap_err().to_string();
    assert!(nothing.ends_with("`waystone session restore s`"), "{nothing}");
}

#[tokio::test]
async fn who_undoes_a_mark_is_told_how_it_is_taken_away() {
    let h = Harness::new();
    h.try_save(json!({ "sessionId": "s", "projectId": "p", "context": { "n": 1 } })).await.unwrap();
    let marked = json!({ "contextKey": "n", "sessionId": "s" });
    h.engine.mark_critical(&h.scope, serde_json::from_value(marked).unwrap()).await.unwrap();
    let operation = operations(&h, json!({})).await.unwrap().operations.remove(0).operation_id;
    let refused = undo(&h, json!({ "project_id": "p", "operation_id": operation })).await.unwrap_err();
    let how = format!(
        "operation {operation} marked a key, which is unmarked and not undone: `waystone session unmark s KEY`"
    );
    assert_eq!(refused, Error::InvalidInput(how));
}

/// Some changes leave no trace in segments: a deletion that is done again where the text was put again meanwhile, or the making of a snapshot.
#[tokio::test]
async fn what_another_undo_overtook_is_not_undone_though_no_segment_tells_of_it() {
    let h = Harness::new();
    let id = add_one(&h, json!({ "text": "a" })).await;
    let pruned = prune(&h, json!({ "segment_ids": [id], "action": "delete", "confirm": true })).await.unwrap();
    let back = undo(&h, json!({ "operation_id": pruned.operation_id })).await.unwrap();
    put(&h, json!({ "text": "a" })).await.unwrap();
    let again = undo(&h, json!({ "operation_id": back.operation_id })).await.unwrap();
    assert_eq!(again.segments_changed, 0, "it was put again, and stays");
    let second = undo(&h, json!({ "operation_id": pruned.operation_id })).await.unwrap();
    let refused = undo(&h, json!({ "operation_id": again.operation_id })).await.unwrap_err();
    assert_eq!(between(refused), [number(Some(&second.operation_id))]);
    h.check_invariants().await;
}

/// Whoever writes waits for an undo.
#[tokio::test(flavor = "multi_thread")]
async fn an_undo_ends_also_where_what_was_undone_leads_in_a_circle() {
    let h = Harness::new();
    let id = add_one(&h, json!({ "text": "a" })).await;
    let pruned = prune(&h, json!({ "segment_ids": [id], "action": "delete", "confirm": true })).await.unwrap();
    let back = undo(&h, json!({ "operation_id": pruned.operation_id })).await.unwrap();
    let sql = "UPDATE operation SET undoes = ?1 WHERE seq = ?2";
    let garbled = [number(Some(&back.operation_id)), number(pruned.operation_id.as_ref())];
    assert_eq!(audit::open(h.data_dir()).execute(sql, garbled).unwrap(), 1);
    let again = undo(&h, json!({ "operation_id": back.operation_id })).await.unwrap();
    assert_eq!(again.segments_changed, 1);
    put(&h, json!({ "text": "b" })).await.unwrap();
}
