//! How much the windows of well-known models hold.

/// What is assumed of others.
pub(crate) const ASSUMED: u64 = 128_000;

/// By the beginning of a name, for a whole family what all of its models hold. The longest beginning counts.
const FAMILIES: [(&str, u64); 16] = [
    ("gpt-3.5", 16_385),
    ("gpt-4", 8_192),
    ("gpt-4-turbo", 128_000),
    ("gpt-4o", 128_000),
    ("chatgpt-4o", 128_000),
    ("gpt-4.1", 1_047_576),
    ("gpt-4.5", 128_000),
    // Of 400,000 tokens 128,000 are kept for the answer.
    ("gpt-5", 272_000),
    ("gpt-5-chat", 128_000),
    ("o1", 200_000),
    ("o1-mini", 128_000),
    ("o1-preview", 128_000),
    ("o3", 200_000),
    ("o4", 200_000),
    // Some hold a million, for who may use that.
    ("claude", 200_000),
    ("gemini", 1_048_576),
];

/// Models that people ask for, to be shown to whoever has not named one.
pub(crate) const WELL_KNOWN: [&str; 9] = [
    "gpt-5",
    "gpt-4.1",
    "gpt-4o",
    "o3",
    "o4-mini",
    "claude-sonnet-4-5",
    "claude-haiku-4-5",
    "gemini-2.5-pro",
    "gemini-2.5-flash",
];

/// The limit of a model by what its provider calls it. Who made it may stand before it, as in `openai/gpt-4o`.
pub(crate) fn known_limit(name: &str) -> Option<u64> {
    let name = name.rsplit('/').next().unwrap_or(name);
    let is_of = |family: &str| {
        name.strip_prefix(family).is_some_and(|rest| !rest.starts_with(|next: char| next.is_ascii_alphanumeric()))
    };
    let families = FAMILIES.iter().filter(|(family, _)| is_of(family));
    families.max_by_key(|(family, _)| family.len()).map(|(_, limit)| *limit)
}

/// Whether only OpenAI has a model of that name.
pub(crate) fn is_of_openai(name: &str) -> bool {
    ["gpt-", "chatgpt-", "o1", "o3", "o4"].iter().any(|family| name.starts_with(family)) && !name.starts_with("gpt-oss")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_is_known_by_the_longest_beginning_of_a_name() {
        let check = |name: &str, limit: Option<u64>| assert_eq!(known_limit(name), limit, "{name}");
        check("gpt-4", Some(8_192));
        check("gpt-4-0613", Some(8_192));
        check("gpt-4-turbo-2024-04-09", Some(128_000));
        check("gpt-4o-mini", Some(128_000));
        check("gpt-4.1-nano", Some(1_047_576));
        check("gpt-5", Some(272_000));
        check("gpt-5.1-codex", Some(272_000));
        check("gpt-5-chat-latest", Some(128_000));
        check("o1-mini", Some(128_000));
        check("o3-mini-high", Some(200_000));
        check("o4-mini", Some(200_000));
        check("claude-sonnet-4-5-20250929", Some(200_000));
        check("anthropic/claude-opus-4:beta", Some(200_000));
        check("gemini-2.5-flash", Some(1_048_576));
        for name in ["", "gpt-4x", "gpt-oss:20b", "o30", "llama3.2", "geminis", "my-claude", "claude/llama"] {
            check(name, None);
        }
    }
}
