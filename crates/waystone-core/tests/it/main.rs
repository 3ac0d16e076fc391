//! The engine, on real SQLite files.

#![expect(clippy::unwrap_used, reason = "in tests a panic is the report")]

mod boundary;
mod checkpoint;
mod delta;
mod fault;
mod mirror;
mod repair;
mod session;
