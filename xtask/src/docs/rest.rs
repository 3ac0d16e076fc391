//! Routes, from the server's OpenAPI document.

use std::path::Path;

use anyhow::Context;
use serde_json::Value;
use waystone_testkit::served::Served;

use super::{fields, kind, names, prose, table};

/// What a route is about, by what follows `/api/` in its path; the others are about the server itself.
const NOUNS: [(&str, &str); 16] = [
    ("sessions", "Sessions"),
    ("checkpoints", "Checkpoints"),
    ("views", "Views"),
    ("handles", "Handles"),
    ("resume", "Resume"),
    ("search", "Search"),
    ("projects", "Projects: segments, tasks and snapshots"),
    ("stash", "The stash of all projects"),
    ("contexts", "Contexts: conversations"),
    ("models", "Models"),
    ("operations", "Operations"),
    ("audit", "Audit"),
    ("events", "Events"),
    ("import", "Import"),
    ("cleanup", "Cleanup"),
    ("backups", "Backups"),
];

pub(super) fn page(binary: &Path, scratch: &Path) -> anyhow::Result<String> {
    let document = tokio::runtime::Runtime::new()?.block_on(async {
        let server = Served::start(binary, scratch, &[]).await?;
        server.get("/api/openapi.json").await
    })?;
    let paths = document.1["paths"].as_object().context("a document has paths")?;
    let noun = |path: &str| {
        let first = path.strip_prefix("/api/").and_then(|path| path.split('/').next());
        NOUNS.iter().find(|(noun, _)| Some(*noun) == first).map(|(_, title)| *title)
    };
    let mut page = String::new();
    for title in NOUNS.iter().map(|(_, title)| Some(*title)).chain([None]) {
        page += &format!("## {}\n\n", title.unwrap_or("The server"));
        for (path, methods) in paths.iter().filter(|(path, _)| noun(path) == title) {
            for (method, route) in methods.as_object().into_iter().flatten() {
                page += &format!("### {} {path}\n\n{}\n", method.to_uppercase(), add(route));
            }
        }
    }
    Ok(page)
}

fn add(route: &Value) -> String {
    let mut text = format!("{}.\n\n", prose(route["summary"].as_str().unwrap_or_default()));
    let parameters = route["parameters"].as_array().map(Vec::as_slice).unwrap_or_default();
    // What stands in the path is in its heading.
    let asked = parameters.iter().filter(|parameter| parameter["in"] != "path").map(|parameter| {
        let takes = format!("{}, in the {}", kind(&parameter["schema"]), parameter["in"].as_str().unwrap_or_default());
        let name = format!("`{}`", parameter["name"].as_str().unwrap_or_default());
        [name, prose(&takes), prose(parameter["description"].as_str().unwrap_or_default())]
    });
    let body = fields(&route["requestBody"]["content"]["application/json"]["schema"]);
    text += &table(["field", "takes", "meaning"], &asked.chain(body).collect::<Vec<_>>());
    text += &replies(&route["responses"]);
    text
}

/// How any route can fail; it stands in the introduction of the page once.
const COMMON: [&str; 5] = ["400", "403", "405", "500", "503"];

/// What it answers with when it did what was asked, and how it fails besides.
fn replies(responses: &Value) -> String {
    let all: Vec<(&String, &Value)> = responses.as_object().into_iter().flatten().collect();
    let own = all.into_iter().filter(|(status, _)| !COMMON.contains(&status.as_str()));
    let (mut good, mut bad): (Vec<_>, Vec<_>) = own.partition(|(status, _)| status.as_str() < "400");
    good.sort_unstable_by_key(|(status, _)| *status);
    bad.sort_unstable_by_key(|(status, _)| *status);
    let list =
        |some: &[(&String, &Value)]| some.iter().map(|(status, _)| status.as_str()).collect::<Vec<_>>().join(", ");
    let reply =
        good.first().map(|(_, reply)| names(&reply["content"]["application/json"]["schema"])).unwrap_or_default();
    let reply = if reply.is_empty() { String::new() } else { format!(" with {reply}") };
    let fails = if bad.is_empty() { String::new() } else { format!(" Fails with {}.", list(&bad)) };
    format!("Answers {}{reply}.{fails}\n", list(&good))
}
