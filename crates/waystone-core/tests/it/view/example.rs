//! What a view does with one context that is easy to see through.

use waystone_core::api::ContextRule;
use waystone_core::{Error, Limits};

use super::*;

fn share(view: &View, context: &Value, key: &str) -> f64 {
    let tokens = |value: &Value| count(&value.to_string()) as f64;
    view.context.get(key).map_or(0.0, |seen| tokens(seen) / tokens(&context[key]))
}

fn class_of<'a>(view: &'a View, key: &str) -> (Class, &'a str) {
    let class = view.report.classes.iter().find(|(_, keys)| keys.iter().any(|of| of == key)).unwrap().0;
    (*class, &view.report.rules[key])
}

#[tokio::test]
async fn what_is_ephemeral_is_shortened_before_what_is_important() {
    let h = Harness::new();
    let context = json!({ "debugLog": lines(60, "log"), "reasoning": lines(60, "plan") });
    for (ratio, important, ephemeral) in [(1.3, 1.0, 0.6), (2.0, 0.7, 0.3), (5.0, 0.2, 0.2)] {
        let view = compress(&h, json!({ "context": context, "ratio": ratio })).await.unwrap();
        let (log, reasoning) = (share(&view, &context, "debugLog"), share(&view, &context, "reasoning"));
        let seen = format!("{ratio} times smaller: {log} of the log, {reasoning} of the rest");
        assert!(reasoning >= important && log <= ephemeral && log < reasoning, "{seen}");
    }
}

#[tokio::test]
async fn prioritize_leaves_out_what_is_ephemeral_and_puts_the_higher_class_first() {
    let h = Harness::new();
    let context = json!({
        "tmpNotes": "short", "codeExample": lines(30, "code"), "zReasoning": lines(30, "why"), "userGoal": "ship it",
        "aReasoning": "brief", "startedAt": 1_767_225_600_000u64,
    });
    for token_budget in [300, 1_000_000] {
        let view = prioritize(&h, json!({ "context": context, "tokenBudget": token_budget })).await.unwrap();
        let keys: Vec<&String> = view.context.keys().collect();
        assert_eq!(keys, ["userGoal", "zReasoning", "aReasoning", "codeExample"], "{token_budget}");
        let dropped: Vec<_> = view.report.survival.dropped.iter().map(|key| (key.key.as_str(), key.class)).collect();
        assert_eq!(dropped, [("tmpNotes", Class::Ephemeral), ("startedAt", Class::Ephemeral)]);
        for key in &view.report.survival.dropped {
            assert_eq!(expand(&h, &key.handle).await, context[&key.key]);
        }
    }
}

#[tokio::test]
async fn weights_share_the_budget_and_what_a_class_does_not_need_goes_to_the_next() {
    let h = Harness::new();
    let context = json!({ "reasoning": lines(60, "why"), "codeExample": lines(60, "code") });
    let seen = async |weights: Value| {
        let asked = json!({ "context": context, "tokenBudget": 600, "weights": weights });
        let view = prioritize(&h, asked).await.unwrap();
        (share(&view, &context, "reasoning"), share(&view, &context, "codeExample"))
    };
    let (usual, equal) = (seen(json!({})).await, seen(json!({ "IMPORTANT": 1, "USEFUL": 1, "EPHEMERAL": 0 })).await);
    assert!(usual.0 > usual.1 && equal.1 > usual.1, "{usual:?} {equal:?}");
    let alone = json!({ "context": { "codeExample": context["codeExample"] }, "tokenBudget": 600 });
    let alone = prioritize(&h, alone).await.unwrap();
    assert!(alone.report.tokens_after > 500, "{}", alone.report.tokens_after);
    for weights in [json!({ "IMPORTANT": -1 }), json!({ "IMPORTANT": 0, "USEFUL": 0 })] {
        let asked = json!({ "context": context, "tokenBudget": 600, "weights": weights });
        assert!(matches!(prioritize(&h, asked).await, Err(Error::InvalidInput(why)) if why.contains("weights")));
    }
}

#[tokio::test]
async fn a_view_is_half_as_large_unless_it_is_asked_to_be_another_size() {
    let h = Harness::new();
    let context = json!({ "notes": lines(80, "note") });
    let tokens = async |more: Value| {
        let mut asked = json!({ "context": context });
        asked.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let report = compress(&h, asked).await.unwrap().report;
        (report.tokens_before, report.tokens_after)
    };
    let (before, half) = tokens(json!({})).await;
    assert!(half <= before / 2 && half > before * 4 / 10, "{half} of {before}");
    assert_eq!(tokens(json!({ "ratio": 2 })).await.1, half);
    assert_eq!(tokens(json!({ "ratio": 1 })).await.1, before);
    assert!(tokens(json!({ "ratio": 8 })).await.1 <= before / 8);
    assert!(tokens(json!({ "targetTokens": 100 })).await.1 <= 100);
}

#[tokio::test]
async fn a_size_that_makes_no_sense_is_refused() {
    let h = Harness::new();
    h.save("s", json!({ "n": 1 })).await;
    let check = async |request: Value, names: &str| match compress(&h, request.clone()).await {
        Err(Error::InvalidInput(why)) => assert!(why.contains(names), "{request}: {why}"),
        other => panic!("{request}: {other:?}"),
    };
    check(json!({ "sessionId": "s", "targetTokens": 10, "ratio": 2 }), "targetTokens and ratio are both given").await;
    check(json!({ "sessionId": "s", "targetTokens": 0 }), "targetTokens").await;
    for ratio in [0.0, 0.99, -1.0, 1e300] {
        check(json!({ "sessionId": "s", "ratio": ratio }), "ratio").await;
    }
    check(json!({ "context": {}, "checkpointId": "c" }), "context and checkpointId").await;
    check(json!({ "sessionId": "s", "checkpointId": "c" }), "checkpointId and sessionId").await;
    let none = prioritize(&h, json!({ "sessionId": "s", "tokenBudget": 0 })).await;
    assert!(matches!(none, Err(Error::InvalidInput(why)) if why.contains("tokenBudget")));
    let none = h.try_load(json!({ "sessionId": "s", "maxTokens": 0 })).await;
    assert!(matches!(none, Err(Error::InvalidInput(why)) if why.contains("maxTokens")));
    assert_eq!(compress(&h, json!({ "sessionId": "no" })).await.unwrap_err().code(), "SESSION_NOT_FOUND");
    assert_eq!(
        compress(&h, json!({ "context": {}, "sessionId": "no" })).await.unwrap_err().code(),
        "SESSION_NOT_FOUND"
    );
}

#[tokio::test]
async fn what_is_critical_alone_may_exceed_the_budget_and_the_view_says_so() {
    let h = Harness::new();
    let context = json!({ "notes": lines(9, "note"), "userGoal": lines(9, "goal"), "constraints": ["a", "b"] });
    let view = compress(&h, json!({ "context": context, "targetTokens": 20 })).await.unwrap();
    assert_eq!(Value::from(view.context), json!({ "userGoal": context["userGoal"], "constraints": ["a", "b"] }));
    assert!(view.report.over_budget && view.report.tokens_after > 20);
    assert!(
        view.warnings[0].contains("CRITICAL") && view.warnings[0].contains("`userGoal`, `constraints`"),
        "{:?}",
        view.warnings
    );
}

#[tokio::test]
async fn a_load_within_tokens_is_a_view_and_without_them_all_there_is() {
    let h = Harness::new();
    let context = json!({ "userGoal": "ship it", "notes": lines(60, "note") });
    let id = h.save("s", context.clone()).await.checkpoint_id;
    let loaded = h.try_load(json!({ "checkpointId": id, "maxTokens": 200 })).await.unwrap();
    let report = loaded.view.clone().unwrap();
    assert!(count(loaded.context.get()) <= 200 && report.tokens_after == count(loaded.context.get()) as u64);
    assert_eq!(context_of(&loaded)["userGoal"], "ship it");
    let shortened = &report.survival.shortened[0];
    assert_eq!(shortened.handle, format!("ws:checkpoint:{id}#/notes"));
    assert_eq!(expand(&h, &shortened.handle).await, context["notes"]);
    let whole = h.load(&id).await;
    assert_eq!((whole.view.is_none(), context_of(&whole)), (true, context));
}

/// As it loads by its id: what a session's deletion hides is not yet gone.
#[tokio::test]
async fn a_checkpoint_of_a_deleted_session_can_be_viewed_with_its_marks_and_rules() {
    let h = Harness::new();
    let context = json!({ "notes": lines(30, "note"), "more": lines(30, "more"), "rest": lines(30, "rest") });
    let rules = json!([{ "pattern": "^more$", "class": "CRITICAL" }]);
    let saved = h.try_save(json!({ "sessionId": "s", "context": context, "contextRules": rules })).await.unwrap();
    mark(&h, "s", "notes").await;
    h.engine.delete_session(&h.scope, &"s".parse().unwrap(), Default::default()).await.unwrap();
    let loaded = h.try_load(json!({ "checkpointId": saved.checkpoint_id, "maxTokens": 100 })).await.unwrap();
    assert!(loaded.checkpoint.archived);
    let expected = json!({ "notes": context["notes"], "more": context["more"] });
    assert_eq!(context_of(&loaded), expected);
    let asked = json!({ "checkpointId": saved.checkpoint_id, "targetTokens": 100 });
    assert_eq!(Value::from(compress(&h, asked).await.unwrap().context), expected);
}

#[tokio::test]
async fn a_view_without_a_source_is_of_the_session_that_the_same_actor_saved_last() {
    let h = Harness::new();
    let nothing = compress(&h, json!({})).await;
    assert!(
        matches!(nothing, Err(Error::InvalidInput(why)) if why.contains("sessionId") && why.contains(h.scope.actor.as_str()))
    );
    h.save("a", json!({ "n": 1 })).await;
    h.save("b", json!({ "n": 2 })).await;
    let view = compress(&h, json!({ "ratio": 1 })).await.unwrap();
    assert_eq!(view.session_id.unwrap().as_str(), "b");
    assert_eq!(Value::from(view.context), json!({ "n": 2 }));
}

/// A mark for what was left out is ours, and takes no member's place.
#[tokio::test]
async fn a_member_that_is_named_like_a_mark_is_not_overwritten() {
    let h = Harness::new();
    let record = json!({ "⋯": 7, "one": lines(20, "one"), "two": lines(20, "two"), "three": lines(20, "three") });
    for ratio in [1.5, 3.0, 6.0] {
        let asked = json!({ "context": { "record": record }, "ratio": ratio, "strategy": "structural" });
        let view = compress(&h, asked).await.unwrap();
        if let Some(seen) = view.context.get("record") {
            assert_eq!(seen["⋯"], 7, "{seen}");
            assert!(seen.as_object().unwrap().len() < 5, "what was left out is counted under one more key: {seen}");
        }
    }
}

#[tokio::test]
async fn what_a_goal_names_is_kept_first() {
    let h = Harness::new();
    let context = json!({ "notes": lines(80, "note") });
    let seen = async |goal: Option<&str>| {
        let view = compress(&h, json!({ "context": context, "ratio": 10, "goal": goal })).await.unwrap();
        view.context["notes"].as_str().unwrap().to_owned()
    };
    let (without, with) = (seen(None).await, seen(Some("find out what file_40.rs and note_40.out are for")).await);
    assert!(!without.contains("file_40.rs") && with.contains("file_40.rs"), "{without}\n\n{with}");
}

#[tokio::test]
async fn a_mark_wins_over_rules_and_the_sessions_rules_over_those_of_the_configuration() {
    let mut h = Harness::new();
    let rule = |pattern: &str, class: Class, reason: Option<&str>| ContextRule {
        pattern: pattern.to_owned(),
        class,
        reason: reason.map(str::to_owned),
    };
    let context = json!({ "debugA": 1, "debugB": 1, "debugC": 1, "debugD": 1, "other": 1 });
    let own = json!([
        { "pattern": "^debug[AB]$", "class": "USEFUL", "reason": "the session says so" },
        { "pattern": "B$", "class": "IMPORTANT" },
    ]);
    h.try_save(json!({ "sessionId": "s", "context": context, "contextRules": own })).await.unwrap();
    mark(&h, "s", "debugA").await;
    let check = |view: View| {
        assert_eq!(class_of(&view, "debugA"), (Class::Critical, "marked critical"));
        assert_eq!(class_of(&view, "debugB"), (Class::Useful, "the session says so"), "the first that matches counts");
        assert_eq!(class_of(&view, "debugC"), (Class::Important, "contextRules: ^debug[BC]"));
        assert_eq!(class_of(&view, "debugD"), (Class::Ephemeral, "key: debug"));
        assert_eq!(class_of(&view, "other"), (Class::Important, "default"));
    };
    // A restart takes what was not kept.
    h.restart().await;
    h.engine = h.engine.clone().with_context_rules(vec![rule("^debug[BC]", Class::Important, None)]);
    check(compress(&h, json!({ "sessionId": "s" })).await.unwrap());
    check(compress(&h, json!({ "sessionId": "s", "context": context })).await.unwrap());
    let without = compress(&h, json!({ "context": context })).await.unwrap();
    assert_eq!(class_of(&without, "debugA"), (Class::Ephemeral, "key: debug"), "marks are the session's own");
    assert_eq!(class_of(&without, "debugB").0, Class::Important, "the configuration's rules are everyone's");
}

#[tokio::test]
async fn rules_are_replaced_by_a_save_that_gives_some_and_kept_by_one_that_does_not() {
    let h = Harness::new();
    let save = async |context: Value, rules: Option<Value>| {
        let mut request = json!({ "sessionId": "s", "context": context });
        if let Some(rules) = rules {
            request["contextRules"] = rules;
        }
        h.try_save(request).await.unwrap();
        class_of(&compress(&h, json!({ "sessionId": "s" })).await.unwrap(), "x").0
    };
    let useful = json!([{ "pattern": "x", "class": "USEFUL" }]);
    assert_eq!(save(json!({ "x": 1 }), Some(useful)).await, Class::Useful);
    assert_eq!(save(json!({ "x": 2 }), None).await, Class::Useful);
    let critical = json!([{ "pattern": "x", "class": "CRITICAL" }]);
    assert_eq!(save(json!({ "x": 2 }), Some(critical)).await, Class::Critical, "though the context is unchanged");
    assert_eq!(save(json!({ "x": 3 }), Some(json!([]))).await, Class::Important);
    h.check_invariants().await;
}

#[tokio::test]
async fn a_rule_that_is_no_rule_is_refused_by_name_and_nothing_is_saved() {
    let h = Harness::new();
    let check = async |rules: Value, names: &str| {
        let refused = h.try_save(json!({ "sessionId": "s", "context": {}, "contextRules": rules })).await;
        assert!(matches!(&refused, Err(Error::InvalidInput(why)) if why.contains(names)), "{refused:?}");
    };
    let rule = |pattern: &str| json!({ "pattern": pattern, "class": "USEFUL" });
    check(json!([rule("good"), rule("(bad")]), "`(bad`").await;
    check(json!([rule("")]), "1 to 256 characters").await;
    check(json!([rule(&"x".repeat(257))]), "1 to 256 characters").await;
    check(json!([rule(r"\p{L}{1000}")]), r"`\p{L}{1000}`").await;
    check(json!(vec![rule("x"); 65]), "at most 64").await;
    check(json!([{ "pattern": "x", "class": "USEFUL", "reason": "r".repeat(257) }]), "reason").await;
    assert_eq!(h.list(json!({ "limit": 10 })).await.len(), 0);
    assert_eq!(h.engine.status(&h.scope).await.unwrap().session_count, 0);
    let taken = json!({ "sessionId": "s", "context": {}, "contextRules": vec![rule("x"); 64] });
    h.try_save(taken).await.unwrap();
}

#[tokio::test]
async fn a_context_that_came_with_a_request_counts_in_the_quota() {
    let h = Harness::with_limits(Limits { total_bytes_max: 3000, ..Limits::default() });
    let text = waystone_testkit::contexts::Random::new(7).text(3000);
    let fits = json!({ "context": { "text": &text[..1500] } });
    compress(&h, fits.clone()).await.unwrap();
    let size = h.engine.status(&h.scope).await.unwrap().total_size_bytes;
    assert!((1000..3000).contains(&size), "{size}");
    compress(&h, fits).await.unwrap();
    assert_eq!(h.engine.status(&h.scope).await.unwrap().total_size_bytes, size, "it is kept once");

    let refused = compress(&h, json!({ "context": { "text": text } })).await.unwrap_err();
    assert_eq!(refused.code(), "STORAGE_QUOTA_EXCEEDED");
    let refused = h.try_save(json!({ "context": { "text": text } })).await.unwrap_err();
    assert_eq!(refused.code(), "STORAGE_QUOTA_EXCEEDED", "a save counts what was given too");
    assert_eq!(h.engine.status(&h.scope).await.unwrap().total_size_bytes, size);
    let whole = compress(&h, json!({ "context": { "n": 1 }, "ratio": 1 })).await.unwrap();
    assert!(whole.next.is_none());
    assert_eq!(h.engine.status(&h.scope).await.unwrap().total_size_bytes, size, "what is whole needs no handle");
    h.check_invariants().await;
}

#[tokio::test]
async fn a_context_as_large_as_none_may_be_is_refused() {
    let h = Harness::with_limits(Limits { context_bytes_max: 1000, ..Limits::default() });
    let refused = compress(&h, json!({ "context": { "t": "x".repeat(1000) } })).await.unwrap_err();
    assert_eq!(refused.code(), "PAYLOAD_TOO_LARGE");
}

#[tokio::test]
async fn what_shares_are_too_small_for_goes_to_whole_keys_the_newest_first() {
    let h = Harness::new();
    let note = |n: usize| (format!("note{n}"), json!(format!("Module {n} uses the old parser; replace it later.")));
    for count in [3, 12, 100] {
        let context: Value = (0..count).map(note).collect::<Map<_, _>>().into();
        for ratio in [1.2, 2.0, 2.5] {
            let view = filled(&h, &context, ratio).await;
            assert!(view.context.contains_key(&format!("note{}", count - 1)), "{count} notes, {ratio}");
        }
    }
    let texts = (0..20).map(|n| (format!("k{n}"), json!(lines(10, &format!("k{n}"))))).collect::<Map<_, _>>();
    for ratio in [2.0, 5.0, 9.0] {
        filled(&h, &texts.clone().into(), ratio).await;
    }
    let view = filled(&h, &json!({ "n": { "a": (0..1000).collect::<Vec<_>>() } }), 2.0).await;
    assert_eq!(view.context["n"]["a"].as_array().unwrap().last(), Some(&json!(999)));
}

#[tokio::test]
async fn the_newest_error_is_there_though_its_class_is_shortened_first() {
    let h = Harness::new();
    let steps: Vec<String> = (1..=400).map(|n| format!("[{n}/400] cc -c src/mod_{n}.c")).collect();
    let error = "src/ledger.c:214:17: error: implicit declaration of function 'ledger_open'";
    let build = [&steps[..399], &[error.to_owned()], &steps[399..]].concat().join("\n");
    let context = json!({
        "userGoal": "find out why the build fails", "buildLog": build, "notes": "lorem ipsum ".repeat(150),
        "plan": ["look at the log", "mend it"],
    });
    for tokens in [120, 200, 400] {
        let view = compress(&h, json!({ "context": context, "targetTokens": tokens })).await.unwrap();
        let shown = view.context["buildLog"].as_str().unwrap_or_default();
        assert!(shown.contains(error), "{tokens}: {:?}", view.context);
        assert_eq!((view.report.survival.anchors.total, view.report.survival.anchors.in_view), (1, 1));
    }
}

/// What shares were too small for goes to parts of a higher class before anything of a lower one.
#[tokio::test]
async fn what_is_left_over_goes_to_the_higher_class_first() {
    let h = Harness::new();
    let mut context: Map<String, Value> =
        (0..100).map(|n| (format!("part{n}"), json!(lines(25, &format!("p{n}"))))).collect();
    context.insert("debugInfo".to_owned(), json!(lines(15, "debug")));
    let view = compress(&h, json!({ "context": context, "targetTokens": 400 })).await.unwrap();
    assert!(!view.context.contains_key("debugInfo") && view.report.tokens_after > 300, "{:?}", view.context);
}

#[tokio::test]
async fn numbers_in_a_text_stay_as_they_were_written() {
    let h = Harness::new();
    let text =
        format!(r#"{{"id": 12345678901234567890123, "share": 1.10, "notes": "{}"}}"#, "one more note. ".repeat(60));
    let view = compress(&h, json!({ "context": { "reply": text }, "ratio": 3 })).await.unwrap();
    let shown = view.context["reply"].as_str().unwrap();
    assert!(shown.contains("12345678901234567890123") && shown.contains("1.10"), "{shown}");
}

/// One long line, a value of many names, and very many keys took time that grew with the square of them.
#[tokio::test]
async fn what_is_long_in_any_way_is_viewed_in_the_end() {
    let h = Harness::new();
    let names: String = (0..20_000).map(|n| format!("name_{n} ")).collect();
    let many: Map<String, Value> = (0..5_000).map(|n| (format!("key{n}"), json!(n))).collect();
    for (context, strategy) in [
        (json!({ "line": "x".repeat(500_000) }), "auto"),
        (json!({ "names": names }), "structural"),
        (Value::from(many), "auto"),
    ] {
        let view =
            compress(&h, json!({ "context": context, "targetTokens": 100, "strategy": strategy })).await.unwrap();
        assert!(view.report.tokens_after <= 100);
    }
}
