//! Settings: one table from which flags, variables, keys of `config.json`, help and schema are made.
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

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use serde_json::{Map, Value, json};
use waystone_connect::mcp::{Servers, parse_servers};
use waystone_core::api::{ContextRule, TOKENS_MAX};
use waystone_core::id::ProjectId;
use waystone_core::secret::{Policy, Rule, Secrets};
use waystone_core::{Error, Limits, PolicyKind, ToolPolicy};
use waystone_server::mcp::ToolSet;
use zeroize::Zeroizing;

pub(crate) use flag::{Flags, HEADING, hide_in_commands};
pub(crate) use project::project_at;
pub(crate) use schema::schema;

/// What a value may be.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    Text,
    /// A whole number from the first to the second.
    Number(u64, u64),
    /// Origins of web pages as browsers send them, in a variable separated by commas.
    Origins,
    /// Names, perhaps with a `*` at the end, in a variable separated by commas.
    Names,
    OneOf(&'static [&'static str]),
    /// An address of this machine that only this machine reaches.
    Loopback,
    /// Which class keys of a context have, in a variable as JSON.
    Rules,
    /// MCP servers whose tools conversations have, in a variable as JSON.
    Servers,
    /// What is known of models, and how much their windows hold: by id, in a variable as JSON.
    Models,
    ModelLimits,
    /// Yes or no; a flag without a value says yes.
    Switch,
}

#[derive(Debug)]
pub(crate) struct Setting {
    /// In `config.json`, and in kebab-case as a flag.
    pub(crate) key: &'static str,
    pub(crate) variable: &'static str,
    /// Names that other tools use for the same.
    pub(crate) aliases: &'static [&'static str],
    pub(crate) kind: Kind,
    pub(crate) default: fn() -> Value,
    pub(crate) about: &'static str,
}

const BYTES_MAX: u64 = 1 << 50;
const TOOL_SETS: &[&str] = &["all", "core"];
const COMPRESSIONS: &[&str] = &["basic", "advanced"];
const LEVELS: &[&str] = &["off", "error", "warn", "info", "debug", "trace"];

pub(crate) const DATA_DIR: &str = "dataDir";
/// Secrets are neither flags nor in `config.json`.
const PASSPHRASE: &str = "WAYSTONE_PASSPHRASE";
const NEW_PASSPHRASE: &str = "WAYSTONE_NEW_PASSPHRASE";
/// The key by which a file names its schema.
const SCHEMA: &str = "$schema";

pub(crate) const SETTINGS: [Setting; 32] = [
    Setting {
        key: DATA_DIR,
        variable: "WAYSTONE_DATA_DIR",
        aliases: &["WORKRAIL_DATA_DIR", "WORKRAIL_STORAGE_PATH"],
        kind: Kind::Text,
        default: || Value::Null,
        about: "Where everything is kept; the platform's data directory when left out",
    },
    Setting {
        key: "project",
        variable: "WAYSTONE_PROJECT",
        aliases: &[],
        kind: Kind::Text,
        default: || Value::Null,
        about: "The project of what is saved; named after the git repository around the working directory when left out",
    },
    Setting {
        key: "maxCheckpoints",
        variable: "WAYSTONE_MAX_CHECKPOINTS",
        aliases: &["WORKRAIL_MAX_CHECKPOINTS"],
        kind: Kind::Number(1, 1_000_000_000),
        default: || json!(Limits::default().checkpoints_max),
        about: "Most checkpoints that a session keeps, before the oldest without name, tag or branch is archived",
    },
    Setting {
        key: "maxContextBytes",
        variable: "WAYSTONE_MAX_CONTEXT_BYTES",
        aliases: &[],
        kind: Kind::Number(1, BYTES_MAX),
        default: || json!(Limits::default().context_bytes_max),
        about: "Most bytes of a context as JSON",
    },
    Setting {
        key: "maxCheckpointBytes",
        variable: "WAYSTONE_MAX_CHECKPOINT_BYTES",
        aliases: &[],
        kind: Kind::Number(1, BYTES_MAX),
        default: || json!(Limits::default().checkpoint_bytes_max),
        about: "Most bytes of a checkpoint as stored, compressed",
    },
    Setting {
        key: "maxSessionBytes",
        variable: "WAYSTONE_MAX_SESSION_BYTES",
        aliases: &[],
        kind: Kind::Number(1, BYTES_MAX),
        default: || json!(Limits::default().session_bytes_max),
        about: "Most bytes of all checkpoints of a session as stored",
    },
    Setting {
        key: "maxTotalBytes",
        variable: "WAYSTONE_MAX_TOTAL_BYTES",
        aliases: &[],
        kind: Kind::Number(1, BYTES_MAX),
        default: || json!(Limits::default().total_bytes_max),
        about: "Most bytes of all that is kept, as stored",
    },
    Setting {
        key: "retentionDays",
        variable: "WAYSTONE_RETENTION_DAYS",
        aliases: &[],
        kind: Kind::Number(0, 36_500),
        default: || json!(Limits::default().retention_days),
        about: "Days without a save or load after which a session is deleted; 0 keeps all",
    },
    Setting {
        key: "maxImportBytes",
        variable: "WAYSTONE_MAX_IMPORT_BYTES",
        aliases: &[],
        kind: Kind::Number(1, BYTES_MAX),
        default: || json!(Limits::default().import_bytes_max),
        about: "Most bytes of a document that is imported",
    },
    Setting {
        key: "tokenLimit",
        variable: "WAYSTONE_TOKEN_LIMIT",
        aliases: &[],
        kind: Kind::Number(1, TOKENS_MAX),
        default: || json!(Limits::default().window_tokens),
        about: "How many tokens the window of a model holds, where a request does not say so",
    },
    Setting {
        key: "contextRules",
        variable: "WAYSTONE_CONTEXT_RULES",
        aliases: &[],
        kind: Kind::Rules,
        default: || json!([]),
        about: "Which class keys of contexts have in views: JSON [{pattern, class, reason}], first match wins, after a session's own",
    },
    Setting {
        key: "secrets",
        variable: "WAYSTONE_SECRETS",
        aliases: &[],
        kind: Kind::OneOf(Policy::NAMES),
        default: || json!("warn"),
        about: "What is done about keys, passwords and tokens in what is saved: warn tells who saves them, redact also leaves them out of views and exports, block refuses them; secrets.json in the data directory adds rules",
    },
    Setting {
        key: "pii",
        variable: "WAYSTONE_PII",
        aliases: &[],
        kind: Kind::OneOf(Policy::NAMES),
        default: || json!("off"),
        about: "The same for e-mail addresses, telephone numbers, payment cards and bank accounts",
    },
    Setting {
        key: "tools",
        variable: "WAYSTONE_TOOLS",
        aliases: &[],
        kind: Kind::OneOf(TOOL_SETS),
        default: || json!("all"),
        about: "Which tools agents are offered: all, or the few of core, which take a third of the tokens",
    },
    Setting {
        key: "host",
        variable: "WAYSTONE_HOST",
        aliases: &[],
        kind: Kind::Loopback,
        default: || json!("127.0.0.1"),
        about: "The address `serve` listens on; only this machine's own are possible",
    },
    Setting {
        key: "port",
        variable: "WAYSTONE_PORT",
        aliases: &[],
        kind: Kind::Number(0, 65_535),
        default: || json!(3000),
        about: "The port `serve` listens on; 0 takes a free one",
    },
    Setting {
        key: "allowedOrigins",
        variable: "WAYSTONE_ALLOWED_ORIGINS",
        aliases: &[],
        kind: Kind::Origins,
        default: || json!([]),
        about: "Origins of web pages that may call `serve` besides its own, such as https://app.example",
    },
    Setting {
        key: "allowOtherUsers",
        variable: "WAYSTONE_ALLOW_OTHER_USERS",
        aliases: &[],
        kind: Kind::Switch,
        default: || json!(false),
        about: "Whether other users of this machine may call `serve`; where it cannot be told who calls (not Linux), all may",
    },
    Setting {
        key: "encryption",
        variable: "WAYSTONE_ENCRYPTION",
        aliases: &["WORKRAIL_ENCRYPTION"],
        kind: Kind::Switch,
        default: || json!(false),
        about: "Whether a data directory that is made is sealed, and one that is there must be; the key is in keyFile, made of WAYSTONE_PASSPHRASE, or in the system's keychain",
    },
    Setting {
        key: "keyFile",
        variable: "WAYSTONE_KEY_FILE",
        aliases: &[],
        kind: Kind::Text,
        default: || Value::Null,
        about: "The file with the key that opens a sealed data directory; `waystone key generate` makes one",
    },
    Setting {
        key: "model",
        variable: "WAYSTONE_MODEL",
        aliases: &[],
        kind: Kind::Text,
        default: || json!("demo"),
        about: "Which model answers in conversations that name none; `demo` is built in",
    },
    Setting {
        key: "mcpServers",
        variable: "WAYSTONE_MCP_SERVERS",
        aliases: &[],
        kind: Kind::Servers,
        default: || json!({}),
        about: "MCP servers whose tools conversations have: JSON {name: {command, args, env, cwd} or {url, headers}}; ${NAME} in a value stands for a variable",
    },
    Setting {
        key: "toolPolicy",
        variable: "WAYSTONE_TOOL_POLICY",
        aliases: &[],
        kind: Kind::OneOf(PolicyKind::NAMES),
        default: || json!("auto"),
        about: "Which tools run unasked when a model calls them: manual none, allow-list those of allowedTools, auto also those that only read",
    },
    Setting {
        key: "allowedTools",
        variable: "WAYSTONE_ALLOWED_TOOLS",
        aliases: &[],
        kind: Kind::Names,
        default: || json!([]),
        about: "Tools that run unasked, by name or by its beginning and a *, such as write_file or github__*",
    },
    Setting {
        key: "approvalTimeoutS",
        variable: "WAYSTONE_APPROVAL_TIMEOUT_S",
        aliases: &[],
        kind: Kind::Number(0, 31_536_000),
        default: || json!(0),
        about: "Seconds after which a call of a tool that nobody decided about expires; 0 lets it wait",
    },
    Setting {
        key: "models",
        variable: "WAYSTONE_MODELS",
        aliases: &[],
        kind: Kind::Models,
        default: || json!({}),
        about: "Models that conversations can name, by id: JSON {id: {provider, name, base_url, limit, prices}}; of others the name says who answers",
    },
    Setting {
        key: "modelLimits",
        variable: "WAYSTONE_MODEL_LIMITS",
        aliases: &[],
        kind: Kind::ModelLimits,
        default: || json!({}),
        about: "How many tokens the windows of models hold, whatever is known of them: JSON {id: tokens}",
    },
    Setting {
        key: "checkpointAutoSave",
        variable: "WAYSTONE_CHECKPOINT_AUTO_SAVE",
        aliases: &["WORKRAIL_CHECKPOINT_AUTO_SAVE"],
        kind: Kind::Switch,
        default: || json!(true),
        about: "Whether where a conversation stands is kept as a checkpoint after each turn",
    },
    Setting {
        key: "contextCompression",
        variable: "WAYSTONE_CONTEXT_COMPRESSION",
        aliases: &["WORKRAIL_CONTEXT_COMPRESSION"],
        kind: Kind::OneOf(COMPRESSIONS),
        default: || json!("basic"),
        about: "How views and windows are made smaller where nobody says how: basic chooses lines, advanced has compressionModel write summaries",
    },
    Setting {
        key: "compressionModel",
        variable: "WAYSTONE_COMPRESSION_MODEL",
        aliases: &[],
        kind: Kind::Text,
        default: || Value::Null,
        about: "The model that writes summaries; one of Ollama keeps them on this machine. Without it lines are chosen",
    },
    Setting {
        key: "readOnly",
        variable: "WAYSTONE_READ_ONLY",
        aliases: &[],
        kind: Kind::Switch,
        default: || json!(false),
        about: "Whether this process only reads: it refuses all changes, makes no files and keeps no house",
    },
    Setting {
        key: "logLevel",
        variable: "WAYSTONE_LOG_LEVEL",
        aliases: &[],
        kind: Kind::OneOf(LEVELS),
        default: || json!("info"),
        about: "How much goes to logs/waystone.log in the data directory",
    },
];

impl Setting {
    pub(crate) fn flag(&self) -> String {
        kebab_case(self.key)
    }

    /// `dataDir` says where the file is, so it cannot stand in it.
    pub(crate) fn is_in_file(&self) -> bool {
        self.key != DATA_DIR
    }
}

/// A name of the wire as a flag.
pub(crate) fn kebab_case(name: &str) -> String {
    name.chars().fold(String::new(), |mut flag, c| {
        if c.is_ascii_uppercase() {
            flag.push('-');
        }
        flag.push(c.to_ascii_lowercase());
        flag
    })
}

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
