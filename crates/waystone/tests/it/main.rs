//! The binary itself: what only a real process can show.

#![expect(clippy::unwrap_used, reason = "in tests a panic is the report")]

mod audit;
mod chat;
mod cli;
mod config;
mod durability;
mod failure;
mod help;
mod hook;
mod install;
mod isolation;
mod key;
mod mcp;
mod models;
mod processes;
mod read_only;
mod resume;
mod seal;
mod secret;
mod segment;
mod terminal;
mod views;
