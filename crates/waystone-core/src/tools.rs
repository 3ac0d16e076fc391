//! The boundary to the tools that models call. `waystone-connect` has those of MCP servers and those that work in a folder; what a
//! client declares and answers itself is none of theirs.

use async_trait::async_trait;
use serde_json::{Map, Value};

use crate::api::Tool;

/// More tools are refused by some providers, with the whole request.
pub const TOOLS_MAX: usize = 128;

/// The tools that a conversation can have.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Toolbox {
    pub tools: Vec<Tool>,
    /// What a person should know, such as of a server that does not start.
    pub warnings: Vec<String>,
}

/// What came of a call. A failure is one too: the model is told.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolOutput {
    /// Text, or whatever else JSON can say.
    pub content: Value,
    pub is_error: bool,
}

impl ToolOutput {
    pub fn text(text: impl Into<String>) -> Self {
        Self { content: Value::String(text.into()), is_error: false }
    }

    pub fn error(text: impl Into<String>) -> Self {
        Self { content: Value::String(text.into()), is_error: true }
    }
}

/// Tools.
#[async_trait]
pub trait Tools: Send + Sync {
    /// Those of a conversation that works in `workspace`, if it works in a folder. The order is the same every time.
    async fn list(&self, workspace: Option<&str>) -> Toolbox;

    /// Whether there is such a folder to work in now. There may be one later.
    async fn has_workspace(&self, _workspace: &str) -> bool {
        true
    }

    /// Runs one of them. To drop it is to break it off; how long it may take the caller knows.
    async fn call(&self, workspace: Option<&str>, tool: &str, arguments: &Map<String, Value>) -> ToolOutput;

    /// Ends what runs for them, and waits until it has ended. The last call; who runs nothing has nothing to do.
    async fn close(&self) {}
}

/// There are none.
#[derive(Debug)]
pub struct NoTools;

#[async_trait]
impl Tools for NoTools {
    async fn list(&self, _: Option<&str>) -> Toolbox {
        Toolbox::default()
    }

    async fn call(&self, _: Option<&str>, tool: &str, _: &Map<String, Value>) -> ToolOutput {
        ToolOutput::error(format!("there is no tool `{tool}`"))
    }
}
