//! The binary: arguments, settings, wiring. What a command does is in the engine; what it prints is in [`cli`].

mod cli;
mod clock;
mod logging;
mod settings;

use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use waystone_core::Engine;
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
    let settings = Settings::load(&arguments.settings, !matches!(arguments.command, Command::Serve))?;
    cli::warn(&settings.warnings);
    if cli::run_without_store(&arguments.command, &settings, arguments.json)? {
        return Ok(());
    }
    let clock = Arc::new(SystemClock);
    let store = Sqlite::open(&settings.data_dir, clock.clone())?;
    logging::start(&settings.data_dir, settings.text("logLevel"))?;
    let engine = Engine::new(Arc::new(store), clock, settings.limits.clone(), settings.project.clone());
    let done = cli::run(arguments.command, &engine, &settings, arguments.json).await;
    if let Err(error) = &done {
        let code = error.downcast_ref::<waystone_core::Error>().map(waystone_core::Error::code);
        tracing::info!(code, "the command failed");
    }
    engine.close().await;
    done
}
