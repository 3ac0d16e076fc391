//! `cargo xtask test`: everything, from a fresh clone.

use crate::sh;

pub(crate) fn run() -> anyhow::Result<()> {
    sh("cargo", &["build", "--workspace", "--bins"])?;
    sh("cargo", &["nextest", "run", "--workspace"])
}
