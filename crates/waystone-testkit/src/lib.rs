//! What tests, fault runs and benchmarks are built from. Nothing here is in the product, and nothing in the product is
//! switched for it: faults come in through the boundaries, and through the operating system.

#![expect(clippy::unwrap_used, reason = "in tests a panic is the report")]

pub mod audit;
pub mod clock;
pub mod contexts;
pub mod fault;
pub mod faulty;
pub mod golden;
pub mod harness;
pub mod model;
pub mod process;
pub mod secrets;
pub mod served;
pub mod shim;
pub mod watchdog;

pub use harness::Harness;
