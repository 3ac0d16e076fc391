//! What is absent: what the engine depends on and calls, and where SQL stands.

use std::path::Path;
use std::process::Command;

fn crates() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

#[test]
fn core_depends_on_nothing_that_does_io() {
    let tree = Command::new(env!("CARGO"))
        .args([
            "tree",
            "--offline",
            "--package",
            "waystone-core",
            "--edges",
            "normal",
            "--prefix",
            "none",
            "--format",
            "{p}",
        ])
        .current_dir(crates())
        .output()
        .unwrap();
    assert!(tree.status.success(), "{}", String::from_utf8_lossy(&tree.stderr));
    let tree = String::from_utf8(tree.stdout).unwrap();
    for absent in [
        "rusqlite",
        "axum",
        "hyper",
        "rmcp",
        "clap",
        "reqwest",
        "rand ",
        "getrandom",
        "uuid",
        "tempfile",
        "directories",
    ] {
        assert!(!tree.lines().any(|line| line.starts_with(absent)), "waystone-core depends on {absent}");
    }
}

/// Panics when a source file of `name` contains one of `banned`.
fn check_sources(name: &str, banned: &[&str]) {
    let mut folders = vec![crates().join(name).join("src")];
    let mut seen = 0;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            seen += 1;
            let text = std::fs::read_to_string(&path).unwrap();
            for absent in banned {
                assert!(!text.contains(absent), "{} contains {absent}", path.display());
            }
        }
    }
    assert!(seen > 5, "only {seen} files of {name} were looked at");
}

#[test]
fn core_touches_no_file_clock_or_environment() {
    let banned =
        ["std::fs", "std::env", "std::net", "std::process", "Instant::now", "SystemTime", "tokio::fs", "tokio::net"];
    check_sources("waystone-core", &banned);
}

#[test]
fn sql_is_only_in_the_store() {
    for name in ["waystone-core", "waystone-connect", "waystone-server", "waystone"] {
        check_sources(name, &["SELECT ", "INSERT INTO", "UPDATE ", "DELETE FROM", "PRAGMA", "rusqlite"]);
    }
}
