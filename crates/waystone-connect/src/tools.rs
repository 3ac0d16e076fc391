//! All tools that conversations have besides those of their clients.

use async_trait::async_trait;
use serde_json::{Map, Value};
use waystone_core::tools::{ToolOutput, Toolbox, Tools};

use crate::workspace;

/// Those that work in a folder.
#[derive(Debug, Default)]
pub struct AllTools;

#[async_trait]
impl Tools for AllTools {
    async fn list(&self, workspace: Option<&str>) -> Toolbox {
        let tools = if workspace.is_some() { workspace::tools() } else { Vec::new() };
        Toolbox { tools, warnings: Vec::new() }
    }

    async fn call(&self, workspace: Option<&str>, tool: &str, arguments: &Map<String, Value>) -> ToolOutput {
        match workspace {
            Some(folder) if workspace::has(tool) => workspace::call(folder, tool, arguments).await,
            _ => ToolOutput::error(format!("there is no tool `{tool}`")),
        }
    }
}
