//! `waystone mcp` with one defect: it acknowledges a save that failed. The run in which calls fail must notice.

use waystone_testkit::faulty::{Fault, serve_mcp};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    serve_mcp(Fault::AcknowledgeFailed).await
}
