//! How well views, classes and search do on data: what survives of real agent runs, which labelled keys get their class, how often
//! what answers a query is found, which secrets are, and what windows cost.

mod class;
mod compression;
mod retrieval;
mod secret;
mod window;

use std::path::PathBuf;

use clap::Subcommand;

use crate::{run_optimized, sh};

#[derive(Debug, Subcommand)]
pub(crate) enum Eval {
    /// How much of what an agent uses later is in a view that is 2, 5 and 10 times smaller, beside simpler ways
    Compression {
        /// Agent runs as JSON lines with `name`, `goal`, `messages`, `facts` and `tokens`
        data: PathBuf,
    },
    /// How many labelled keys get the class that they should have, and how long 200 of them take
    Classes,
    /// How often what answers a query is among the first that are found: by words, by meaning and by both
    Retrieval {
        /// Conversations as JSON lines with `segments` and `queries`
        data: PathBuf,
    },
    /// What windows of a quarter of agent runs cost and hold, beside everything and beside the newest messages that fit
    Window {
        /// Agent runs as JSON lines with `goal`, `messages` and `facts`
        #[arg(required = true)]
        data: Vec<PathBuf>,
    },
    /// How many planted secrets are found, and how often something is found in ordinary source code
    Secrets {
        /// Folders with source code, besides this repository
        folders: Vec<PathBuf>,
    },
}

pub(crate) fn run(eval: &Eval) -> anyhow::Result<()> {
    match eval {
        Eval::Compression { data } => {
            sh("cargo", &["build", "--release", "--package", "waystone"])?;
            compression::run(data)
        }
        // What is timed, or takes long, runs in this process.
        _ if cfg!(debug_assertions) => run_optimized(),
        Eval::Classes => class::run(),
        Eval::Retrieval { data } => retrieval::run(data),
        Eval::Window { data } => window::run(data),
        Eval::Secrets { folders } => secret::run(folders),
    }
}
