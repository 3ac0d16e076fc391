//! The built-in demo.

use std::time::Duration;

use tokio::time::Instant;
use waystone_core::api::Role;
use waystone_core::model::{Chunk, Model, Said};

use crate::ask::{call, drain, providers, text, usage};

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
