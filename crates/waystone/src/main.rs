//! The binary: arguments, settings, wiring. What a command does is in the engine; what it prints is in [`cli`].

mod chat;
mod cli;
mod clock;
mod git;
mod key;
mod keychain;
mod logging;
mod platform;
mod settings;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use tempfile::TempDir;
use waystone_connect::workspace::Bounds;
use waystone_core::Engine;
use waystone_core::clock::Clock;
use waystone_store::{MasterKey, OpenError, Root, Sqlite, find_key_mark};

use cli::{Arguments, Command, OnStore, Prepared};
use clock::SystemClock;
use git::Repository;
use settings::Settings;

fn main() -> ExitCode {
    let umask = platform::keep_to_ourselves();
    let arguments = match cli::parse() {
        Ok(arguments) => arguments,
        Err(error) => return cli::refuse(&error),
    };
    let (json, is_hook) = (arguments.json, cli::hook::is_run_by_client(&arguments.command));
    let is_doctor = matches!(arguments.command, Command::OnStore(OnStore::Doctor(_)));
    match start(arguments, umask) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if is_hook => {
            cli::hook::log(&error);
            ExitCode::SUCCESS
        }
        Err(error) => cli::report(&error, json, is_doctor),
    }
}

fn start(arguments: Arguments, umask: Option<u32>) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let outcome = runtime.block_on(run(arguments, umask));
    // A read of a terminal cannot be broken off; everything else has ended.
    runtime.shutdown_background();
    outcome
}

/// A store, and when the data directory cannot be used, the directory it is in instead and why.
struct Opened {
    store: Arc<Sqlite>,
    volatile: Option<(TempDir, String)>,
}

impl Opened {
    fn root<'a>(&'a self, settings: &'a Settings) -> &'a Path {
        self.volatile.as_ref().map_or(&settings.data_dir, |(directory, _)| directory.path())
    }
}

fn open_with(settings: &Settings, key: Option<&MasterKey>, clock: &Arc<SystemClock>) -> Result<Sqlite, OpenError> {
    let root = Root { path: &settings.data_dir, key, seals: settings.is_on("encryption") };
    match settings.is_on("readOnly") {
        true => Sqlite::open_read_only(root, clock.clone(), &settings.limits),
        false => Sqlite::open(root, clock.clone(), &settings.limits),
    }
}

/// Opens the store. An agent or an application is served also when the data directory cannot be used, from a directory that
/// goes with the process; a person is told at once.
fn open(
    settings: &Settings,
    key: Option<&MasterKey>,
    command: &OnStore,
    clock: &Arc<SystemClock>,
) -> anyhow::Result<Opened> {
    let is_server = matches!(command, OnStore::Mcp | OnStore::Serve);
    match open_with(settings, key, clock) {
        // Its key may be in the keychain, or another start has made it meanwhile.
        Err(OpenError::Sealed { .. } | OpenError::OtherKey { .. }) => {
            let key = key::find(settings)?;
            Ok(Opened { store: Arc::new(open_with(settings, key.as_ref(), clock)?), volatile: None })
        }
        Ok(store) => Ok(Opened { store: Arc::new(store), volatile: None }),
        // What is to be sealed, or is, is not kept plain in another place.
        Err(error @ OpenError::Unusable { .. })
            if is_server
                && !["readOnly", "encryption"].iter().any(|setting| settings.is_on(setting))
                && key.is_none()
                && find_key_mark(&settings.data_dir).flatten().is_none() =>
        {
            let directory = tempfile::Builder::new().prefix("waystone-volatile-").tempdir()?;
            let store = Sqlite::open(directory.path(), clock.clone(), &settings.limits)?;
            Ok(Opened { store: Arc::new(store), volatile: Some((directory, format!("{error}; {}", error.hint()))) })
        }
        Err(error) => Err(error.into()),
    }
}

async fn run(mut arguments: Arguments, umask: Option<u32>) -> anyhow::Result<()> {
    if let Command::OnStore(OnStore::Hook(hook)) = &mut arguments.command {
        hook.read_input()?;
    }
    let has_place = !matches!(arguments.command, Command::OnStore(OnStore::Serve));
    let settings = Settings::load(&arguments.settings, has_place)?;
    if !cli::hook::is_run_by_client(&arguments.command) {
        cli::warn(&settings.warnings);
    }
    let command = match arguments.command {
        Command::Plain(command) => return cli::run_plain(&command, &settings, arguments.json),
        Command::OnStore(command) => command,
    };
    if let Some(done) = cli::run_without_store(&command, &settings, arguments.json) {
        return done;
    }
    let clock = Arc::new(SystemClock);
    let is_read_only = settings.is_on("readOnly");
    // A client that runs a hook shows nothing of what it says: why it failed stands in the log, which needs no store.
    let log_failure = |_: &anyhow::Error| {
        if matches!(command, OnStore::Hook(_)) && !is_read_only && settings.data_dir.is_dir() {
            let _ = logging::start(&settings.data_dir, settings.text("logLevel"));
        }
    };
    let prepared = cli::prepare(&command, &settings, &(clock.clone() as Arc<dyn Clock>)).await;
    let Prepared { key, findings } = prepared.inspect_err(log_failure)?;
    let opened = open(&settings, key.as_ref(), &command, &clock).inspect_err(log_failure)?;
    if !is_read_only && let Err(error) = logging::start(opened.root(&settings), settings.text("logLevel")) {
        cli::warn(&[format!("nothing is logged: {error}")]);
    }
    let mut engine = Engine::new(opened.store.clone(), clock, settings.limits.clone(), settings.project.clone());
    engine = engine.with_context_rules(settings.context_rules()).with_secrets(settings.secrets());
    engine = engine.with_summaries(chat::summaries(&settings));
    if matches!(command, OnStore::Serve | OnStore::Chat(_) | OnStore::Context(_) | OnStore::Models) {
        let private = vec![settings.data_dir.clone(), opened.root(&settings).to_owned()];
        engine = engine.with_chat(chat::chat(&settings, Bounds { private, umask }));
    }
    if is_read_only {
        engine = engine.read_only();
    }
    // A branch can be another one at each save, a repository is where the process was started.
    if let Some(repository) =
        std::env::current_dir().ok().filter(|_| has_place).and_then(|here| Repository::around(&here))
    {
        engine = engine.with_git(Arc::new(move || repository.state()));
    }
    if let Some((_, why)) = &opened.volatile {
        tracing::error!(why, "the data directory cannot be used; nothing is kept");
        engine = engine.volatile(why);
        cli::warn(&engine.warnings());
    }
    let done = cli::run(command, &engine, &settings, arguments.json, findings).await;
    if let Err(error) = &done {
        let code = error.downcast_ref::<waystone_core::Error>().map(waystone_core::Error::code);
        tracing::info!(code, "the command failed");
    }
    engine.close().await;
    done
}
