//! All tools that conversations have besides those of their clients.

use std::path::PathBuf;

use async_trait::async_trait;
use serde_json::{Map, Value};
use waystone_core::tools::{ToolOutput, Toolbox, Tools};

use crate::mcp::Servers;
use crate::workspace;

/// Those that work in a folder, and those of servers.
#[derive(Debug)]
pub struct AllTools {
    pub servers: Servers,
    /// What holds for those that work in a folder.
    pub bounds: workspace::Bounds,
}

#[async_trait]
impl Tools for AllTools {
    async fn list(&self, workspace: Option<&str>) -> Toolbox {
        let mut toolbox = self.servers.list().await;
        if workspace.is_some() {
            toolbox.tools.splice(0..0, workspace::tools());
        }
        toolbox
    }

    async fn has_workspace(&self, workspace: &str) -> bool {
        let path = PathBuf::from(workspace);
        tokio::task::spawn_blocking(move || path.is_dir()).await.unwrap_or_default()
    }

    async fn call(&self, workspace: Option<&str>, tool: &str, arguments: &Map<String, Value>) -> ToolOutput {
        match workspace {
            Some(folder) if workspace::has(tool) => workspace::call(&self.bounds, folder, tool, arguments).await,
            _ => match self.servers.call(tool, arguments).await {
                Some(output) => output,
                None => ToolOutput::error(format!("there is no tool `{tool}`")),
            },
        }
    }

    async fn close(&self) {
        self.servers.shut_down().await;
    }
}
