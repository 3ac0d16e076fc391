//! Our hooks in a file of hooks, which Claude Code and Codex write alike: a list of groups for each event, and in each group
//! a list of commands.

use jsonc_parser::ast::{Object, Value as Node};
use serde_json::{Map, Value, json};

use super::json::{self, Step};

/// Which events we hook into, and the command of ours that each runs.
pub(super) const EVENTS: [(&str, &str); 3] =
    [("SessionStart", "session-start"), ("PreCompact", "pre-compact"), ("Stop", "stop")];

/// Our commands by event. An event with more than one has them all, in a list.
pub(super) fn find(text: &str) -> Result<Option<Value>, String> {
    let mut found = Map::new();
    for (event, name) in EVENTS {
        let mut commands: Vec<Value> = ours(text, event, name)?.into_iter().map(|our| our.command.into()).collect();
        let value = if commands.len() == 1 { commands.remove(0) } else { Value::from(commands) };
        if value != json!([]) {
            found.insert(event.to_owned(), value);
        }
    }
    Ok((!found.is_empty()).then_some(Value::Object(found)))
}

/// Adds commands by event; one of ours that is there already is replaced where it stands.
pub(super) fn add(text: &str, commands: &Value) -> Result<String, String> {
    let mut text = text.to_owned();
    for (event, name) in EVENTS {
        let Some(command) = commands[event].as_str() else { continue };
        let old = ours(&text, event, name)?;
        if let [our] = &old[..] {
            text = json::set_text(&text, &our.way(event, "command"), command)?;
            continue;
        }
        if !old.is_empty() {
            text = remove_event(&text, event, name, Some(&text))?;
        }
        let group = json!({ "hooks": [{ "type": "command", "command": command }] });
        text = json::push(&text, &["hooks", event], &group)?;
    }
    Ok(text)
}

/// Takes our commands out, and lists and objects that they were alone in, unless those are in `before`.
pub(super) fn remove(text: &str, before: Option<&str>) -> Result<String, String> {
    EVENTS.iter().try_fold(text.to_owned(), |text, (event, name)| remove_event(&text, event, name, before))
}

fn remove_event(text: &str, event: &str, name: &str, before: Option<&str>) -> Result<String, String> {
    let mut text = text.to_owned();
    while let Some(our) = ours(&text, event, name)?.pop() {
        // A group that is left without commands does nothing, so it never stays.
        let is_kept = |way: &[Step<'_>]| {
            !way.iter().any(|step| matches!(step, Step::Index(_)))
                && before.is_some_and(|before| json::has(before, way))
        };
        let way = our.way(event, "command");
        text = json::cut(&text, &way[..if our.is_alone { 3 } else { 5 }], is_kept)?;
    }
    Ok(text)
}

/// A command of ours, by its group and its place in the group.
#[derive(Debug)]
struct Ours {
    group: usize,
    index: usize,
    /// It is the only command of its group.
    is_alone: bool,
    command: String,
}

impl Ours {
    fn way<'a>(&self, event: &'a str, field: &'a str) -> [Step<'a>; 6] {
        use Step::{Index, Key};
        [Key("hooks"), Key(event), Index(self.group), Key("hooks"), Index(self.index), Key(field)]
    }
}

fn ours(text: &str, event: &str, name: &str) -> Result<Vec<Ours>, String> {
    let root = json::parse(text)?;
    let Some(groups) = json::list_at(root.as_ref(), &["hooks", event])? else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for (group, node) in groups.elements.iter().enumerate() {
        let hooks = node.as_object().map(|node| json::property(node, "hooks")).transpose()?.flatten();
        let hooks = hooks.and_then(Node::as_array).map_or(&[][..], |hooks| &hooks.elements);
        for (index, hook) in hooks.iter().enumerate() {
            let command = hook.as_object().and_then(command_of);
            let command = command.filter(|command| is_ours(command, name));
            found.extend(command.map(|command| Ours { group, index, is_alone: hooks.len() == 1, command }));
        }
    }
    Ok(found)
}

fn command_of(hook: &Object<'_>) -> Option<String> {
    let command = json::property(hook, "command").ok()??;
    Some(command.as_string_lit()?.value.to_string())
}

/// Whether a command runs a program of our name as the hook `name`, wherever the program is.
fn is_ours(command: &str, name: &str) -> bool {
    let program = command.strip_suffix(name).and_then(|rest| rest.strip_suffix(" hook "));
    program.is_some_and(|program| has_our_name(&first_word(program)))
}

/// Whether a path leads to a program of our name.
pub(super) fn has_our_name(program: &str) -> bool {
    program.rsplit(['/', '\\']).next().is_some_and(|file| file.starts_with("waystone"))
}

/// A path as a word of a shell, as Windows or others read it.
pub(super) fn quoted(path: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+:@,=".contains(c);
    if path.chars().all(is_plain) {
        return path.to_owned();
    }
    let escaped = path.chars().fold(String::new(), |mut escaped, c| {
        if !cfg!(windows) && "\"\\$`".contains(c) {
            escaped.push('\\');
        }
        escaped.push(c);
        escaped
    });
    format!("\"{escaped}\"")
}

/// The first word of what [`quoted`] wrote.
fn first_word(command: &str) -> String {
    let Some(rest) = command.strip_prefix('"') else {
        return command.split(' ').next().unwrap_or_default().to_owned();
    };
    let mut word = String::new();
    let mut characters = rest.chars();
    while let Some(c) = characters.next() {
        match c {
            '"' => break,
            '\\' if !cfg!(windows) => word.extend(characters.next()),
            c => word.push(c),
        }
    }
    word
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn a_shell_reads_a_quoted_path_as_it_was() {
        for path in ["/usr/bin/waystone", "/a b/c", "/a $HOME `id` \"x\" \\ 'y' !z * ~ & ; | #", "/ä/ö"] {
            let script = format!("printf %s {}", quoted(path));
            let output = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), path);
        }
        assert_eq!((quoted("/a/b-1.2"), quoted("/a b")), ("/a/b-1.2".to_owned(), "\"/a b\"".to_owned()));
    }

    #[test]
    fn a_hook_is_ours_by_the_name_of_its_program() {
        for path in
            ["/usr/bin/waystone", "/a b/waystone", "/a $b`c\"d\\e/waystone", "/opt/waystone-0.2/bin/waystone-0.2"]
        {
            assert!(is_ours(&format!("{} hook stop", quoted(path)), "stop"), "{path}");
            assert!(is_ours(&format!("{} --data-dir \"/d d\" hook stop", quoted(path)), "stop"), "{path}");
        }
        for other in [
            "/usr/bin/waystone hook stop --now",
            "/usr/bin/waystone hook session-start",
            "/home/waystone/bin/other hook stop",
            "other /usr/bin/waystone hook stop",
            "waystone",
            "",
        ] {
            assert!(!is_ours(other, "stop"), "{other}");
        }
    }
}
