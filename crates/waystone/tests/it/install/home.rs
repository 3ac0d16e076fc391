//! A home directory to install into, and what must be in it afterwards.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};
use tempfile::TempDir;
use waystone_testkit::harness::private_dir;
use waystone_testkit::process::{binary, command};

const EVENTS: [(&str, &str); 3] = [("SessionStart", "session-start"), ("PreCompact", "pre-compact"), ("Stop", "stop")];

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Kind {
    Servers(&'static str),
    Table,
    Hooks,
}
pub(super) use Kind::{Hooks, Servers, Table};

/// A client, a scope, and the files of both.
pub(super) type Target = (&'static str, &'static str, &'static [(&'static str, Kind)]);

/// Every client in every scope.
pub(super) const TARGETS: [Target; 8] = [
    ("claude-code", "--user", &[(".claude.json", Servers("mcpServers")), (".claude/settings.json", Hooks)]),
    ("claude-code", "--project", &[("work/.mcp.json", Servers("mcpServers")), ("work/.claude/settings.json", Hooks)]),
    ("codex", "--user", &[(".codex/config.toml", Table), (".codex/hooks.json", Hooks)]),
    ("codex", "--project", &[("work/.codex/config.toml", Table), ("work/.codex/hooks.json", Hooks)]),
    ("cursor", "--user", &[(".cursor/mcp.json", Servers("mcpServers"))]),
    ("cursor", "--project", &[("work/.cursor/mcp.json", Servers("mcpServers"))]),
    ("vscode", "--user", &[(".config/Code/User/mcp.json", Servers("servers"))]),
    ("vscode", "--project", &[("work/.vscode/mcp.json", Servers("servers"))]),
];

/// A home directory with a project in `work`.
pub(super) struct Home(pub(super) TempDir);

impl Home {
    pub(super) fn new() -> Self {
        let home = Self(private_dir());
        fs::create_dir(home.path("work")).unwrap();
        home
    }

    pub(super) fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    pub(super) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = command(&binary("waystone"), self.0.path());
        for name in ["WAYSTONE_DATA_DIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "CODEX_HOME", "CLAUDE_CONFIG_DIR"] {
            command.env_remove(name);
        }
        command.env("HOME", self.0.path()).current_dir(self.path("work")).arg("install").args(arguments);
        command
    }

    pub(super) fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    pub(super) fn done(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    pub(super) fn install(&self, client: &str, scope: &str) -> String {
        self.done(&[client, scope, "--yes"])
    }

    pub(super) fn undo(&self, client: &str, scope: &str) -> String {
        self.done(&[client, scope, "--yes", "--undo"])
    }

    pub(super) fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    pub(super) fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Everything in it: files with their bytes, folders with none.
    pub(super) fn all(&self) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
        fn collect(folder: &Path, all: &mut BTreeMap<PathBuf, Option<Vec<u8>>>) {
            for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
                all.insert(path.clone(), path.is_file().then(|| fs::read(&path).unwrap()));
                if path.is_dir() {
                    collect(&path, all);
                }
            }
        }
        let mut all = BTreeMap::new();
        collect(self.0.path(), &mut all);
        all
    }
}

pub(super) fn own_path() -> String {
    binary("waystone").canonicalize().unwrap().to_str().unwrap().to_owned()
}

/// JSON without comments and commas that end a list.
pub(super) fn strict(text: &str) -> Value {
    let (mut plain, mut characters, mut is_text) =
        (String::new(), text.trim_start_matches('\u{feff}').chars().peekable(), false);
    while let Some(c) = characters.next() {
        match c {
            '\\' if is_text => plain.extend([c].into_iter().chain(characters.next())),
            '"' => {
                is_text = !is_text;
                plain.push(c);
            }
            '/' if !is_text && characters.peek() == Some(&'/') => while characters.next_if(|c| *c != '\n').is_some() {},
            '/' if !is_text => {
                let mut last = ' ';
                characters.next();
                for c in characters.by_ref() {
                    if (last, c) == ('*', '/') {
                        break;
                    }
                    last = c;
                }
            }
            '}' | ']' if !is_text => plain = format!("{}{c}", plain.trim_end().trim_end_matches(',')),
            c => plain.push(c),
        }
    }
    if plain.trim().is_empty() {
        return json!({});
    }
    serde_json::from_str(&plain).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// What of ours is in a file, and the rest of it.
pub(super) fn split(text: &str, kind: Kind) -> (Value, Value) {
    match kind {
        Table => {
            let mut table: toml_edit::DocumentMut = text.parse().unwrap();
            let ours = table["mcp_servers"].as_table_mut().unwrap().remove("waystone").unwrap();
            let list: Vec<&str> = ours["args"].as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect();
            let mut entry = json!({ "command": ours["command"].as_str(), "args": list });
            if let Some(env) = ours.get("env") {
                entry["env"] = json!({ "WAYSTONE_DATA_DIR": env["WAYSTONE_DATA_DIR"].as_str() });
            }
            (entry, Value::Null)
        }
        Servers(key) => {
            let mut file = strict(text);
            let ours = file[key].as_object_mut().unwrap().remove("waystone").unwrap();
            (ours, file)
        }
        Hooks => {
            let mut file = strict(text);
            let last = |(event, _): (&'static str, _)| {
                (event.to_owned(), file["hooks"][event].as_array_mut().unwrap().pop().unwrap())
            };
            let ours = EVENTS.map(last).into_iter().collect();
            (ours, file)
        }
    }
}

pub(super) fn expected(kind: Kind, data_dir: Option<&str>) -> Value {
    let mut entry = json!({ "command": own_path(), "args": ["mcp"] });
    match kind {
        Hooks => {
            let option = data_dir.map(|path| format!(" --data-dir {path}")).unwrap_or_default();
            let hook = |(event, name): (&str, &str)| {
                let command = format!("{}{option} hook {name}", own_path());
                (event.to_owned(), json!({ "hooks": [{ "type": "command", "command": command }] }))
            };
            return EVENTS.map(hook).into_iter().collect();
        }
        Servers(_) => entry["type"] = json!("stdio"),
        Table => {}
    }
    if let Some(path) = data_dir {
        entry["env"] = json!({ "WAYSTONE_DATA_DIR": path });
    }
    entry
}

/// Whether `text` has every character of `part`, in order.
pub(super) fn holds(text: &str, part: &str) -> bool {
    let mut characters = text.chars();
    part.chars().all(|wanted| characters.any(|c| c == wanted))
}
