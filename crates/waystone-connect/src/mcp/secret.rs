//! What a server is given, taken out of what it says: its errors end in answers, in conversations and in logs.

use super::Environment;
use super::config::{Place, fill_in};

/// Stands for what is not shown.
pub(super) const HIDDEN: &str = "***";
/// What is shorter is found in ordinary words.
const SECRET_CHARS_MIN: usize = 8;

/// `text` without the values that the server at `place` was given.
pub(super) fn without_given(text: &str, place: &Place, environment: &Environment) -> String {
    let mut given = given(place, environment);
    // One may be a part of another.
    given.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
    given.iter().fold(text.to_owned(), |text, secret| text.replace(secret.as_str(), HIDDEN))
}

fn given(place: &Place, environment: &Environment) -> Vec<String> {
    let fill = |text: &String| fill_in(text, environment).ok();
    let values: Vec<String> = match place {
        // What is written into arguments is no secret to other users of the machine, what the environment has may be.
        Place::Process { args, env, .. } => {
            args.iter().filter(|arg| arg.contains("${")).chain(env.values()).filter_map(fill).collect()
        }
        Place::Url { headers, .. } => headers.values().filter_map(fill).collect(),
    };
    // A header may have a word before its secret. Of paths people must be told.
    let is_path = |word: &str| word.starts_with(['/', '.', '~']);
    let words = values.iter().flat_map(|value| value.split_whitespace());
    words.filter(|word| word.chars().count() >= SECRET_CHARS_MIN && !is_path(word)).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::config::parse_servers;
    use super::*;

    #[test]
    fn what_a_server_was_given_is_not_said() {
        let environment: Environment = Box::new(|name| (name == "TOKEN").then(|| "filled-in-token".to_owned()));
        let written = json!({
            "process": {
                "command": "x",
                "args": ["--plain-argument", "--token=${TOKEN}"],
                "env": { "A": "long-secret", "B": "long-secret-and-more", "C": "short", "D": "/home/me/files", "E": "${GONE}" },
            },
            "web": { "url": "https://example.com", "headers": { "Authorization": "Bearer ${TOKEN}" } },
        });
        let servers = parse_servers(&written).unwrap();
        let check = |name: &str, text: &str, expected: &str| {
            assert_eq!(without_given(text, &servers[name].place, &environment), expected);
        };
        check("process", "no long-secret, no long-secret-and-more", "no ***, no ***");
        check("process", "bad option --token=filled-in-token", "bad option ***");
        check("process", "short /home/me/files --plain-argument", "short /home/me/files --plain-argument");
        check("web", "not for you: Bearer filled-in-token", "not for you: Bearer ***");
    }
}
