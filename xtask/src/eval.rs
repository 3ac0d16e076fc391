//! How well views and classes do on data: what survives of real agent runs, and which labelled keys get their class.

mod class;
mod compression;

use std::path::PathBuf;

use clap::Subcommand;

use crate::sh;

#[derive(Debug, Subcommand)]
pub(crate) enum Eval {
    /// How much of what an agent uses later is in a view that is 2, 5 and 10 times smaller, beside simpler ways
    Compression {
        /// Agent runs as JSON lines with `name`, `goal`, `messages`, `facts` and `tokens`
        data: PathBuf,
    },
    /// How many labelled keys get the class that they should have, and how long 200 of them take
    Classes,
}

pub(crate) fn run(eval: &Eval) -> anyhow::Result<()> {
    match eval {
        Eval::Compression { data } => {
            sh("cargo", &["build", "--release", "--package", "waystone"])?;
            compression::run(data)
        }
        // What is timed runs in this process.
        Eval::Classes if cfg!(debug_assertions) => {
            sh("cargo", &["run", "--release", "--package", "xtask", "--", "eval", "classes"])
        }
        Eval::Classes => class::run(),
    }
}
