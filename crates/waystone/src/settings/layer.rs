//! The layers that settings come from, and how they are put on top of each other.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::path::Path;

use anyhow::{Context, bail, ensure};
use serde_json::{Map, Value, json};
use waystone_connect::mcp::parse_servers;
use waystone_core::api::ContextRule;
use waystone_core::json::parse_strict;
use waystone_core::secret::{Rule, parse_rules};
use zeroize::Zeroizing;

use super::{DATA_DIR, Kind, NEW_PASSPHRASE, PASSPHRASE, SCHEMA, SETTINGS, Setting, provider};

/// A file over this size is not a configuration.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Who acts, on one platform or another.
const USER: [&str; 2] = ["USER", "USERNAME"];

/// A value from a flag or a variable.
pub(super) fn parse(setting: &Setting, text: &str) -> Result<Value, String> {
    let value = match setting.kind {
        Kind::Text | Kind::OneOf(_) | Kind::Loopback => json!(text),
        Kind::Number(..) => json!(text.parse::<u64>().map_err(|_| format!("`{text}` is not a whole number"))?),
        Kind::Rules | Kind::Servers | Kind::Models | Kind::ModelLimits => parse_strict(text.as_bytes())?,
        Kind::Switch => match text {
            "true" | "1" | "enabled" => json!(true),
            "false" | "0" | "disabled" => json!(false),
            _ => return Err(format!("`{text}` is neither true nor false")),
        },
        Kind::Origins | Kind::Names => text.split(',').map(str::trim).filter(|part| !part.is_empty()).collect(),
    };
    check(setting, &value)?;
    Ok(value)
}

fn check(setting: &Setting, value: &Value) -> Result<(), String> {
    match setting.kind {
        Kind::Text if value.is_string() => Ok(()),
        Kind::Text => Err(format!("{value} is not a text")),
        Kind::Number(min, max) if value.as_u64().is_some_and(|number| (min..=max).contains(&number)) => Ok(()),
        Kind::Number(min, max) => Err(format!("{value} is not a whole number from {min} to {max}")),
        Kind::Origins => {
            let origins = value.as_array().ok_or_else(|| format!("{value} is not a list"))?;
            match origins.iter().find(|origin| !origin.as_str().is_some_and(is_origin)) {
                Some(wrong) => {
                    Err(format!("{wrong} is not an origin as browsers send it, such as https://app.example:8443"))
                }
                None => Ok(()),
            }
        }
        Kind::Names => {
            let names = value.as_array().ok_or_else(|| format!("{value} is not a list"))?;
            match names.iter().find(|name| !name.as_str().is_some_and(is_name)) {
                Some(wrong) => Err(format!("{wrong} is not the name of a tool, nor its beginning and a *")),
                None => Ok(()),
            }
        }
        Kind::OneOf(choices) if value.as_str().is_some_and(|text| choices.contains(&text)) => Ok(()),
        Kind::OneOf(choices) => Err(format!("{value} is not one of {}", choices.join(", "))),
        Kind::Rules => {
            let rules: Vec<ContextRule> = serde_json::from_value(value.clone()).map_err(|error| error.to_string())?;
            ContextRule::check_all(&rules)
        }
        Kind::Servers => parse_servers(value).map(drop),
        Kind::Models => provider::check_models(value),
        Kind::ModelLimits => provider::check_limits(value),
        Kind::Switch if value.is_boolean() => Ok(()),
        Kind::Switch => Err(format!("{value} is neither true nor false")),
        Kind::Loopback => check_loopback(value.as_str().ok_or_else(|| format!("{value} is not a text"))?),
    }
}

fn is_name(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    !text.is_empty() && text.strip_suffix('*').unwrap_or(text).bytes().all(is_allowed)
}

fn check_loopback(text: &str) -> Result<(), String> {
    match text.parse::<IpAddr>() {
        Ok(address) if address.is_loopback() => Ok(()),
        Ok(address) => Err(format!(
            "{address} can be reached from other machines, and there are no API keys yet; leave it at 127.0.0.1, and reach it from elsewhere through a tunnel, such as `ssh -L 3000:127.0.0.1:3000 THIS_MACHINE`"
        )),
        Err(_) => Err(format!("`{text}` is not an address, such as 127.0.0.1")),
    }
}

/// `scheme://host` or `scheme://host:port`, and no more: an `Origin` header is compared with it letter by letter.
fn is_origin(text: &str) -> bool {
    let Some((scheme, authority)) = text.split_once("://") else { return false };
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (authority, None),
    };
    let all = |text: &str, marks: &[u8]| {
        let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || marks.contains(&byte);
        !text.is_empty() && text.bytes().all(is_allowed)
    };
    let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let is_host = address.map_or_else(|| all(host, b"-._"), |address| address.parse::<Ipv6Addr>().is_ok());
    let is_port = |port: &str| port.parse::<u16>().is_ok_and(|number| number.to_string() == port);
    all(scheme, b"+-.") && is_host && port.is_none_or(is_port)
}

/// The variables that are ours.
pub(super) struct Variables(BTreeMap<String, String>);

/// Values from variables, and the variable of each.
pub(super) struct Environment {
    pub(super) values: Map<String, Value>,
    pub(super) names: BTreeMap<String, String>,
}

impl Variables {
    pub(super) fn read() -> anyhow::Result<Self> {
        let mut ours = BTreeMap::new();
        for (name, value) in std::env::vars_os() {
            let Ok(name) = name.into_string() else { continue };
            let is_user = USER.contains(&name.as_str());
            let is_provider = provider::VARIABLES.contains(&name.as_str());
            if !is_user && !is_provider && !["WAYSTONE_", "WORKRAIL_"].iter().any(|prefix| name.starts_with(prefix)) {
                continue;
            }
            match value.into_string() {
                Ok(value) if value.is_empty() => {}
                Ok(value) => drop(ours.insert(name, value)),
                Err(value) if is_user => drop(ours.insert(name, value.to_string_lossy().into_owned())),
                Err(_) => bail!("{name} is not text"),
            }
        }
        Ok(Self(ours))
    }

    pub(super) fn settings(&self) -> anyhow::Result<Environment> {
        let mut environment = Environment { values: Map::new(), names: BTreeMap::new() };
        for setting in &SETTINGS {
            let names = [setting.variable].into_iter().chain(setting.aliases.iter().copied());
            if let Some((name, text)) = names.filter_map(|name| Some((name, self.0.get(name)?))).next() {
                let value = parse(setting, text).map_err(|error| anyhow::anyhow!("{name}: {error}"))?;
                environment.values.insert(setting.key.to_owned(), value);
                environment.names.insert(setting.key.to_owned(), name.to_owned());
            }
        }
        Ok(environment)
    }

    /// A word on each variable that looks like ours and is not.
    pub(super) fn unknown(&self) -> Vec<String> {
        let known = SETTINGS.iter().map(|setting| setting.variable).chain([PASSPHRASE, NEW_PASSPHRASE]);
        let known: Vec<&str> = known.collect();
        let unknown = self.0.keys().filter(|name| name.starts_with("WAYSTONE_") && !known.contains(&name.as_str()));
        unknown
            .map(|name| format!("{name} is not a variable of ours; did you mean {}?", nearest(name, &known)))
            .collect()
    }

    pub(super) fn secret(&self, name: &str) -> Option<Zeroizing<String>> {
        self.0.get(name).cloned().map(Zeroizing::new)
    }

    pub(super) fn user(&self) -> String {
        USER.iter().find_map(|name| self.0.get(*name)).cloned().unwrap_or_else(|| "user".to_owned())
    }
}

/// The rules for secrets that a user has written; none without a file.
pub(super) fn read_secret_rules(path: &Path) -> anyhow::Result<Vec<Rule>> {
    let Some(text) = read_file(path)? else { return Ok(Vec::new()) };
    parse_rules(&text).map_err(|error| anyhow::anyhow!("{}: {error}", path.display()))
}

fn read_file(path: &Path) -> anyhow::Result<Option<Vec<u8>>> {
    let shown = path.display();
    // A link may have been put there by someone else.
    match path.symlink_metadata() {
        // There is none, or the directory cannot be entered, which is for the store to say.
        Err(_) => return Ok(None),
        // A pipe would be waited for.
        Ok(metadata) if !metadata.is_file() => bail!("{shown} is not a file"),
        Ok(metadata) => ensure!(metadata.len() <= FILE_BYTES_MAX, "{shown} is too large for a configuration"),
    }
    std::fs::read(path).map(Some).with_context(|| format!("cannot read {shown}"))
}

/// Layers put on top of each other.
pub(super) struct Merged {
    pub(super) values: Map<String, Value>,
    pub(super) origins: BTreeMap<String, String>,
}

impl Merged {
    pub(super) fn defaults() -> Self {
        let values = SETTINGS.iter().map(|setting| (setting.key.to_owned(), (setting.default)())).collect();
        Self { values, origins: BTreeMap::new() }
    }

    pub(super) fn add_file(&mut self, path: &Path) -> anyhow::Result<()> {
        let Some(text) = read_file(path)? else { return Ok(()) };
        let shown = path.display();
        let Value::Object(file) = parse_strict(&text).map_err(|error| anyhow::anyhow!("{shown}: {error}"))? else {
            bail!("{shown}: a configuration is a JSON object");
        };
        let known: Vec<&str> =
            SETTINGS.iter().filter(|setting| setting.is_in_file()).map(|setting| setting.key).collect();
        let mut values = Map::new();
        for (key, value) in file.into_iter().filter(|(key, _)| key != SCHEMA) {
            ensure!(
                key != DATA_DIR,
                "{shown}: `{DATA_DIR}` is set with --data-dir or WAYSTONE_DATA_DIR only: this file is in it"
            );
            let setting = SETTINGS.iter().find(|setting| setting.key == key && setting.is_in_file());
            let Some(setting) = setting else {
                bail!(
                    "{shown}: there is no setting `{}`; did you mean `{}`?",
                    key.escape_debug(),
                    nearest(&key, &known)
                );
            };
            check(setting, &value).map_err(|error| anyhow::anyhow!("{shown}: {key}: {error}"))?;
            values.insert(key, value);
        }
        self.origins.extend(values.keys().map(|key| (key.clone(), shown.to_string())));
        self.values.extend(values);
        Ok(())
    }

    pub(super) fn add(&mut self, values: Map<String, Value>, origins: &BTreeMap<String, String>) {
        self.values.extend(values);
        self.origins.extend(origins.clone());
    }

    pub(super) fn add_flags(&mut self, flags: &Map<String, Value>) {
        for setting in SETTINGS.iter().filter(|setting| flags.contains_key(setting.key)) {
            self.values.insert(setting.key.to_owned(), flags[setting.key].clone());
            self.origins.insert(setting.key.to_owned(), format!("--{}", setting.flag()));
        }
    }
}

/// The known name that is most like `name`.
fn nearest<'a>(name: &str, known: &[&'a str]) -> &'a str {
    let likeness =
        |candidate: &&&str| (strsim::jaro_winkler(&name.to_lowercase(), &candidate.to_lowercase()) * 1e6) as u64;
    known.iter().max_by_key(likeness).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use waystone_testkit::contexts::Random;

    use super::*;

    #[test]
    fn an_origin_is_what_a_browser_sends() {
        for good in [
            "https://app.example",
            "http://localhost:5173",
            "http://127.0.0.1:80",
            "http://[::1]",
            "http://[::1]:3000",
            "chrome-extension://abcdef",
        ] {
            assert!(is_origin(good), "{good}");
        }
        for bad in [
            "",
            "*",
            "null",
            "app.example",
            "file://",
            "https://",
            "https://*",
            "https://*.example",
            "https://app.example/",
            "https://app.example/path",
            "https://app.example?x",
            "https://user@app.example",
            "https://App.example",
            "HTTPS://app.example",
            "https://app.example:",
            "https://app.example:70000",
            "https://app.example:+80",
            "https://app.example:80:80",
            "https://[app.example]",
            " https://app.example",
        ] {
            assert!(!is_origin(bad), "{bad}");
        }
    }

    #[test]
    fn a_spoilt_file_is_taken_whole_or_refused() {
        let directory = waystone_testkit::harness::private_dir();
        let path = directory.path().join("config.json");
        let good = r#"{"maxCheckpoints":7,"port":4000,"allowedOrigins":["https://a.example"],"logLevel":"warn"}"#;
        let mut random = Random::new(3);
        let mut taken = 0;
        for _ in 0..2_000 {
            let mut bytes = good.as_bytes().to_vec();
            for _ in 0..=random.below(2) {
                let at = random.below(bytes.len() as u64) as usize;
                bytes[at] = random.below(128) as u8;
            }
            std::fs::write(&path, &bytes).unwrap();
            let (mut merged, mut expected) = (Merged::defaults(), Merged::defaults().values);
            if merged.add_file(&path).is_ok() {
                taken += 1;
                expected.extend(serde_json::from_slice::<Map<String, Value>>(&bytes).unwrap());
            }
            assert_eq!(merged.values, expected, "{}", String::from_utf8_lossy(&bytes));
        }
        assert!((1..2_000).contains(&taken), "{taken}");
    }
}
