//! Tools, as `tools/list` tells them.

use std::path::Path;

use anyhow::Context;
use serde_json::{Value, json};
use waystone_testkit::process::{McpProcess, command};

use super::{fields, names, prose, table};

pub(super) fn page(binary: &Path, scratch: &Path) -> anyhow::Result<String> {
    let (all, core) = (tools(binary, scratch, "all")?, tools(binary, scratch, "core")?);
    let mut page = String::new();
    for tool in &all {
        let name = tool["name"].as_str().context("a tool has a name")?;
        let is_core = core.iter().any(|other| other["name"] == name);
        page += &format!("## {name}\n\n{}\n\n", prose(tool["description"].as_str().unwrap_or_default()));
        page +=
            &format!("{}{}\n\n", effect(&tool["annotations"]), if is_core { " One of the `core` tools." } else { "" });
        page += &table(["argument", "takes", "meaning"], &fields(&tool["inputSchema"]));
        let reply = names(&tool["outputSchema"]);
        if !reply.is_empty() {
            page += &format!("Replies with {reply}.\n\n");
        }
    }
    Ok(page)
}

fn tools(binary: &Path, scratch: &Path, which: &str) -> anyhow::Result<Vec<Value>> {
    let mut process = McpProcess::start_with(command(binary, scratch).env("WAYSTONE_TOOLS", which).arg("mcp"))?;
    let id = process.send("tools/list", json!({}))?;
    let reply = process.wait_for(id)?;
    process.finish()?;
    reply["result"]["tools"].as_array().cloned().with_context(|| format!("no list of tools: {reply}"))
}

fn effect(annotations: &Value) -> &'static str {
    match (annotations["readOnlyHint"].as_bool(), annotations["destructiveHint"].as_bool()) {
        (Some(true), _) => "Only reads.",
        (_, Some(false)) => "Adds or moves, and takes nothing away.",
        _ => "May take something away: for 7 days it can be brought back.",
    }
}
