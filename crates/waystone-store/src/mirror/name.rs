//! Where a mirror file is. Ids come from clients, so no byte of them that a file system could take for something else is in a path.

use std::path::PathBuf;

use waystone_core::canon::Hash;

use crate::directory::CONTEXTS;

/// Longer names are cut: file systems end at 255 bytes, and a suffix must fit.
const LENGTH_MAX: usize = 200;
const KEPT: usize = 180;
/// Names that mean devices on Windows, with or without an extension.
const DEVICES: [&str; 6] = ["con", "prn", "aux", "nul", "com", "lpt"];

pub(super) const SUFFIX: &str = ".json.zst";

/// The file of a group, from the data directory.
pub(crate) fn path_of(session: &str, group: &str) -> PathBuf {
    PathBuf::from(CONTEXTS).join(file_name(session)).join(format!("{}{SUFFIX}", file_name(group)))
}

/// An id as the name of a file: `a-z 0-9 _ -` as they are, every other byte as `%XX`: names differ on file systems that do not tell case apart, too.
pub fn file_name(id: &str) -> String {
    let mut name = String::new();
    for (at, byte) in id.bytes().enumerate() {
        let is_plain = byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_' || byte == b'-';
        if is_plain && !(at == 0 && is_device(id)) {
            name.push(char::from(byte));
        } else {
            name.push_str(&format!("%{byte:02X}"));
        }
    }
    if name.len() > LENGTH_MAX {
        // Everything in it is ASCII.
        name.truncate(KEPT);
        name.push('~');
        name.push_str(&Hash::of(id.as_bytes()).to_string()[..16]);
    }
    name
}

fn is_device(id: &str) -> bool {
    let stem = id.split('.').next().unwrap_or_default();
    let name = stem.trim_end_matches(|last: char| last.is_ascii_digit());
    DEVICES.contains(&name) && stem.len() <= 4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_id_escapes_or_is_taken_for_another() {
        let check = |id: &str, name: &str| assert_eq!(file_name(id), name);
        check("run-1_a", "run-1_a");
        check("Run", "%52un");
        check("..", "%2E%2E");
        check("a/b:c", "a%2Fb%3Ac");
        check("con", "%63on");
        check("com1", "%63om1");
        check("nul.txt", "%6Eul%2Etxt");
        check("console", "console");
        check("a~b", "a%7Eb");
        let long = "A".repeat(128);
        let name = file_name(&long);
        assert_eq!((name.len(), name.find('~')), (197, Some(180)));
        assert_ne!(name, file_name(&format!("{}B", "A".repeat(127))));
    }
}
