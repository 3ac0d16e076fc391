//! Lists narrowed down by words and tags: by the index, and before it is made.

use serde_json::{Value, json};
use waystone_core::api::ListCheckpoints;
use waystone_testkit::{Harness, audit};

const METADATA: [&str; 6] = [
    r#"{ "name": "Mended the parser", "tags": ["ui", "v1"] }"#,
    r#"{ "name": "Größe der Kasse", "tags": ["v1"], "n": 1042 }"#,
    r#"{ "tags": ["ui", "a b"], "path": "crates/core/src/engine/checkpoint.rs" }"#,
    r#"{ "note": { "deep": ["say \"no\" AND * OR x", null, true] } }"#,
    r#"{}"#,
    r#"{ "tags": ["UI"], "name": "x" }"#,
];

async fn fill(h: &Harness) {
    for (n, metadata) in METADATA.iter().cycle().take(30).enumerate() {
        let mut metadata: Value = serde_json::from_str(metadata).unwrap();
        if n % 11 == 10 {
            metadata["long"] = json!((0..3000).map(|n| format!("{n:x}")).collect::<String>());
        }
        let session = format!("s{}", n % 4);
        h.try_save(json!({ "sessionId": session, "context": { "n": n }, "metadata": metadata })).await.unwrap();
    }
    h.engine.delete_session(&h.scope, &"s3".parse().unwrap(), Default::default()).await.unwrap();
    let first = h.list(json!({ "limit": 1, "tags": ["v1"] })).await.remove(0);
    h.engine.delete_checkpoint(&h.scope, &first.parse().unwrap(), Default::default()).await.unwrap();
}

fn requests() -> Vec<Value> {
    let words =
        ["parser", "arse", "MENDED the", "größe", "042", "engine/check", "\"no\"", "and", "x", "bff", " ", "zzz", "u"];
    let tags = [json!([]), json!(["ui"]), json!(["ui", "v1"]), json!(["a b"]), json!(["u"]), json!([""])];
    let all = words.iter().flat_map(|word| tags.iter().map(move |tags| json!({ "query": word, "tags": tags })));
    let only_tags = tags.iter().map(|tags| json!({ "tags": tags }));
    let paged = [json!({ "query": "x", "limit": 3, "offset": 2 }), json!({ "tags": ["ui"], "projectId": "other" })];
    all.chain(only_tags).chain(paged).collect()
}

/// What each list has: its ids, its total, and whether there is more.
async fn lists(h: &Harness) -> Vec<(Vec<String>, u64, bool)> {
    let mut all = Vec::new();
    for request in requests() {
        let request: ListCheckpoints = serde_json::from_value(request).unwrap();
        let page = h.engine.list_checkpoints(&h.scope, request).await.unwrap();
        let ids = page.checkpoints.iter().map(|one| one.checkpoint_id.to_string()).collect();
        all.push((ids, page.total, page.has_more));
    }
    all
}

/// The same, from a look at every checkpoint.
async fn expected(h: &Harness) -> Vec<(Vec<String>, u64, bool)> {
    let everything = ListCheckpoints { limit: 1000, ..ListCheckpoints::default() };
    let everything = h.engine.list_checkpoints(&h.scope, everything).await.unwrap().checkpoints;
    let fits = |request: &Value| -> Vec<String> {
        let wanted = |tag: &Value| tag.as_str().unwrap().to_owned();
        let tags: Vec<String> = request["tags"].as_array().into_iter().flatten().map(wanted).collect();
        let found = everything.iter().filter(|one| {
            let has_tag = |tag: &String| one.metadata.tags().any(|own| own == tag);
            let query = request["query"].as_str().unwrap_or_default();
            one.metadata.has_words(query) && tags.iter().all(has_tag) && request["projectId"].is_null()
        });
        found.map(|one| one.checkpoint_id.to_string()).collect()
    };
    let page = |request: &Value| {
        let (all, limit) = (fits(request), request["limit"].as_u64().unwrap_or(20) as usize);
        let after: Vec<String> = all.iter().skip(request["offset"].as_u64().unwrap_or(0) as usize).cloned().collect();
        (after.iter().take(limit).cloned().collect(), all.len() as u64, after.len() > limit)
    };
    requests().iter().map(page).collect()
}

#[tokio::test]
async fn words_and_tags_find_the_same_before_and_after_they_are_indexed() {
    let mut h = Harness::new();
    fill(&h).await;
    let all = expected(&h).await;
    assert!(all.iter().filter(|(ids, ..)| !ids.is_empty()).count() > 20);
    assert_eq!(lists(&h).await, all, "as saved");
    h.restart_mirrored().await;
    assert_eq!(lists(&h).await, all, "as indexed");
    h.try_save(json!({ "context": {}, "metadata": { "tags": ["ui"], "name": "the parser" } })).await.unwrap();
    let all = expected(&h).await;
    assert_eq!(lists(&h).await, all, "some indexed, some not");
    h.engine.reindex(&h.scope, |_, _| {}).await.unwrap();
    assert_eq!(lists(&h).await, all, "made anew");
    h.restart_mirrored().await;
    assert_eq!(lists(&h).await, all, "made anew and indexed");
    h.check_invariants().await;
}

/// Whoever changes or removes rows need not know of the index.
#[tokio::test]
async fn the_index_follows_rows_that_are_changed_or_removed() {
    let mut h = Harness::new();
    fill(&h).await;
    h.restart_mirrored().await;
    let metadata = r#"{ "name": "healed", "tags": ["mine"] }"#;
    let change = format!("UPDATE checkpoint SET metadata = '{metadata}', tags = '[\"mine\"]' WHERE key = 6");
    audit::open(h.data_dir()).execute(&change, []).unwrap();
    let healed = async |h: &Harness| h.list(json!({ "query": "healed", "tags": ["mine"] })).await;
    assert_eq!(healed(&h).await.len(), 1);
    h.restart_mirrored().await;
    assert_eq!(healed(&h).await.len(), 1);
    let rows = |sql: &str| -> i64 { audit::open(h.data_dir()).query_row(sql, [], |row| row.get(0)).unwrap() };
    let terms = "SELECT count(*) FROM checkpoint_term WHERE checkpoint_term MATCH 'w*'";
    let before = rows(terms);
    audit::open(h.data_dir())
        .execute_batch("PRAGMA foreign_keys = OFF; DELETE FROM checkpoint WHERE key = 6;")
        .unwrap();
    assert_eq!((rows(terms), healed(&h).await.len()), (before - 1, 0));
}
