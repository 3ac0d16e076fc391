//! What tools are called by models: `<server>__<tool>`, of characters that every provider takes.
//!
//! A name is made of its server and that server's own list alone, so that it stays the same whatever else there is.

use sha2::{Digest, Sha256};

const NAME_CHARS_MAX: usize = 64;

/// What stands before the names of a server's tools.
pub(super) fn prefix(server: &str) -> String {
    format!("{server}__")
}

/// The names of `tools` of `server`, in the same order. They are all different, and not those of other servers.
pub(super) fn names(server: &str, tools: &[&str]) -> Vec<String> {
    let plain: Vec<String> = tools.iter().map(|tool| plain(tool)).collect();
    let is_shared = |name: &String| plain.iter().filter(|other| *other == name).nth(1).is_some();
    // With `a` and `a__b` there would be two ways to read `a__b__c`.
    let is_unclear = server.contains("__") || server.ends_with('_');
    let room = NAME_CHARS_MAX - prefix(server).len();
    let name = |(tool, plain): (&&str, &String)| {
        let is_changed = plain != tool;
        if is_unclear || plain.is_empty() || plain.len() > room || (is_changed && is_shared(plain)) {
            let hash = hash(server, tool);
            let kept = &plain[..plain.len().min(room - hash.len())];
            format!("{}{kept}{hash}", prefix(server))
        } else {
            format!("{}{plain}", prefix(server))
        }
    };
    tools.iter().zip(&plain).map(name).collect()
}

fn plain(tool: &str) -> String {
    let allowed = |char: char| if char.is_ascii_alphanumeric() || matches!(char, '_' | '-') { char } else { '_' };
    tool.chars().map(allowed).collect()
}

fn hash(server: &str, tool: &str) -> String {
    let digest = Sha256::digest(format!("{server}\0{tool}"));
    format!("_{:02x}{:02x}{:02x}{:02x}", digest[0], digest[1], digest[2], digest[3])
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_name_is_the_server_and_the_tool() {
        assert_eq!(names("files", &["read", "read_file-2"]), ["files__read", "files__read_file-2"]);
        assert_eq!(names("files", &["a.b", "lies, mich!"]), ["files__a_b", "files__lies__mich_"]);
        assert_eq!(names("f", &["_x"]), ["f___x"]);
    }

    #[test]
    fn names_that_would_be_the_same_or_too_long_get_a_hash() {
        let long = "x".repeat(100);
        let longer = "x".repeat(101);
        let server = "s".repeat(32);
        let tools = ["a.b", "a_b", "a:b", "", &long, &longer];
        for server in ["f", "a__b", "f_", &server] {
            let names = names(server, &tools);
            let valid = |name: &String| name.len() <= 64 && name.starts_with(&prefix(server)) && plain(name) == *name;
            assert!(names.iter().all(valid), "{names:?}");
            assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), tools.len(), "{names:?}");
        }
        assert_eq!(names("f", &tools)[1], "f__a_b");
        assert_eq!(names("f", &[&long])[0].len(), 64);
        assert_eq!(names("f", &["x".repeat(61).as_str()]), [format!("f__{}", "x".repeat(61))]);
    }

    #[test]
    fn tools_of_two_servers_are_never_called_the_same() {
        assert_ne!(names("a", &["b__c"]), names("a__b", &["c"]));
        assert_ne!(names("a", &["_b"]), names("a_", &["b"]));
    }
}
