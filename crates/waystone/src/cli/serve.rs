//! `waystone mcp` and `waystone serve`

use std::io::{IsTerminal, Write};
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;
use waystone_core::Engine;
use waystone_core::store::Scope;
use waystone_server::http::{Guard, Http, Peer};
use waystone_server::mcp::Mcp;

use super::failure::Failure;
use crate::settings::Settings;

/// How often is looked for turns that no one runs.
const ADOPTED_AFTER: Duration = Duration::from_secs(1);
/// How long requests under way may take when the server is told to end.
const DRAIN_MAX: Duration = Duration::from_secs(2);

pub(crate) async fn mcp(engine: &Engine, settings: &Settings) -> anyhow::Result<()> {
    let (version, stopped) = (env!("CARGO_PKG_VERSION"), stop_signal()?);
    tracing::info!(version, project = %settings.project, "serving MCP on standard input and output");
    // Agents have a pipe there: who sees this has typed the command.
    if std::io::stdin().is_terminal() {
        super::note(
            "waiting for an agent's messages; `waystone install` sets agents up to start this themselves, Ctrl-C ends it",
        );
    }
    let done = Mcp::new(engine.clone(), &settings.user, settings.tools()).serve_stdio(stopped).await;
    tracing::info!("stopped");
    done.map_err(anyhow::Error::msg)
}

pub(crate) async fn http(engine: &Engine, settings: &Settings) -> anyhow::Result<()> {
    let socket = SocketAddr::new(settings.host(), settings.port());
    let listener = TcpListener::bind(socket).await.map_err(|error| Failure {
        code: "CONFLICT",
        message: format!("cannot listen on {socket}: {error}"),
        hint: "choose another --port; 0 takes a free one".to_owned(),
    })?;
    let (socket, stopped) = (listener.local_addr()?, stop_signal()?);
    tracing::info!(version = env!("CARGO_PKG_VERSION"), %socket, "serving HTTP");
    // Whoever does not read it needs no announcement; the server serves all the same.
    if let Err(error) = announce(socket) {
        tracing::warn!(%error, "the announcement was not printed");
    }
    let (stop, stopping) = watch::channel(false);
    let adopting = tokio::spawn(look_after_turns(engine.clone(), Scope::local(&settings.user)));
    let guard =
        Guard { allowed_origins: settings.allowed_origins(), allow_other_users: settings.is_on("allowOtherUsers") };
    let router = Http::new(engine.clone(), &settings.user, stopping.clone()).with_tools(settings.tools()).router(guard);
    let service = router.into_make_service_with_connect_info::<Peer>();
    let server = axum::serve(listener, service).with_graceful_shutdown(async move {
        stopped.await;
        let _ = stop.send(true);
    });
    tokio::select! {
        done = server => done?,
        () = overdue(stopping) => tracing::warn!("requests under way were broken off"),
    }
    adopting.abort();
    tracing::info!("stopped");
    Ok(())
}

/// Goes on with turns whose processes are gone: those from before the start, and those of others that end meanwhile. What nobody decided
/// about in time expires.
async fn look_after_turns(engine: Engine, scope: Scope) {
    loop {
        match engine.adopt_turns(&scope).await {
            Ok(0) => {}
            Ok(count) => tracing::info!(count, "turns are gone on with whose process is gone"),
            Err(error) => tracing::warn!(%error, "turns cannot be looked for whose process is gone"),
        }
        match engine.expire_tools(&scope).await {
            Ok(0) => {}
            Ok(count) => tracing::info!(count, "calls of tools have expired that nobody decided about"),
            Err(error) => tracing::warn!(%error, "calls of tools cannot be looked for that nobody decided about"),
        }
        tokio::time::sleep(ADOPTED_AFTER).await;
    }
}

/// Completes when the end of the server has been asked for too long ago.
async fn overdue(mut stopping: watch::Receiver<bool>) {
    let _ = stopping.wait_for(|stopping| *stopping).await;
    tokio::time::sleep(DRAIN_MAX).await;
}

/// Says where everything is and what to paste into an MCP client.
fn announce(socket: SocketAddr) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "Waystone is listening on http://{socket}")?;
    writeln!(out, "  REST           http://{socket}/api")?;
    writeln!(out, "  MCP            http://{socket}/mcp")?;
    writeln!(out, "  documentation  http://{socket}/docs")?;
    writeln!(out, "Paste into your MCP client:")?;
    writeln!(
        out,
        "  {{ \"mcpServers\": {{ \"waystone\": {{ \"type\": \"http\", \"url\": \"http://{socket}/mcp\" }} }} }}"
    )?;
    writeln!(out, "Ctrl-C ends it.")?;
    out.flush()
}

/// Completes when the process is asked to end. From the call on, being asked no longer ends it at once.
#[cfg(unix)]
fn stop_signal() -> anyhow::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

#[cfg(not(unix))]
fn stop_signal() -> anyhow::Result<impl Future<Output = ()>> {
    Ok(async { drop(tokio::signal::ctrl_c().await) })
}
