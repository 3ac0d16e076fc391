//! What comes back when all is well, in all its forms.

use serde_json::{Value, json};
use waystone_core::model::{Chunk, Model};
use waystone_testkit::model::{FakeModel, Reply};

use crate::ask::{ask, at, call, drain, text, texts, usage};

#[tokio::test]
async fn an_answer_comes_chunk_by_chunk_as_it_is_sent() {
    let fake = FakeModel::start().await;
    fake.then(Reply::text("Hello wide world!").gated());
    let mut answer = at(&fake).call(call("gpt-4", "hi there")).await.unwrap();
    for word in ["Hello ", "wide ", "world!"] {
        fake.release(1);
        assert_eq!(answer.next().await, Some(Ok(Chunk::Text(word.to_owned()))));
    }
    assert_eq!(answer.next().await, Some(Ok(usage(2, 3))));
    assert_eq!(answer.next().await, None);
}

#[tokio::test]
async fn text_is_whole_however_its_bytes_are_cut() {
    let fake = FakeModel::start().await;
    let parts = ["naïve ", "🦀", "日本語", "\r\n\r\n", "data: [DONE]\n\n", "e\u{301} \"end\""];
    for size in (1..=64).chain([1000, 100_000]) {
        fake.then(Reply::chunks(parts).split_bytes(size));
        let (chunks, error) = ask(&fake).await;
        assert_eq!((&chunks[..6], error), (&texts(parts)[..], None), "{size} bytes at a time");
        assert_eq!(chunks[6..], [usage(2, 6)]);
    }
}

#[tokio::test]
async fn empty_pieces_of_text_are_not_told() {
    let fake = FakeModel::start().await;
    fake.then(Reply::chunks(["", "a", "", "b"]));
    assert_eq!(ask(&fake).await.0[..2], texts(["a", "b"]));
}

#[tokio::test]
async fn either_sign_of_an_end_is_an_end() {
    let said = r#"{"choices":[{"index":0,"delta":{"content":"all"},"finish_reason":null}]}"#;
    let said_and_finished = r#"{"choices":[{"delta":{"content":"all"},"finish_reason":"stop"}]}"#;
    let finished = r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":null}"#;
    let fake = FakeModel::start().await;
    let replies = [
        Reply::events([said, "[DONE]"]),
        Reply::events([said, finished]),
        Reply::events([said_and_finished]),
        Reply::events([said, finished]).cut_after(2),
        Reply::events([said, finished, "[DONE]", "not read"]),
    ];
    for reply in replies {
        fake.then(reply.clone());
        assert_eq!(ask(&fake).await, (texts(["all"]), None), "{reply:?}");
    }
}

#[tokio::test]
async fn the_last_usage_is_told_once_and_at_the_end() {
    let with_usage = |text: &str, tokens: u64| {
        let usage = json!({ "prompt_tokens": 9, "completion_tokens": tokens });
        json!({ "choices": [{ "delta": { "content": text } }], "usage": usage }).to_string()
    };
    let fake = FakeModel::start().await;
    fake.then(Reply::events([with_usage("a", 1), with_usage("b", 2), "[DONE]".to_owned()]));
    let (chunks, error) = ask(&fake).await;
    let usage = usage(9, 2);
    assert_eq!((chunks, error), ([texts(["a", "b"]), vec![usage]].concat(), None));
}

#[tokio::test]
async fn an_answer_is_not_lost_because_its_tokens_are_counted_oddly() {
    let fake = FakeModel::start().await;
    let check = async |counted: Value, told: Option<Chunk>| {
        let last = json!({ "choices": [{ "delta": { "content": "all" }, "finish_reason": "stop" }], "usage": counted });
        fake.then(Reply::events([last.to_string(), "[DONE]".to_owned()]));
        let expected = [texts(["all"]), told.into_iter().collect()].concat();
        assert_eq!(ask(&fake).await, (expected, None), "{counted}");
    };
    check(json!({ "prompt_tokens": 12.0, "completion_tokens": 3.0 }), Some(usage(12, 3))).await;
    check(json!({ "prompt_tokens": 12, "completion_tokens": "3" }), Some(usage(12, 0))).await;
    check(json!({ "prompt_tokens": -1 }), None).await;
    check(json!([]), None).await;
    check(json!(0), None).await;
}

#[tokio::test]
async fn what_providers_add_leave_out_and_write_otherwise_is_taken() {
    let fake = FakeModel::start().await;
    fake.then(Reply::events([
        r#"{"choices":[]}"#,
        r#"{"choices":null,"x_more":{"a":[1]}}"#,
        r#"{"choices":[{"delta":null}]}"#,
        r#"{"choices":[{"delta":{"role":"assistant","content":null,"reasoning_content":"hm"}}]}"#,
        r#"{"choices":[{"delta":{"content":[{"type":"thinking","thinking":[]},{"type":"text","text":"a"}]}}]}"#,
        r#"{"choices":[{"delta":{"content":{"odd":1}}}]}"#,
        r#"{"choices":[{"index":1,"delta":{"content":"another answer"}},{"index":0,"delta":{"content":"b"}}]}"#,
        r#"{"choices":[{"delta":{"content":"","refusal":"c"},"finish_reason":""}]}"#,
        r#"{"choices":[{"finish_reason":"stop"}],"error":null}"#,
        "[DONE]",
    ]));
    assert_eq!(ask(&fake).await, (texts(["a", "b", "c"]), None));
}

/// A tool server may be gone for a moment: whoever judges the calls tells the model so.
#[tokio::test]
async fn calls_of_tools_that_nobody_offered_are_told_all_the_same() {
    let fake = FakeModel::start().await;
    let calls = [("weather", json!({ "city": "Bern" })), ("time", json!({}))];
    fake.then(Reply::chunks([" \n"]).tool_calls(calls.clone()));
    let (chunks, error) = ask(&fake).await;
    let called: Vec<_> = chunks
        .iter()
        .filter_map(|chunk| if let Chunk::Call(call) = chunk { Some(&*call.tool) } else { None })
        .collect();
    assert_eq!((called, error), (vec!["weather", "time"], None));
}

#[tokio::test]
async fn many_answers_come_at_once() {
    let fake = FakeModel::start().await;
    fake.otherwise(Reply::echo().gated());
    let providers = std::sync::Arc::new(at(&fake));
    let mut asked = tokio::task::JoinSet::new();
    for number in 0..100 {
        let providers = providers.clone();
        asked.spawn(async move {
            let said = format!("this is number {number}");
            let (chunks, error) = drain(providers.call(call("gpt-4", &said)).await.unwrap()).await;
            assert_eq!((text(&chunks), error), (said, None));
        });
    }
    fake.asked(100).await;
    fake.release(400);
    while let Some(done) = asked.join_next().await {
        done.unwrap();
    }
}

#[tokio::test]
async fn to_drop_an_answer_or_a_call_is_to_break_it_off() {
    let fake = FakeModel::start().await;
    fake.then(Reply::text("Hello world").hang_after(1));
    let mut answer = at(&fake).call(call("gpt-4", "hi")).await.unwrap();
    assert_eq!(answer.next().await, Some(Ok(Chunk::Text("Hello ".to_owned()))));
    drop(answer);
    fake.gone(1).await;

    fake.then(Reply::text("never").hang());
    let providers = at(&fake);
    tokio::select! {
        _ = providers.call(call("gpt-4", "hi")) => panic!("nothing was answered"),
        () = fake.asked(2) => {}
    }
    fake.gone(2).await;
}

#[tokio::test]
async fn a_wait_for_a_chunk_that_is_given_up_loses_nothing() {
    let fake = FakeModel::start().await;
    fake.then(Reply::text("Hello world").gated());
    let mut answer = at(&fake).call(call("gpt-4", "hi")).await.unwrap();
    tokio::select! {
        biased;
        _ = answer.next() => panic!("nothing was sent"),
        () = std::future::ready(()) => {}
    }
    fake.release(2);
    let (chunks, error) = drain(answer).await;
    assert_eq!((text(&chunks), error), ("Hello world".to_owned(), None));
}
