//! How Waystone is reached. Faces decide nothing: they parse, call one engine method, and render.

pub mod mcp;
