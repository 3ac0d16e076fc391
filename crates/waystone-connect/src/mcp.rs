//! MCP servers whose tools conversations can have.
//!
//! The protocol is the official SDK's. Here is which servers there are ([`config`]), that they run when they are needed
//! ([`keeper`], [`connection`], [`child`], [`http`]), what their tools are called ([`name`]) and take ([`schema`]), and what
//! is told of results ([`result`]) and failures ([`failure`]), without what the server was given in confidence ([`secret`]).
//!
//! A call is sent to a server once. When it is not known what came of it, that is what is said.

mod child;
mod config;
mod connection;
mod failure;
mod http;
mod keeper;
mod name;
mod result;
mod schema;
mod secret;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde_json::{Map, Value};
use waystone_core::tools::{ToolOutput, Toolbox};

pub use config::{Server, parse_servers};
use keeper::Keeper;

/// The longest message that is taken from a server.
const MESSAGE_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Servers, none of which runs before it is needed.
pub struct Servers {
    /// In the order of their names.
    keepers: Vec<Arc<Keeper>>,
}

/// What all servers are given.
struct Given {
    /// Names of variables that they do not inherit.
    hidden: Vec<String>,
    environment: Environment,
}

/// What a name stands for.
type Environment = Box<dyn Fn(&str) -> Option<String> + Send + Sync>;

impl fmt::Debug for Servers {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(self.keepers.iter().map(|keeper| &keeper.name)).finish()
    }
}

impl Servers {
    /// Processes inherit our environment without the variables that are `hidden`; `environment` has the values of `${NAME}`.
    pub fn new(
        servers: BTreeMap<String, Server>,
        hidden: &[&str],
        environment: impl Fn(&str) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        let hidden = hidden.iter().map(|name| (*name).to_owned()).collect();
        let given = Arc::new(Given { hidden, environment: Box::new(environment) });
        let enabled = servers.into_iter().filter(|(_, server)| !server.is_disabled);
        let keepers = enabled.map(|(name, server)| Arc::new(Keeper::new(name, server, given.clone()))).collect();
        Self { keepers }
    }

    /// The tools of all servers, which are asked at once. Who does not answer has those it had before, if any, and a warning says why.
    pub async fn list(&self) -> Toolbox {
        let ask = |keeper: &Arc<Keeper>| {
            let keeper = keeper.clone();
            tokio::spawn(async move { keeper.listed().await })
        };
        let asked: Vec<_> = self.keepers.iter().map(ask).collect();
        let mut toolbox = Toolbox::default();
        for (keeper, answer) in self.keepers.iter().zip(asked) {
            let (listed, why_not) = answer.await.unwrap_or_else(|error| (None, Some(error.to_string())));
            if let Some(listed) = listed {
                toolbox.tools.extend(listed.tools.iter().map(|(tool, _)| tool.clone()));
                toolbox.warnings.extend(listed.warnings.iter().map(|warning| keeper.say(warning)));
            }
            toolbox.warnings.extend(why_not.map(|why| keeper.say(&why)));
        }
        toolbox
    }

    /// Runs one of them; None if no server has such a tool. To drop it is to tell the server that nobody waits any more.
    pub async fn call(&self, tool: &str, arguments: &Map<String, Value>) -> Option<ToolOutput> {
        let mut failure = None;
        for keeper in self.keepers.iter().filter(|keeper| keeper.may_have(tool)) {
            match keeper.call(tool, arguments).await {
                Ok(Some(output)) => return Some(output),
                Ok(None) => {}
                Err(why) => failure = Some(ToolOutput::error(keeper.say(&why))),
            }
        }
        failure
    }

    /// Ends all servers, and waits until they have ended. None is started any more.
    pub async fn shut_down(&self) {
        let end = |keeper: &Arc<Keeper>| {
            let keeper = keeper.clone();
            tokio::spawn(async move { keeper.shut_down().await })
        };
        let ending: Vec<_> = self.keepers.iter().map(end).collect();
        for end in ending {
            let _ = end.await;
        }
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        self.keepers.iter().for_each(|keeper| keeper.kill());
    }
}
