//! Servers that end, hang or never begin.

use std::time::Duration;

use serde_json::json;
use tokio::time::{Instant, advance, pause};

use super::{Control, call, count, echo, failure, later, names, servers};

#[tokio::test]
async fn a_server_that_dies_in_a_call_is_started_anew_and_the_call_is_not_sent_again() {
    let control = Control::new().await;
    let servers = servers([("fake", control.server(json!({})))]);
    let died = failure(&servers, "fake__crash", json!({})).await;
    let unknown = "it went away while the call was under way; the outcome of the call is unknown";
    assert_eq!(died, format!("MCP server `fake`: {unknown}"));
    assert_eq!(count(&control.started().await.end().await, "tools/call"), 1);
    assert!(control.none_started().await);

    later(1).await;
    assert_eq!(names(&servers).await.len(), 10);
    assert_eq!(echo(&servers, "back").await.content, json!("back"));
    let mut heard = control.started().await;
    assert_eq!(heard.method("tools/call").await["params"]["name"], "echo");
    servers.shut_down().await;
    assert_eq!(count(&heard.end().await, "tools/call"), 1);
}

#[tokio::test]
async fn calls_beside_one_that_kills_the_server_are_told_so_too() {
    let control = Control::new().await;
    let servers = servers([("fake", control.server(json!({})))]);
    names(&servers).await;
    let mut heard = control.started().await;
    let waiting = async {
        let crash = async {
            heard.method("tools/call").await;
            failure(&servers, "fake__crash", json!({})).await
        };
        tokio::join!(failure(&servers, "fake__wait", json!({})), crash)
    };
    let (one, other) = waiting.await;
    assert!(one.ends_with("the outcome of the call is unknown"), "{one}");
    assert_eq!(one, other);
    assert_eq!(count(&heard.end().await, "tools/call"), 2);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_start_is_tried_again_ever_more_seldom() {
    let servers = servers([("fake", json!({ "command": "there-is-no-such-program" }))]);
    for pause in [1, 2, 4, 8, 16, 30, 30] {
        let failed = failure(&servers, "fake__echo", json!({})).await;
        assert!(failed.starts_with("MCP server `fake`: `there-is-no-such-program` cannot be started: "), "{failed}");
        let early = format!("{failed}; it can be started again in {pause} s");
        assert_eq!(failure(&servers, "fake__echo", json!({})).await, early);
        assert_eq!(servers.list().await.warnings, [early]);
        advance(Duration::from_secs(pause)).await;
    }
}

#[tokio::test]
async fn a_server_that_never_answers_is_given_up_after_twenty_seconds() {
    let control = Control::new().await;
    let servers = servers([("fake", control.server(json!({ "silent": true, "stubborn": true })))]);
    let listing = async { servers.list().await.warnings };
    let begun = Instant::now();
    let silence = async {
        let mut heard = control.started().await;
        heard.method("initialize").await;
        pause();
        heard
    };
    let (warnings, heard) = tokio::join!(listing, silence);
    assert_eq!(warnings, ["MCP server `fake`: it did not answer within 20 s"]);
    assert!((20..22).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
    heard.end().await;
    advance(Duration::from_secs(2)).await;
    let begun = Instant::now();
    assert_eq!(servers.list().await.warnings, ["MCP server `fake`: it is being started again"]);
    assert!(begun.elapsed().as_secs() < 5, "nobody waits for it a second time: {:?}", begun.elapsed());
}

#[tokio::test]
async fn a_model_keeps_the_tools_of_a_server_that_is_about_to_be_started_anew() {
    let control = Control::new().await;
    let servers = servers([("fake", control.server(json!({})))]);
    let before = names(&servers).await;
    failure(&servers, "fake__crash", json!({})).await;
    let toolbox = servers.list().await;
    let now: Vec<String> = toolbox.tools.into_iter().map(|tool| tool.name).collect();
    assert_eq!(now, before);
    assert_eq!(toolbox.warnings, ["MCP server `fake`: it has ended; it can be started again in 1 s"]);
    let failed = failure(&servers, "fake__echo", json!({})).await;
    assert_eq!(failed, "MCP server `fake`: it has ended; it can be started again in 1 s");
}

#[tokio::test]
async fn a_server_that_does_not_list_its_tools_is_given_up_after_ten_seconds() {
    let control = Control::new().await;
    let servers = servers([("fake", control.server(json!({ "silent": "tools/list" })))]);
    let silence = async {
        control.started().await.method("tools/list").await;
        pause();
    };
    let (toolbox, ()) = tokio::join!(servers.list(), silence);
    assert_eq!(toolbox.warnings, ["MCP server `fake`: it did not list its tools within 10 s"]);
}

#[tokio::test]
async fn a_start_goes_on_when_the_call_that_wanted_it_is_dropped() {
    let control = Control::new().await;
    let servers = servers([("fake", control.server(json!({})))]);
    let mut heard = tokio::select! {
        output = echo(&servers, "hi") => panic!("it was not even started: {output:?}"),
        heard = control.started() => heard,
    };
    heard.method("notifications/initialized").await;
    assert_eq!(echo(&servers, "hi").await.content, json!("hi"));
    assert!(control.none_started().await);
}

#[tokio::test]
async fn a_server_that_has_ended_is_gone_even_if_something_holds_its_output() {
    let control = Control::new().await;
    let servers = servers([("fake", control.server(json!({})))]);
    call(&servers, "fake__escape", json!({})).await;
    let _heard = control.started().await;
    let died = failure(&servers, "fake__crash", json!({})).await;
    assert!(died.ends_with("the outcome of the call is unknown"), "{died}");
}
