//! Who is offered few tools is told of no others.

use axum::Router;
use serde_json::{Value, json};
use tokio::sync::watch;
use tower::ServiceExt;
use waystone_core::Limits;
use waystone_server::http::{Guard, Http};
use waystone_server::mcp::ToolSet;
use waystone_testkit::Harness;

use crate::client::{json_of, post};

struct Agent {
    router: Router,
    _stop: watch::Sender<bool>,
}

impl Agent {
    fn of(h: &Harness, tools: ToolSet) -> Self {
        let (stop, stopping) = watch::channel(false);
        let router = Http::new(h.engine.clone(), "tester", stopping).with_tools(tools).router(Guard::default());
        Self { router, _stop: stop }
    }

    async fn request(&self, method: &str, params: Value) -> Value {
        let message = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let mut reply = json_of(self.router.clone().oneshot(post("/mcp", message.to_string())).await.unwrap()).await;
        reply["result"].take()
    }

    async fn call(&self, tool: &str, arguments: Value) -> Value {
        let mut result = self.request("tools/call", json!({ "name": tool, "arguments": arguments })).await;
        let reply = result["structuredContent"].take();
        let text: Value = serde_json::from_str(result["content"][0]["text"].as_str().unwrap()).unwrap();
        assert_eq!(text, reply, "both say the same");
        reply
    }

    async fn tools(&self) -> Vec<Value> {
        self.request("tools/list", json!({})).await["tools"].as_array().unwrap().clone()
    }

    async fn names(&self) -> Vec<String> {
        self.tools().await.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    }
}

fn small() -> Harness {
    Harness::with_limits(Limits { window_tokens: 100, ..Limits::default() })
}

#[tokio::test]
async fn replies_name_only_tools_that_are_offered() {
    let h = small();
    let (all, core) = (Agent::of(&h, ToolSet::All), Agent::of(&h, ToolSet::Core));
    let offered = core.names().await;
    let others: Vec<String> = all.names().await.into_iter().filter(|name| !offered.contains(name)).collect();
    assert_eq!(others.len(), 15);
    let check = |reply: &Value| {
        let named: Vec<&String> = others.iter().filter(|name| reply.to_string().contains(name.as_str())).collect();
        assert!(named.is_empty(), "{named:?} in {reply}");
    };
    let text = "a ".repeat(95);
    let put = core.call("context_put", json!({ "project_id": "p", "text": text })).await;
    check(&put);
    assert_eq!((&put["added"], &put["next"]), (&json!(1), &json!(null)));
    let usage = core.call("context_analyze_usage", json!({ "project_id": "p" })).await;
    check(&usage);
    assert_eq!(usage["suggested_actions"], json!([]));
    let recommended = &usage["recommendations"][0];
    assert_eq!((&recommended["priority"], &recommended["action"]), (&json!("urgent"), &json!(null)));
    assert!(recommended["message"].as_str().unwrap().contains("`waystone segment gc"), "{recommended}");
    let saved = core.call("workflow_checkpoint_save", json!({ "context": { "n": 1 } })).await;
    assert_eq!(saved["next"]["tool"], "workflow_checkpoint_load", "what is offered stays");
    for tool in core.tools().await {
        check(&tool);
    }

    let put = all.call("context_put", json!({ "project_id": "q", "text": text })).await;
    assert_eq!(put["next"]["tool"], "context_gc_analyze");
    let usage = all.call("context_analyze_usage", json!({ "project_id": "q" })).await;
    assert_eq!(usage["recommendations"][0]["action"], "context_gc_analyze");
}

#[tokio::test]
async fn what_was_put_may_say_what_it_likes() {
    let h = small();
    let core = Agent::of(&h, ToolSet::Core);
    let text = "\"context_gc_analyze\" ".repeat(30);
    core.call("context_put", json!({ "project_id": "p", "text": text, "stash": true })).await;
    let found = core.call("context_search_stashed", json!({ "project_id": "p" })).await;
    assert_eq!(found["segments"][0]["text"], json!(text));
    let context =
        json!({ "next": { "tool": "context_gc_analyze" }, "recommendations": [{ "action": "context_gc_analyze" }] });
    let saved = core.call("workflow_checkpoint_save", json!({ "context": context })).await;
    let loaded = core.call("workflow_checkpoint_load", json!({ "checkpointId": saved["checkpointId"] })).await;
    assert_eq!(loaded["context"], context);
}
