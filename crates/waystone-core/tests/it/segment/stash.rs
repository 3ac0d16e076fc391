//! The stash: what goes there, how it is found, and how it comes back.

use std::collections::HashSet;

use serde_json::{Value, json};
use waystone_core::api::{Hit, Segment};
use waystone_testkit::Harness;

use super::{add, add_one, ids, in_window, pin, prune, retrieve, search, set_task, stash, working_set};

#[tokio::test]
async fn with_neither_query_nor_filters_the_whole_working_set_goes_except_pins() {
    let h = Harness::new();
    let other = add(&h, json!({ "text": "other", "task_id": "other" })).await;
    let mine = add(&h, json!({ "texts": ["a", "b", "c"], "task_id": "mine" })).await;
    pin(&h, json!({ "segment_ids": [mine[1]] })).await.unwrap();
    set_task(&h, json!({ "task_id": "mine" })).await.unwrap();
    let stashed = stash(&h, json!({})).await.unwrap();
    assert_eq!(json!(stashed.stashed_segments), json!([mine[0], mine[2]]));
    assert_eq!((stashed.segments_matched, stashed.errors[0].segment_id.as_str()), (3, mine[1].as_str()));
    assert_eq!(in_window(&h).await, mine[1..2]);
    set_task(&h, json!({})).await.unwrap();
    assert_eq!(in_window(&h).await, [&other[..], &mine[1..2]].concat(), "the working set is the current task's");
    let stashed = stash(&h, json!({})).await.unwrap();
    assert_eq!(json!(stashed.stashed_segments), json!(other));
    assert_eq!(stash(&h, json!({})).await.unwrap().operation_id, None, "there is nothing left to do");
}

#[tokio::test]
async fn to_be_stashed_a_text_must_have_every_word_and_quoted_phrase() {
    let h = Harness::new();
    let texts = json!(["The parse_header function fails", "Header parsing: fails", "fails to parse the header", "x"]);
    let all = add(&h, json!({ "texts": texts })).await;
    let pick = |at: &[usize]| at.iter().map(|at| all[*at].clone()).collect::<Vec<_>>();
    for (query, expected) in [
        ("FAILS", pick(&[0, 1, 2])),
        ("fails header", pick(&[0, 1, 2])),
        ("parse header", pick(&[0, 2])),
        ("\"the header\"", pick(&[2])),
        ("fails \"header parsing\"", pick(&[1])),
        ("fail", pick(&[])),
        ("header none", pick(&[])),
    ] {
        let stashed = stash(&h, json!({ "query": query })).await.unwrap();
        assert_eq!(json!(stashed.stashed_segments), json!(expected), "{query}");
        retrieve(&h, json!({ "move_to_active": true })).await.unwrap();
        assert_eq!(in_window(&h).await, all);
    }
}

#[tokio::test]
async fn a_query_of_nothing_stashes_nothing() {
    let h = Harness::new();
    let all = add(&h, json!({ "texts": ["a", "b"] })).await;
    for query in ["", " ", "\n\t", "?!", "\"\""] {
        for filters in [json!(null), json!({ "type": "note" })] {
            let refused = stash(&h, json!({ "query": query, "filters": filters })).await.unwrap_err();
            assert_eq!(refused.to_string(), "query has no word to look for", "{query:?}");
        }
    }
    assert_eq!(in_window(&h).await, all);
    let stashed = stash(&h, json!({ "query": null, "filters": { "type": "note" } })).await.unwrap();
    assert_eq!(json!(stashed.stashed_segments), json!(all), "nothing was given");
}

fn hit(segment: &Segment) -> &Hit {
    segment.hit.as_ref().unwrap()
}

#[tokio::test]
async fn what_fits_best_comes_first_by_words_by_meaning_and_beside_a_match() {
    let h = Harness::new();
    let texts = json!([
        "We talked about the weather",
        "The puppy chased a cat through the garden",
        "Then lunch was served",
        "fn loadLedger(path) opens the ledger.db file",
        "amounts are kept in cents",
        "nothing more to say here",
    ]);
    let all = add(&h, json!({ "texts": texts, "stash": true, "task_id": "t" })).await;
    let filler: Vec<String> = (0..200).map(|n| format!("step {n} of the build printed line {}", n * 7)).collect();
    add(&h, json!({ "texts": filler, "stash": true, "task_id": "u" })).await;
    let check = async |query: &str, best: usize, by: &str| {
        let found = search(&h, json!({ "query": query })).await.unwrap();
        let first = &found.segments[0];
        assert_eq!((first.segment_id.as_str(), hit(first).why), (all[best].as_str(), by), "{query}");
        assert!(found.segments.is_sorted_by(|a, b| hit(a).score >= hit(b).score), "{query}");
        found
    };
    check("ledger", 3, "words and meaning").await;
    check("load ledger", 3, "words and meaning").await;
    check("chasing", 1, "words and meaning").await;
    let near = check("kitten and dog", 1, "meaning").await;
    let beside = near.segments.iter().find(|segment| segment.segment_id.as_str() == all[2]).unwrap();
    assert!(hit(beside).score < hit(&near.segments[0]).score);
    let late = add(&h, json!({ "text": "the ledger was repaired", "stash": true, "task_id": "t" })).await;
    let found = search(&h, json!({ "query": "ledger repaired" })).await.unwrap();
    assert_eq!(found.segments[0].segment_id.as_str(), late[0], "what is put later is found at once");
    stash(&h, json!({})).await.unwrap();
    let none = search(&h, json!({ "query": "ledger", "filters": { "task_id": "u" } })).await.unwrap();
    assert!(none.segments.iter().all(|segment| segment.task_id.as_ref().is_some_and(|task| task.as_str() == "u")));
}

#[tokio::test]
async fn only_what_leaves_the_window_frees_tokens() {
    let h = Harness::new();
    let added = add(&h, json!({ "texts": ["one two three", "four"] })).await;
    let pruned = prune(&h, json!({ "segment_ids": [added[0]], "action": "stash", "confirm": true })).await.unwrap();
    assert_eq!(pruned.tokens_freed, 3);
    let deleted = prune(&h, json!({ "segment_ids": added, "action": "delete", "confirm": true })).await.unwrap();
    assert_eq!((deleted.pruned_segments.len(), deleted.tokens_freed), (2, 1), "the first had left before");
}

#[tokio::test]
async fn ten_are_retrieved_unless_more_are_asked_for() {
    let h = Harness::new();
    let texts: Vec<String> = (0..14).map(|n| format!("note {n}")).collect();
    add(&h, json!({ "texts": texts, "stash": true })).await;
    let looked = retrieve(&h, json!({ "query": "note" })).await.unwrap();
    assert_eq!((looked.retrieved_segments.len(), looked.segments_found, looked.moved_to_active), (10, 14, None));
    assert_eq!(in_window(&h).await, Vec::<String>::new(), "only looked at");
    let moved = retrieve(&h, json!({ "query": "note", "move_to_active": true })).await.unwrap();
    assert_eq!(json!(moved.moved_to_active), json!(ids(&moved.retrieved_segments)));
    assert!(moved.retrieved_segments.iter().all(|segment| json!(segment.tier) == "working"));
    assert_eq!(in_window(&h).await.len(), 10);
    let rest = retrieve(&h, json!({ "limit": 3, "move_to_active": true })).await.unwrap();
    assert_eq!((rest.retrieved_segments.len(), rest.segments_found), (3, 4));
    let other = retrieve(&h, json!({ "project_id": "q" })).await.unwrap();
    assert_eq!(other.segments_found, 0, "of its own project");
}

#[tokio::test]
async fn what_stands_beside_a_match_is_found_but_not_retrieved() {
    let h = Harness::new();
    let texts = ["error: cannot open ledger.db", "the cat sat on the mat"];
    let added = add(&h, json!({ "texts": texts, "stash": true })).await;
    let found = search(&h, json!({ "query": "ledger" })).await.unwrap();
    assert_eq!((found.segments.len(), found.total_matches), (2, 2), "never fewer than there are to be seen");
    let moved = retrieve(&h, json!({ "query": "ledger", "move_to_active": true })).await.unwrap();
    assert_eq!(moved.retrieved_segments.len(), 1);
    assert_eq!(in_window(&h).await, [added[0].clone()]);
}

#[tokio::test]
async fn all_projects_are_searched_the_own_first_and_page_by_page() {
    let h = Harness::new();
    let mut expected = Vec::new();
    for (project, at) in [("a", 2), ("project", 0), ("b", 1)] {
        let texts: Vec<String> = (0..3).map(|n| format!("found {project} {n}")).collect();
        let mut ids = add(&h, json!({ "project_id": project, "texts": texts, "stash": true })).await;
        ids.reverse();
        expected.push((at, ids));
        add(&h, json!({ "project_id": project, "text": format!("found in the window of {project}") })).await;
    }
    expected.sort();
    let expected: Vec<String> = expected.into_iter().flat_map(|(_, ids)| ids).collect();
    for query in [json!(null), json!("found")] {
        for limit in [1, 2, 4, 9, 50] {
            let (mut found, mut cursor) = (Vec::new(), Value::Null);
            loop {
                let request = json!({ "query": query, "limit": limit, "cursor": cursor });
                let request = serde_json::from_value(request).unwrap();
                let page = h.engine.search_stashed(&h.scope, request).await.unwrap();
                assert_eq!(page.total_matches, 9);
                found.extend(ids(&page.segments));
                match page.next_cursor {
                    Some(next) => cursor = json!(next),
                    None => break,
                }
            }
            // By fit the other projects' are mixed; the own come first all the same.
            assert_eq!(found[..3], expected[..3], "{query} {limit}");
            let (rest, wanted): (HashSet<_>, HashSet<_>) =
                (found[3..].iter().collect(), expected[3..].iter().collect());
            assert_eq!((rest, found.len()), (wanted, expected.len()), "{query} {limit}");
            assert!(query.is_string() || found == expected, "without a query the newest come first");
        }
    }
    assert_eq!(ids(&search(&h, json!({ "project_id": "a" })).await.unwrap().segments), expected[6..]);
}

#[tokio::test]
async fn an_empty_window_comes_with_what_is_worth_having_back() {
    let h = Harness::new();
    let log = add_one(&h, json!({ "text": "log", "type": "log", "task_id": "t" })).await;
    let decision = add_one(&h, json!({ "text": "decision", "type": "decision", "task_id": "t" })).await;
    let full = working_set(&h, json!({})).await.unwrap();
    assert_eq!((full.worth_retrieving, full.next), (vec![], None));
    stash(&h, json!({})).await.unwrap();
    let empty = working_set(&h, json!({})).await.unwrap();
    assert_eq!((empty.segment_count, ids(&empty.worth_retrieving)), (0, vec![decision.clone(), log.clone()]));
    let set = set_task(&h, json!({ "task_id": "t" })).await.unwrap();
    assert_eq!(ids(&set.worth_retrieving), [decision.clone(), log.clone()]);
    let next = json!(set.next.unwrap());
    assert_eq!(next["tool"], "context_retrieve_stashed");
    retrieve(&h, next["arguments"].clone()).await.unwrap();
    assert_eq!(in_window(&h).await, [log, decision]);
}

#[tokio::test]
async fn filters_take_dates_with_and_without_time_and_zone() {
    let h = Harness::new();
    let said = |text: &str, at: &str| json!({ "content": text, "timestamp": at });
    let messages = json!([said("early", "2025-03-01T23:30:00Z"), said("late", "2025-03-02T00:30:00Z")]);
    let all = add(&h, json!({ "messages": messages, "stash": true })).await;
    for (filters, expected) in [
        (json!({ "created_before": "2025-03-02" }), &all[..1]),
        (json!({ "created_after": "2025-03-02" }), &all[1..]),
        (json!({ "created_after": "2025-03-02T00:00:00" }), &all[1..]),
        (json!({ "created_after": "2025-03-02T01:00:00+01:00" }), &all[1..]),
        (json!({ "created_before": "2025-03-02T00:30:00Z" }), &all[..1]),
        (json!({ "created_after": "2025-03-01T23:30:00.000Z", "created_before": "2025-03-03" }), &all[..]),
    ] {
        let mut found = ids(&search(&h, json!({ "filters": filters })).await.unwrap().segments);
        found.reverse();
        assert_eq!(found, expected, "{filters}");
    }
}

#[tokio::test]
async fn a_query_without_a_word_selects_nothing() {
    let h = Harness::new();
    add(&h, json!({ "text": "a => b" })).await;
    let refused = stash(&h, json!({ "query": "=> !!" })).await.unwrap_err();
    assert_eq!(refused.to_string(), "query has no word to look for");
    assert_eq!(search(&h, json!({ "query": " ", "filters": { "tier": "working" } })).await.unwrap().total_matches, 1);
}

#[tokio::test]
async fn the_only_one_there_is_found_by_its_meaning_and_what_hardly_fits_is_not_retrieved() {
    let h = Harness::new();
    let puppy = add_one(&h, json!({ "text": "The puppy chased a cat", "stash": true })).await;
    let found = search(&h, json!({ "query": "dog" })).await.unwrap();
    assert_eq!((ids(&found.segments), found.total_matches), (vec![puppy.clone()], 1));
    add(&h, json!({ "texts": ["invoice totals of March", "the disk is full"], "stash": true, "task_id": "t" })).await;
    let moved = retrieve(&h, json!({ "query": "puppy", "move_to_active": true })).await.unwrap();
    assert_eq!(json!(moved.moved_to_active), json!([puppy]));
}

#[tokio::test]
async fn who_puts_a_text_that_is_elsewhere_is_told_so() {
    let h = Harness::new();
    add(&h, json!({ "text": "known", "task_id": "t" })).await;
    let told = async |request: Value| super::put(&h, request).await.unwrap().warnings.join("; ");
    assert_eq!(told(json!({ "text": "new" })).await, "");
    assert!(told(json!({ "text": "known" })).await.contains("in another task"));
    assert_eq!(super::put(&h, json!({ "text": " \n" })).await.unwrap_err().to_string(), "a text is empty");
    stash(&h, json!({ "query": "new" })).await.unwrap();
    assert!(told(json!({ "text": "new" })).await.contains("stashed"));
}

#[tokio::test]
async fn an_id_of_a_segment_in_the_window_stashes_that_one() {
    let h = Harness::new();
    let all = add(&h, json!({ "texts": ["one", "two", "three"] })).await;
    let elsewhere = add(&h, json!({ "text": "elsewhere", "project_id": "q" })).await;
    let stashed = stash(&h, json!({ "query": all[1] })).await.unwrap();
    assert_eq!(json!(stashed.stashed_segments), json!([all[1]]));
    assert_eq!(stash(&h, json!({ "query": all[1] })).await.unwrap().segments_matched, 0, "it is stashed already");
    assert_eq!(stash(&h, json!({ "query": elsewhere[0] })).await.unwrap().segments_matched, 0);
    let narrowed = stash(&h, json!({ "query": all[0], "filters": { "type": "log" } })).await.unwrap();
    assert_eq!(narrowed.segments_matched, 0, "what filters say must hold too");
    pin(&h, json!({ "segment_ids": [all[0]] })).await.unwrap();
    let pinned = stash(&h, json!({ "query": all[0] })).await.unwrap();
    assert_eq!((pinned.stashed_segments.len(), pinned.errors.len()), (0, 1));
    assert_eq!(in_window(&h).await, [all[0].clone(), all[2].clone()]);
}

#[tokio::test]
async fn what_is_near_in_meaning_alone_comes_back_only_if_it_is_very_near() {
    let h = Harness::new();
    let puppy = add_one(&h, json!({ "text": "The puppy chased a cat", "stash": true, "task_id": "t" })).await;
    let texts = json!([
        "We decided to use Postgres for the billing service",
        "unit tests for the payment module are flaky",
        "fn load_user(id: u64) -> User",
        "invoice totals of March",
        "the disk is full",
        "retry the upload with a longer timeout",
        "The cache is invalidated every night",
    ]);
    add(&h, json!({ "texts": texts, "stash": true, "task_id": "u" })).await;
    for query in ["xyzzy plugh", "qwertyuiop zxcvb", "elephant", "something completely different", "holiday in Spain"] {
        let found = search(&h, json!({ "query": query })).await.unwrap();
        let moved = retrieve(&h, json!({ "query": query, "move_to_active": true })).await.unwrap();
        assert_eq!((json!(moved.moved_to_active), moved.segments_found), (json!([]), 0), "{query}: {found:#?}");
    }
    assert_eq!(in_window(&h).await, Vec::<String>::new());
    let moved = retrieve(&h, json!({ "query": "dog", "move_to_active": true })).await.unwrap();
    assert_eq!((json!(moved.moved_to_active), moved.segments_found), (json!([puppy]), 1));
}

#[tokio::test]
async fn what_is_counted_as_found_is_what_more_room_would_bring() {
    let h = Harness::new();
    let texts: Vec<String> =
        (0..30).map(|n| format!("{} number {n}", if n % 3 == 0 { "ledger" } else { "weather" })).collect();
    add(&h, json!({ "texts": texts, "stash": true })).await;
    for query in ["ledger", "ledger number", "weather 4", "nothing of it", "accounting books"] {
        let some = retrieve(&h, json!({ "query": query, "limit": 2 })).await.unwrap();
        let all = retrieve(&h, json!({ "query": query, "limit": 1000 })).await.unwrap();
        assert_eq!(some.segments_found, all.segments_found, "{query}");
        assert_eq!(all.segments_found, all.retrieved_segments.len() as u64, "{query}");
        assert_eq!(some.retrieved_segments, all.retrieved_segments[..some.retrieved_segments.len()], "{query}");
        assert_eq!(some.retrieved_segments.len() as u64, all.segments_found.min(2), "{query}");
        let matches = search(&h, json!({ "query": query })).await.unwrap().total_matches;
        assert!(all.segments_found <= matches, "{query}: {} of {matches}", all.segments_found);
    }
    let ledger = retrieve(&h, json!({ "query": "ledger" })).await.unwrap();
    assert_eq!(ledger.segments_found, 10, "not what stands beside them");
    assert_eq!(retrieve(&h, json!({})).await.unwrap().segments_found, 30);
}
