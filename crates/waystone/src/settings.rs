//! Settings: one [`table`] from which flags, variables, keys of `config.json`, help and schema are made.
//!
//! Later wins: defaults, `config.json` in the data directory, the environment, flags. This is the only place that reads the
//! environment. What the table looks like to clap is in [`flag`], to an editor in [`schema`], and how layers are read and checked
//! in [`layer`], to people in [`shown`]. Where other programs keep theirs is in [`place`].

mod flag;
mod layer;
pub(crate) mod place;
mod project;
mod provider;
mod schema;
mod shown;
mod table;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use serde_json::{Map, Value, json};
use waystone_connect::mcp::{Servers, parse_servers};
use waystone_core::api::ContextRule;
use waystone_core::id::ProjectId;
use waystone_core::secret::{Policy, Rule, Secrets};
use waystone_core::{Error, Limits, PolicyKind, ToolPolicy};
use waystone_server::mcp::ToolSet;
use zeroize::Zeroizing;

pub(crate) use flag::{Flags, HEADING, hide_in_commands};
pub(crate) use project::project_at;
pub(crate) use schema::schema;
#[cfg(test)]
pub(crate) use table::kebab_case;
pub(crate) use table::{Kind, SETTINGS, Setting};

pub(crate) const DATA_DIR: &str = "dataDir";
/// Secrets are neither flags nor in `config.json`.
const PASSPHRASE: &str = "WAYSTONE_PASSPHRASE";
const NEW_PASSPHRASE: &str = "WAYSTONE_NEW_PASSPHRASE";
/// The key by which a file names its schema.
const SCHEMA: &str = "$schema";

#[derive(Debug)]
pub(crate) struct Settings {
    /// Every value, by key.
    pub(crate) values: Map<String, Value>,
    /// Where each value that is not a default comes from.
    pub(crate) origins: BTreeMap<String, String>,
    pub(crate) data_dir: PathBuf,
    pub(crate) project: ProjectId,
    pub(crate) limits: Limits,
    /// Rules for secrets, besides ours.
    secret_rules: Vec<Rule>,
    /// What the key is made of, which only the environment tells, and what a new one is to be made of.
    pub(crate) passphrase: Option<Zeroizing<String>>,
    pub(crate) new_passphrase: Option<Zeroizing<String>>,
    /// What opens models, which only the environment tells, and where they are.
    provider_variables: BTreeMap<&'static str, Zeroizing<String>>,
    /// Who acts when no agent gives its name.
    pub(crate) user: String,
    /// What a person should know about the environment.
    pub(crate) warnings: Vec<String>,
}

impl Settings {
    /// Puts the layers together. `has_place` says that the working directory means something: a server's does not.
    pub(crate) fn load(flags: &Flags, has_place: bool) -> Result<Self, Error> {
        Self::merge(flags, has_place).map_err(|error| Error::InvalidInput(format!("{error:#}")))
    }

    fn merge(flags: &Flags, has_place: bool) -> anyhow::Result<Self> {
        let variables = layer::Variables::read()?;
        let mut merged = layer::Merged::defaults();
        let environment = variables.settings()?;
        let data_dir =
            [&flags.0, &environment.values].iter().find_map(|layer| layer.get(DATA_DIR)?.as_str().map(PathBuf::from));
        let data_dir = data_dir.map_or_else(default_data_dir, Ok)?;
        merged.add_file(&data_dir.join("config.json"))?;
        let secret_rules = layer::read_secret_rules(&data_dir.join("secrets.json"))?;
        merged.add(environment.values, &environment.names);
        merged.add_flags(&flags.0);
        merged.values.insert(DATA_DIR.to_owned(), json!(data_dir));
        let project = match merged.values["project"].as_str() {
            Some(given) => given.parse().map_err(|error| anyhow::anyhow!("project: {error}"))?,
            None => project::infer(has_place)?,
        };
        merged.values.insert("project".to_owned(), json!(project));
        let number = |key: &str| merged.values[key].as_u64().unwrap_or_default();
        let limits = Limits {
            checkpoints_max: number("maxCheckpoints"),
            context_bytes_max: number("maxContextBytes"),
            checkpoint_bytes_max: number("maxCheckpointBytes"),
            session_bytes_max: number("maxSessionBytes"),
            total_bytes_max: number("maxTotalBytes"),
            import_bytes_max: number("maxImportBytes"),
            window_tokens: number("tokenLimit"),
            retention_days: number("retentionDays"),
        };
        let layer::Merged { values, origins } = merged;
        let (user, warnings) = (variables.user(), variables.unknown());
        let (passphrase, new_passphrase) = (variables.secret(PASSPHRASE), variables.secret(NEW_PASSPHRASE));
        let set = |name| Some((name, variables.secret(name)?));
        Ok(Self {
            provider_variables: provider::VARIABLES.into_iter().filter_map(set).collect(),
            data_dir,
            project,
            limits,
            secret_rules,
            passphrase,
            new_passphrase,
            user,
            warnings,
            values,
            origins,
        })
    }

    /// Whether someone set it, wherever.
    pub(crate) fn is_given(&self, key: &str) -> bool {
        self.origins.contains_key(key)
    }

    /// The project that a flag names: what is listed is narrowed down by a flag, and by nothing that was set once for all.
    pub(crate) fn given_project(&self) -> Option<ProjectId> {
        let is_flag = self.origins.get("project").is_some_and(|origin| origin == "--project");
        is_flag.then(|| self.project.clone())
    }

    /// The model that a flag names: a conversation that has one changes only for what was said to it.
    pub(crate) fn given_model(&self) -> Option<String> {
        let is_flag = self.origins.get("model").is_some_and(|origin| origin == "--model");
        is_flag.then(|| self.text("model").to_owned())
    }

    pub(crate) fn text(&self, key: &str) -> &str {
        self.values[key].as_str().unwrap_or_default()
    }

    pub(crate) fn is_on(&self, key: &str) -> bool {
        self.values[key].as_bool().unwrap_or_default()
    }

    pub(crate) fn tools(&self) -> ToolSet {
        if self.text("tools") == "core" { ToolSet::Core } else { ToolSet::All }
    }

    pub(crate) fn host(&self) -> IpAddr {
        self.text("host").parse().unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
    }

    pub(crate) fn port(&self) -> u16 {
        self.values["port"].as_u64().and_then(|port| u16::try_from(port).ok()).unwrap_or_default()
    }

    pub(crate) fn context_rules(&self) -> Vec<ContextRule> {
        serde_json::from_value(self.values["contextRules"].clone()).unwrap_or_default()
    }

    pub(crate) fn secrets(&self) -> Secrets {
        let policy = |key: &str| Policy::named(self.text(key)).unwrap_or(Policy::Warn);
        Secrets::new(policy("secrets"), policy("pii"), self.secret_rules.clone())
    }

    /// The servers whose tools conversations have. What they start does not inherit what opens our store and our models.
    #[expect(clippy::disallowed_methods, reason = "the values that `${NAME}` stands for are the user's own variables")]
    pub(crate) fn servers(&self) -> Servers {
        let servers = parse_servers(&self.values["mcpServers"]).unwrap_or_default();
        // What is set for one server is not for another.
        let set = ["WAYSTONE_MCP_SERVERS", "WAYSTONE_MODELS"];
        let of_models = self.provider_variables();
        let of_models: Vec<&str> = of_models.iter().map(String::as_str).collect();
        let hidden = [&[PASSPHRASE, NEW_PASSPHRASE], &set[..], &of_models[..]].concat();
        Servers::new(servers, &hidden, |name| std::env::var(name).ok())
    }

    pub(crate) fn tool_policy(&self) -> ToolPolicy {
        let waited = self.values["approvalTimeoutS"].as_u64().unwrap_or_default();
        ToolPolicy {
            kind: PolicyKind::named(self.text("toolPolicy")).unwrap_or_default(),
            allowed: serde_json::from_value(self.values["allowedTools"].clone()).unwrap_or_default(),
            approval_max: (waited > 0).then(|| Duration::from_secs(waited)),
        }
    }

    pub(crate) fn allowed_origins(&self) -> Vec<String> {
        let origins = self.values["allowedOrigins"].as_array().into_iter().flatten();
        origins.filter_map(|origin| origin.as_str().map(str::to_owned)).collect()
    }
}

fn default_data_dir() -> anyhow::Result<PathBuf> {
    let base = directories::BaseDirs::new().context("there is no home directory; set WAYSTONE_DATA_DIR")?;
    Ok(base.data_dir().join("waystone"))
}
