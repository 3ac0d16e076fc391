//! How Waystone is reached. Faces decide nothing: they parse, call one engine method, and render.

mod fault;
pub mod http;
pub mod mcp;
mod platform;
mod request;
mod room;
mod schema;
