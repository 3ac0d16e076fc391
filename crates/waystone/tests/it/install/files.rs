//! Files as people have them, to install into.

use super::home::{Hooks, Kind, Servers, Table};

/// Files as people have them. `KEY` stands for where servers or hooks are, `IN` for what is there.
const FILES: [&str; 18] = [
    "",
    "\n",
    "{}",
    "{}\n",
    "{ }",
    "{\n}\n",
    "{\n\n}",
    "// only a comment",
    "{\n  // nothing yet\n}\n",
    "{ /* nothing yet */ }",
    "{\"theme\":\"dark\"}",
    "{\"KEY\":{}}",
    "{\n  \"KEY\": {}\n}",
    "{\r\n    \"theme\": \"dark\", // mine\r\n    \"KEY\": {\r\n        IN // last\r\n    }\r\n}\r\n",
    "{\n\t\"KEY\": {\n\t\tIN,\n\t},\n}",
    "{ \"KEY\": { IN }, \"n\": 1e40 }",
    "\u{feff}{\n      \"KEY\"  :  {IN},\n\n\n /* between */ \"a\": [\n1,2\n],\n  }",
    "// head\n{\n  \"z\": {\"KEY\": 1},\n  \"KEY\":\n  {\n    // first\n    IN\n    /* after */ , // and more\n    // end\n  }\n  // tail\n}\n// foot",
];

const TABLES: [&str; 8] = [
    "",
    "\n\n",
    "# only a comment",
    "model = \"m\" # mine\n",
    "model = \"m\"\r\n\r\n[mcp_servers.other]\r\ncommand = \"x\"\r\nargs = [\r\n  \"a\", # why\r\n]\r\n",
    "[mcp_servers]\n\n[mcp_servers.other]\ncommand = 'x'\n\n\n# foot\n",
    "mcp_servers.other.command = \"x\"\n[projects.\"/a b\"]\ntrust_level = \"trusted\"",
    "[mcp_servers]\nother = { command = \"x\" }\n\t[[list]]\n\tn = 1\n",
];

/// Both scopes go the same way, so a project gets only the worst.
pub(super) fn files_for(kind: Kind, scope: &str) -> Vec<String> {
    let all = all_files_for(kind);
    let first = if scope == "--project" { all.len() - 3 } else { 0 };
    all[first..].to_vec()
}

fn all_files_for(kind: Kind) -> Vec<String> {
    let fill = |key: &str, within: &str| FILES.map(|file| file.replace("KEY", key).replace("IN", within)).to_vec();
    match kind {
        Table => TABLES.map(str::to_owned).to_vec(),
        Servers(key) => fill(key, r#""other": { "command": "x", "args": [] }"#),
        Hooks => {
            let other = r#"{"matcher": "", "hooks": [{"type": "command", "command": "one"}, {"type": "command", "command": "two"}]}"#;
            [fill("hooks", &format!(r#""Stop": [{other}, {other}]"#)), fill("hooks", "\"Stop\": []")].concat()
        }
    }
}
