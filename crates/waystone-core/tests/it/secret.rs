//! Secrets in what is kept: told, left out of what is shown, or refused.

mod detect;
mod show;

use serde_json::{Value, json};
use waystone_core::Error;
use waystone_core::api::{PutReply, SaveStatus};
use waystone_core::secret::Policy::{self, Block, Off, Redact, Warn};
use waystone_core::secret::{Secrets, parse_rules};
use waystone_testkit::Harness;
use waystone_testkit::secrets::{personal, planted};

/// A secret that this rule finds, in no file of ours.
fn secret_of(rule: &str) -> String {
    let all = planted(1).into_iter().chain(personal(1));
    all.into_iter().find(|one| one.rule == rule).unwrap().secret
}

fn harness(secret: Policy) -> Harness {
    Harness::new().with_secrets(secret, Off)
}

async fn put(h: &Harness, request: Value) -> Result<PutReply, Error> {
    h.engine.put_segments(&h.scope, serde_json::from_value(request).unwrap()).await
}

#[tokio::test]
async fn who_saves_a_secret_is_told_where_and_it_is_kept_as_it_is() {
    let h = harness(Warn);
    let (key, token) = (secret_of("aws-access-key"), secret_of("github-token"));
    let context = json!({ "goal": "ship", "env": { "a/b": ["x", format!("ü key {key}!")] }, "note": "none" });
    let metadata = json!({ "name": format!("with {token}"), "tags": ["t"] });
    let saved = h.try_save(json!({ "sessionId": "s", "context": context, "metadata": metadata })).await.unwrap();
    let expected = [
        format!("possible secret: aws-access-key at /env/a~1b/1, bytes 7-{}", 7 + key.len()),
        format!("possible secret: github-token at /metadata/name, bytes 5-{}", 5 + token.len()),
    ];
    assert_eq!((saved.status, saved.warnings), (SaveStatus::Saved, expected.to_vec()));
    let loaded = h.try_load(json!({ "sessionId": "s" })).await.unwrap();
    assert_eq!(serde_json::from_str::<Value>(loaded.context.get()).unwrap(), context);
}

#[tokio::test]
async fn what_is_not_saved_is_not_searched_and_a_retry_is_told_the_same() {
    let h = harness(Warn);
    let context = json!({ "text": secret_of("jwt") });
    let request = json!({ "sessionId": "s", "context": context, "idempotencyKey": "k" });
    let first = h.try_save(request.clone()).await.unwrap();
    assert_eq!(first.warnings.len(), 1, "{:?}", first.warnings);
    assert_eq!(h.try_save(request).await.unwrap(), first);
    let again = h.save("s", context.clone()).await;
    assert_eq!((again.status, again.warnings), (SaveStatus::SkippedUnchanged, Vec::<String>::new()));
    let forced = h.try_save(json!({ "sessionId": "s", "context": context, "force": true })).await.unwrap();
    assert_eq!(forced.warnings, first.warnings);
}

#[tokio::test]
async fn warnings_are_few_and_none_shows_a_secret_even_as_a_key() {
    let h = harness(Warn);
    let key = secret_of("stripe-key");
    let many: Vec<String> =
        planted(7).into_iter().filter(|one| one.rule == "openai-key").map(|one| one.secret).collect();
    let saved = h.save("s", json!({ key.clone(): { "line\nbreak": many } })).await;
    assert_eq!(saved.warnings.len(), 21);
    assert_eq!(saved.warnings[0], format!("possible secret: stripe-key in a key of the top, bytes 0-{}", key.len()));
    let second = &saved.warnings[1];
    assert!(
        second.starts_with("possible secret: openai-key at /[redacted:stripe-key]/line break/0, bytes 0-"),
        "{second}"
    );
    assert_eq!(saved.warnings[20], format!("and {} more possible secrets", many.len() + 1 - 20));
    let all = saved.warnings.join("\n");
    assert!(!all.contains(&key) && many.iter().all(|secret| !all.contains(secret)), "{all}");
}

#[tokio::test]
async fn a_put_tells_of_each_text_and_tag() {
    let h = harness(Warn);
    let key = secret_of("google-key");
    let end = key.len();
    let one = put(&h, json!({ "project_id": "p", "text": key, "tags": [key] })).await.unwrap();
    let expected = ["/tags/0", "/text"].map(|at| format!("possible secret: google-key at {at}, bytes 0-{end}"));
    assert_eq!(one.warnings, expected);
    let two = put(&h, json!({ "project_id": "p", "texts": ["x", format!("a {key}")] })).await.unwrap();
    assert_eq!(two.warnings, [format!("possible secret: google-key at /texts/1, bytes 2-{}", end + 2)]);
    let said = json!({ "project_id": "p", "messages": [{ "role": "user", "content": key }] });
    assert_eq!(
        put(&h, said).await.unwrap().warnings,
        [format!("possible secret: google-key at /messages/0/content, bytes 0-{end}")]
    );
    let described = json!({ "project_id": "p", "context_descriptors": { "segment_summaries": [{ "text": key }] } });
    let usage = h.engine.analyze_usage(&h.scope, serde_json::from_value(described).unwrap()).await.unwrap();
    let pointer = "/context_descriptors/segment_summaries/0/text";
    assert_eq!(usage.warnings, [format!("possible secret: google-key at {pointer}, bytes 0-{end}")]);
}

#[tokio::test]
async fn a_blocked_secret_is_refused_before_anything_is_stored() {
    let h = harness(Block);
    let key = secret_of("anthropic-key");
    let before = h.engine.status(&h.scope).await.unwrap();
    let context = json!({ "env": { "KEY": key } });
    let refused = [
        h.try_save(json!({ "sessionId": "s", "context": context })).await.unwrap_err(),
        h.try_save(json!({ "context": {}, "metadata": { "tags": [key] } })).await.unwrap_err(),
        put(&h, json!({ "text": format!("use {key}") })).await.unwrap_err(),
        put(&h, json!({ "text": "x", "file_path": key })).await.unwrap_err(),
        h.engine
            .compress_context(&h.scope, serde_json::from_value(json!({ "context": context, "ratio": 9.0 })).unwrap())
            .await
            .unwrap_err(),
    ];
    for (error, pointer, offset) in [
        (&refused[0], "/env/KEY", 0),
        (&refused[1], "/metadata/tags/0", 0),
        (&refused[2], "/text", 4),
        (&refused[3], "/file_path", 0),
        (&refused[4], "/context/env/KEY", 0),
    ] {
        let reply = json!(error.reply())["error"].take();
        assert_eq!((reply["code"].as_str(), error.http_status()), (Some("SECRET_BLOCKED"), 422));
        let finding = json!({ "rule": "anthropic-key", "group": "secret", "pointer": pointer, "offset": offset,
                              "length": key.len(), "inKey": false });
        assert_eq!(reply["details"], json!({ "findings": [finding], "total": 1 }));
        assert!(!reply.to_string().contains(&key) && reply["hint"].as_str().unwrap().contains("WAYSTONE_SECRETS"));
    }
    assert_eq!(h.engine.status(&h.scope).await.unwrap(), before);
    assert_eq!(h.save("s", json!({ "env": "clean" })).await.status, SaveStatus::Saved);
    h.check_invariants().await;
}

#[tokio::test]
async fn an_import_is_searched_like_a_save() {
    let from = harness(Warn);
    let key = secret_of("slack-token");
    from.save("s", json!({ "env": key })).await;
    put(&from, json!({ "project_id": "p", "text": key })).await.unwrap();
    let session = from.export_session("s").await.unwrap();
    let project = from.export_project("p").await.unwrap();

    let end = key.len();
    for (document, pointer) in [(session, "/checkpoints/0/context/env"), (project, "/segments/0/text")] {
        let h = harness(Block);
        let before = h.engine.status(&h.scope).await.unwrap();
        let refused = h.import(document.clone()).await.unwrap_err();
        assert_eq!(refused.code(), "SECRET_BLOCKED");
        assert_eq!(h.engine.status(&h.scope).await.unwrap(), before);
        let told = harness(Warn).import(document).await.unwrap().warnings;
        assert_eq!(told, [format!("possible secret: slack-token at {pointer}, bytes 0-{end}")]);
    }
}

#[tokio::test]
async fn personal_data_is_looked_for_where_someone_wants_that() {
    let address = secret_of("email");
    let context = json!({ "ticket": format!("from {address}") });
    assert_eq!(harness(Warn).save("s", context.clone()).await.warnings, Vec::<String>::new());
    let h = Harness::new().with_secrets(Off, Warn);
    let told = h.save("s", context.clone()).await.warnings;
    assert_eq!(told, [format!("possible personal data: email at /ticket, bytes 5-{}", 5 + address.len())]);
    let secret = json!({ "key": secret_of("jwt") });
    assert_eq!(h.save("s", secret).await.warnings, Vec::<String>::new(), "the other group is off");
    let h = Harness::new().with_secrets(Redact, Block);
    let refused = h.try_save(json!({ "context": { "a": address, "b": secret_of("jwt") } })).await.unwrap_err();
    assert_eq!(json!(refused.reply())["error"]["details"]["total"], 1, "each group has its policy");
}

#[tokio::test]
async fn rules_of_a_user_add_to_ours_replace_them_and_switch_them_off() {
    let file = json!({ "rules": [
        { "id": "acme-ticket", "pattern": "ACME-[0-9]{6}", "keywords": ["acme-"] },
        { "id": "jwt", "enabled": false },
        { "id": "aws-access-key", "pattern": "AWS:([a-z]{4})" },
    ]});
    let rules = parse_rules(file.to_string().as_bytes()).unwrap();
    let mut h = Harness::new();
    h.engine = h.engine.clone().with_secrets(Secrets::new(Warn, Off, rules));
    let context = json!({ "a": "see acme-123456 and ACME-123456", "b": secret_of("jwt"), "c": secret_of("aws-access-key"), "d": "AWS:abcd" });
    let told = h.save("s", context).await.warnings;
    assert_eq!(
        told,
        ["possible secret: acme-ticket at /a, bytes 20-31", "possible secret: aws-access-key at /d, bytes 4-8"]
    );
}
