//! `cargo xtask dist`: what people install, as one archive with its sum.
//!
//! All of it is made in a folder of its own and put in its place only after what was packed was unpacked again and run: what
//! stands in the output folder has worked. The unpacked folder stays beside the archive; the `Dockerfile` copies from it.
//!
//! What goes in is listed here; how it becomes the same bytes each time is in [`archive`].

mod archive;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};
use waystone_testkit::process::command;

use crate::{root, say};

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Where the archive, its sum and the unpacked folder go; `target/dist` when left out
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
}

/// Every package of the workspace has this one.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What is copied as it is, under the same names.
const FILES: [&str; 9] = [
    "LICENSE",
    "NOTICE",
    "README.md",
    "CHANGELOG.md",
    "Dockerfile",
    "docs/ARCHITECTURE.md",
    "docs/book.toml",
    "docs/picture.svg",
    SCHEMA,
];
/// The same, with all that is in them: what the README leads to.
const FOLDERS: [&str; 3] = ["docs/decisions", "docs/guide", "examples"];
/// What editors read of `config.json`.
const SCHEMA: &str = "docs/config.schema.json";

/// Shells, and the names under which they look for completions.
const SHELLS: [(&str, &str); 4] =
    [("bash", "waystone.bash"), ("zsh", "_waystone"), ("fish", "waystone.fish"), ("powershell", "_waystone.ps1")];

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let output = options.output.clone().unwrap_or_else(|| root().join("target/dist"));
    let (name, modified_at) = (archive::name(VERSION, &host()?), modified_at()?);
    let binary = build()?;
    fs::create_dir_all(&output).with_context(|| format!("cannot make {}", output.display()))?;
    let making = tempfile::Builder::new().prefix(".making-").tempdir_in(&output)?;
    let making = making.path();

    let staged = making.join("staged").join(&name);
    copy(root(), &staged)?;
    add_binary(&binary, &staged)?;
    let packed = making.join(archive::file_name(&name));
    archive::pack(&staged, &packed, modified_at)?;
    let sum = archive::write_sum(&packed)?;

    let unpacked = making.join("unpacked");
    archive::check_sum(&sum)?;
    archive::unpack(&packed, &unpacked)?;
    let unpacked = unpacked.join(&name);
    ensure!(archive::contents(&unpacked)? == archive::contents(&staged)?, "what was unpacked is not what was packed");
    check_version(&unpacked.join(program()))?;

    let folder = output.join(&name);
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("cannot replace {}", folder.display()))?;
    }
    for made in [&unpacked, &packed, &sum] {
        let place = output.join(made.file_name().unwrap_or_default());
        fs::rename(made, &place).with_context(|| format!("cannot make {}", place.display()))?;
    }
    print(&output, &name)
}

fn program() -> String {
    format!("waystone{}", std::env::consts::EXE_SUFFIX)
}

/// Builds the binary without symbols, and says where it is. Only the last crate is told to leave them out: all others are those of an
/// ordinary release build.
fn build() -> anyhow::Result<PathBuf> {
    let arguments = ["rustc", "--release", "--locked", "--package", "waystone", "--bin", "waystone"];
    let strip = ["--message-format=json-render-diagnostics", "--", "-C", "strip=symbols"];
    say(format_args!("$ cargo {} {}", arguments.join(" "), strip.join(" ")));
    let messages = output_of(Command::new("cargo").args(arguments).args(strip).current_dir(root()))?;
    executable(&messages).context("cargo does not say where it has put the binary")
}

/// The program that is named in what cargo says of a build.
fn executable(messages: &str) -> Option<PathBuf> {
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let mut built = messages.filter(|message| message["target"]["name"] == "waystone");
    built.find_map(|message| message["executable"].as_str().map(PathBuf::from))
}

/// The target that is built for when none is named.
fn host() -> anyhow::Result<String> {
    let said = output_of(Command::new("rustc").arg("-vV"))?;
    let host = said.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc does not say for which target it builds")?.to_owned())
}

/// The time that all files have, in seconds since 1970.
fn modified_at() -> anyhow::Result<u64> {
    #[expect(clippy::disallowed_methods, reason = "so whoever builds a package says which time its files have")]
    if let Some(told) = std::env::var_os("SOURCE_DATE_EPOCH") {
        return seconds(&told.to_string_lossy()).context("SOURCE_DATE_EPOCH cannot be used");
    }
    let committed = output_of(Command::new("git").args(["log", "-1", "--format=%ct"]).current_dir(root()));
    seconds(&committed.context("the time of the last commit is not known; set SOURCE_DATE_EPOCH")?)
}

fn seconds(text: &str) -> anyhow::Result<u64> {
    text.trim().parse().with_context(|| format!("`{}` is no number of seconds since 1970", text.trim()))
}

/// Copies what is in the repository.
fn copy(from: &Path, staged: &Path) -> anyhow::Result<()> {
    for file in FILES {
        copy_file(from, staged, Path::new(file))?;
    }
    for folder in FOLDERS {
        for file in archive::files(&from.join(folder)).with_context(|| format!("cannot read {folder}"))? {
            copy_file(from, staged, &Path::new(folder).join(file))?;
        }
    }
    Ok(())
}

fn copy_file(from: &Path, staged: &Path, file: &Path) -> anyhow::Result<()> {
    let place = staged.join(file);
    fs::create_dir_all(place.parent().unwrap_or(staged))?;
    fs::copy(from.join(file), place).with_context(|| format!("cannot copy {}", from.join(file).display()))?;
    Ok(())
}

/// Adds the binary, and what it writes of itself; the schema in the repository must be the one that it writes.
fn add_binary(binary: &Path, staged: &Path) -> anyhow::Result<()> {
    fs::copy(binary, staged.join(program())).with_context(|| format!("cannot copy {}", binary.display()))?;
    // None of it needs a store; settings of whoever builds are not to be read.
    let nowhere = tempfile::tempdir()?;
    let waystone = || command(binary, nowhere.path());
    let schema = output_of(waystone().args(["config", "schema"]))?;
    let is_present = fs::read_to_string(staged.join(SCHEMA))? == schema;
    ensure!(is_present, "{SCHEMA} is old; write it again with `waystone config schema > {SCHEMA}`");
    output_of(waystone().arg("man").arg(staged.join("man")))?;
    ensure!(staged.join("man/waystone.1").is_file(), "`waystone man` has not written waystone.1");
    fs::create_dir(staged.join("completions"))?;
    for (shell, name) in SHELLS {
        let script = output_of(waystone().args(["completions", shell]))?;
        ensure!(!script.is_empty(), "`waystone completions {shell}` says nothing");
        fs::write(staged.join("completions").join(name), script)?;
    }
    Ok(())
}

fn check_version(binary: &Path) -> anyhow::Result<()> {
    let said = output_of(Command::new(binary).arg("--version"))?;
    ensure!(said.trim() == format!("waystone {VERSION}"), "the binary says `{}`, not {VERSION}", said.trim());
    Ok(())
}

/// What a command says on standard output.
fn output_of(command: &mut Command) -> anyhow::Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let done = command.stderr(Stdio::inherit()).output().with_context(|| format!("{name} cannot be started"))?;
    ensure!(done.status.success(), "{name} failed: {}", done.status);
    String::from_utf8(done.stdout).with_context(|| format!("{name} says what is no text"))
}

/// How large everything is.
fn print(output: &Path, name: &str) -> anyhow::Result<()> {
    let line = |what: &str, count: usize, bytes: u64| {
        say(format_args!("{what:<22} {count:>4} {:>11.1} kB", bytes as f64 / 1e3));
    };
    let folder = output.join(name);
    say(format_args!("{}", folder.display()));
    for (entry, sizes) in archive::sizes(&folder)? {
        line(&format!("  {entry}"), sizes.len(), sizes.iter().sum());
    }
    let archive = output.join(archive::file_name(name));
    say(format_args!("{}", archive.display()));
    line("  with all of it", 1, fs::metadata(&archive)?.len());
    let sum = archive::sum_file(&archive);
    say(format_args!("{}", sum.display()));
    say(format_args!("  {}", fs::read_to_string(sum)?.trim()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_binary_is_where_cargo_says() {
        let library = r#"{"reason":"compiler-artifact","target":{"name":"waystone_core"},"executable":null}"#;
        let binary =
            r#"{"reason":"compiler-artifact","target":{"name":"waystone"},"executable":"/t/release/waystone"}"#;
        let done = r#"{"reason":"build-finished","success":true}"#;
        let check = |lines: &[&str], expected: Option<&str>| {
            assert_eq!(executable(&lines.join("\n")), expected.map(PathBuf::from), "{lines:?}");
        };
        check(&[library, binary, done], Some("/t/release/waystone"));
        check(&[library, "no JSON", done], None);
        check(&[], None);
    }

    #[test]
    fn a_time_is_a_number_of_seconds() {
        let check = |text: &str, expected: Option<u64>| assert_eq!(seconds(text).ok(), expected, "{text}");
        check("1794902958\n", Some(1_794_902_958));
        check("0", Some(0));
        check("-1", None);
        check("2026-11-17", None);
        check("", None);
    }

    #[test]
    fn a_file_that_is_missing_is_named() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(from.path().join("LICENSE"), "MIT").unwrap();
        let error = copy(from.path(), to.path()).unwrap_err();
        assert_eq!(error.to_string(), format!("cannot copy {}", from.path().join("NOTICE").display()));
    }

    #[test]
    fn what_the_readme_leads_to_is_in_the_archive() {
        let staged = tempfile::tempdir().unwrap();
        copy(root(), staged.path()).unwrap();
        let readme = fs::read_to_string(staged.path().join("README.md")).unwrap();
        let links = readme.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
        let links: Vec<&str> = links.filter(|link| !link.starts_with("http")).collect();
        assert!(links.len() > 10, "{links:?}");
        for link in links {
            assert!(staged.path().join(link).exists(), "{link}");
        }
    }
}
