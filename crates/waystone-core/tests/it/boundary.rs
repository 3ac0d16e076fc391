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

#[test]
fn sql_is_only_in_the_store() {
    let mut seen = 0;
    for name in ["waystone-core", "waystone-server", "waystone"] {
        let mut folders = vec![crates().join(name).join("src")];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                let text = std::fs::read_to_string(&path).unwrap();
                seen += 1;
                for statement in ["SELECT ", "INSERT INTO", "UPDATE ", "DELETE FROM", "PRAGMA", "rusqlite"] {
                    assert!(!text.contains(statement), "{} contains {statement}", path.display());
                }
            }
        }
    }
    assert!(seen > 20, "only {seen} files were looked at");
}
