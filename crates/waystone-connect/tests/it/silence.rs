//! Servers that say nothing. The clock is stopped once the silence has begun, so that it jumps to when the client gives up.

use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::time::{Instant, pause};
use waystone_core::model::{Chunk, Model};
use waystone_testkit::model::{FakeModel, Reply};

use crate::ask::{at, call, drain, providers, texts};

#[tokio::test]
async fn a_server_that_does_not_begin_an_answer_is_given_up_after_two_minutes() {
    let fake = FakeModel::start().await;
    fake.then(Reply::text("never").hang());
    let providers = Arc::new(at(&fake));
    let asked = tokio::spawn(async move { providers.call(call("gpt-4", "hi")).await.err().unwrap() });
    fake.asked(1).await;
    pause();
    let error = asked.await.unwrap();
    assert_eq!((error.error.code.as_str(), error.is_recoverable), ("MODEL_UNREACHABLE", true));
    assert!(error.error.message.ends_with("cannot be reached: no answer within 120 s"), "{error:?}");
}

#[tokio::test]
async fn an_answer_that_falls_silent_is_given_up_after_two_minutes() {
    let fake = FakeModel::start().await;
    fake.then(Reply::text("Hello world").hang_after(1));
    let mut answer = at(&fake).call(call("gpt-4", "hi")).await.unwrap();
    assert_eq!(answer.next().await, Some(Ok(Chunk::Text("Hello ".to_owned()))));
    pause();
    let begun = Instant::now();
    let (chunks, error) = drain(answer).await;
    let error = error.unwrap();
    assert_eq!(chunks, []);
    assert_eq!((error.error.code.as_str(), error.is_recoverable), ("MODEL_INTERRUPTED", true));
    assert!(error.error.message.ends_with("broke off: nothing came for 120 s"), "{error:?}");
    assert_eq!(begun.elapsed().as_secs(), 120);
}

#[tokio::test]
async fn an_answer_that_was_finished_does_not_wait_long_for_its_usage() {
    let fake = FakeModel::start().await;
    let finished = r#"{"choices":[{"delta":{"content":"all"},"finish_reason":"stop"}]}"#;
    fake.then(Reply::events([finished]).hang_after(1));
    let mut answer = at(&fake).call(call("gpt-4", "hi")).await.unwrap();
    assert_eq!(answer.next().await, Some(Ok(texts(["all"]).remove(0))));
    pause();
    let begun = Instant::now();
    assert_eq!(drain(answer).await, (vec![], None));
    assert_eq!(begun.elapsed().as_secs(), 10);
}

#[tokio::test]
async fn comments_end_no_wait_for_what_is_to_come() {
    let fake = FakeModel::start().await;
    let finished = r#"{"choices":[{"delta":{"content":"all"},"finish_reason":"stop"}]}"#;
    let comments = |count| std::iter::repeat_n(": keepalive", count);
    fake.then(Reply::events([finished].into_iter().chain(comments(100))).pause(Duration::from_secs(4)));
    let answer = at(&fake).call(call("gpt-4", "hi")).await.unwrap();
    pause();
    let begun = Instant::now();
    assert_eq!(drain(answer).await, (texts(["all"]), None));
    assert!(begun.elapsed().as_secs() < 20, "after its last word: {:?}", begun.elapsed());
    fake.then(Reply::events(comments(100)).pause(Duration::from_secs(60)));
    let begun = Instant::now();
    let (chunks, error) = drain(at(&fake).call(call("gpt-4", "hi")).await.unwrap()).await;
    assert_eq!((chunks, error.unwrap().error.code.as_str()), (vec![], "MODEL_INTERRUPTED"));
    assert_eq!(begun.elapsed().as_secs(), 600, "though it shows that it is there");
}

#[tokio::test]
async fn a_server_that_takes_the_connection_but_does_not_speak_tls_is_given_up_after_ten_seconds() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base_url = format!("https://{}/v1", listener.local_addr().unwrap());
    let begun = Instant::now();
    let mut asked = tokio::spawn(async move {
        let providers = providers(None, Some(&base_url));
        providers.call(call("gpt-4", "hi")).await.err().unwrap()
    });
    let _silent = tokio::select! {
        accepted = listener.accept() => accepted.unwrap(),
        error = &mut asked => panic!("it did not even connect: {error:?}"),
    };
    pause();
    let error = asked.await.unwrap();
    assert_eq!((error.error.code.as_str(), error.is_recoverable), ("MODEL_UNREACHABLE", true));
    assert!((Duration::from_secs(10)..Duration::from_secs(20)).contains(&begun.elapsed()), "{error:?}");
}
