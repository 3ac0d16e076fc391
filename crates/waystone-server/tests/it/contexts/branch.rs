//! Branches beyond the contract's examples, and conversations that begin with another's.

use serde_json::{Value, json};
use waystone_testkit::model::Reply;

use super::{Talk, text, until_state};

async fn texts(talk: &Talk, context: &str, branch: &str) -> Vec<String> {
    talk.said(context, Some(branch)).await.into_iter().map(|(_, text)| text).collect()
}

#[tokio::test]
async fn a_branch_goes_on_from_the_message_it_was_begun_at() {
    let talk = Talk::new().await;
    let context = talk.create().await;
    let (_, first_answer) = talk.ask(&context, "one").await;
    talk.ask(&context, "two").await;
    let body = json!({ "name": "other", "parent_message_id": first_answer });
    assert_eq!(talk.post(&format!("/{context}/branches"), body).await.0, 201);
    assert_eq!(texts(&talk, &context, "other").await, ["one", "one"]);
    let mut events = talk.follow(&context).await;
    let body = json!({ "content": "drei", "branch": "other" });
    let (status, added) = talk.post(&format!("/{context}/messages"), body).await;
    assert_eq!((status, &added["branch"]), (201, &json!("other")));
    until_state(&mut events, "Idle").await;
    assert_eq!(texts(&talk, &context, "other").await, ["one", "one", "drei", "drei"]);
    assert_eq!(texts(&talk, &context, "main").await, ["one", "one", "two", "two"]);
    assert_eq!(talk.get(&format!("/{context}")).await["active_branch_name"], "main", "no one switched");

    let page = talk.get(&format!("/{context}/messages?branch=other&offset=1&limit=2")).await;
    let said: Vec<String> =
        page["messages"].as_array().unwrap().iter().map(|message| text(&message["content"][0]["text"])).collect();
    assert_eq!((said, &page["total"], &page["has_more"]), (vec!["one".into(), "drei".into()], &json!(4), &json!(true)));
    let (_, switched) = talk.call("PUT", &format!("/{context}/branches/other"), None).await;
    assert_eq!(switched, json!({ "active_branch_name": "other", "message_count": 2 }));
    let (_, again) = talk.call("PUT", &format!("/{context}/branches/other"), None).await;
    assert_eq!(again, switched, "it is active already");
    talk.ask(&context, "vier").await;
    assert_eq!(texts(&talk, &context, "other").await.len(), 6);
}

#[tokio::test]
async fn a_branch_of_which_no_message_is_named_goes_on_from_the_newest() {
    let talk = Talk::new().await;
    let context = talk.create().await;
    let path = format!("/{context}/branches");
    let (status, empty) = talk.post(&path, json!({ "name": "from-nothing" })).await;
    assert_eq!((status, &empty["parent_message_id"]), (201, &Value::Null));
    let (_, answer) = talk.ask(&context, "one").await;
    let (status, branch) = talk.post(&path, json!({ "name": "from-here" })).await;
    assert_eq!((status, &branch["parent_message_id"]), (201, &json!(answer)));
    talk.refuses("POST", &path, Some(json!({ "name": "from-here" })), 409, "CONFLICT").await;
}

#[tokio::test]
async fn a_branch_is_deleted_unless_it_is_active_and_its_name_is_free_again() {
    let talk = Talk::new().await;
    let context = talk.create().await;
    let (question, answer) = talk.ask(&context, "one").await;
    let path = format!("/{context}/branches");
    talk.refuses("DELETE", &format!("{path}/main"), None, 400, "INVALID_STATE").await;
    talk.post(&path, json!({ "name": "other", "parent_message_id": question })).await;
    talk.call("PUT", &format!("{path}/other"), None).await;
    talk.refuses("DELETE", &format!("{path}/other"), None, 400, "INVALID_STATE").await;
    talk.ask(&context, "two").await;

    assert_eq!(talk.call("DELETE", &format!("{path}/main"), None).await, (204, Value::Null));
    let names: Vec<Value> = talk.get(&path).await["branches"].as_array().unwrap().clone();
    assert_eq!((names.len(), &names[0]["name"]), (1, &json!("other")));
    talk.refuses("GET", &format!("/{context}/messages?branch=main"), None, 404, "BRANCH_NOT_FOUND").await;
    talk.refuses("PUT", &format!("{path}/main"), None, 404, "BRANCH_NOT_FOUND").await;
    talk.refuses("DELETE", &format!("{path}/main"), None, 404, "BRANCH_NOT_FOUND").await;
    let (status, restored) = talk.call("POST", &format!("{path}/main/restore"), None).await;
    assert_eq!((status, &restored["name"], &restored["is_active"]), (200, &json!("main"), &json!(false)));
    talk.refuses("POST", &format!("{path}/main/restore"), None, 409, "CONFLICT").await;
    talk.refuses("POST", &format!("{path}/never/restore"), None, 404, "BRANCH_NOT_FOUND").await;
    assert_eq!(talk.call("DELETE", &format!("{path}/main"), None).await.0, 204);
    assert_eq!(texts(&talk, &context, "other").await, ["one", "two", "two"], "what it continues is still there");
    assert_eq!(talk.get(&format!("/{context}/messages/{answer}")).await["content"][0]["text"], "one");
    let (status, again) = talk.post(&path, json!({ "name": "main", "parent_message_id": answer })).await;
    assert_eq!((status, &again["message_ids"]), (201, &json!([])));
    assert_eq!(texts(&talk, &context, "main").await, ["one", "one"]);
}

#[tokio::test]
async fn a_branch_on_which_a_turn_runs_is_not_deleted() {
    let talk = Talk::new().await;
    talk.fake.then(Reply::text("here").gated());
    let context = talk.create().await;
    talk.post(&format!("/{context}/branches"), json!({ "name": "other" })).await;
    let mut events = talk.follow(&context).await;
    talk.post(&format!("/{context}/messages"), json!({ "content": "x", "branch": "other" })).await;
    talk.refuses("DELETE", &format!("/{context}/branches/other"), None, 400, "INVALID_STATE").await;
    talk.fake.release(1);
    until_state(&mut events, "Idle").await;
    assert_eq!(talk.call("DELETE", &format!("/{context}/branches/other"), None).await.0, 204);
    talk.ask(&context, "on main").await;
    assert_eq!(texts(&talk, &context, "main").await, ["on main", "on main"]);
}

/// The answer belongs to who asked: a branch of the same name that was made since is another one.
#[tokio::test]
async fn a_failed_turn_whose_branch_is_deleted_is_not_tried_again_on_another_of_its_name() {
    let talk = Talk::new().await;
    talk.fake.then(Reply::text("no").status(401)).otherwise(Reply::text("yes"));
    let context = talk.create().await;
    let branches = format!("/{context}/branches");
    talk.post(&branches, json!({ "name": "other" })).await;
    let mut events = talk.follow(&context).await;
    talk.post(&format!("/{context}/messages"), json!({ "content": "lost question", "branch": "other" })).await;
    until_state(&mut events, "PermanentFailure").await;
    assert_eq!(talk.call("DELETE", &format!("{branches}/other"), None).await.0, 204);
    talk.post(&branches, json!({ "name": "other" })).await;
    let (status, _) = talk.call("POST", &format!("/{context}/retry"), None).await;
    if status == 200 {
        let mut told = events.next().await.unwrap();
        while told.2["new_state"] != "Idle" && told.2["new_state"] != "PermanentFailure" {
            told = events.next().await.unwrap();
        }
        for asked in &talk.fake.requests()[1..] {
            assert!(asked.to_string().contains("lost question"), "the model was asked of something else: {asked}");
        }
    }
}

#[tokio::test]
async fn a_context_with_a_parent_begins_with_its_active_branch_under_ids_of_its_own() {
    let talk = Talk::new().await;
    let parent = talk.create().await;
    let (question, _) = talk.ask(&parent, "one").await;
    let mut events = talk.follow(&parent).await;
    talk.call("PUT", &format!("/{parent}/messages/{question}"), Some(json!({ "content": "uno" }))).await;
    until_state(&mut events, "Idle").await;
    talk.ask(&parent, "dos").await;
    let before = talk.get(&format!("/{parent}")).await;

    let (status, child) = talk.post("", json!({ "model_id": "gpt-4", "parent_id": parent })).await;
    assert_eq!((status, &child["parent_id"], &child["active_branch_name"]), (201, &json!(parent), &json!("main")));
    let id = text(&child["id"]);
    let said = talk.said(&id, None).await;
    assert_eq!(said, talk.said(&parent, None).await);
    assert_eq!(said.iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>(), ["uno", "uno", "dos", "dos"]);
    let copy = talk.get(&format!("/{id}")).await;
    let pool = copy["message_pool"].as_object().unwrap();
    assert!(pool.keys().all(|id| before["message_pool"].get(id).is_none()), "{copy}");
    assert_eq!((pool.len(), copy["branches"]["main"]["message_ids"].as_array().unwrap().len()), (4, 4));

    talk.ask(&id, "tres").await;
    assert_eq!(talk.said(&id, None).await.len(), 6);
    assert_eq!(talk.get(&format!("/{parent}")).await, before, "the parent knows nothing of it");
    assert_eq!(talk.call("DELETE", &format!("/{parent}"), None).await.0, 204);
    assert_eq!(talk.said(&id, None).await.len(), 6, "and is not needed any more");
}

/// Two branches that part after the first answer.
async fn parted(talk: &Talk) -> (String, String) {
    let context = talk.create().await;
    talk.fake.then(Reply::text("which database?")).then(Reply::text("done on main"));
    talk.ask(&context, "build a store").await;
    talk.post(&format!("/{context}/branches"), json!({ "name": "try" })).await;
    talk.ask(&context, "use files").await;
    talk.call("PUT", &format!("/{context}/branches/try"), None).await;
    talk.fake.then(Reply::text("We decided to use SQLite with WAL for all data."));
    let (tried, _) = talk.ask(&context, "compare databases").await;
    talk.call("PUT", &format!("/{context}/branches/main"), None).await;
    (context, tried)
}

#[tokio::test]
async fn two_branches_are_compared_from_where_they_part() {
    let talk = Talk::new().await;
    let (context, tried) = parted(&talk).await;
    let diff = talk.get(&format!("/{context}/branches/main/diff/try")).await;
    assert_eq!(diff["common_messages"], 2);
    let previews = |side: &str| -> Vec<String> {
        diff[side]["messages"].as_array().unwrap().iter().map(|message| text(&message["preview"])).collect()
    };
    assert_eq!(previews("a"), ["use files", "done on main"]);
    assert_eq!(previews("b"), ["compare databases", "We decided to use SQLite with WAL for all data."]);
    assert_eq!(diff["b"]["messages"][0]["message_id"], tried);
    let sum: u64 = diff["b"]["messages"].as_array().unwrap().iter().map(|it| it["tokens"].as_u64().unwrap()).sum();
    assert_eq!(diff["b"]["tokens"], sum);
    let same = talk.get(&format!("/{context}/branches/main/diff/main")).await;
    assert_eq!((&same["a"]["messages"], &same["common_messages"]), (&json!([]), &json!(4)));
    talk.refuses("GET", &format!("/{context}/branches/main/diff/none"), None, 404, "BRANCH_NOT_FOUND").await;
}

#[tokio::test]
async fn a_comparison_shows_so_many_of_each_side_and_says_how_many_there_are() {
    let talk = Talk::new().await;
    let (context, tried) = parted(&talk).await;
    talk.ask(&context, "and tests").await;
    let path = format!("/{context}/branches/main/diff/try");
    let all = talk.get(&path).await;
    assert_eq!((&all["a"]["total"], &all["a"]["has_more"]), (&json!(4), &json!(false)));
    let first = talk.get(&format!("{path}?limit=2")).await;
    let counts = |side: &str| {
        (first[side]["messages"].as_array().unwrap().len(), &first[side]["total"], &first[side]["has_more"])
    };
    assert_eq!(counts("a"), (2, &json!(4), &json!(true)));
    assert_eq!(counts("b"), (2, &json!(2), &json!(false)));
    assert_eq!(first["b"]["messages"][0]["message_id"], tried, "the oldest first");
    assert_eq!(first["a"]["tokens"], all["a"]["tokens"], "of all");
    for limit in ["0", "1001", "x"] {
        talk.refuses("GET", &format!("{path}?limit={limit}"), None, 400, "VALIDATION_ERROR").await;
    }
}

#[tokio::test]
async fn a_branch_is_told_what_another_came_to_and_can_forget_it_again() {
    let talk = Talk::new().await;
    let (context, tried) = parted(&talk).await;
    let path = format!("/{context}/branches/main/merge");
    let (status, preview) = talk.post(&path, json!({ "from": "try", "dry_run": true })).await;
    assert_eq!(status, 200, "{preview}");
    let content = text(&preview["content"]);
    assert!(content.contains("SQLite with WAL") && content.contains(&format!("ws:segment:{tried}")), "{content}");
    assert_eq!((&preview["messages"], preview.get("message_id")), (&json!(2), None));
    assert_eq!(talk.said(&context, None).await.len(), 4, "a preview adds nothing");

    let (status, merged) = talk.post_keyed(&path, "m1", &json!({ "from": "try" })).await;
    assert_eq!((status, &merged["content"]), (200, &preview["content"]));
    let again = talk.post_keyed(&path, "m1", &json!({ "from": "try" })).await.1;
    assert_eq!(again["message_id"], merged["message_id"], "once");
    let said = talk.said(&context, None).await;
    assert_eq!((said.len(), &said[4]), (5, &("system".to_owned(), content.clone())));
    talk.fake.then(Reply::text("SQLite then"));
    talk.ask(&context, "so which one?").await;
    assert!(talk.fake.requests().pop().unwrap()["messages"].to_string().contains("SQLite with WAL"));

    let (_, operations) = talk.client.get("/api/operations").await;
    let merge = operations["operations"].as_array().unwrap().iter().find(|done| done["kind"] == "branch.merged");
    let id = text(&merge.unwrap()["operation_id"]);
    let (status, undone) = talk.client.call("POST", &format!("/api/operations/{id}/undo"), Some(json!({}))).await;
    assert_eq!(status, 200, "{undone}");
    talk.fake.then(Reply::text("?"));
    talk.ask(&context, "and now?").await;
    assert!(!talk.fake.requests().pop().unwrap()["messages"].to_string().contains("SQLite with WAL for all"));
}

/// Asks on a branch that is not the active one.
async fn ask_on(talk: &Talk, context: &str, branch: &str, content: &str, answer: &str) {
    talk.fake.then(Reply::text(answer));
    let mut events = talk.follow(context).await;
    let body = json!({ "content": content, "branch": branch });
    assert_eq!(talk.post(&format!("/{context}/messages"), body).await.0, 201);
    until_state(&mut events, "Idle").await;
}

#[tokio::test]
async fn what_a_branch_was_told_is_not_told_again_until_it_is_taken_back() {
    let talk = Talk::new().await;
    let (context, tried) = parted(&talk).await;
    let path = format!("/{context}/branches/main/merge");
    let merge = async |from: &str| {
        let (status, merged) = talk.post(&path, json!({ "from": from })).await;
        assert_eq!(status, 200, "{merged}");
        (merged["messages"].as_u64().unwrap(), text(&merged["content"]))
    };
    merge("try").await;
    for body in [json!({ "from": "try" }), json!({ "from": "try", "dry_run": true })] {
        talk.refuses("POST", &path, Some(body), 400, "VALIDATION_ERROR").await;
    }
    let (_, operations) = talk.client.get("/api/operations").await;
    let first = operations["operations"].as_array().unwrap().iter().find(|done| done["kind"] == "branch.merged");
    let first = text(&first.unwrap()["operation_id"]);

    ask_on(&talk, &context, "try", "what of indexes?", "We decided to index names only.").await;
    let (messages, content) = merge("try").await;
    assert_eq!(messages, 2);
    assert!(content.contains("index names only") && !content.contains("SQLite with WAL"), "{content}");
    // What goes on from the middle of what was told has only its own to tell.
    talk.post(&format!("/{context}/branches"), json!({ "name": "deep", "parent_message_id": tried })).await;
    ask_on(&talk, &context, "deep", "and a log?", "We decided to keep a log.").await;
    let (messages, content) = merge("deep").await;
    assert_eq!(messages, 2);
    assert!(content.contains("keep a log") && !content.contains("compare databases"), "{content}");

    let (status, undone) = talk.client.call("POST", &format!("/api/operations/{first}/undo"), Some(json!({}))).await;
    assert_eq!(status, 200, "{undone}");
    let (messages, content) = merge("try").await;
    assert_eq!(messages, 2);
    assert!(content.contains("SQLite with WAL") && !content.contains("index names only"), "{content}");
    talk.refuses("POST", &path, Some(json!({ "from": "try" })), 400, "VALIDATION_ERROR").await;
}

#[tokio::test]
async fn there_is_nothing_to_merge_from_a_branch_that_has_nothing_of_its_own() {
    let talk = Talk::new().await;
    let (context, _) = parted(&talk).await;
    talk.post(&format!("/{context}/branches"), json!({ "name": "empty" })).await;
    let path = format!("/{context}/branches/main/merge");
    talk.refuses("POST", &path, Some(json!({ "from": "empty" })), 400, "VALIDATION_ERROR").await;
    talk.refuses("POST", &path, Some(json!({ "from": "none" })), 404, "BRANCH_NOT_FOUND").await;
    talk.fake.then(Reply::text("never").hang());
    talk.say(&context, "wait").await;
    talk.refuses("POST", &path, Some(json!({ "from": "try" })), 400, "INVALID_STATE").await;
}
