//! Models as the engine sees them: the demo, and the client of chat completions against a server that plays one. And tools: of MCP
//! servers, and those that work in a folder.

#![expect(clippy::unwrap_used, reason = "in tests a panic is the report")]

mod answer;
mod anthropic;
mod ask;
mod demo;
mod everyone;
mod failure;
mod gemini;
mod hint;
mod mcp;
mod ollama;
mod provider;
mod request;
mod silence;
mod tool;
mod workspace;
