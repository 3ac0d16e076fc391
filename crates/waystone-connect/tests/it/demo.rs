//! The built-in demo.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;
use waystone_core::api::Role;
use waystone_core::model::{Call, Chunk, Model, ModelCall, Said};

use crate::ask::{call, call_with_tools, called, calls, drain, providers, text, usage};

const WHAT_IT_IS: &str =
    "This is the built-in demo model: it streams an answer like any other, and needs no key or network.";

async fn check(said: &str, about: &str) {
    let answer = providers(None, None).call(call("demo", said)).await.unwrap();
    let (chunks, error) = drain(answer).await;
    assert_eq!((text(&chunks), error), (format!("{about} {WHAT_IT_IS}"), None));
}

#[tokio::test(start_paused = true)]
async fn the_demo_answers_about_the_last_user_message() {
    check("How are you doing today?", "You said \"How are you doing today?\" (5 words).").await;
    check("Hello", "You said \"Hello\" (1 word).").await;
    check("two\n\n  lines", "You said \"two lines\" (2 words).").await;
    check("", "You said \"\" (0 words).").await;
}

#[tokio::test(start_paused = true)]
async fn the_demo_quotes_at_most_sixty_characters() {
    check(&"ä".repeat(60), &format!("You said \"{}\" (1 word).", "ä".repeat(60))).await;
    check(&"ä".repeat(61), &format!("You said \"{}…\" (1 word).", "ä".repeat(60))).await;
}

#[tokio::test(start_paused = true)]
async fn the_demo_streams_word_by_word_and_ends_with_the_usage() {
    let mut asked = call("demo", "How are you?");
    asked.system = "Be kind.".to_owned();
    asked.messages.push(Said::Text { role: Role::Assistant, text: "Well.".to_owned() });
    let begun = Instant::now();
    let (chunks, _) = drain(providers(None, None).call(asked).await.unwrap()).await;

    let words = chunks.len() - 1;
    assert_eq!(chunks[..3], [Chunk::Text("You ".into()), Chunk::Text("said ".into()), Chunk::Text("\"How ".into())]);
    assert_eq!(chunks[words - 1], Chunk::Text("network.".into()));
    assert_eq!(chunks[words], usage(6, words as u64));
    assert_eq!(begun.elapsed(), Duration::from_millis(15) * (words as u32 - 1));
}

#[tokio::test(start_paused = true)]
async fn the_demo_has_an_answer_when_no_user_said_anything() {
    let mut asked = call("demo", "");
    asked.messages.clear();
    let (chunks, error) = drain(providers(None, None).call(asked).await.unwrap()).await;
    assert_eq!((text(&chunks), error), (format!("You said nothing yet. {WHAT_IT_IS}"), None));
}

#[tokio::test]
async fn ids_that_begin_with_demo_and_a_dash_are_the_demo_and_others_are_not() {
    let providers = providers(None, None);
    assert!(providers.call(call("demo-fast", "hi")).await.is_ok());
    assert!(providers.call(call("demonstration", "hi")).await.is_err());
}

async fn answer(asked: ModelCall) -> (String, Vec<Call>) {
    let (chunks, error) = drain(providers(None, None).call(asked).await.unwrap()).await;
    assert_eq!(error, None);
    assert!(matches!(chunks.last(), Some(Chunk::Usage(_))));
    (text(&chunks), calls(&chunks))
}

#[tokio::test(start_paused = true)]
async fn the_demo_calls_the_tools_that_it_is_told_to() {
    let city = json!({ "city": "Zürich" });
    let said = answer(call_with_tools("demo", r#"call weather {"city": "Zürich"}"#)).await;
    assert_eq!(said, ("Calling `weather`.".to_owned(), vec![called("demo-1", "weather", city.clone())]));

    let both = "call weather {\"city\": \"Zürich\"}\n  call  time\nand nothing else\ncall weather";
    let expected = vec![called("demo-1", "weather", city), called("demo-2", "time", json!({}))];
    assert_eq!(answer(call_with_tools("demo", both)).await, ("Calling `weather`, `time`.".to_owned(), expected));

    let unfinished = answer(call_with_tools("demo", "call time {\"city\": ")).await.1;
    assert_eq!(unfinished, [called("demo-1", "time", json!("{\"city\":"))]);
}

#[tokio::test(start_paused = true)]
async fn the_demo_calls_nothing_else() {
    let nothing = async |asked: ModelCall| {
        let (text, calls) = answer(asked).await;
        assert_eq!(calls, []);
        text
    };
    assert_eq!(
        nothing(call_with_tools("demo", "call mum")).await,
        "There is no tool `mum`: there are `weather`, `time`."
    );
    assert_eq!(nothing(call("demo", "call time")).await, "There is no tool `time`: there are none at all.");
    let last = ModelCall { is_last: true, ..call_with_tools("demo", "call time") };
    assert_eq!(nothing(last).await, "No more tools can be called in this turn.");
    for said in ["call me later", "Call time", "callous", "please\ncall time"] {
        assert!(nothing(call_with_tools("demo", said)).await.starts_with("You said "), "{said}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_demo_quotes_what_came_of_its_calls_and_goes_on_counting() {
    let mut asked = call_with_tools("demo", "call weather\ncall time");
    let made = answer(asked.clone()).await.1;
    asked.messages.push(Said::Calls { text: "Calling.".to_owned(), calls: made });
    let result = |call_id: &str, tool: &str, text: &str, is_error| Said::Result {
        call_id: call_id.to_owned(),
        tool: tool.to_owned(),
        text: text.to_owned(),
        is_error,
    };
    asked.messages.push(result("demo-1", "weather", "rain\nand more rain", false));
    asked.messages.push(result("demo-2", "time", &"x".repeat(100), true));
    let (said, calls) = answer(asked.clone()).await;
    let expected =
        format!("The tool `weather` said: \"rain and more rain\". The tool `time` failed: \"{}…\".", "x".repeat(60));
    assert_eq!((said, calls), (expected, vec![]));

    asked.messages.push(Said::Text { role: Role::User, text: "call time".to_owned() });
    assert_eq!(answer(asked).await.1, [called("demo-3", "time", json!({}))]);
}
