//! Data directories as earlier versions wrote them, kept for ever. Each comes with what is in it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::{Value, json};
use tempfile::TempDir;
use waystone_core::api::{FindContext, ListCheckpoints, ListContexts, LoadCheckpoint, ModelInfo};
use waystone_core::model::{Answer, Call, Chunk, Model, ModelCall, ModelError, Said};
use waystone_core::store::Scope;
use waystone_core::{Chat, Engine};

use crate::Harness;
use crate::harness::{copy_dir, private_dir};

/// A golden directory: a copy that may be opened, and what it must hold, by checkpoint id.
pub struct Golden {
    pub name: String,
    pub directory: TempDir,
    pub expected: Value,
}

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden")
}

/// Every golden directory there is.
pub fn all() -> Vec<Golden> {
    let mut found: Vec<Golden> = fs::read_dir(root()).unwrap().map(|entry| copy_of(&entry.unwrap().path())).collect();
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

fn copy_of(path: &Path) -> Golden {
    let directory = private_dir();
    copy_dir(path, directory.path());
    let expected = fs::read(path.join("expected.json")).unwrap();
    Golden {
        name: path.file_name().unwrap().to_string_lossy().into_owned(),
        directory,
        expected: waystone_core::json::parse_trusted(&expected).unwrap(),
    }
}

/// Everything in a store as a client sees it, oldest first.
pub async fn contents(engine: &Engine) -> Value {
    let scope = Scope::local("tester");
    let request = ListCheckpoints { limit: 1000, ..Default::default() };
    let page = engine.list_checkpoints(&scope, request).await.unwrap();
    let mut all = Vec::new();
    for checkpoint in page.checkpoints.iter().rev() {
        let request = LoadCheckpoint {
            checkpoint_id: Some(checkpoint.checkpoint_id.clone()),
            session_id: None,
            max_tokens: None,
        };
        all.push(serde_json::to_value(engine.load_checkpoint(&scope, request).await.unwrap()).unwrap());
    }
    for project in engine.list_projects(&scope).await.unwrap().projects {
        let request = json!({ "project_id": project, "full": true, "limit": 1000 });
        let request = serde_json::from_value(request).unwrap();
        all.push(serde_json::to_value(engine.list_task_context(&scope, request).await.unwrap()).unwrap());
    }
    let contexts = engine.list_contexts(&scope, ListContexts { limit: 1000, ..Default::default() }).await.unwrap();
    for context in contexts.contexts.iter().rev() {
        let whole = FindContext { message_pool: true };
        let mut found = serde_json::to_value(engine.find_context(&scope, &context.id, whole).await.unwrap()).unwrap();
        let pool = found["message_pool"].as_object().unwrap().values();
        let parts = pool.flat_map(|node| node["message"]["content"].as_array().unwrap());
        let called: Vec<_> = parts.filter(|part| part["type"] == "tool_call").map(|part| part["id"].clone()).collect();
        found["tool_calls"] = json!([]);
        for id in called {
            let id = serde_json::from_value(id).unwrap();
            let call = engine.find_tool_call(&scope, &context.id, &id).await.unwrap();
            found["tool_calls"].as_array_mut().unwrap().push(json!(call));
        }
        let window = engine.find_window(&scope, &context.id, Default::default()).await;
        found["window"] = window.map_or(Value::Null, |window| json!(window));
        all.push(found);
    }
    json!(all)
}

/// Contents without what says how they are kept, which may change.
pub fn without_keeping(mut contents: Value) -> Value {
    for checkpoint in contents.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
        ["sizeBytes", "contextSizeBytes", "blobPath"].iter().for_each(|field| _ = checkpoint.remove(*field));
    }
    contents
}

/// Whether `actual` has everything that `expected` has. Replies may grow fields, but lose none and change none.
pub fn contains(actual: &Value, expected: &Value) -> bool {
    match (actual, expected) {
        (Value::Object(actual), Value::Object(expected)) => {
            expected.iter().all(|(key, value)| actual.get(key).is_some_and(|found| contains(found, value)))
        }
        (Value::Array(actual), Value::Array(expected)) => {
            actual.len() == expected.len()
                && actual.iter().zip(expected).all(|(actual, expected)| contains(actual, expected))
        }
        _ => actual == expected,
    }
}

/// Something of everything that can be done to what was saved.
async fn change_some(h: &Harness) {
    let session = |n: u64| format!("golden-{n}").parse().unwrap();
    let named = serde_json::from_value(json!({ "name": "Billing", "tags": ["money"] })).unwrap();
    h.engine.update_session(&h.scope, &session(1), named).await.unwrap();
    let mark = serde_json::from_value(json!({ "sessionId": "golden-0", "contextKey": "ключ" })).unwrap();
    h.engine.mark_critical(&h.scope, mark).await.unwrap();
    let rules = json!([{ "pattern": "^note", "class": "USEFUL", "reason": "long" }]);
    h.try_save(json!({ "sessionId": "golden-1", "context": { "last": true }, "contextRules": rules })).await.unwrap();
    let view = json!({ "context": { "notes": "one line\n".repeat(500) }, "targetTokens": 50 });
    h.engine.compress_context(&h.scope, serde_json::from_value(view).unwrap()).await.unwrap();
    let deleted = h.save("golden-1", json!({ "step": "not wanted" })).await.checkpoint_id;
    h.engine.delete_checkpoint(&h.scope, &deleted, Default::default()).await.unwrap();
    change_segments(h).await;
    converse(h).await;
    call_tools(h).await;
    branch_out(h).await;
}

/// The same for conversations: two branches, a message on each, and turns that failed for want of a model.
async fn converse(h: &Harness) {
    let create = json!({ "mode": "code", "parameters": { "temperature": 0.5 }, "workspace_path": "/home/dev/golden" });
    let id = h.engine.create_context(&h.scope, serde_json::from_value(create).unwrap()).await.unwrap().id;
    let mut reader = h.engine.follow_context(&h.scope, &id, None).await.unwrap();
    for (branch, said) in [("main", "how is money kept?"), ("other", "größe\nof what?")] {
        if branch != "main" {
            let branch = serde_json::from_value(json!({ "name": branch })).unwrap();
            h.engine.create_branch(&h.scope, &id, branch).await.unwrap();
        }
        let said = serde_json::from_value(json!({ "content": said, "branch": branch })).unwrap();
        h.engine.add_message(&h.scope, &id, said).await.unwrap();
        while !reader.next().await.unwrap().iter().any(|told| told.data().contains("PermanentFailure")) {}
    }
}

/// A model that calls a tool of its client's, and says a word when it has returned.
struct Caller;

#[async_trait]
impl Model for Caller {
    async fn call(&self, call: ModelCall) -> Result<Box<dyn Answer>, ModelError> {
        let chunk = match call.messages.last() {
            Some(Said::Result { text, .. }) => Chunk::Text(format!("It is {text}.")),
            _ => Chunk::Call(Call {
                id: "w-1".to_owned(),
                tool: "weather".to_owned(),
                arguments: json!({ "in": "Köln" }),
            }),
        };
        Ok(Box::new(Once(Some(chunk))))
    }

    fn describe(&self, model: &str) -> ModelInfo {
        Chat::default().model.describe(model)
    }

    async fn list(&self) -> Vec<ModelInfo> {
        Vec::new()
    }
}

struct Once(Option<Chunk>);

#[async_trait]
impl Answer for Once {
    async fn next(&mut self) -> Option<Result<Chunk, ModelError>> {
        self.0.take().map(Ok)
    }
}

/// The same for calls of tools: one that was approved, run and answered, and one that waits to be decided about.
async fn call_tools(h: &Harness) {
    let engine = h.engine.clone().with_chat(Chat { model: Arc::new(Caller), ..Chat::default() });
    for is_approved in [true, false] {
        let create = json!({ "tools": [{ "name": "weather", "description": "How it is outside" }] });
        let id = engine.create_context(&h.scope, serde_json::from_value(create).unwrap()).await.unwrap().id;
        let mut reader = engine.follow_context(&h.scope, &id, None).await.unwrap();
        let said = serde_json::from_value(json!({ "content": "how is the weather?" })).unwrap();
        engine.add_message(&h.scope, &id, said).await.unwrap();
        while !reader.next().await.unwrap().iter().any(|told| told.data().contains("AwaitingToolApproval")) {}
        if is_approved {
            let approve = serde_json::from_value(json!({ "tool_call_ids": ["w-1"] })).unwrap();
            engine.approve_tools(&h.scope, &id, approve).await.unwrap();
            let answer = serde_json::from_value(json!({ "result": { "sky": "grau" } })).unwrap();
            engine.answer_tool_call(&h.scope, &id, &"w-1".parse().unwrap(), answer, None).await.unwrap();
            while !reader.next().await.unwrap().iter().any(|told| told.data().contains("Idle")) {}
        }
    }
}

/// A model that says much and holds little.
struct Talker;

#[async_trait]
impl Model for Talker {
    async fn call(&self, _: ModelCall) -> Result<Box<dyn Answer>, ModelError> {
        Ok(Box::new(Once(Some(Chunk::Text("We decided to keep amounts in cents, größer oder kleiner. ".repeat(20))))))
    }

    fn describe(&self, model: &str) -> ModelInfo {
        ModelInfo { limit: 3000, ..Chat::default().model.describe(model) }
    }

    async fn list(&self) -> Vec<ModelInfo> {
        Vec::new()
    }
}

/// The same for windows and branches: one that was cut, a checkpoint with a name, a branch that was merged, and one that was deleted.
async fn branch_out(h: &Harness) {
    let engine = h.engine.clone().with_chat(Chat { model: Arc::new(Talker), ..Chat::default() });
    let id = engine.create_context(&h.scope, serde_json::from_value(json!({})).unwrap()).await.unwrap().id;
    let mut reader = engine.follow_context(&h.scope, &id, None).await.unwrap();
    for n in 0..12 {
        if n == 10 {
            let branch = |name: &str| serde_json::from_value(json!({ "name": name })).unwrap();
            engine.create_branch(&h.scope, &id, branch("gone")).await.unwrap();
            engine.create_branch(&h.scope, &id, branch("side")).await.unwrap();
        }
        let branch = if n == 10 { "side" } else { "main" };
        let said = serde_json::from_value(json!({ "content": format!("question {n}"), "branch": branch })).unwrap();
        engine.add_message(&h.scope, &id, said).await.unwrap();
        while !reader.next().await.unwrap().iter().any(|told| told.data().contains("Idle")) {}
    }
    let named = json!({ "branch": "main", "metadata": { "name": "before the merge", "tags": ["milestone"] } });
    engine.save_context(&h.scope, &id, serde_json::from_value(named).unwrap()).await.unwrap();
    let merge = serde_json::from_value(json!({ "from": "side" })).unwrap();
    engine.merge_branch(&h.scope, &id, &"main".parse().unwrap(), merge).await.unwrap();
    engine.delete_branch(&h.scope, &id, &"gone".parse().unwrap()).await.unwrap();
}

/// The same for segments: in every tier, pinned, in a task, captured, referred to, and undone.
async fn change_segments(h: &Harness) {
    let task = json!({ "project_id": "golden", "task_id": "billing" });
    h.engine.set_current_task(&h.scope, serde_json::from_value(task.clone()).unwrap()).await.unwrap();
    let put = |request: Value| h.engine.put_segments(&h.scope, serde_json::from_value(request).unwrap());
    let notes: Vec<String> = (0..6).map(|n| format!("note {n}: größe\nsecond line")).collect();
    let ids = put(json!({ "project_id": "golden", "texts": notes, "topic_id": "money" })).await.unwrap().segment_ids;
    let decision = json!({
        "project_id": "golden", "text": "keep amounts in cents", "type": "decision", "pinned": true,
        "tags": [format!("ref:{}", ids[0])], "file_path": "src/money.rs", "line_range": [3, 9],
    });
    put(decision).await.unwrap();
    put(json!({ "project_id": "golden", "messages": [{ "role": "user", "content": "ok" }], "stash": true }))
        .await
        .unwrap();
    h.engine.create_snapshot(&h.scope, serde_json::from_value(task).unwrap()).await.unwrap();
    let prune = |ids: &[waystone_core::id::SegmentId], action: &str| {
        let request = json!({ "project_id": "golden", "segment_ids": ids, "action": action, "confirm": true });
        h.engine.prune_segments(&h.scope, serde_json::from_value(request).unwrap())
    };
    prune(&ids[..2], "stash").await.unwrap();
    prune(&ids[2..3], "delete").await.unwrap();
    prune(&ids[3..4], "delete").await.unwrap();
    let undo = json!({ "project_id": "golden" });
    h.engine.undo_operation(&h.scope, serde_json::from_value(undo).unwrap()).await.unwrap();
}

/// Writes a golden directory of the present format under `name`. One that exists is never written again.
pub async fn write(name: &str) {
    let target = root().join(name);
    assert!(!target.exists(), "{} exists; golden directories are never rewritten", target.display());
    let mut h = Harness::new();
    for n in 0..40u64 {
        h.clock.advance_ms(1500);
        let tags = if n % 10 == 0 { json!(["milestone", "größe"]) } else { json!([]) };
        let context = json!({
            "goal": "migrate the billing service", "step": n, "ratio": n as f64 / 7.0, "zero": -0.0, "big": u64::MAX - n,
            "notes": (0..n).map(|i| format!("note {i}\nwith a second line")).collect::<Vec<_>>(), "ключ": { "b": null, "a": [true] }
        });
        let mut request = json!({ "sessionId": format!("golden-{}", n % 2), "context": context, "agentId": "writer" });
        request["metadata"] = json!({ "tags": tags, "n": n });
        if n % 7 == 0 {
            request["metadata"]["name"] = json!(format!("step {n}"));
            request["workflowId"] = json!("migration");
            request["idempotencyKey"] = json!(format!("key-{n}"));
        }
        h.try_save(request).await.unwrap();
    }
    change_some(&h).await;
    h.restart_mirrored().await;
    let expected = serde_json::to_string_pretty(&contents(&h.engine).await).unwrap();
    h.engine.close().await;
    fs::create_dir_all(&target).unwrap();
    fs::copy(h.data_dir().join("waystone.db"), target.join("waystone.db")).unwrap();
    copy_dir(&h.data_dir().join("contexts"), &target.join("contexts"));
    fs::write(target.join("expected.json"), expected + "\n").unwrap();
}
