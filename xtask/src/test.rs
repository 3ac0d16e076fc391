//! `cargo xtask test`: everything, from a fresh clone. What it needs besides the Rust toolchain, Python 3 and Node it puts
//! under `target/tools/`.

use std::path::Path;
use std::process::Command;

use crate::tools::{node, python};
use crate::{root, sh};

pub(crate) fn run() -> anyhow::Result<()> {
    sh("cargo", &["build", "--workspace", "--bins"])?;
    let has_nextest =
        Command::new("cargo").args(["nextest", "--version"]).output().is_ok_and(|done| done.status.success());
    if has_nextest {
        sh("cargo", &["nextest", "run", "--workspace"])?;
    } else {
        sh("cargo", &["test", "--workspace"])?;
    }
    let binary = root().join("target/debug/waystone");
    let fixtures = root().join("target/debug/waystone-conformance");
    let (python, modules) =
        (python("python", "tests/clients/requirements.txt")?, node("node", "tests/clients/package.json")?);
    client(&python, "mcp_client.py", &[&binary])?;
    client(&python, "rest_schemathesis.py", &[&binary])?;
    client(&python, "readme.py", &[&binary, &root().join("README.md")])?;
    client(&python, "inspector.py", &[&binary, &modules])?;
    client(&python, "conformance.py", &[&binary, &fixtures, &modules])
}

fn client(python: &Path, script: &str, arguments: &[&Path]) -> anyhow::Result<()> {
    let script = format!("tests/clients/{script}");
    let arguments: Vec<_> = arguments.iter().map(|path| path.to_string_lossy()).collect();
    let arguments: Vec<&str> = [script.as_str()].into_iter().chain(arguments.iter().map(AsRef::as_ref)).collect();
    sh(&python.to_string_lossy(), &arguments)
}
