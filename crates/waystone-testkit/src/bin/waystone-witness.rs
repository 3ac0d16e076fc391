//! An MCP server whose tool leaves a trace: `waystone-witness FILE` adds a line to FILE with every call, and answers a little later.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, JsonObject, ListToolsResult,
    PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::{RequestContext, RoleServer};
use rmcp::{ErrorData, ServerHandler, ServiceExt};

/// Long enough that a kill often comes in between.
const PAUSE: Duration = Duration::from_millis(5);

#[tokio::main(worker_threads = 1)]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file = std::env::args_os().nth(1).ok_or("it is not said where to write")?.into();
    Witness { file }.serve(rmcp::transport::stdio()).await?.waiting().await?;
    Ok(())
}

struct Witness {
    file: PathBuf,
}

impl Witness {
    fn tool() -> Tool {
        Tool::new("append", "Adds a line", JsonObject::from_iter([("type".to_owned(), "object".into())]))
    }

    fn append(&self, line: &str) -> std::io::Result<()> {
        OpenOptions::new().create(true).append(true).open(&self.file)?.write_all(format!("{line}\n").as_bytes())
    }
}

impl ServerHandler for Witness {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(vec![Self::tool()]))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        (name == "append").then(Self::tool)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let line = request.arguments.as_ref().and_then(|given| given.get("line")?.as_str()).unwrap_or_default();
        self.append(line).map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
        tokio::time::sleep(PAUSE).await;
        Ok(CallToolResult::success(vec![ContentBlock::text("added")]).into())
    }
}
