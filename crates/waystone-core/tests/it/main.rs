//! The engine, on real SQLite files.

#![expect(clippy::unwrap_used, reason = "in tests a panic is the report")]

mod audit;
mod backup;
mod boundary;
mod checkpoint;
mod class;
mod conversation;
mod delta;
mod diff;
mod document;
mod fault;
mod find;
mod handle;
mod mark;
mod mirror;
mod origin;
mod quota;
mod repair;
mod resume;
mod search;
mod secret;
mod segment;
mod session;
mod stats;
mod summary;
mod view;
mod window;
