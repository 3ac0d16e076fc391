//! Views: whatever the context, the marks and the budget, what matters is in view and the rest one call away.

mod example;
mod request;

use std::cell::Cell;
use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Map, Value, json};
use tokio::runtime::Runtime;
use waystone_core::Result;
use waystone_core::api::{Class, ExpandHandle, View, ViewReport};
use waystone_core::tokens::count;
use waystone_testkit::Harness;
use waystone_testkit::harness::context_of;

/// How many contexts are looked at in one property. More find more, and take longer.
const CASES: u32 = 8;

async fn compress(h: &Harness, request: Value) -> Result<View> {
    h.engine.compress_context(&h.scope, serde_json::from_value(request).unwrap()).await
}

async fn prioritize(h: &Harness, request: Value) -> Result<View> {
    h.engine.prioritize_context(&h.scope, serde_json::from_value(request).unwrap()).await
}

async fn expand(h: &Harness, handle: &str) -> Value {
    let request = ExpandHandle { handle: handle.to_owned(), offset: None, limit: None };
    h.engine.expand_handle(&h.scope, request).await.unwrap().content
}

async fn mark(h: &Harness, session: &str, key: &str) {
    let request = serde_json::from_value(json!({ "sessionId": session, "contextKey": key })).unwrap();
    h.engine.mark_critical(&h.scope, request).await.unwrap();
}

/// Text of the kinds that agents meet: prose, logs, code, JSON, one endless line, nothing.
fn any_text() -> impl Strategy<Value = String> {
    let line = prop_oneof![
        "[a-zA-Z_./0-9 :]{0,60}",
        "[\\PC]{0,20}",
        Just("  File \"src/app.py\", line 7: ValueError: bad id U-991".to_owned()),
        Just("- [ ] write the TODO in docs/plan.md".to_owned()),
        Just("Never delete the table users_2024 without a backup".to_owned()),
        Just("12:00:01 INFO worker-3 took job 4711".to_owned()),
        Just("⋯14".to_owned()),
        Just(String::new()),
    ];
    let lines = prop::collection::vec(line, 0..40).prop_map(|lines| lines.join("\n"));
    let prose = "([a-z]{1,9}[ .;]{1,2}){60,200}";
    let endless =
        prop_oneof!["[a-zA-Z0-9+/]{300,900}", "[é漢🦀]{200,400}", Just(" ".repeat(700)), Just("=".repeat(700))];
    let short =
        prop_oneof![Just(String::new()), "[a-z ]{1,12}", "\\PC{0,8}", Just("\u{0}\u{1b}\"\\\n\r\u{2028}".to_owned())];
    let embedded = prop::collection::vec(("[a-z_]{1,8}", "[a-zA-Z0-9 ]{0,30}", any::<i32>()), 0..12).prop_map(|rows| {
        let rows: Vec<Value> = rows.iter().map(|(key, text, n)| json!({ key: text, "n": n, "x": [n] })).collect();
        serde_json::to_string_pretty(&rows).unwrap()
    });
    prop_oneof![short, lines, prose, endless, embedded]
}

fn any_key() -> impl Strategy<Value = String> {
    let known = [
        "userGoal",
        "debugLog",
        "codeExample",
        "startedAt",
        "plan",
        "toolOutput",
        "messages",
        "tmp_files",
        "a/b",
        "a~b",
    ];
    let odd = ["", " ", "~1", "%41", "a?lines=1-2", "a#b", "⋯", "ключ", "with space", "\u{0}\n", "\"", "role"];
    prop_oneof![prop::sample::select(known.to_vec()), prop::sample::select(odd.to_vec())].prop_map(str::to_owned)
}

fn any_value() -> impl Strategy<Value = Value> {
    let scalar = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        Just(json!(1_767_225_600_000u64)),
    ];
    let roles = prop::sample::select(vec!["user", "assistant", "tool", "system", ""]);
    let messages = prop::collection::vec((roles, any_text()), 0..12).prop_map(|messages| {
        messages.into_iter().map(|(role, text)| json!({ "role": role, "content": text })).collect::<Value>()
    });
    let leaf = prop_oneof![1 => scalar, 3 => any_text().prop_map(Value::from), 2 => messages];
    leaf.prop_recursive(3, 24, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec((any_key(), inner), 0..5)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

fn any_context() -> impl Strategy<Value = Map<String, Value>> {
    prop::collection::vec((any_key(), any_value()), 0..7).prop_map(|members| members.into_iter().collect())
}

/// A budget: a few tokens, or a share of the whole.
#[derive(Debug, Clone, Copy)]
enum Size {
    Tokens(u64),
    Percent(u64),
}

fn any_size() -> impl Strategy<Value = Size> {
    prop_oneof![
        (1..40u64).prop_map(Size::Tokens),
        (1..130u64).prop_map(Size::Percent),
        Just(Size::Tokens(waystone_core::api::TOKENS_MAX))
    ]
}

/// Every way to ask for a view.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Way {
    Compress(&'static str),
    Prioritize,
    Load,
}

fn any_way() -> impl Strategy<Value = Way> {
    let ways =
        [Way::Compress("auto"), Way::Compress("structural"), Way::Compress("extractive"), Way::Prioritize, Way::Load];
    prop::sample::select(ways.to_vec())
}

/// A context, and what is asked of it.
#[derive(Debug)]
struct Case {
    context: Map<String, Value>,
    /// Those of these keys that the context has are marked.
    marks: Vec<String>,
    asks: Vec<Ask>,
}

#[derive(Debug)]
struct Ask {
    size: Size,
    way: Way,
    goal: Option<String>,
    /// Whether the context comes with the request.
    is_given: bool,
}

/// Saving takes longer than looking, so each context is looked at in several ways.
fn any_case() -> impl Strategy<Value = Case> {
    let ask = (any_size(), any_way(), prop::option::of(any_text()), prop::bool::weighted(0.2));
    let ask = ask.prop_map(|(size, way, goal, is_given)| Ask { size, way, goal, is_given });
    let parts = (any_context(), prop::collection::vec(any_key(), 0..3), prop::collection::vec(ask, 1..8));
    parts.prop_map(|(context, marks, asks)| Case { context, marks, asks })
}

impl Case {
    fn marked(&self) -> impl Iterator<Item = &String> {
        self.marks.iter().filter(|key| !key.is_empty() && self.context.contains_key(*key))
    }

    async fn save(&self, h: &Harness, session: &str) {
        h.save(session, self.context.clone().into()).await;
        for key in self.marked() {
            mark(h, session, key).await;
        }
    }

    fn tokens_max(&self, ask: &Ask) -> u64 {
        match ask.size {
            Size::Tokens(tokens) => tokens,
            Size::Percent(percent) => (tokens_of(&self.context) * percent / 100).max(1),
        }
    }

    /// The view and its report.
    async fn view(&self, h: &Harness, session: &str, ask: &Ask) -> (Map<String, Value>, ViewReport) {
        let tokens_max = self.tokens_max(ask);
        let mut request = json!({ "sessionId": session });
        if ask.is_given {
            request["context"] = self.context.clone().into();
        }
        let view = match ask.way {
            Way::Load => {
                let request = json!({ "sessionId": session, "maxTokens": tokens_max });
                let loaded = h.try_load(request).await.unwrap();
                return (context_of(&loaded).as_object().unwrap().clone(), loaded.view.unwrap());
            }
            Way::Compress(strategy) => {
                request["strategy"] = strategy.into();
                request["targetTokens"] = tokens_max.into();
                request["goal"] = json!(ask.goal);
                compress(h, request).await.unwrap()
            }
            Way::Prioritize => {
                request["tokenBudget"] = tokens_max.into();
                prioritize(h, request).await.unwrap()
            }
        };
        let is_less = !view.report.survival.shortened.is_empty() || !view.report.survival.dropped.is_empty();
        assert_eq!(view.next.is_some(), is_less, "the next call is named exactly where something was left out");
        (view.context, view.report)
    }
}

fn tokens_of(context: &Map<String, Value>) -> u64 {
    count(&serde_json::to_string(context).unwrap()) as u64
}

fn keys_of(context: &Map<String, Value>) -> BTreeSet<&str> {
    context.keys().map(String::as_str).collect()
}

/// Runs `check` on many contexts, each in a session of its own, and on all that is asked of it.
fn for_cases(check: impl AsyncFn(&Harness, &str, &Case, &Ask)) {
    let (runtime, h, number) = (Runtime::new().unwrap(), Harness::new(), Cell::new(0));
    let mut runner = TestRunner::new(Config { cases: CASES, max_shrink_time: 20_000, ..Config::default() });
    let ran = runner.run(&any_case(), |case| {
        number.set(number.get() + 1);
        let session = format!("s{}", number.get());
        runtime.block_on(async {
            case.save(&h, &session).await;
            for ask in &case.asks {
                check(&h, &session, &case, ask).await;
            }
        });
        Ok(())
    });
    ran.unwrap_or_else(|failure| panic!("{failure}"));
    runtime.block_on(h.check_invariants());
}

#[test]
fn a_view_fits_its_budget_or_is_exactly_what_is_critical_and_was_asked_last() {
    for_cases(async |h, session, case, ask| {
        let (view, report) = case.view(h, session, ask).await;
        assert_eq!((report.tokens_before, report.tokens_after), (tokens_of(&case.context), tokens_of(&view)));
        assert_eq!(report.over_budget, report.tokens_after > case.tokens_max(ask));
        let critical: BTreeSet<&str> = report.classes[&Class::Critical].iter().map(String::as_str).collect();
        if report.over_budget {
            let besides: Vec<&str> = keys_of(&view).difference(&critical).copied().collect();
            let is_request = |key: &str| view[key].to_string().contains(r#""role":"user""#);
            assert!(matches!(besides[..], [] | [_]) && besides.iter().all(|key| is_request(key)), "{besides:?}");
        }
        for key in critical {
            assert_eq!(view[key].to_string(), case.context[key].to_string(), "`{key}` is in view byte for byte");
        }
        for key in case.marked() {
            assert_eq!(report.rules[key], "marked critical");
            assert_eq!(view[key].to_string(), case.context[key].to_string(), "`{key}` is marked");
        }
    });
}

#[test]
fn every_key_has_one_class_and_one_fate_and_what_is_not_in_view_expands_to_the_original() {
    for_cases(async |h, session, case, ask| {
        let (view, report) = case.view(h, session, ask).await;
        let survival = &report.survival;
        let mut classed: Vec<&String> = report.classes.values().flatten().collect();
        let shortened = survival.shortened.iter().map(|key| (&key.key, &key.handle));
        let dropped = survival.dropped.iter().map(|key| (&key.key, &key.handle));
        let (shortened, dropped): (Vec<_>, Vec<_>) = (shortened.collect(), dropped.collect());
        let mut fated: Vec<&String> = survival.kept.iter().collect();
        fated.extend(shortened.iter().chain(&dropped).map(|(key, _)| *key));
        let mut keys: Vec<&String> = case.context.keys().collect();
        [&mut keys, &mut classed, &mut fated].into_iter().for_each(|list| list.sort());
        assert_eq!((&classed, &fated), (&keys, &keys));
        assert_eq!(report.rules.keys().collect::<Vec<_>>(), keys);

        for key in &survival.kept {
            assert_eq!(view[key].to_string(), case.context[key].to_string(), "`{key}` is as it was");
        }
        assert!(shortened.iter().all(|(key, _)| view[*key] != case.context[*key]));
        assert!(dropped.iter().all(|(key, _)| !view.contains_key(*key)));
        assert_eq!(view.len(), survival.kept.len() + shortened.len());
        for (key, handle) in shortened.iter().chain(&dropped) {
            assert_eq!(expand(h, handle).await.to_string(), case.context[*key].to_string(), "{handle}");
        }
        let anchors = survival.anchors;
        assert_eq!((anchors.lost, anchors.total), (0, anchors.in_view + anchors.by_handle));
        for key in &survival.dropped {
            assert!(report.classes[&key.class].contains(&key.key));
        }
    });
}

#[test]
fn the_same_request_gives_the_same_bytes_and_what_fits_is_unchanged() {
    for_cases(async |h, session, case, ask| {
        let (view, report) = case.view(h, session, ask).await;
        let (again, report_again) = case.view(h, session, ask).await;
        assert_eq!(serde_json::to_string(&view).unwrap(), serde_json::to_string(&again).unwrap());
        assert_eq!(json!(report), json!(report_again));
        let ephemeral = &report.classes[&Class::Ephemeral];
        // In another order the same members may have a few tokens more.
        let more = if ask.way == Way::Prioritize { 4 * case.context.len() as u64 } else { 0 };
        if tokens_of(&case.context) + more <= case.tokens_max(ask) {
            let is_left = |key: &String| ask.way != Way::Prioritize || !ephemeral.contains(key);
            let left = case.context.iter().filter(|(key, _)| is_left(key));
            let left: Map<String, Value> = left.map(|(key, value)| (key.clone(), value.clone())).collect();
            assert_eq!(view, left);
        }
        let class_of = |key: &String| report.classes.iter().find(|(_, keys)| keys.contains(key)).unwrap().0;
        match ask.way {
            Way::Prioritize => {
                assert!(view.keys().is_sorted_by_key(class_of), "in order of importance");
                assert!(ephemeral.iter().all(|key| !view.contains_key(key)));
            }
            _ => {
                let kept: Vec<&String> = case.context.keys().filter(|key| view.contains_key(*key)).collect();
                assert_eq!(view.keys().collect::<Vec<_>>(), kept, "in their order");
            }
        }
    });
}

#[test]
fn a_view_of_a_checkpoint_changes_nothing_that_is_stored() {
    for_cases(async |h, session, case, ask| {
        let ask = &Ask { is_given: false, goal: ask.goal.clone(), ..*ask };
        let latest = async || {
            let loaded = h.try_load(json!({ "sessionId": session })).await.unwrap();
            (json!(loaded.checkpoint), loaded.context.get().to_owned())
        };
        let (before, listed) = (latest().await, h.list(json!({ "sessionId": session })).await);
        let size = h.engine.status(&h.scope).await.unwrap().total_size_bytes;
        case.view(h, session, ask).await;
        assert_eq!(latest().await, before);
        assert_eq!(before.1, serde_json::to_string(&case.context).unwrap());
        assert_eq!(h.list(json!({ "sessionId": session })).await, listed);
        assert_eq!(h.engine.status(&h.scope).await.unwrap().total_size_bytes, size);
    });
}

/// Lines that differ and say something, so that each is worth about the same.
fn lines(count: usize, about: &str) -> String {
    (0..count)
        .map(|n| format!("{about} step {n} reads file_{n}.rs and writes {about}_{n}.out"))
        .collect::<Vec<_>>()
        .join("\n")
}

/// A view that has at least four fifths of the tokens that it may have.
async fn filled(h: &Harness, context: &Value, ratio: f64) -> View {
    let view = compress(h, json!({ "context": context, "ratio": ratio })).await.unwrap();
    let (tokens, most) = (view.report.tokens_after as f64, view.report.tokens_before as f64 / ratio);
    assert!(tokens >= most * 0.8 - 8.0, "{tokens} of {most}: {:?}", view.context);
    view
}
