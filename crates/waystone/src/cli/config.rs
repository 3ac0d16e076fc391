//! `waystone config`

use clap::Subcommand;
use serde_json::{Value, json};

use super::render::{Out, table};
use crate::settings::{SETTINGS, Settings, schema};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show every setting as it is in force
    Show {
        /// Say where each value comes from
        #[arg(long)]
        origin: bool,
    },
    /// Print the JSON schema of config.json
    Schema,
}

pub(crate) fn run(command: &Command, settings: &Settings, out: &Out) -> anyhow::Result<()> {
    match command {
        Command::Schema => Out { json: true }.print(&schema(), Value::to_string),
        Command::Show { origin } => {
            let source = |key: &str| settings.origins.get(key).cloned().unwrap_or_else(|| "default".to_owned());
            let values = settings.shown();
            let reply: Value = match origin {
                false => json!(values),
                true => values
                    .iter()
                    .map(|(key, value)| (key.clone(), json!({ "value": value, "origin": source(key) })))
                    .collect::<serde_json::Map<_, _>>()
                    .into(),
            };
            out.print(&reply, |_| {
                let shown = |key: &str| match &values[key] {
                    Value::String(text) => text.clone(),
                    value => value.to_string(),
                };
                let rows = SETTINGS.iter().map(|setting| match origin {
                    false => vec![setting.key.to_owned(), shown(setting.key)],
                    true => vec![setting.key.to_owned(), shown(setting.key), source(setting.key)],
                });
                table(if *origin { &["SETTING", "VALUE", "FROM"] } else { &["SETTING", "VALUE"] }, rows)
            })
        }
    }
}
