//! Figures of the release binary with a user's settings, each beside a reference that alternates with it op by op: the
//! machine is noisy, so only ratios within one run mean something. A goal is a direction: it is printed, and nothing fails on it.
//!
//! Each file below measures one topic and adds its figures to the report, which is printed last.

pub(crate) mod client;
mod concurrent;
mod conversation;
mod find;
mod growth;
mod operation;
mod peer;
mod process;
mod reference;
mod report;
mod seal;
mod search;
mod segment;
mod session;
mod trajectory;
mod transport;
mod view;
mod window;

use std::path::PathBuf;

use crate::{root, run_optimized, say, sh};
use report::Report;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// How often each operation is measured; everything else is scaled with it
    #[arg(long, default_value_t = ROUNDS)]
    rounds: usize,
    /// Measure beside LangGraph's SqliteSaver and the official memory server too, each set up in an environment of its own
    #[arg(long)]
    peers: bool,
    /// Measure only topics that have this in their name
    #[arg(long, value_name = "NAME", default_value = "")]
    only: String,
    /// Agent runs to grow sessions from, as JSON lines with `goal` and `messages`; without it they are made up
    #[arg(long, value_name = "FILE")]
    run: Option<PathBuf>,
}

const ROUNDS: usize = 300;

impl Options {
    /// `full` at the default number of rounds, and less of it at less, down to `least`.
    fn scaled(&self, full: usize, least: usize) -> usize {
        (full * self.rounds / ROUNDS).clamp(least, full)
    }
}

/// What is run.
struct Programs {
    waystone: PathBuf,
    /// A tool that does nothing, with the same SDK.
    empty: PathBuf,
    /// Lines back as they came.
    echo: PathBuf,
    /// What a model streams, passed on and not kept.
    relay: PathBuf,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    if cfg!(debug_assertions) {
        return run_optimized();
    }
    let references = ["--bin", "waystone-empty", "--bin", "waystone-echo", "--bin", "waystone-relay"];
    sh("cargo", &[&["build", "--release", "--package", "waystone-testkit"][..], &references].concat())?;
    let built = |name: &str| root().join("target/release").join(name);
    let programs = Programs {
        waystone: built("waystone"),
        empty: built("waystone-empty"),
        echo: built("waystone-echo"),
        relay: built("waystone-relay"),
    };
    let mut report = Report::default();
    let topics: [(&str, Topic); 13] = [
        ("the process", process::measure),
        ("one operation at a time", operation::measure),
        ("many sessions at once", concurrent::measure),
        ("the transport", transport::measure),
        ("a store that grows", growth::measure),
        ("find among many", find::measure),
        ("sessions that grow", session::measure),
        ("views", view::measure),
        ("segments", segment::measure),
        ("encryption", seal::measure),
        ("search", search::measure),
        ("conversations", conversation::measure),
        ("window", window::measure),
    ];
    let peers: [(&str, Topic); 2] = [
        ("beside LangGraph's SqliteSaver, which is called in its own process", peer::measure),
        ("search beside the official memory server", search::peer::measure),
    ];
    let peers = peers.into_iter().filter(|_| options.peers);
    for (name, measure) in topics.into_iter().chain(peers).filter(|(name, _)| name.contains(&options.only)) {
        say(format_args!("measuring {name}"));
        report.section(name);
        measure(&programs, options, &mut report)?;
    }
    report.print();
    Ok(())
}

type Topic = fn(&Programs, &Options, &mut Report) -> anyhow::Result<()>;
