//! How Waystone is reached. Faces decide nothing: they parse, call one engine method, and render.

pub mod http;
pub mod mcp;
mod platform;
mod request;
mod room;
mod schema;
