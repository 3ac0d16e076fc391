//! Settings, from the schema of `config.json`.

use std::path::Path;

use anyhow::Context;
use serde_json::Value;
use waystone_testkit::process::command;

use super::{kind, prose};

pub(super) fn page(binary: &Path, scratch: &Path) -> anyhow::Result<String> {
    let schema = command(binary, scratch).args(["config", "schema"]).output().context("the binary is not built")?;
    let schema: Value = serde_json::from_slice(&schema.stdout)?;
    let settings = schema["properties"].as_object().context("a schema has properties")?;
    let mut page = String::from("## All settings\n\n");
    for (key, setting) in settings.iter().filter(|(key, _)| *key != "$schema") {
        let text = setting["description"].as_str().unwrap_or_default();
        let (text, names) = text.split_once(" Variable ").with_context(|| format!("{key} names no variable"))?;
        let (variable, flag) = names.trim_end_matches('.').split_once(", flag ").context("and no flag")?;
        let default = match &setting["default"] {
            Value::Null => "nothing".to_owned(),
            default => format!("`{}`", default.as_str().map_or_else(|| default.to_string(), str::to_owned)),
        };
        page += &format!("### {key}\n\n{}\n\n", prose(text));
        let variable = variable.replace(", also ", "`, also `");
        page += &format!("`{variable}`, `{flag}`: {}{}; {default} when left out.\n\n", kind(setting), range(setting));
    }
    Ok(page)
}

fn range(setting: &Value) -> String {
    match (setting["minimum"].as_u64(), setting["maximum"].as_u64()) {
        (Some(least), Some(most)) => format!(" from {least} to {most}"),
        _ => String::new(),
    }
}
