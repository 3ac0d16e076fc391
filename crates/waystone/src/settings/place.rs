//! Where other programs keep their settings.

use std::path::PathBuf;

use anyhow::Context;

pub(crate) fn home() -> anyhow::Result<PathBuf> {
    Ok(base()?.home_dir().to_owned())
}

/// Where programs of this platform keep what a person set.
pub(crate) fn config() -> anyhow::Result<PathBuf> {
    Ok(base()?.config_dir().to_owned())
}

/// The folder that a variable of another program names.
pub(crate) fn named_by(variable: &str) -> Option<PathBuf> {
    let mut variables = std::env::vars_os();
    let (_, folder) = variables.find(|(name, folder)| name == variable && !folder.is_empty())?;
    std::path::absolute(folder).ok()
}

fn base() -> anyhow::Result<directories::BaseDirs> {
    directories::BaseDirs::new().context("there is no home directory")
}
