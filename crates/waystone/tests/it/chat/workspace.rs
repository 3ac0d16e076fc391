//! The folder that a conversation works in, where the data directory is in it and files have modes.

use std::process::{Command, Stdio};

use super::person::{Person, printed};

/// The folder of a person has the data directory in it, as a home directory has.
#[test]
fn tools_keep_away_from_the_data_directory_and_from_the_key() {
    let person = Person::new();
    std::fs::write(person.folder.path().join("note.txt"), "mine").unwrap();
    let listed = person.ask(&["chat", r#"call list_files {"glob": "**"}"#]);
    assert!(listed.ends_with("The tool `list_files` said: \"note.txt (4 bytes)\".\n"), "{listed}");
    let read = person.ask(&["chat", r#"call read_file {"path": "data/waystone.db"}"#]);
    assert!(
        read.contains("The tool `read_file` failed: \"`data/waystone.db` belongs to Waystone's own data"),
        "{read}"
    );

    let key = person.folder.path().join("key");
    let made = person.run(&["key", "generate", "--output", key.to_str().unwrap()]);
    assert!(made.status.success(), "{made:?}");
    let read = person.ask(&["--key-file", key.to_str().unwrap(), "chat", r#"call read_file {"path": "key"}"#]);
    assert!(read.contains("The tool `read_file` failed: \"`key` belongs to Waystone's own data"), "{read}");
}

#[cfg(unix)]
#[test]
fn what_a_tool_writes_has_the_mode_of_the_persons_own_files_and_what_we_keep_has_not() {
    use std::os::unix::fs::PermissionsExt;
    let person = Person::new();
    let chat =
        person.command(&["chat", "--allowed-tools", "write_file", r#"call write_file {"path": "a/b", "content": ""}"#]);
    let mut shell = Command::new("sh");
    shell.args(["-c", r#"umask 027; exec "$0" "$@""#]).arg(chat.get_program()).args(chat.get_args());
    shell.envs(chat.get_envs().filter_map(|(name, value)| Some((name, value?))));
    shell.current_dir(person.folder.path()).stdin(Stdio::null());
    printed(&shell.output().unwrap());
    let mode = |path: &str| std::fs::metadata(person.folder.path().join(path)).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode("a"), mode("a/b"), mode("data")), (0o750, 0o640, 0o700));
}
