//! `waystone key`

use std::path::{Path, PathBuf};

use clap::Subcommand;
use serde_json::json;
use waystone_core::Error;
use waystone_store::MasterKey;

use super::render::{Out, plain};
use crate::key;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make a key; what is sealed with it cannot be read without it, by no one
    Generate {
        /// The file to write it to, which must not be there yet; standard output when left out
        #[arg(long, short, value_name = "FILE")]
        output: Option<PathBuf>,
    },
}

pub(crate) fn run(command: &Command, out: &Out) -> anyhow::Result<()> {
    let Command::Generate { output } = command;
    let made = MasterKey::generate()?;
    let Some(path) = output else {
        let text = key::text(&made);
        return out.print(&json!({ "key": text.trim() }), |_| text.to_string());
    };
    key::write(&made, path).map_err(|error| cannot_write(path, &error))?;
    out.print(&json!({ "path": path }), |_| {
        let shown = plain(&path.display().to_string());
        format!(
            "wrote a key to {shown}\nKeep a copy where the data is not: without it nothing that it sealed comes back.\n\
             WAYSTONE_KEY_FILE={shown} WAYSTONE_ENCRYPTION=enabled seals a new data directory with it.\n"
        )
    })
}

fn cannot_write(path: &Path, error: &std::io::Error) -> Error {
    Error::InvalidInput(format!("cannot write {}: {error}", path.display()))
}
