//! Settings as people are shown them: what tool servers and models are given in confidence is not said.
//!
//! A reference to the environment (`${NAME}`) is no secret, and is shown.

use serde_json::{Map, Value};
use waystone_core::secret::without_secrets;

use super::Settings;

/// Stands for what is not shown.
const HIDDEN: &str = "***";
/// What the names of options with a secret have in them.
const SECRET_WORDS: [&str; 6] = ["key", "token", "secret", "pass", "auth", "credential"];

impl Settings {
    /// Every value by key, without secrets.
    pub(crate) fn shown(&self) -> Map<String, Value> {
        let mut shown = self.values.clone();
        for server in fields(shown.get_mut("mcpServers")) {
            hide_in_server(server);
        }
        for model in fields(shown.get_mut("models")) {
            hide_in(model.get_mut("base_url"), hide_in_url);
        }
        shown
    }
}

/// What stands in the fields of an object.
fn fields(value: Option<&mut Value>) -> impl Iterator<Item = &mut Value> {
    value.and_then(Value::as_object_mut).into_iter().flat_map(|object| object.values_mut())
}

fn hide_in_server(server: &mut Value) {
    for value in fields(server.get_mut("env")) {
        hide_in(Some(value), hide);
    }
    for value in fields(server.get_mut("headers")) {
        hide_in(Some(value), hide);
    }
    hide_in(server.get_mut("url"), hide_in_url);
    let mut is_secret_next = false;
    for argument in server.get_mut("args").and_then(Value::as_array_mut).into_iter().flatten() {
        let Value::String(text) = argument else { continue };
        let is_secret = std::mem::replace(&mut is_secret_next, is_secret_option(text) && !text.contains('='));
        *text = if is_secret { hide(text) } else { hide_in_argument(text) };
    }
}

fn hide_in(value: Option<&mut Value>, hide: impl Fn(&str) -> String) {
    if let Some(Value::String(text)) = value {
        *text = hide(text);
    }
}

fn hide(text: &str) -> String {
    let is_reference = text.starts_with("${") && text.find('}') == Some(text.len() - 1);
    if is_reference { text.to_owned() } else { HIDDEN.to_owned() }
}

fn is_secret_option(argument: &str) -> bool {
    let name = argument.split('=').next().unwrap_or_default().to_lowercase();
    name.starts_with('-') && SECRET_WORDS.iter().any(|word| name.contains(word))
}

fn hide_in_argument(argument: &str) -> String {
    match argument.split_once('=') {
        Some((name, value)) if is_secret_option(argument) => format!("{name}={}", hide(value)),
        _ if argument.contains("://") => hide_in_url(argument),
        _ => without_secrets(argument),
    }
}

/// Who it is for and what is asked may be secrets, and what else looks like one.
fn hide_in_url(url: &str) -> String {
    let (address, query) = url.split_once('?').map_or((url, None), |(address, query)| (address, Some(query)));
    let (scheme, rest) = address.split_once("://").unwrap_or(("", address));
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let authority = match authority.rsplit_once('@') {
        Some((_, host)) => format!("{HIDDEN}@{host}"),
        None => authority.to_owned(),
    };
    let scheme = if address.contains("://") { format!("{scheme}://") } else { String::new() };
    let query = query.map(|query| format!("?{}", query.split('&').map(hide_in_pair).collect::<Vec<_>>().join("&")));
    format!("{scheme}{authority}{}{}", without_secrets(path), query.unwrap_or_default())
}

fn hide_in_pair(pair: &str) -> String {
    match pair.split_once('=') {
        Some((name, value)) => format!("{name}={}", hide(value)),
        None => hide(pair),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn addresses_are_shown_without_who_they_are_for_and_what_is_asked() {
        let check = |url: &str, expected: &str| assert_eq!(hide_in_url(url), expected);
        check("https://example.com/mcp", "https://example.com/mcp");
        check("http://127.0.0.1:8080", "http://127.0.0.1:8080");
        check("https://me:word@example.com:1/mcp", "https://***@example.com:1/mcp");
        check("https://me@example.com", "https://***@example.com");
        check("https://a:b@c@example.com/x@y", "https://***@example.com/x@y");
        check("https://example.com/mcp?key=abc&mode=x&abc#d", "https://example.com/mcp?key=***&mode=***&***");
        check("https://example.com?key=${KEY}", "https://example.com?key=${KEY}");
        check("${ADDRESS}", "${ADDRESS}");
        check("me:word@example.com", "***@example.com");
    }

    #[test]
    fn what_a_server_is_given_is_not_shown() {
        let mut server = json!({
            "command": "run",
            "args": ["-y", "--token", "abc", "--api-key=abc", "--api-key=${KEY}", "--keys", "${KEYS}", "/srv", "a=b", "postgres://me:word@db/x"],
            "env": { "TOKEN": "abc", "OTHER": "${OTHER}", "BOTH": "${A}${B}" },
            "headers": { "Authorization": "Bearer abc" },
        });
        hide_in_server(&mut server);
        let expected = json!({
            "command": "run",
            "args": ["-y", "--token", "***", "--api-key=***", "--api-key=${KEY}", "--keys", "${KEYS}", "/srv", "a=b", "postgres://***@db/x"],
            "env": { "TOKEN": "***", "OTHER": "${OTHER}", "BOTH": "***" },
            "headers": { "Authorization": "***" },
        });
        assert_eq!(server, expected);
    }
}
