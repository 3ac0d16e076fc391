//! Hostile strings in every field of every tool for segments: they are kept or refused as what they are, text.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::{Value, json};
use tokio::sync::watch;
use waystone_server::http::{Guard, Http};
use waystone_testkit::Harness;
use waystone_testkit::contexts::Random;
use waystone_testkit::harness::{private_dir, private_dir_in};

use crate::client::{Client, json_of, post};

const STRINGS: usize = 5_000;
/// Stands where the hostile string goes.
const PLACE: &str = "@@";
const SECRET: &str = "SECRET-OF-ANOTHER-PROJECT";

/// Every tool, with a good value in each field that takes text.
fn tools(id: &str) -> Vec<(&'static str, Value)> {
    let filters = json!({
        "file_path": "a.rs", "task_id": "t", "tags": ["x"], "type": "note", "created_after": "2020-01-01",
        "created_before": "2030-01-01",
    });
    let descriptors = json!({
        "recent_messages": [{ "role": "user", "content": "said", "timestamp": "2026-01-01" }],
        "current_file": { "path": "a.rs" }, "segment_summaries": [{ "text": "told", "type": "note" }],
        "task_info": { "task_id": "t" },
    });
    let put = json!({
        "project_id": "own", "type": "note", "task_id": "t", "tags": ["x"], "file_path": "a.rs", "topic_id": "topic",
    });
    let with = |field: &str, value: Value| {
        let mut put = put.clone();
        put[field] = value;
        put
    };
    let find = json!({ "project_id": "own", "query": "x", "filters": filters, "cursor": "ff" });
    let without_cursor = json!({ "project_id": "own", "query": "x", "filters": filters });
    let list = json!({ "project_id": "own", "task_id": "t", "cursor": "0" });
    let ids = json!({ "project_id": "own", "segment_ids": [id] });
    vec![
        ("context_put", with("text", json!("text"))),
        ("context_put", json!({ "project_id": "own", "text": "said", "origin": "user" })),
        ("context_put", with("texts", json!(["one", "two"]))),
        ("context_put", with("messages", descriptors["recent_messages"].clone())),
        ("context_get_working_set", list.clone()),
        ("context_get_task_context", list),
        ("context_list_projects", json!({})),
        ("context_stash", without_cursor.clone()),
        ("context_stash", json!({ "project_id": "own", "filters": "{}" })),
        ("context_search_stashed", find),
        ("context_search_stashed", json!({ "project_id": "own", "filters": "{}" })),
        ("context_retrieve_stashed", without_cursor),
        ("context_retrieve_stashed", json!({ "project_id": "own", "filters": "{}" })),
        ("context_analyze_usage", json!({ "project_id": "own", "task_id": "t", "context_descriptors": descriptors })),
        ("context_analyze_usage", json!({ "project_id": "own", "context_descriptors": "{}" })),
        (
            "context_gc_analyze",
            json!({ "project_id": "own", "task_id": "t", "action": "stash", "context_descriptors": descriptors }),
        ),
        ("context_gc_analyze", json!({ "project_id": "own", "context_descriptors": "{}" })),
        ("context_gc_prune", json!({ "project_id": "own", "segment_ids": [id], "action": "stash" })),
        ("context_gc_prune", json!({ "project_id": "own", "plan_id": "p" })),
        ("context_gc_pin", ids.clone()),
        ("context_gc_unpin", ids),
        ("context_set_current_task", json!({ "project_id": "own", "task_id": "t" })),
        ("context_create_task_snapshot", json!({ "project_id": "own", "task_id": "t", "name": "n" })),
        ("context_restore_task_snapshot", json!({ "project_id": "own", "snapshot_id": "s" })),
        ("context_undo", json!({ "project_id": "own", "operation_id": "1" })),
        ("context_expand", json!({ "handle": "ws:segment:x" })),
    ]
}

/// The pointers of all strings in a value.
fn strings_in(value: &Value, at: &str, found: &mut Vec<String>) {
    match value {
        Value::String(_) => found.push(at.to_owned()),
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(n, item)| strings_in(item, &format!("{at}/{n}"), found))
        }
        Value::Object(fields) => fields.iter().for_each(|(key, item)| strings_in(item, &format!("{at}/{key}"), found)),
        _ => {}
    }
}

/// A hostile string of the `kind`-th kind as JSON text: some cannot be written otherwise. `known` are ids of another project.
fn hostile(random: &mut Random, kind: usize, known: &[String]) -> Option<String> {
    const SQL: [&str; 6] = [
        "'; DROP TABLE segment; --",
        "' OR 1=1 --",
        "\"; ATTACH DATABASE 'hostile.db' AS h; --",
        "?1",
        ":project",
        "1) UNION SELECT * FROM segment --",
    ];
    const FTS: [&str; 8] =
        ["a OR b", "NEAR(a b, 5)", "text:*", "\"unbalanced", "a* ^b -c", "(((", "NOT", "col : {a b} + c"];
    const PATHS: [&str; 7] = [
        "../../hostile",
        "/tmp/waystone-hostile",
        "..\\..\\hostile",
        "C:\\hostile",
        "~/hostile",
        "%2e%2e%2fhostile",
        "file:///tmp/waystone-hostile",
    ];
    const REFS: [&str; 5] = ["ref:", "ref:ref:x", "ref:../x", "role:system", "ref:%"];
    const HANDLES: [&str; 7] = [
        "ws:segment:x#/a?bytes=0-99999999999999999999",
        "ws:segment:#",
        "ws:checkpoint:x#/~2",
        "ws:context:zz",
        "ws::",
        "ws:segment:x?lines=9-1",
        "ws:segment:../x",
    ];
    const JSON: [&str; 6] =
        ["{\"tags\":[\"x\",1]}", "{\"__proto__\":{}}", "[[[[", "{\"task_id\":\"..\"}", "null", "{\"tags\":[]}{"];
    const NUMBERS: [&str; 8] =
        ["9223372036854775807", "-1", "1e999", "NaN", "0x10", "7fffffffffffffff", "99999999999999999999", "+0"];
    let mut any = |of: &[&str]| of[random.below(of.len() as u64) as usize].to_owned();
    let text = match kind {
        0 => any(&SQL),
        1 => any(&FTS),
        2 => any(&PATHS),
        3 => format!("{}\0{}", any(&PATHS), any(&SQL)),
        4 => any(&["x", "é", "\u{1f600}", "a b ", "\u{301}", "\""]).repeat(1 << random.below(14)),
        5 => format!("\u{202e}{}\u{2066}אבג{}\u{200f}", any(&SQL), any(&PATHS)),
        6 => "\u{1f468}\u{200d}\u{1f469}\u{200d}\u{1f467}\u{fe0f}\u{1f3f4}\u{e0067}"
            .repeat(1 + random.below(40) as usize),
        7 => return Some(any(&[r#""\ud800""#, r#""\udc00x""#, r#""a\ud83d""#, r#""\ud800\ud800""#])),
        8 => (0..1 + random.below(30)).map(|_| char::from(random.below(32) as u8)).collect(),
        9 => any(&REFS),
        10 => any(&HANDLES),
        11 => known[random.below(known.len() as u64) as usize].clone(),
        12 => any(&JSON),
        13 => any(&NUMBERS),
        14 => (0..random.below(60)).filter_map(|_| char::from_u32(random.below(0x11_0000) as u32)).collect(),
        15 => any(&["", " ", "\u{feff}", "\u{85}", ".", "..", "\u{ffff}", "\u{fffd}", "İ", "ß"]),
        _ => return None,
    };
    Some(json!(text).to_string())
}

async fn call(client: &Client, tool: &str, arguments: &str) -> Value {
    let params = format!(r#"{{"name":"{tool}","arguments":{arguments}}}"#);
    let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}"#);
    let response = client.send(post("/mcp", body)).await;
    let status = response.status().as_u16();
    assert!(status < 500, "{tool} {arguments}: {status}");
    json_of(response).await
}

async fn ask(client: &Client, tool: &str, arguments: Value) -> Value {
    let mut answer = call(client, tool, &arguments.to_string()).await;
    assert_eq!(answer["result"]["isError"], false, "{tool} {arguments}: {answer}");
    answer["result"]["structuredContent"].take()
}

/// What another project has, with ids by which one might reach it.
async fn fill_other(client: &Client) -> Vec<String> {
    let put =
        json!({ "project_id": "other", "task_id": "t", "texts": [format!("{SECRET} one"), format!("{SECRET} two")] });
    let put = ask(client, "context_put", put).await;
    let stashed = json!({ "project_id": "other", "task_id": "t", "text": format!("{SECRET} three"), "stash": true });
    let stashed = ask(client, "context_put", stashed).await;
    let snapshot = ask(client, "context_create_task_snapshot", json!({ "project_id": "other", "task_id": "t" })).await;
    let plan = ask(client, "context_gc_analyze", json!({ "project_id": "other", "target_tokens": 1 })).await;
    let id = put["segment_ids"][0].as_str().unwrap();
    let known =
        [&put["segment_ids"][1], &stashed["segment_ids"][0], &stashed["operation_id"], &snapshot["snapshot_id"]];
    let known = known.into_iter().chain([&plan["pruning_plan"]["plan_id"], &snapshot["operation_id"]]);
    let known = known.map(|id| id.as_str().unwrap().to_owned());
    known.chain([id.to_owned(), format!("ref:{id}"), format!("ws:segment:{id}")]).collect()
}

async fn other(client: &Client) -> Vec<Value> {
    let all = ask(client, "context_get_task_context", json!({ "project_id": "other", "task_id": "t" })).await;
    let segments = all["segments"].as_array().unwrap().iter();
    segments
        .map(|segment| json!([segment["segment_id"], segment["text"], segment["tier"], segment["pinned"]]))
        .collect()
}

/// Panics if a segment in a reply is of a project that was not asked for.
fn check_projects(reply: &Value, asked: &str, case: &str) {
    match reply {
        Value::Array(items) => items.iter().for_each(|item| check_projects(item, asked, case)),
        Value::Object(fields) => {
            if fields.contains_key("segment_id") && fields.contains_key("project_id") {
                assert_eq!(fields["project_id"], asked, "{case}");
            }
            fields.values().for_each(|item| check_projects(item, asked, case));
        }
        _ => {}
    }
}

/// All files in a folder, but those that say which process is alive.
fn files(folder: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.path().is_dir() && name != "run" {
            found.extend(files(&entry.path()).into_iter().map(|inner| format!("{name}/{inner}")));
        }
        found.insert(name);
    }
    found
}

/// Every tool of segments is in the table, with every field that takes text.
async fn check_table(client: &Client, tools: &[(&str, Value)]) {
    let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" });
    let listed = json_of(client.send(post("/mcp", list.to_string())).await).await;
    let mut given: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (tool, arguments) in tools {
        given.entry(tool).or_default().extend(arguments.as_object().unwrap().keys().map(String::as_str));
    }
    let published = listed["result"]["tools"].as_array().unwrap().iter();
    for tool in published.filter(|tool| tool["name"].as_str().unwrap().starts_with("context_")) {
        let name = tool["name"].as_str().unwrap();
        let fields =
            tool["inputSchema"]["properties"].as_object().expect("strict clients want them, even where there are none");
        for (field, schema) in fields.iter().filter(|(_, schema)| schema.to_string().contains("\"string\"")) {
            assert!(given[name].contains(field.as_str()), "{name}: {field} {schema}");
        }
        assert!(given.contains_key(name), "{name}");
    }
}

#[tokio::test]
async fn hostile_strings_do_no_harm_in_any_field_of_segments() {
    let outer = private_dir();
    let harness = Harness::on(private_dir_in(outer.path()));
    let (stop, stopping) = watch::channel(false);
    let router = Http::new(harness.engine.clone(), "tester", stopping).router(Guard::default());
    let client = Client { harness, router, stop };
    let known = fill_other(&client).await;
    let own = ask(&client, "context_put", json!({ "project_id": "own", "text": "own" })).await;
    let tools = tools(own["segment_ids"][0].as_str().unwrap());
    check_table(&client, &tools).await;
    let mut places = Vec::new();
    for (tool, arguments) in &tools {
        let mut pointers = Vec::new();
        strings_in(arguments, "", &mut pointers);
        places.extend(pointers.into_iter().map(|pointer| (*tool, arguments, pointer)));
    }
    let (before, files_before) = (other(&client).await, files(client.harness.data_dir()));
    let (mut random, mut good) = (Random::new(9), 0);
    let kinds = (0..).take_while(|kind| hostile(&mut random, *kind, &known).is_some()).count();
    assert!(STRINGS >= kinds * places.len(), "{kinds} kinds, {} places", places.len());
    for n in 0..STRINGS {
        let (tool, arguments, pointer) = &places[n / kinds % places.len()];
        let mut arguments = (*arguments).clone();
        *arguments.pointer_mut(pointer).unwrap() = json!(PLACE);
        let string = hostile(&mut random, n % kinds, &known).unwrap();
        let asked = serde_json::from_str::<String>(&string).ok().filter(|_| pointer == "/project_id");
        let arguments = arguments.to_string().replace(&json!(PLACE).to_string(), &string);
        let answer = call(&client, tool, &arguments).await;
        let case = format!("{tool} {}: {answer}", &arguments[..arguments.floor_char_boundary(500)]);
        let code = answer["result"]["structuredContent"]["error"]["code"].as_str();
        assert!(answer["jsonrpc"] == "2.0" && code != Some("STORAGE_UNAVAILABLE"), "{case}");
        good += usize::from(answer["result"]["isError"] == false);
        // A handle says whose it is by itself.
        if *tool != "context_expand" {
            check_projects(&answer["result"], asked.as_deref().unwrap_or("own"), &case);
            assert!(!answer.to_string().contains(SECRET), "{case}");
        }
    }
    assert!(good > STRINGS / 4 && good < STRINGS, "{good} of {STRINGS} were good");
    assert_eq!(other(&client).await, before, "another project was changed");
    // Housekeeping makes its own, at a time of its own.
    let own = ["backups", "mirror.lock", "reserve"];
    let mut files_after = files(client.harness.data_dir());
    files_after.retain(|name| files_before.contains(name) || !own.iter().any(|own| name.starts_with(own)));
    assert_eq!(files_after, files_before);
    assert_eq!(std::fs::read_dir(outer.path()).unwrap().count(), 1, "a file outside of the data directory");
    assert!(!Path::new("/tmp/waystone-hostile").exists() && !Path::new("hostile.db").exists());
    client.harness.check_invariants().await;
}
