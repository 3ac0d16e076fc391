//! What differs between two checkpoints.

use serde_json::{Value, json};
use waystone_testkit::Harness;

/// The changes from one context to another.
async fn changes(h: &Harness, before: Value, after: Value) -> Value {
    let save = async |session: &str, context: Value| {
        let save = json!({ "sessionId": session, "context": context, "force": true });
        h.try_save(save).await.unwrap().checkpoint_id
    };
    let (before, after) = (save("before", before).await, save("after", after).await);
    let diff = h.engine.diff_checkpoints(&h.scope, before.clone(), after.clone()).await.unwrap();
    assert_eq!((diff.before_id, diff.after_id), (before, after));
    json!(diff.changes)
}

#[tokio::test]
async fn keys_are_added_removed_and_changed() {
    let h = Harness::new();
    let before = json!({ "same": [1, { "x": null }], "gone": null, "n": 1, "text": "short" });
    let after = json!({ "new": {}, "n": 2, "same": [1, { "x": null }], "text": ["short"] });
    let expected = json!([
        { "key": "new", "kind": "added", "after": {} },
        { "key": "n", "kind": "changed", "before": 1, "after": 2 },
        { "key": "text", "kind": "changed", "before": "short", "after": ["short"] },
        { "key": "gone", "kind": "removed", "before": null },
    ]);
    assert_eq!(changes(&h, before, after).await, expected);
}

#[tokio::test]
async fn equal_contexts_have_no_changes_whatever_the_order_of_their_keys() {
    let h = Harness::new();
    let (one, other) = (r#"{"a":{"x":1,"y":[1,2]},"b":2}"#, r#"{"b":2,"a":{"y":[1,2],"x":1}}"#);
    let parse = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    assert_eq!(changes(&h, parse(one), parse(one)).await, json!([]));
    assert_eq!(changes(&h, parse(one), parse(other)).await, json!([]));
    assert_eq!(changes(&h, parse(r#"{"n":1,"l":[2.0]}"#), parse(r#"{"n":1.0,"l":[2]}"#)).await, json!([]), "1.0 is 1");
    assert_ne!(changes(&h, parse(r#"{"l":[1,2]}"#), parse(r#"{"l":[2,1]}"#)).await, json!([]), "a list has an order");
    assert_ne!(
        changes(&h, parse(r#"{"n":9007199254740992}"#), parse(r#"{"n":9007199254740993}"#)).await,
        json!([]),
        "whole numbers are compared in full"
    );
}

#[tokio::test]
async fn a_long_value_that_changed_is_shown_line_by_line() {
    let h = Harness::new();
    let lines: Vec<String> = (0..60).map(|n| format!("line {n} of a text that is long enough")).collect();
    let mut changed = lines.clone();
    changed[30] = "another line".to_owned();
    changed.push("one more".to_owned());
    let found = changes(&h, json!({ "text": lines.join("\n") }), json!({ "text": changed.join("\n") })).await;
    let diff = found[0]["diff"].as_str().unwrap();
    let marked = |sign: char| {
        let is_change = |line: &&str| line.starts_with(sign);
        diff.lines().filter(is_change).map(|line| line[1..].to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(marked('-')[..1], [lines[30].clone()]);
    assert!(marked('+').contains(&"another line".to_owned()) && marked('+').contains(&"one more".to_owned()), "{diff}");
    assert!(diff.contains("@@") && diff.len() < 1000, "only what is near a change is shown: {diff}");
    assert_eq!((found[0].get("before"), found[0].get("after")), (None, None));

    let (old, mut new) = (json!({ "list": lines }), json!({ "list": lines }));
    new["list"][3] = json!("another item");
    let found = changes(&h, old, new).await;
    let diff = found[0]["diff"].as_str().unwrap();
    assert!(diff.contains("-  \"line 3 of") && diff.contains("+  \"another item\""), "{diff}");
}

/// A diff of nothing would say that nothing changed.
#[tokio::test]
async fn what_changed_without_a_line_that_differs_is_shown_side_by_side() {
    let h = Harness::new();
    let list: Vec<String> = (0..20).map(|n| format!("a line with the number {n}")).collect();
    let text = serde_json::to_string_pretty(&list).unwrap();
    let found = changes(&h, json!({ "x": list }), json!({ "x": text })).await;
    assert_eq!(found, json!([{ "key": "x", "kind": "changed", "before": list, "after": text }]));
}

#[tokio::test]
async fn a_checkpoint_that_is_not_there_is_named() {
    let h = Harness::new();
    let id = h.save("s", json!({ "n": 1 })).await.checkpoint_id;
    for (before, after) in [("none", id.as_str()), (id.as_str(), "none")] {
        let diff = h.engine.diff_checkpoints(&h.scope, before.parse().unwrap(), after.parse().unwrap()).await;
        let error = diff.unwrap_err();
        assert!(error.code() == "CHECKPOINT_NOT_FOUND" && error.to_string().contains("`none`"), "{error}");
    }
}
