//! The wire: REST and its guard, in process, on a real store.

#![expect(clippy::unwrap_used, reason = "in tests a panic is the report")]

mod checkpoints;
mod client;
mod contexts;
mod docs;
mod documents;
mod events;
mod fuzz;
mod guard;
mod hostile;
mod mcp;
mod models;
mod offer;
mod parity;
mod read_only;
mod segments;
mod sessions;
mod stats;
mod turns;
mod views;
