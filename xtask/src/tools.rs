//! What tasks need besides the Rust toolchain: set up under `target/tools/`, and again only when the list of it changes.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::{root, say, sh};

/// The interpreter of a virtual environment with what the file `wanted` names.
pub(crate) fn python(name: &str, wanted: &str) -> anyhow::Result<PathBuf> {
    let tools = root().join("target/tools").join(name);
    let python = tools.join("bin/python");
    set_up(&tools, wanted, || {
        sh("python3", &["-m", "venv", "--clear", &tools.to_string_lossy()])?;
        sh(&python.to_string_lossy(), &["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", wanted])
    })?;
    Ok(python)
}

/// A folder with the packages that the file `wanted` names.
pub(crate) fn node(name: &str, wanted: &str) -> anyhow::Result<PathBuf> {
    let tools = root().join("target/tools").join(name);
    set_up(&tools, wanted, || {
        fs::create_dir_all(&tools)?;
        fs::copy(root().join(wanted), tools.join("package.json"))?;
        let prefix = tools.to_string_lossy();
        sh("npm", &["install", "--prefix", &prefix, "--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error"])
    })?;
    Ok(tools.join("node_modules"))
}

/// The daemon that keeps keys on a desktop, and a bus to reach it.
pub(crate) fn keyring() -> anyhow::Result<()> {
    system(&["dbus-run-session", "gnome-keyring-daemon"], &["dbus", "gnome-keyring"])
}

pub(crate) fn browser() -> anyhow::Result<()> {
    system(&["chromium"], &["chromium"])
}

/// Programs of the system, from `packages` where they are missing and this user may install them.
fn system(programs: &[&str], packages: &[&str]) -> anyhow::Result<()> {
    let is_there = |program: &&str| {
        let asked = std::process::Command::new(program).arg("--version").output();
        asked.is_ok_and(|done| done.status.success())
    };
    let are_there = || programs.iter().all(is_there);
    if are_there() {
        return Ok(());
    }
    // Without a network it is to fail soon.
    let patience = ["-o", "Acquire::http::Timeout=15", "-o", "Acquire::Retries=0", "--quiet"];
    let install = [&patience[..], &["install", "--yes", "--no-install-recommends"], packages].concat();
    if sh("apt-get", &install).is_err() {
        sh("apt-get", &[&patience[..], &["update"]].concat())?;
        sh("apt-get", &install)?;
    }
    anyhow::ensure!(are_there(), "it is installed and cannot be started");
    Ok(())
}

/// Runs `install` unless it has run for the same list before.
fn set_up(tools: &Path, wanted: &str, install: impl Fn() -> anyhow::Result<()>) -> anyhow::Result<()> {
    let wanted = fs::read_to_string(root().join(wanted)).with_context(|| format!("{wanted} cannot be read"))?;
    let stamp = tools.join("installed");
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
        return Ok(());
    }
    say(format_args!("setting up {}", tools.display()));
    install()?;
    fs::write(stamp, wanted)?;
    Ok(())
}
