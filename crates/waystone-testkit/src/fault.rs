//! What is done to the product, each fault in a file of its name: `cargo xtask faults` runs them long, `waystone/tests/it/durability.rs` in
//! short. Every one reports what was acknowledged and what of it is not there.

pub mod corrupt;
pub mod errno;
pub mod full;
mod house;
pub mod import;
pub mod key;
pub mod kill;
pub mod power;
pub mod readers;
pub mod repair;
pub mod segment;
pub mod tool_call;
pub mod turn;
