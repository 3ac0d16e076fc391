//! The binary: arguments, settings, wiring. What a command does is in the engine; what it prints is in [`cli`].

mod cli;
mod clock;
mod logging;
mod settings;

use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use waystone_core::Engine;
use waystone_core::store::Scope;
use waystone_server::mcp::Mcp;
use waystone_store::{OpenError, Sqlite};

use cli::{Arguments, Command};
use clock::SystemClock;
use settings::Settings;

/// Exit codes: 0 done, 1 the request failed, 2 the arguments are wrong (clap's own), 3 the store cannot be used.
const EXIT_FAILED: u8 = 1;
const EXIT_STORE: u8 = 3;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let json = arguments.json;
    let outcome = start(arguments);
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            cli::report(&error, json);
            ExitCode::from(if error.is::<OpenError>() { EXIT_STORE } else { EXIT_FAILED })
        }
    }
}

fn start(arguments: Arguments) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let outcome = runtime.block_on(run(arguments));
    // A read of a terminal cannot be broken off; everything else has ended.
    runtime.shutdown_background();
    outcome
}

async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let settings = Settings::load(&arguments.settings)?;
    let clock = Arc::new(SystemClock);
    let store = Sqlite::open(&settings.data_dir, clock.clone())?;
    logging::start(&settings.data_dir)?;
    let engine = Engine::new(Arc::new(store), clock, settings.limits.clone(), settings.project.clone());
    let done = match arguments.command {
        Command::Mcp => serve_mcp(&engine, &settings).await,
        command => cli::run(command, &engine, &Scope::local(settings.user.clone()), arguments.json).await,
    };
    if let Err(error) = &done {
        let code = error.downcast_ref::<waystone_core::Error>().map(waystone_core::Error::code);
        tracing::info!(code, "the command failed");
    }
    engine.close().await;
    done
}

async fn serve_mcp(engine: &Engine, settings: &Settings) -> anyhow::Result<()> {
    tracing::info!(version = env!("CARGO_PKG_VERSION"), project = %settings.project, "serving MCP on standard input and output");
    let done = Mcp::new(engine.clone(), &settings.user).serve_stdio(stop_signal()).await;
    tracing::info!("stopped");
    done.map_err(anyhow::Error::msg)
}

/// Completes when the process is asked to end.
async fn stop_signal() {
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        () = terminate_signal() => {}
    }
}

#[cfg(unix)]
async fn terminate_signal() {
    match tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
        Ok(mut signal) => drop(signal.recv().await),
        Err(_) => std::future::pending().await,
    }
}

#[cfg(not(unix))]
async fn terminate_signal() {
    std::future::pending().await
}
