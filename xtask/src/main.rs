//! Every developer task.

mod bench;
mod dist;
mod docs;
mod eval;
mod faults;
mod test;
mod tools;

use clap::Parser;

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", about = "Developer tasks")]
enum Task {
    /// Set up what the tests need and run all of them
    Test,
    /// Break things on purpose, for long; prints its figures last
    #[command(subcommand)]
    Faults(faults::Fault),
    /// Measure beside references in the same run; prints its figures last
    Bench(bench::Options),
    /// Look how well views, classes and search do on data; prints its figures last
    #[command(subcommand)]
    Eval(eval::Eval),
    /// Make the archive that people install, with its sum; unpacks and runs it, and prints sizes last
    Dist(dist::Options),
    /// Make the parts of the guide that the product itself says
    Docs(docs::Options),
    /// Write a golden data directory of the present format, once
    Golden { name: String },
}

fn main() -> anyhow::Result<()> {
    match Task::parse() {
        Task::Test => test::run(),
        Task::Faults(fault) => faults::run(fault),
        Task::Bench(options) => bench::run(&options),
        Task::Eval(eval) => eval::run(&eval),
        Task::Dist(options) => dist::run(&options),
        Task::Docs(options) => docs::run(&options),
        Task::Golden { name } => {
            tokio::runtime::Runtime::new()?.block_on(waystone_testkit::golden::write(&name));
            Ok(())
        }
    }
}

/// Prints a line for a person.
fn say(line: impl std::fmt::Display) {
    use std::io::Write;
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}

/// Runs a command in the workspace and fails when it fails.
fn sh(program: &str, arguments: &[&str]) -> anyhow::Result<()> {
    use anyhow::Context;
    say(format_args!("$ {program} {}", arguments.join(" ")));
    let status = std::process::Command::new(program).args(arguments).current_dir(root()).status();
    let status = status.with_context(|| format!("{program} cannot be started"))?;
    anyhow::ensure!(status.success(), "{program} failed: {status}");
    Ok(())
}

/// Runs the same task once more, compiled like the program that people have: what is measured, or takes long in this process.
fn run_optimized() -> anyhow::Result<()> {
    // One by one: together the program would have features that only tasks need.
    for package in ["xtask", "waystone"] {
        sh("cargo", &["build", "--release", "--package", package])?;
    }
    // In the same working directory: files are named from there.
    let own = std::env::current_exe()?;
    let optimized = own.with_file_name("../release/xtask");
    let status = std::process::Command::new(optimized).args(std::env::args_os().skip(1)).status()?;
    anyhow::ensure!(status.success(), "it failed: {status}");
    Ok(())
}

fn root() -> &'static std::path::Path {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(std::path::Path::new("."))
}
