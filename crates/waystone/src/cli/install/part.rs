//! What of ours stands in a file of a client: found, added and removed, with everything else left as it is.

use serde_json::{Map, Value, json};

use super::{hook, json, table};

/// The name of our server in every client.
pub(super) const NAME: &str = "waystone";

/// Some editors begin files with it, and parsers do not know it.
const MARK: char = '\u{feff}';

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Part {
    /// The server in JSON, in the object of this name.
    Server(&'static str),
    /// The server in TOML.
    Table,
    /// The hooks in JSON.
    Hooks,
}

/// What is installed: the program, and the settings that say where what is kept is, and how it is opened.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) path: String,
    pub(super) passed: Vec<Passed>,
}

/// A setting that was given, as a client passes it on.
#[derive(Debug)]
pub(super) struct Passed {
    pub(super) variable: &'static str,
    pub(super) flag: String,
    /// Nothing for a switch, which is on.
    pub(super) value: Option<String>,
}

impl Program {
    /// What is set in the environment of the server that a client starts.
    pub(super) fn variables(&self) -> Map<String, Value> {
        let variable =
            |passed: &Passed| (passed.variable.to_owned(), json!(passed.value.as_deref().unwrap_or("enabled")));
        self.passed.iter().map(variable).collect()
    }
}

impl Part {
    /// What a file of this kind is to hold.
    pub(super) fn content(self, program: &Program) -> Value {
        let mut server = Map::new();
        match self {
            Self::Hooks => {
                let passed = program.passed.iter().map(|passed| match &passed.value {
                    Some(value) => format!(" --{} {}", passed.flag, hook::quoted(value)),
                    None => format!(" --{}", passed.flag),
                });
                let start = hook::quoted(&program.path) + &passed.collect::<String>();
                let commands = hook::EVENTS.iter();
                return commands
                    .map(|(event, name)| (event.to_string(), json!(format!("{start} hook {name}"))))
                    .collect();
            }
            // Codex takes a server with a command for one that speaks over standard input and output.
            Self::Table => {}
            Self::Server(_) => drop(server.insert("type".to_owned(), json!("stdio"))),
        }
        server.insert("command".to_owned(), json!(program.path));
        server.insert("args".to_owned(), json!(["mcp"]));
        if !program.passed.is_empty() {
            server.insert("env".to_owned(), Value::Object(program.variables()));
        }
        Value::Object(server)
    }

    /// What of ours is in a text.
    pub(super) fn find(self, text: &str) -> Result<Option<Value>, String> {
        let text = text.trim_start_matches(MARK);
        match self {
            Self::Server(key) => {
                let root = json::parse(text)?;
                let Some(servers) = json::object_at(root.as_ref(), &[key])? else { return Ok(None) };
                Ok(json::property(servers, NAME)?.map(json::value_of))
            }
            Self::Table => table::find(text),
            Self::Hooks => hook::find(text),
        }
    }

    /// The text with `content` in it, in place of what of ours was there.
    pub(super) fn add(self, text: &str, content: &Value) -> Result<String, String> {
        after_mark(text, |text| match self {
            Self::Server(key) => json::put(text, &[key, NAME], content),
            Self::Table => table::add(text, content),
            Self::Hooks => hook::add(text, content),
        })
    }

    /// The text without what is ours. What it was alone in goes with it, unless it was there `before` ours came.
    pub(super) fn remove(self, text: &str, before: Option<&str>) -> Result<String, String> {
        let before = before.map(|before| before.trim_start_matches(MARK));
        after_mark(text, |text| match self {
            Self::Server(key) => {
                let is_kept = |way: &[json::Step<'_>]| before.is_some_and(|before| json::has(before, way));
                json::cut(text, &[json::Step::Key(key), json::Step::Key(NAME)], is_kept)
            }
            Self::Table => table::remove(text),
            Self::Hooks => hook::remove(text, before),
        })
    }
}

fn after_mark(text: &str, change: impl FnOnce(&str) -> Result<String, String>) -> Result<String, String> {
    let rest = text.trim_start_matches(MARK);
    Ok(text[..text.len() - rest.len()].to_owned() + &change(rest)?)
}

#[cfg(test)]
mod tests {
    use waystone_testkit::contexts::Random;

    use super::*;

    const GROUP: &str = r#"{"hooks":[{"type":"command","command":"other"}]}"#;

    fn pick<'a>(random: &mut Random, choices: &[&'a str]) -> &'a str {
        choices[random.below(choices.len() as u64) as usize]
    }

    fn trivia(random: &mut Random) -> &'static str {
        pick(random, &["", "", " ", "\n", "\n  ", "\t", "\r\n    ", "/* c */", " // c\n", "\n\n\t// \"}\n\t"])
    }

    /// Children between brackets, with white space, comments and commas wherever they may stand.
    fn container(random: &mut Random, [open, close]: [&str; 2], children: &[String]) -> String {
        let mut text = open.to_owned() + trivia(random);
        for (index, child) in children.iter().enumerate() {
            let is_last = index + 1 == children.len();
            let comma = if is_last { pick(random, &["", ","]) } else { "," };
            text += &[trivia(random), child, trivia(random), comma, trivia(random)].concat();
        }
        text + close
    }

    fn file(random: &mut Random) -> String {
        let mut fields = Vec::new();
        let others = vec![r#""other": {"args": ["mcp"]}"#.to_owned(); random.below(2) as usize];
        let servers = container(random, ["{", "}"], &others);
        let events = ["SessionStart", "Stop"].map(|event| {
            let groups = vec![GROUP.to_owned(); random.below(3) as usize];
            format!("\"{event}\":{}{}", trivia(random), container(random, ["[", "]"], &groups))
        });
        let count = random.below(3) as usize;
        let events = container(random, ["{", "}"], &events[..count]);
        for field in [
            format!("\"mcpServers\"{}:{servers}", trivia(random)),
            format!("\"hooks\":{events}"),
            "\"n\": 1".to_owned(),
        ] {
            if random.below(3) > 0 {
                fields.push(field);
            }
        }
        trivia(random).to_owned() + &container(random, ["{", "}"], &fields) + trivia(random)
    }

    fn holds(text: &str, part: &str) -> bool {
        let mut characters = text.chars();
        part.chars().all(|wanted| characters.any(|c| c == wanted))
    }

    #[test]
    fn whatever_a_file_looks_like_only_what_is_ours_is_added_and_taken_out() {
        let mut random = Random::new(7);
        let program = Program { path: "/bin/waystone".to_owned(), passed: Vec::new() };
        let passed = |variable, flag: &str, value: Option<&str>| Passed {
            variable,
            flag: flag.to_owned(),
            value: value.map(str::to_owned),
        };
        let passed = vec![
            passed("WAYSTONE_DATA_DIR", "data-dir", Some("/d")),
            passed("WAYSTONE_ENCRYPTION", "encryption", None),
        ];
        let other = Program { path: "/other/waystone".to_owned(), passed };
        let value = |text: &str| json::parse(text).unwrap().map(|node| json::value_of(&node));
        for _ in 0..1_000 {
            let text = file(&mut random);
            for part in [Part::Server("mcpServers"), Part::Hooks] {
                let content = part.content(&program);
                let added = part.add(&text, &content).unwrap();
                assert_eq!(part.find(&added), Ok(Some(content.clone())), "{text:?} {added:?}");
                assert!(holds(&added, &text), "{text:?} {added:?}");
                let removed = part.remove(&added, Some(&text)).unwrap();
                assert_eq!(value(&removed), value(&text), "{text:?} {added:?} {removed:?}");
                let comments = |text: &str| (text.matches("/* c */").count(), text.matches("//").count());
                assert_eq!(comments(&removed), comments(&text), "{text:?} {added:?} {removed:?}");
                let replaced = part.add(&part.add(&text, &part.content(&other)).unwrap(), &content);
                assert_eq!(replaced, Ok(added), "{text:?}");
            }
        }
    }

    #[test]
    fn what_is_added_looks_like_the_rest_of_the_file() {
        let check = |before: &str, after: &str| {
            let added = Part::Server("s").add(before, &json!({ "command": "w", "args": ["mcp"] })).unwrap();
            assert_eq!(added, after, "{before:?}");
        };
        check(
            "",
            "{\n  \"s\": {\n    \"waystone\": {\n      \"command\": \"w\",\n      \"args\": [\"mcp\"]\n    }\n  }\n}\n",
        );
        check(
            "{\n\t\"s\": {\n\t\t\"a\": {} // a\n\t}\n}",
            "{\n\t\"s\": {\n\t\t\"a\": {}, // a\n\t\t\"waystone\": {\n\t\t\t\"command\": \"w\",\n\t\t\t\"args\": [\"mcp\"]\n\t\t}\n\t}\n}",
        );
        check("{\"s\":{\"a\":1}}", "{\"s\":{\"a\":1, \"waystone\": {\"command\": \"w\", \"args\": [\"mcp\"]}}}");
    }
    #[test]
    fn comments_around_what_is_taken_out_stay() {
        let check = |before: &str, after: &str| {
            let removed = Part::Server("s").remove(before, None).unwrap();
            assert_eq!(removed, after, "{before:?}");
        };
        check("{\"s\": {\"waystone\": 1}}", "{}");
        check("{\"s\": {\"waystone\": 1,},}", "{}");
        check("{\"s\": {\n  // mine\n  \"waystone\": 1\n}}", "{\"s\": {\n  // mine\n}}");
        check("{\"s\": {\"a\": 1, \"waystone\": 1}}", "{\"s\": {\"a\": 1}}");
        check("{\"s\": {\"waystone\": 1, \"a\": 1}}", "{\"s\": {\"a\": 1}}");
        check("{\"s\": {\"waystone\": 1 /* x */, \"a\": 1}}", "{\"s\": {/* x */ \"a\": 1}}");
        check("{\"s\": {\"a\": 1, // a\n  \"waystone\": 1 }}", "{\"s\": {\"a\": 1 // a\n  }}");
        check("{\"s\": {\"a\": 1, // a\n  \"waystone\": 1, // w\n}}", "{\"s\": {\"a\": 1, // a\n  // w\n}}");
    }
}
