//! `waystone mcp` with one defect: it acknowledges a save 50 ms before it commits it. The kill test must notice.

use std::time::Duration;

use waystone_testkit::faulty::{Fault, serve_mcp};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    serve_mcp(Fault::AcknowledgeEarly(Duration::from_millis(50))).await
}
