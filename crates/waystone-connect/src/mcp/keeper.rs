//! One server that is kept running: started when it is first needed, and anew when it broke, though not too often.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Map, Value};
use tokio::sync::{Mutex, watch};
use tokio::time::{Instant, timeout};
use waystone_core::tools::ToolOutput;

use super::config::Server;
use super::connection::{Connection, Listed, START_MAX};
use super::failure::Refusal;
use super::secret::without_given;
use super::{Given, name};

/// Between two starts there is a second, and then twice as long each time.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// So long a call of a model waits for a server that could not be started before.
const AGAIN_MAX: Duration = Duration::from_secs(1);

pub(super) struct Keeper {
    pub(super) name: String,
    server: Server,
    given: Arc<Given>,
    state: Mutex<State>,
    /// Whether the last start failed.
    has_failed: AtomicBool,
    /// What it listed last.
    last_listed: watch::Sender<Option<Arc<Listed>>>,
    is_closing: watch::Sender<bool>,
}

#[derive(Default)]
struct State {
    connection: Option<Arc<Connection>>,
    /// Whether it is known to do without a handshake.
    is_stateless: bool,
    /// When it was started last, or when that failed.
    last_start: Option<Instant>,
    /// How many starts there were without a long time between them.
    starts: u32,
    /// Why the last start failed, if it did.
    failure: Option<String>,
}

impl Keeper {
    pub(super) fn new(name: String, server: Server, given: Arc<Given>) -> Self {
        let (has_failed, last_listed) = (AtomicBool::new(false), watch::Sender::new(None));
        let is_closing = watch::Sender::new(false);
        Self { name, server, given, state: Mutex::default(), has_failed, last_listed, is_closing }
    }

    /// Whether `tool` has the form of a name of one of its tools.
    pub(super) fn may_have(&self, tool: &str) -> bool {
        tool.starts_with(&name::prefix(&self.name))
    }

    /// What is told of its tools, and why they cannot be called now, if so. While it is started anew they are those that it had: a model that has
    /// called some keeps them, and is told by a call that they cannot be had. Whoever could not be started is not waited for again.
    pub(super) async fn listed(self: &Arc<Self>) -> (Option<Arc<Listed>>, Option<String>) {
        let keeper = self.clone();
        let asked = tokio::spawn(async move { keeper.tools().await });
        let answer = match self.has_failed.load(Ordering::Relaxed) {
            true => timeout(AGAIN_MAX, asked).await,
            false => Ok(asked.await),
        };
        match answer {
            Ok(Ok(Ok((_, listed)))) => {
                self.last_listed.send_replace(Some(listed.clone()));
                (Some(listed), None)
            }
            Ok(Ok(Err(why))) => (self.last_listed.borrow().clone(), Some(why)),
            Ok(Err(panic)) => (self.last_listed.borrow().clone(), Some(panic.to_string())),
            Err(_) => (self.last_listed.borrow().clone(), Some("it is being started again".to_owned())),
        }
    }

    /// The connection, and the tools that were listed over it.
    pub(super) async fn tools(self: &Arc<Self>) -> Result<(Arc<Connection>, Arc<Listed>), String> {
        let connection = self.connection().await?;
        match connection.tools(&self.name).await {
            Ok(listed) => Ok((connection, listed)),
            // To list changes nothing, so that it may be asked twice.
            Err(unlisted) if unlisted.has_ended => {
                let connection = self.connection().await?;
                let listed = connection.tools(&self.name).await.map_err(|unlisted| unlisted.why)?;
                Ok((connection, listed))
            }
            Err(unlisted) => Err(unlisted.why),
        }
    }

    /// None if it has no such tool. An error means that nothing was called.
    pub(super) async fn call(
        self: &Arc<Self>,
        tool: &str,
        arguments: &Map<String, Value>,
    ) -> Result<Option<ToolOutput>, String> {
        let (connection, listed) = self.tools().await?;
        match listed.tools.iter().find(|(told, _)| told.name == tool) {
            Some((_, own_name)) => {
                let mut answer = connection.call(own_name, arguments).await;
                // By the protocol, who says so has not looked at the call. Nothing else is ever sent twice.
                if answer.as_ref().is_err_and(|unanswered| unanswered.is_of_session)
                    && let Ok(connection) = self.connection().await
                {
                    answer = connection.call(own_name, arguments).await;
                }
                Ok(Some(answer.unwrap_or_else(|unanswered| ToolOutput::error(self.say(&unanswered.why)))))
            }
            None => Ok(None),
        }
    }

    /// `text` about this server, or of it.
    pub(super) fn say(&self, text: &str) -> String {
        let text = without_given(text, &self.server.place, &self.given.environment);
        format!("MCP server `{}`: {text}", self.name)
    }

    /// In a task of its own: a start goes on when the call that wanted it was dropped.
    async fn connection(self: &Arc<Self>) -> Result<Arc<Connection>, String> {
        let keeper = self.clone();
        let connected = tokio::spawn(async move { keeper.connect().await }).await;
        connected.unwrap_or_else(|error| Err(format!("its start failed: {error}")))
    }

    async fn connect(&self) -> Result<Arc<Connection>, String> {
        let mut state = self.state.lock().await;
        if *self.is_closing.borrow() {
            return Err("it is shut down".to_owned());
        }
        if let Some(connection) = state.connection.as_ref().filter(|connection| connection.is_usable()) {
            return Ok(connection.clone());
        }
        state.connection = None;
        state.wait_or_start(Instant::now())?;
        let mut is_closing = self.is_closing.subscribe();
        let opened = tokio::select! {
            opened = self.open(&mut state.is_stateless) => opened,
            _ = is_closing.wait_for(|is_closing| *is_closing) => Err("it is shut down".into()),
        };
        match opened {
            Ok(connection) => {
                state.failure = None;
                self.has_failed.store(false, Ordering::Relaxed);
                Ok(state.connection.insert(Arc::new(connection)).clone())
            }
            Err(refusal) => {
                // A start that takes long would use the pause up.
                state.last_start = Some(Instant::now());
                state.failure = Some(refusal.why.clone());
                self.has_failed.store(true, Ordering::Relaxed);
                Err(refusal.why)
            }
        }
    }

    async fn open(&self, is_stateless: &mut bool) -> Result<Connection, Refusal> {
        let deadline = Instant::now() + START_MAX;
        let open = |is_stateless| Connection::open(&self.server.place, &self.given, is_stateless, deadline);
        match open(*is_stateless).await {
            Err(refusal) if refusal.is_of_handshake => {
                let opened = open(!*is_stateless).await.map_err(|_| refusal)?;
                *is_stateless = !*is_stateless;
                Ok(opened)
            }
            opened => opened,
        }
    }

    pub(super) async fn shut_down(&self) {
        self.is_closing.send_replace(true);
        let connection = self.state.lock().await.connection.take();
        if let Some(connection) = connection {
            connection.shut_down().await;
        }
    }

    /// At once, and without waiting for anything.
    pub(super) fn kill(&self) {
        self.is_closing.send_replace(true);
        // If it is locked, a start is under way, which ends by itself now.
        if let Ok(mut state) = self.state.try_lock()
            && let Some(connection) = state.connection.take()
        {
            connection.kill();
        }
    }
}

impl State {
    /// Notes a start at `now`, unless it is too early for one.
    fn wait_or_start(&mut self, now: Instant) -> Result<(), String> {
        if let Some(last_start) = self.last_start {
            let past = now.duration_since(last_start);
            let pause = Duration::from_secs(1 << self.starts.saturating_sub(1).min(5)).min(PAUSE_MAX);
            if past < pause {
                let why = self.failure.as_deref().unwrap_or("it has ended");
                let rest = (pause - past).as_secs_f64().ceil();
                return Err(format!("{why}; it can be started again in {rest} s"));
            }
            if past > PAUSE_MAX {
                self.starts = 0;
            }
        }
        self.last_start = Some(now);
        self.starts += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_half_a_minute_that_went_well_a_server_is_started_at_once() {
        let begun = Instant::now();
        let at = |seconds: u64| begun + Duration::from_secs(seconds);
        let mut state = State::default();
        for seconds in [0, 1, 3, 7, 38, 39] {
            state.wait_or_start(at(seconds)).unwrap();
        }
        assert_eq!(state.wait_or_start(at(40)), Err("it has ended; it can be started again in 1 s".to_owned()));
    }
}
