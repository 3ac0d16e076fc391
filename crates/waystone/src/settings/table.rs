//! The table of settings: a row for each, with its key, variable, kind, default and what people are told about it.

use serde_json::{Value, json};
use waystone_core::api::TOKENS_MAX;
use waystone_core::secret::Policy;
use waystone_core::{Limits, PolicyKind};

use super::DATA_DIR;

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
        about: "Models that conversations can name, by id: JSON {id: {provider, name, base_url, key_env, limit, prices}}; of others the name says who answers",
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
