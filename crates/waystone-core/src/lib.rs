//! What Waystone does.
//!
//! [`Engine`] has one method for each thing a client can ask for; every face (MCP, REST, CLI) calls the same ones.
//! It reaches the outside only through the boundaries [`store::Store`], [`clock::Clock`], [`model::Model`] and [`tools::Tools`]: nothing in
//! this crate opens a file, reads the environment or the time, or makes a random number.

pub mod api;
pub mod audit;
pub mod canon;
pub mod classify;
pub mod clock;
pub mod compress;
pub mod diff;
pub mod document;
mod engine;
pub mod error;
pub mod find;
pub mod fsm;
pub mod handle;
pub mod histogram;
pub mod id;
pub mod json;
pub mod meaning;
pub mod model;
pub mod offload;
pub mod pack;
pub mod prose;
mod recent;
pub mod resume;
pub mod retention;
pub mod score;
mod script;
pub mod search;
pub mod secret;
pub mod store;
mod summary;
pub mod survive;
pub mod tokens;
pub mod tools;
pub mod transcript;
pub mod window;
pub mod words;

pub use engine::{
    Chat, Engine, Export, Frame, GRACE_DAYS, GitState, Limits, Lookup, MAIN, PolicyKind, Reader, Summaries, ToolPolicy,
    USAGE_WARNED_PERCENT,
};
pub use error::{Error, Result};
