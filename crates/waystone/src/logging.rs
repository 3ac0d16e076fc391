//! The log: a file in the data directory, since an MCP process's standard error is invisible to people.
//!
//! Only our own crates are logged. Libraries log whole requests when asked to, and a request holds a context.

use std::io;
use std::path::Path;
use std::sync::Mutex;

use tracing::Metadata;
use tracing_subscriber::filter::{FilterFn, LevelFilter};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt};

pub(crate) fn start(data_dir: &Path, level: &str) -> io::Result<()> {
    let log = waystone_store::open_log(data_dir)?;
    let level: LevelFilter = level.parse().map_err(io::Error::other)?;
    let ours = FilterFn::new(|metadata: &Metadata<'_>| metadata.target().starts_with("waystone"));
    let layer = fmt::layer().with_ansi(false).with_timer(TimeAndProcess).with_writer(Mutex::new(log));
    tracing_subscriber::registry().with(layer.with_filter(ours).with_filter(level)).init();
    Ok(())
}

/// Several processes write to one log: each line says which.
struct TimeAndProcess;

impl FormatTime for TimeAndProcess {
    fn format_time(&self, writer: &mut Writer<'_>) -> std::fmt::Result {
        SystemTime.format_time(writer)?;
        write!(writer, " [{}]", std::process::id())
    }
}
