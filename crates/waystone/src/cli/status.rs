//! `waystone status`

use waystone_core::Engine;
use waystone_core::store::Scope;

use super::render::{Out, bytes, fields};

pub(crate) async fn run(engine: &Engine, scope: &Scope, out: &Out) -> anyhow::Result<()> {
    let status = engine.status(scope).await?;
    out.print(&status, |status| {
        fields(&[
            ("version", status.version.clone()),
            ("data directory", status.data_dir.clone()),
            ("schema", status.schema_version.to_string()),
            ("sessions", status.session_count.to_string()),
            ("checkpoints", format!("{}, archived ones not counted", status.checkpoint_count)),
            ("size", format!("{}, archived ones included", bytes(status.total_size_bytes))),
            ("database", bytes(status.database_bytes)),
            ("operations", status.operation_count.to_string()),
            ("encryption", if status.encrypted { "sealed".to_owned() } else { "none".to_owned() }),
            ("mode", if status.read_only { "read-only".to_owned() } else { String::new() }),
            ("other processes", others(&status.processes)),
        ])
    })
}

/// Who uses the directory besides this process.
fn others(processes: &[u32]) -> String {
    let others = processes.iter().filter(|id| **id != std::process::id());
    others.map(u32::to_string).collect::<Vec<_>>().join(", ")
}
