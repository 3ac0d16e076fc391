//! The store, on real files.

#![expect(clippy::unwrap_used, reason = "in tests a panic is the report")]

mod directory;
mod golden;
mod log;
mod process;
mod writer;
