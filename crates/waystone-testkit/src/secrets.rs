//! Planted secrets, and what only looks like one. Every text is put together at run time from a seed, so that no file of ours has anything
//! that another scanner would report.

mod near_miss;

use serde_json::{Value, json};

use crate::contexts::Random;

pub use near_miss::near_misses;

const UPPER: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
const LOWER: &str = "abcdefghijklmnopqrstuvwxyz";
const DIGITS: &str = "0123456789";
const HEX: &str = "0123456789abcdef";
const PER_SHAPE: u64 = 4;

/// A secret in a text or a context, and the rule that should find it.
#[derive(Debug, Clone)]
pub struct Planted {
    pub rule: &'static str,
    pub shape: &'static str,
    pub value: Value,
    pub secret: String,
}

impl Planted {
    /// Whether the secret is still there, as it is or escaped once more.
    pub fn is_in(&self, value: &Value) -> bool {
        let escape = |text: &str| json!(text).to_string().trim_matches('"').to_owned();
        let (once, text) = (escape(&self.secret), value.to_string());
        text.contains(&once) || text.contains(&escape(&once))
    }
}

/// How a secret of some kind is made.
type Make = fn(&mut Random) -> String;
/// How a secret is written down, by its name and itself.
type Write = fn(&mut Random, &str, &str) -> Value;

/// Kinds that are known by themselves, wherever they stand.
const KINDS: &[(&str, &str, Make)] = &[
    ("aws-access-key", "AWS_ACCESS_KEY_ID", |r| join(&["AK", "IA", &pick(r, &[UPPER, "234567"], 16)])),
    ("aws-access-key", "aws_access_key_id", |r| join(&["AS", "IA", &pick(r, &[UPPER, "234567"], 16)])),
    ("github-token", "GITHUB_TOKEN", |r| join(&["gh", "p_", &alnum(r, 36)])),
    ("github-token", "GH_TOKEN", |r| join(&["gh", "s_", &alnum(r, 36)])),
    ("github-token", "githubToken", |r| join(&["github", "_pat_", &alnum(r, 22), "_", &alnum(r, 59)])),
    ("gitlab-token", "GITLAB_TOKEN", |r| join(&["gl", "pat-", &alnum(r, 20)])),
    ("slack-token", "SLACK_BOT_TOKEN", |r| {
        join(&["xo", "xb-", &pick(r, &[DIGITS], 12), "-", &pick(r, &[DIGITS], 13), "-", &alnum(r, 24)])
    }),
    ("slack-token", "slack_user", |r| join(&["xo", "xp-", &pick(r, &[DIGITS], 12), "-", &pick(r, &[HEX], 32)])),
    ("slack-webhook", "SLACK_URL", |r| {
        let part = |r: &mut Random, first: &str, n| join(&[first, &pick(r, &[UPPER, DIGITS], n)]);
        let (team, bot) = (part(r, "T", 8), part(r, "B", 10));
        join(&["https://hooks.", "slack.com/ser", "vices/", &team, "/", &bot, "/", &alnum(r, 24)])
    }),
    ("openai-key", "OPENAI_API_KEY", |r| join(&["sk", "-", &alnum(r, 20), "T3Blbk", "FJ", &alnum(r, 20)])),
    ("openai-key", "openaiKey", |r| join(&["sk", "-proj-", &pick(r, &[UPPER, LOWER, DIGITS, "_-"], 110), "A"])),
    ("anthropic-key", "ANTHROPIC_API_KEY", |r| {
        join(&["sk", "-ant-", "api03-", &pick(r, &[UPPER, LOWER, DIGITS, "_-"], 93), "AA"])
    }),
    ("google-key", "GOOGLE_API_KEY", |r| join(&["AI", "za", "Sy", &pick(r, &[UPPER, LOWER, DIGITS, "_-"], 33)])),
    ("google-key", "client", |r| join(&["GOC", "SPX-", &pick(r, &[UPPER, LOWER, DIGITS, "_-"], 28)])),
    ("stripe-key", "STRIPE_SECRET_KEY", |r| join(&["sk", "_live_", &alnum(r, 24)])),
    ("stripe-key", "stripe", |r| join(&["rk", "_test_", &alnum(r, 99)])),
    ("service-token", "NPM_TOKEN", |r| join(&["np", "m_", &alnum(r, 36)])),
    ("service-token", "HF", |r| join(&["h", "f_", &pick(r, &[UPPER, LOWER], 34)])),
    ("service-token", "SENDGRID", |r| join(&["S", "G.", &alnum(r, 22), ".", &alnum(r, 43)])),
    ("jwt", "session", |r| {
        let part = |r: &mut Random, n| pick(r, &[UPPER, LOWER, DIGITS, "_-"], n);
        let (head, body, sign) = (part(r, 30), part(r, 90), part(r, 43));
        join(&["ey", "J", &head, ".ey", "J", &body, ".", &sign])
    }),
    ("private-key", "deploy", |r| pem(r, "RSA ", 26)),
    ("private-key", "id_ed25519", |r| pem(r, "OPENSSH ", 5)),
    ("private-key", "tls", |r| pem(r, "", 3)),
];

/// Kinds that are known by what they are assigned to.
const ASSIGNED: &[(&str, &[&str], Make)] = &[
    ("aws-secret-key", &["AWS_SECRET_ACCESS_KEY", "aws_secret_access_key", "secretAccessKey"], |r| {
        pick(r, &[UPPER, LOWER, DIGITS, "/+"], 40)
    }),
    ("assigned-password", &["DB_PASSWORD", "password", "PGPASSWORD", "adminPasswd", "MYSQL_PWD"], password),
    (
        "assigned-secret",
        &["API_KEY", "client_secret", "authToken", "encryptionKey", "SECRET_KEY_BASE", "x-api-key", "SERVICE_TOKEN"],
        |r| match r.below(3) {
            0 => pick(r, &[HEX], 32),
            1 => alnum(r, 40),
            _ => join(&[&pick(r, &[UPPER, LOWER, DIGITS, "+/"], 43), "="]),
        },
    ),
];

/// Where a secret with a name stands.
const WRITTEN: &[(&str, Write)] = &[
    (".env", |r, name, secret| json!(format!("# settings\nPORT={}\n{name}={secret}\nDEBUG=1\n", r.below(9999)))),
    ("shell", |_, name, secret| json!(format!("$ cd app && export {name}='{secret}' && make deploy\nok\n"))),
    ("JSON text", |r, name, secret| {
        json!(serde_json::to_string_pretty(&json!({ "port": r.below(9999), name: secret })).unwrap())
    }),
    ("YAML", |_, name, secret| json!(format!("services:\n  app:\n    {name}: \"{secret}\"\n    replicas: 3\n"))),
    ("Python", |_, name, secret| json!(format!("import os\n\n{name} = \"{secret}\"\nclient = Client({name})\n"))),
    ("Rust", |_, name, secret| json!(format!("fn main() {{\n    let {name} = \"{secret}\";\n    run(&{name});\n}}\n"))),
    ("log", |r, name, secret| {
        json!(format!("2026-11-16T10:{:02}:00Z INFO config {name}={secret} loaded", r.below(60)))
    }),
    ("JSON in JSON", |_, name, secret| json!(json!({ "body": json!({ name: secret }).to_string() }).to_string())),
    ("context", |r, name, secret| json!({ "env": { "port": r.below(9999), name: secret }, "steps": ["build", "run"] })),
    (
        "message",
        |_, name, secret| json!([{ "role": "user", "content": format!("use this: {name}: {secret}\nthanks") }]),
    ),
];

/// Where a secret stands that is known by itself.
const BARE: &[(&str, Write)] = &[
    ("prose", |_, _, secret| json!(format!("The key is {secret} and it works; please keep it for the tests."))),
    ("list", |_, _, secret| json!({ "args": ["--verbose", secret, "run"] })),
    ("call", |_, _, secret| json!(format!("client = connect(\"{secret}\", retries=3)"))),
];

/// One of each kind in each place, several times over.
pub fn planted(seed: u64) -> Vec<Planted> {
    let mut random = Random::new(seed);
    let mut all = Vec::new();
    for _ in 0..PER_SHAPE {
        let r = &mut random;
        for &(rule, name, make) in KINDS {
            for &(shape, write) in WRITTEN.iter().chain(BARE) {
                let secret = make(r);
                all.push(Planted { rule, shape, value: write(r, name, &secret), secret });
            }
        }
        for &(rule, names, make) in ASSIGNED {
            for (&(shape, write), &name) in WRITTEN.iter().flat_map(|shape| names.iter().map(move |name| (shape, name)))
            {
                let secret = make(r);
                all.push(Planted { rule, shape, value: write(r, name, &secret), secret });
            }
        }
        all.extend(others(r));
    }
    all
}

/// Those that are written in a way of their own.
fn others(r: &mut Random) -> Vec<Planted> {
    let mut all = Vec::new();
    let mut add = |rule, shape, secret: String, text: String| {
        all.push(Planted { rule, shape, value: json!({ "history": [text] }), secret });
    };
    for scheme in ["postgres", "https", "redis", "amqp", "mongodb+srv"] {
        let secret = password(r).replace(['@', '#', '?'], "x");
        let user = pick(r, &[LOWER], 6);
        let text = format!("connecting to {scheme}://{user}:{secret}@db.internal:5432/main ...");
        add("url-password", "URL", secret, text);
    }
    for shape in ["header", "curl", "code"] {
        let secret = alnum(r, 48);
        let text = match shape {
            "header" => format!("GET /v1/me HTTP/1.1\nHost: api.internal\nAuthorization: Bearer {secret}\n"),
            "curl" => format!("curl -H 'Authorization: Bearer {secret}' https://api.internal/v1/me"),
            _ => format!("headers = {{\"Authorization\": \"Bearer {secret}\"}}"),
        };
        add("authorization", shape, secret, text);
    }
    let secret = join(&[&pick(r, &[UPPER, LOWER, DIGITS, "+/"], 86), "=="]);
    let text = format!("DefaultEndpointsProtocol=https;AccountName=store;AccountKey={secret};EndpointSuffix=core");
    add("azure-key", "connection string", secret, text);
    let secret = password(r);
    add("command-password", "curl", secret.clone(), format!("curl -s -u admin:{secret} https://ci.internal/job"));
    let secret = password(r);
    add("command-password", ".netrc", secret.clone(), format!("machine git.internal login bot password {secret}\n"));
    let secret = alnum(r, 40);
    add("assigned-secret", "flag", secret.clone(), format!("deploy --region eu --api-key {secret} --wait"));
    let secret = password(r);
    add("assigned-password", "flag", secret.clone(), format!("mysqldump --password={secret} main > dump.sql"));
    let secret = alnum(r, 36);
    add("assigned-secret", ".npmrc", secret.clone(), format!("//registry.internal/:_authToken={secret}\n"));
    let secret = alnum(r, 24);
    add("assigned-secret", "XML", secret.clone(), format!("<config><clientSecret>{secret}</clientSecret></config>"));
    all
}

/// Personal data, for the group that is off unless it is asked for.
pub fn personal(seed: u64) -> Vec<Planted> {
    let r = &mut Random::new(seed);
    let mut all = Vec::new();
    for at in 0..60 {
        let (rule, secret) = match at % 6 {
            0 => {
                ("email", join(&[&pick(r, &[LOWER], 7), ".", &pick(r, &[LOWER], 5), "@", &pick(r, &[LOWER], 8), ".de"]))
            }
            1 => ("phone", join(&["+49 ", "151 ", &pick(r, &["123456789"], 8)])),
            2 => ("phone", join(&["(", "41", "5) ", "55", "5-", &pick(r, &[DIGITS], 4)])),
            3 => ("payment-card", card(r, "4", 16, " ")),
            4 => ("payment-card", card(r, "37", 15, "")),
            _ => ("iban", iban(r)),
        };
        let text = format!("The customer can be reached: {secret}, says the ticket.");
        all.push(Planted { rule, shape: "prose", value: json!({ "ticket": { "text": text } }), secret });
    }
    all
}

fn join(parts: &[&str]) -> String {
    parts.concat()
}

/// So many characters out of these.
fn pick(random: &mut Random, alphabets: &[&str], length: usize) -> String {
    let letters: Vec<char> = alphabets.concat().chars().collect();
    (0..length).map(|_| letters[random.below(letters.len() as u64) as usize]).collect()
}

fn alnum(random: &mut Random, length: usize) -> String {
    pick(random, &[UPPER, LOWER, DIGITS], length)
}

/// As people and managers of passwords make them; one in ten is only words.
fn password(random: &mut Random) -> String {
    let word = |r: &mut Random| ["copper", "Lantern", "orbit", "Meadow", "quartz"][r.below(5) as usize];
    match random.below(10) {
        0 => join(&[word(random), "-", word(random), "-", word(random)]),
        1..=4 => join(&[word(random), &pick(random, &[DIGITS], 3), "!", &pick(random, &[LOWER], 3)]),
        _ => pick(random, &[UPPER, LOWER, DIGITS, "!*_+"], 16),
    }
}

fn pem(random: &mut Random, kind: &str, lines: usize) -> String {
    let body: String = (0..lines).map(|_| pick(random, &[UPPER, LOWER, DIGITS, "+/"], 64) + "\n").collect();
    let edge = |word: &str| join(&["-----", word, " ", kind, "PRIV", "ATE KEY-----"]);
    join(&[&edge("BEGIN"), "\n", &body, &pick(random, &[LOWER], 30), "==\n", &edge("END")])
}

fn card(random: &mut Random, first: &str, length: usize, gap: &str) -> String {
    let mut digits = join(&[first, &pick(random, &[DIGITS], length - first.len() - 1)]);
    let sum: u32 = digits
        .chars()
        .rev()
        .enumerate()
        .map(|(at, digit)| {
            let digit = digit.to_digit(10).unwrap();
            if at % 2 == 0 { digit * 2 / 10 + digit * 2 % 10 } else { digit }
        })
        .sum();
    digits += &((10 - sum % 10) % 10).to_string();
    digits.as_bytes().chunks(4).map(|part| String::from_utf8_lossy(part)).collect::<Vec<_>>().join(gap)
}

fn iban(random: &mut Random) -> String {
    let account = pick(random, &[DIGITS], 18);
    // DE is 13 14 where it stands behind, with 00 for the check digits.
    let rest =
        format!("{account}131400").bytes().fold(0, |rest: u64, digit| (rest * 10 + u64::from(digit - b'0')) % 97);
    format!("DE{:02}{account}", 98 - rest)
}
