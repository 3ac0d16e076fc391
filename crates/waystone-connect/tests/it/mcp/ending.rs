//! Nothing that was started stays.

use serde_json::json;

use super::{Control, call, echo, failure, servers};

#[tokio::test]
async fn to_shut_down_is_to_close_the_input_and_to_wait() {
    let control = Control::new().await;
    let servers = servers([("fake", control.server(json!({})))]);
    echo(&servers, "hi").await;
    let heard = control.started().await;
    servers.shut_down().await;
    assert_eq!(heard.end().await.last().unwrap(), "end of input");
    assert_eq!(failure(&servers, "fake__echo", json!({})).await, "MCP server `fake`: it is shut down");
    assert!(control.none_started().await);
}

#[tokio::test]
async fn who_does_not_end_is_killed_with_all_that_it_started() {
    let control = Control::new().await;
    let servers = servers([("fake", control.server(json!({ "stubborn": true })))]);
    call(&servers, "fake__fork", json!({})).await;
    let heard = control.started().await;
    servers.shut_down().await;
    assert_eq!(heard.end().await.last().unwrap(), "end of input");
}

#[tokio::test]
async fn what_a_server_started_ends_with_it() {
    let control = Control::new().await;
    let servers = servers([("fake", control.server(json!({})))]);
    call(&servers, "fake__fork", json!({})).await;
    failure(&servers, "fake__crash", json!({})).await;
    control.started().await.end().await;
}

#[tokio::test]
async fn to_drop_the_servers_is_to_kill_them() {
    let control = Control::new().await;
    let servers = servers([("fake", control.server(json!({ "stubborn": true })))]);
    call(&servers, "fake__fork", json!({})).await;
    let heard = control.started().await;
    drop(servers);
    heard.end().await;
}

#[tokio::test]
async fn to_drop_the_servers_while_one_starts_is_to_kill_it() {
    let control = Control::new().await;
    let servers = servers([("fake", control.server(json!({ "silent": true, "stubborn": true })))]);
    let heard = tokio::select! {
        toolbox = servers.list() => panic!("it does not even start: {toolbox:?}"),
        heard = control.started() => heard,
    };
    drop(servers);
    heard.end().await;
}
