//! Servers as they are configured: the `mcpServers` that other clients of MCP have too.
//!
//! What is written is only looked at here. The `${NAME}` in it are filled in when a server is started, so that one name that is
//! not there takes one server away, and not all of them.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde_json::Value;

const SERVERS_MAX: usize = 32;
const NAME_CHARS_MAX: usize = 32;

/// One server: where it is, and what it is given.
#[derive(Clone, PartialEq)]
pub struct Server {
    pub(super) place: Place,
    pub(super) is_disabled: bool,
}

#[derive(Clone, PartialEq)]
pub(super) enum Place {
    /// A process of ours, spoken to over its standard input and output.
    Process { command: String, args: Vec<String>, env: BTreeMap<String, String>, cwd: Option<String> },
    /// Reached over streamable HTTP.
    Url { url: String, headers: BTreeMap<String, String> },
}

/// Values are left out: they may be secrets.
impl fmt::Debug for Server {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("Server");
        match &self.place {
            Place::Process { command, env, .. } => shown.field("command", command).field("env", &env.keys()),
            Place::Url { headers, .. } => shown.field("headers", &headers.keys()),
        };
        shown.field("disabled", &self.is_disabled).finish_non_exhaustive()
    }
}

/// A server as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(rename = "type")]
    kind: Option<Kind>,
    command: Option<String>,
    args: Option<Vec<String>>,
    env: Option<BTreeMap<String, String>>,
    cwd: Option<String>,
    url: Option<String>,
    headers: Option<BTreeMap<String, String>>,
    #[serde(default)]
    disabled: bool,
}

#[derive(Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Stdio,
    #[serde(alias = "streamable-http")]
    Http,
}

/// The servers that `value` names: an object from a name to a command or an address. An error says which one cannot be used.
pub fn parse_servers(value: &Value) -> Result<BTreeMap<String, Server>, String> {
    let Some(written) = value.as_object() else {
        return Err("mcpServers is not an object of servers by name".to_owned());
    };
    if written.len() > SERVERS_MAX {
        return Err(format!("mcpServers has {} servers, and {SERVERS_MAX} is the most", written.len()));
    }
    let parse = |(name, value): (&String, &Value)| {
        if !is_name(name) {
            return Err(format!(
                "`{name}` is no name of an MCP server: letters, digits, `_` and `-`, at most {NAME_CHARS_MAX}"
            ));
        }
        let server = Written::deserialize(value).map_err(|error| error.to_string()).and_then(Written::check);
        Ok((name.clone(), server.map_err(|why| format!("MCP server `{name}`: {why}"))?))
    };
    written.iter().map(parse).collect()
}

fn is_name(name: &str) -> bool {
    (1..=NAME_CHARS_MAX).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
}

impl Written {
    fn check(self) -> Result<Server, String> {
        let is_disabled = self.disabled;
        let place = match (self.command, self.url) {
            (Some(_), Some(_)) => return Err("has both `command` and `url`, and needs one of them".to_owned()),
            (None, None) => return Err("has neither `command` nor `url`".to_owned()),
            (Some(command), None) => {
                refuse("command", &[("headers", self.headers.is_some()), ("type", self.kind == Some(Kind::Http))])?;
                let (args, env) = (self.args.unwrap_or_default(), self.env.unwrap_or_default());
                Place::Process { command, args, env, cwd: self.cwd }
            }
            (None, Some(url)) => {
                let of_processes = [
                    ("args", self.args.is_some()),
                    ("env", self.env.is_some()),
                    ("cwd", self.cwd.is_some()),
                    ("type", self.kind == Some(Kind::Stdio)),
                ];
                refuse("url", &of_processes)?;
                Place::Url { url, headers: self.headers.unwrap_or_default() }
            }
        };
        let (field, text) = match &place {
            Place::Process { command, .. } => ("command", command),
            Place::Url { url, .. } => ("url", url),
        };
        if text.trim().is_empty() {
            return Err(format!("`{field}` is empty"));
        }
        Ok(Server { place, is_disabled })
    }
}

/// Fails with the first of `fields` that is there.
fn refuse(beside: &str, fields: &[(&str, bool)]) -> Result<(), String> {
    match fields.iter().find(|(_, is_there)| *is_there) {
        Some((field, _)) => Err(format!("`{field}` does not go with `{beside}`")),
        None => Ok(()),
    }
}

/// `text` with what `environment` has for every `${NAME}` in it.
pub(super) fn fill_in(text: &str, environment: &dyn Fn(&str) -> Option<String>) -> Result<String, String> {
    let mut filled = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${")
        && let Some((name, after)) = after.split_once('}')
    {
        let value = environment(name).ok_or_else(|| format!("the environment has no `{name}`"))?;
        filled = filled + before + &value;
        rest = after;
    }
    Ok(filled + rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Result<&str, &str>) {
        let environment = |name: &str| match name {
            "A" => Some("one".to_owned()),
            "B" => Some("${A}".to_owned()),
            _ => None,
        };
        let filled = fill_in(text, &environment);
        assert_eq!(filled.as_deref().map_err(String::as_str), expected, "{text}");
    }

    #[test]
    fn names_are_filled_in_once() {
        check("", Ok(""));
        check("plain $A {A}", Ok("plain $A {A}"));
        check("${A}", Ok("one"));
        check("Bearer ${A}-${A}!", Ok("Bearer one-one!"));
        check("${B}", Ok("${A}"));
        check("${A} ${B", Ok("one ${B"));
        check("${C}", Err("the environment has no `C`"));
        check("${}", Err("the environment has no ``"));
    }
}
