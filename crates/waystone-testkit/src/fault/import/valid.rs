//! Sessions and projects with a bit of everything in them.

use serde_json::{Map, Value, json};
use waystone_core::api::{
    AnalyzeGarbage, CreateSnapshot, MarkCritical, PruneSegments, PutSegments, SetCurrentTask, UpdateSession,
};

use crate::Harness;
use crate::contexts::Random;

/// Some documents, as they are exported.
pub async fn documents(random: &mut Random) -> Vec<String> {
    let h = Harness::new();
    let mut documents = Vec::new();
    for n in 0..3 {
        let (session, project) = (format!("session-{n}"), format!("project-{n}"));
        make_session(&h, &session, 4 + n, random).await;
        make_project(&h, &project, 6, random).await;
        documents.push(h.export_session(&session).await.unwrap());
        documents.push(h.export_project(&project).await.unwrap());
    }
    h.engine.close().await;
    documents
}

/// A session of some checkpoints that grow out of each other, with names, tags, marks, rules, branches and deletions.
pub async fn make_session(h: &Harness, session: &str, saves: u64, random: &mut Random) {
    let mut context = object(random, 2);
    let mut ids = Vec::new();
    for n in 0..saves {
        context.insert(format!("step{}", n % 7), any_value(random, 3));
        context.insert("n".to_owned(), n.into());
        let mut request = json!({ "sessionId": session, "context": context, "force": true });
        if random.below(3) == 0 {
            request["metadata"] =
                json!({ "name": text(random), "tags": ["a", text(random)], "x": any_value(random, 2) });
        }
        if random.below(3) == 0 && !ids.is_empty() {
            request["parentCheckpointId"] = json!(ids[random.below(ids.len() as u64) as usize]);
        }
        if random.below(2) == 0 {
            (request["agentId"], request["workflowId"]) = (json!("agent"), json!("flow.1"));
        }
        if random.below(4) == 0 {
            request["contextRules"] = json!([{ "pattern": "^step", "class": "USEFUL", "reason": text(random) }]);
        }
        h.clock.advance_ms(random.below(100_000) as i64);
        ids.push(h.try_save(request).await.unwrap().checkpoint_id);
        if random.below(8) == 0 && ids.len() > 2 {
            let gone = ids.remove(random.below(ids.len() as u64) as usize);
            h.engine.delete_checkpoint(&h.scope, &gone, Default::default()).await.unwrap();
        }
    }
    let id = session.parse().unwrap();
    let change = UpdateSession { name: Some(text(random)), tags: Some(vec![text(random), "tag".to_owned()]) };
    h.engine.update_session(&h.scope, &id, change).await.unwrap();
    let mark = MarkCritical { context_key: "n".to_owned(), session_id: Some(id) };
    h.engine.mark_critical(&h.scope, mark).await.unwrap();
}

/// A project with segments of all kinds, tasks, snapshots and a collection.
pub async fn make_project(h: &Harness, project: &str, puts: u64, random: &mut Random) {
    let kinds = ["note", "code", "log", "decision", "summary"];
    let mut ids = Vec::new();
    for n in 0..puts {
        let task = ["s", "t", "u"][random.below(3) as usize];
        let mut request = match random.below(3) {
            0 => json!({ "messages": [{ "role": text(random), "content": format!("said {n} {}", text(random)) }] }),
            _ => json!({
                "texts": [format!("{project} {n} {}", text(random)), "met again"], "type": kinds[(n % 5) as usize],
                "tags": [text(random)],
            }),
        };
        if random.below(2) == 0 {
            request["task_id"] = json!(task);
        }
        if random.below(3) == 0 {
            (request["file_path"], request["line_range"]) = (json!("src/ä.rs"), json!([1, random.below(1000) + 1]));
        }
        if random.below(3) == 0 {
            request["topic_id"] = json!("topic");
        }
        if let (Some(last), 0) = (ids.last(), random.below(3)) {
            request["tags"] = json!([format!("ref:{last}"), "x"]);
        }
        (request["pinned"], request["stash"]) = (json!(random.below(5) == 0), json!(random.below(5) == 0));
        request["project_id"] = json!(project);
        h.clock.advance_ms(random.below(100_000) as i64);
        let request: PutSegments = serde_json::from_value(request).unwrap();
        ids.extend(h.engine.put_segments(&h.scope, request).await.unwrap().segment_ids);
    }
    let task = json!({ "project_id": project, "task_id": "t" });
    let use_task: SetCurrentTask = serde_json::from_value(task.clone()).unwrap();
    h.engine.set_current_task(&h.scope, use_task).await.unwrap();
    let snapshot: CreateSnapshot = serde_json::from_value(task).unwrap();
    h.engine.create_snapshot(&h.scope, snapshot).await.unwrap();
    let garbage = json!({ "project_id": project, "target_tokens": 5 });
    let garbage: AnalyzeGarbage = serde_json::from_value(garbage).unwrap();
    if let Some(plan) = h.engine.analyze_garbage(&h.scope, garbage).await.unwrap().pruning_plan {
        let prune = json!({ "project_id": project, "plan_id": plan.plan_id, "confirm": true });
        let prune: PruneSegments = serde_json::from_value(prune).unwrap();
        h.engine.prune_segments(&h.scope, prune).await.unwrap();
    }
}

fn object(random: &mut Random, depth: u64) -> Map<String, Value> {
    (0..random.below(5)).map(|n| (format!("{}{n}", text(random)), any_value(random, depth))).collect()
}

/// Any JSON that can be kept.
pub fn any_value(random: &mut Random, depth: u64) -> Value {
    match random.below(if depth == 0 { 8 } else { 10 }) {
        0 => Value::Null,
        1 => json!(random.below(2) == 0),
        2 => json!(random.number()),
        3 => json!(random.number() as i64),
        4 => json!(f64::from_bits(random.number())).as_f64().map_or(json!(0.5), |number| json!(number)),
        5 => json!(random.below(1000) as f64 / 8.0),
        6 | 7 => json!(text(random)),
        8 => (0..random.below(5)).map(|_| any_value(random, depth - 1)).collect(),
        _ => Value::Object(object(random, depth - 1)),
    }
}

/// A short text of letters that are written in many ways.
fn text(random: &mut Random) -> String {
    const PARTS: [&str; 12] = ["a", "Z", "é", "😀", "\u{fb33}", "\u{7f}", "\"", "\\", "\n\t", "\u{1}", " ", "日本"];
    (0..=random.below(6)).map(|_| PARTS[random.below(12) as usize]).collect::<String>() + "."
}
