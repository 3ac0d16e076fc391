//! `waystone mcp` with one defect: it acknowledges a save 50 ms before it commits it. The kill test must notice.

use std::sync::Arc;
use std::time::Duration;

use waystone_core::{Engine, Limits};
use waystone_server::mcp::Mcp;
use waystone_store::Sqlite;
use waystone_testkit::clock::ManualClock;
use waystone_testkit::faulty::{Fault, FaultyStore};

#[tokio::main]
#[expect(clippy::disallowed_methods, reason = "it is started by the process harness, which passes settings so")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let data_dir = std::env::var("WAYSTONE_DATA_DIR")?;
    let clock = Arc::new(ManualClock::unique());
    let store = Sqlite::open(data_dir.as_ref(), clock.clone())?;
    let store = FaultyStore::new(Arc::new(store), Fault::AcknowledgeEarly(Duration::from_millis(50)));
    let limits = Limits { checkpoints_max: 1_000_000, ..Limits::default() };
    let engine = Engine::new(Arc::new(store), clock, limits, "default".parse()?);
    Mcp::new(engine.clone(), "eager").serve_stdio(std::future::pending()).await?;
    engine.close().await;
    Ok(())
}
