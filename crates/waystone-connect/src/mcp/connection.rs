//! A server that was started or reached, and answers.
//!
//! Servers of any version are spoken to by the handshake that came with the first: those of today still take it, and the others
//! know nothing else. Only who refuses it is asked without one.
//!
//! Once it is broken it stays so; [`super::keeper`] opens another. What becomes of a call is in [`super::failure`].

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hyper::Uri;
use hyper::header::{HeaderName, HeaderValue};
use rmcp::model::{
    CallToolRequestParams, ClientCapabilities, ClientConfig, ErrorCode, Implementation, PaginatedRequestParams,
    ProtocolVersion, ServerPeerInfo, SubscriptionFilter,
};
use rmcp::service::{NotificationContext, Peer, RunningService, ServiceError};
use rmcp::transport::IntoTransport;
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::common::client_side_sse::ExponentialBackoff;
use rmcp::transport::streamable_http_client::{StreamableHttpClientTransport, StreamableHttpClientTransportConfig};
use rmcp::{ClientCacheConfig, ClientHandler, ClientLifecycleMode, RoleClient, serve_client_with_lifecycle};
use serde_json::{Map, Value};
use tokio::process::Command;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use waystone_core::api::Tool;
use waystone_core::prose::quoted;
use waystone_core::tools::ToolOutput;

use super::child::Child;
use super::config::{Place, fill_in};
use super::failure::{self, Refusal, Unanswered};
use super::http::HttpClient;
use super::{Given, name, result, schema};
use crate::http::{Http, connect};

/// How long a start may take, with all that is tried.
pub(super) const START_MAX: Duration = Duration::from_secs(20);
const LIST_MAX: Duration = Duration::from_secs(10);
const TOOLS_MAX: usize = 512;
const PAGES_MAX: usize = 512;
/// Tools that are left out, by name.
const WARNINGS_MAX: usize = 10;
const DESCRIPTION_CHARS_MAX: usize = 1024;
/// How long an answer may still come after the end of the process that wrote it.
const LAST_ANSWER_MAX: Duration = Duration::from_secs(1);
const CLOSE_MAX: Duration = Duration::from_secs(2);
/// How often a stream that broke is asked for again, first after this long, then after twice as long.
const STREAM_RETRIES_MAX: usize = 5;
const STREAM_RETRY: Duration = Duration::from_millis(200);

pub(super) struct Connection {
    peer: Peer<RoleClient>,
    service: Mutex<Option<RunningService<RoleClient, Client>>>,
    child: Option<Child>,
    listed: tokio::sync::Mutex<Option<Arc<Listed>>>,
    has_changed: Arc<AtomicBool>,
    is_too_long: Arc<AtomicBool>,
    is_broken: AtomicBool,
}

/// The tools of a server.
pub(super) struct Listed {
    /// In the order of their names, each with what the server calls it.
    pub(super) tools: Vec<(Tool, String)>,
    /// What a person should know of those that are left out.
    pub(super) warnings: Vec<String>,
}

/// Why they are not known.
pub(super) struct Unlisted {
    pub(super) why: String,
    /// It ended, maybe long ago, and was not slow or unwilling.
    pub(super) has_ended: bool,
}

impl Connection {
    /// Starts or reaches the server at `place`, with a handshake unless it is known to be `stateless`.
    pub(super) async fn open(
        place: &Place,
        given: &Given,
        is_stateless: bool,
        deadline: Instant,
    ) -> Result<Self, Refusal> {
        let opening = Opening { has_changed: Arc::default(), is_too_long: Arc::default(), is_stateless, deadline };
        match place {
            Place::Process { command, args, env, cwd } => {
                let process = process(command, args, env, cwd.as_deref(), given)?;
                let (child, stdout, stdin) = Child::start(process, opening.is_too_long.clone())
                    .map_err(|error| format!("`{command}` cannot be started: {error}"))?;
                // What is too long ends the connection; the SDK would only leave it out, and the call would wait for ever.
                let transport = AsyncRwTransport::new_client(stdout, stdin).with_max_line_length(usize::MAX);
                match opening.serve(transport).await {
                    Ok(service) => Ok(opening.opened(service, Some(child)).await),
                    Err(refusal) => {
                        child.kill();
                        Err(refusal.with_words(&child.last_words().await))
                    }
                }
            }
            Place::Url { url, headers } => {
                let (http, config) = web(url, headers, given)?;
                let client = HttpClient { http, is_too_long: opening.is_too_long.clone() };
                let service = opening.serve(StreamableHttpClientTransport::with_client(client, config)).await?;
                Ok(opening.opened(service, None).await)
            }
        }
    }

    /// Whether more can be asked of it.
    pub(super) fn is_usable(&self) -> bool {
        let has_ended = self.child.as_ref().is_some_and(Child::has_ended);
        !(has_ended || self.peer.is_transport_closed() || self.is_broken.load(Ordering::Relaxed))
    }

    /// Its tools, asked for once, and again when it said that they have changed.
    pub(super) async fn tools(&self, server: &str) -> Result<Arc<Listed>, Unlisted> {
        let mut listed = self.listed.lock().await;
        if self.has_changed.swap(false, Ordering::Relaxed) {
            *listed = None;
        }
        if let Some(listed) = &*listed {
            return Ok(listed.clone());
        }
        let asked = match timeout(LIST_MAX, self.ask_tools(server)).await {
            Ok(asked) => asked.map_err(|error| {
                let why = format!("its tools cannot be listed: {}", failure::list(&error));
                Unlisted { why, has_ended: self.note(&error) }
            })?,
            Err(_) => {
                self.is_broken.store(true, Ordering::Relaxed);
                let why = format!("it did not list its tools within {} s", LIST_MAX.as_secs());
                return Err(Unlisted { why, has_ended: false });
            }
        };
        Ok(listed.insert(Arc::new(asked)).clone())
    }

    async fn ask_tools(&self, server: &str) -> Result<Listed, ServiceError> {
        let (mut found, mut cursor) = (Vec::new(), None);
        for _ in 0..PAGES_MAX {
            let page = PaginatedRequestParams::default().with_cursor(cursor.take());
            let page = match self.peer.list_tools(Some(page)).await {
                // It has something else to offer.
                Err(ServiceError::McpError(error)) if error.code == ErrorCode::METHOD_NOT_FOUND => break,
                page => page?,
            };
            found.extend(page.tools);
            cursor = page.next_cursor;
            if cursor.is_none() || found.len() > TOOLS_MAX {
                break;
            }
        }
        let is_cut = cursor.is_some() || found.len() > TOOLS_MAX;
        found.truncate(TOOLS_MAX);
        found.sort_by(|one, other| one.name.cmp(&other.name));
        found.dedup_by(|one, other| one.name == other.name);
        let own_names: Vec<&str> = found.iter().map(|tool| tool.name.as_ref()).collect();
        let names = name::names(server, &own_names);
        let (mut tools, mut warnings) = (Vec::new(), Vec::new());
        for (name, tool) in names.into_iter().zip(&found) {
            match told(name, tool) {
                Ok(told) => tools.push(told),
                Err(why) => warnings.push(format!("its tool {} is left out: {why}", quoted(&tool.name))),
            }
        }
        tools.sort_by(|(one, _), (other, _)| one.name.cmp(&other.name));
        if let Some(more) = warnings.len().checked_sub(WARNINGS_MAX).filter(|more| *more > 0) {
            warnings.truncate(WARNINGS_MAX);
            warnings.push(format!("and {more} more of its tools are left out"));
        }
        if is_cut {
            warnings.push(format!("it has more than {TOOLS_MAX} tools; the rest is left out"));
        }
        Ok(Listed { tools, warnings })
    }

    /// Calls what the server itself calls `tool`. It is sent once, whatever comes of it.
    pub(super) async fn call(&self, tool: &str, arguments: &Map<String, Value>) -> Result<ToolOutput, Unanswered> {
        let call = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments.clone());
        let answer = tokio::select! {
            answer = self.peer.call_tool_once(call) => answer,
            () = self.ended() => Err(ServiceError::TransportClosed),
        };
        answer.map(result::output).map_err(|error| {
            self.note(&error);
            Unanswered::new(&error, self.is_too_long.load(Ordering::Relaxed))
        })
    }

    /// For ever, if it is no process.
    async fn ended(&self) {
        match &self.child {
            Some(child) => child.ended().await,
            None => std::future::pending().await,
        }
        sleep(LAST_ANSWER_MAX).await;
    }

    /// Whether `error` is the end of it.
    fn note(&self, error: &ServiceError) -> bool {
        let is_final = failure::is_final(error);
        self.is_broken.fetch_or(is_final, Ordering::Relaxed);
        is_final
    }

    /// Ends the session or closes the standard input, and sees to it that the process ends.
    pub(super) async fn shut_down(&self) {
        let service = self.service.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut service) = service {
            let _ = service.close_with_timeout(CLOSE_MAX).await;
        }
        if let Some(child) = &self.child {
            child.finish().await;
        }
    }

    pub(super) fn kill(&self) {
        self.is_broken.store(true, Ordering::Relaxed);
        self.child.iter().for_each(Child::kill);
    }
}

/// What a connection is opened with.
struct Opening {
    has_changed: Arc<AtomicBool>,
    is_too_long: Arc<AtomicBool>,
    is_stateless: bool,
    deadline: Instant,
}

impl Opening {
    async fn serve<T, E, A>(&self, transport: T) -> Result<RunningService<RoleClient, Client>, Refusal>
    where
        T: IntoTransport<RoleClient, E, A>,
        E: std::error::Error + Send + Sync + 'static,
    {
        let client = Client { has_changed: self.has_changed.clone() };
        let lifecycle = match self.is_stateless {
            true => ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::LATEST] },
            false => ClientLifecycleMode::Initialize,
        };
        match timeout_at(self.deadline, serve_client_with_lifecycle(client, transport, lifecycle)).await {
            Ok(Ok(service)) => Ok(service),
            Ok(Err(error)) => Err(Refusal::new(&error)),
            Err(_) => Err(format!("it did not answer within {} s", START_MAX.as_secs()).into()),
        }
    }

    async fn opened(self, service: RunningService<RoleClient, Client>, child: Option<Child>) -> Connection {
        let peer = service.peer().clone();
        // What it lists is kept here, until it says otherwise.
        peer.set_response_cache_config(ClientCacheConfig::disabled()).await;
        if peer.peer_info().is_some_and(|info| !info.protocol_version.has_initialize() && tells_changes(&info)) {
            tokio::spawn(listen(peer.clone(), self.has_changed.clone()));
        }
        Connection {
            peer,
            service: Mutex::new(Some(service)),
            child,
            listed: tokio::sync::Mutex::default(),
            has_changed: self.has_changed,
            is_too_long: self.is_too_long,
            is_broken: AtomicBool::new(false),
        }
    }
}

fn tells_changes(info: &ServerPeerInfo) -> bool {
    info.capabilities.tools.as_ref().is_some_and(|tools| tools.list_changed == Some(true))
}

/// Servers that know no handshake tell of changes only if they are asked to. Ends with the connection.
async fn listen(peer: Peer<RoleClient>, has_changed: Arc<AtomicBool>) {
    let filter = SubscriptionFilter::builder().tools_list_changed().build();
    let Ok(mut subscription) = peer.listen(filter).await else { return };
    while let Ok(Some(_)) = subscription.next().await {
        has_changed.store(true, Ordering::Relaxed);
    }
}

/// Us, as servers see us: nothing can be asked of us.
struct Client {
    has_changed: Arc<AtomicBool>,
}

impl ClientHandler for Client {
    fn get_info(&self) -> ClientConfig {
        let us = Implementation::new("waystone", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(ClientCapabilities::default(), us)
            .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.has_changed.store(true, Ordering::Relaxed);
    }
}

/// `tool` as models are told of it, and its own name. An error says why they are not.
fn told(name: String, tool: &rmcp::model::Tool) -> Result<(Tool, String), String> {
    let annotations = tool.annotations.as_ref();
    let read_only = annotations.and_then(|hints| hints.read_only_hint).unwrap_or(false);
    let idempotent = annotations.and_then(|hints| hints.idempotent_hint).unwrap_or(false);
    let description = tool.description.as_deref().or(tool.title.as_deref()).unwrap_or_default();
    let told = Tool {
        name,
        description: description.chars().take(DESCRIPTION_CHARS_MAX).collect(),
        input_schema: schema::accepted(&tool.input_schema)?,
        read_only,
        idempotent: read_only || idempotent,
    };
    Ok((told, tool.name.to_string()))
}

fn process(
    command: &str,
    args: &[String],
    env: &BTreeMap<String, String>,
    cwd: Option<&str>,
    given: &Given,
) -> Result<Command, String> {
    let mut process = Command::new(command);
    for name in &given.hidden {
        process.env_remove(name);
    }
    for arg in args {
        process.arg(fill_in(arg, &given.environment)?);
    }
    for (name, value) in env {
        process.env(name, fill_in(value, &given.environment)?);
    }
    if let Some(cwd) = cwd {
        process.current_dir(cwd);
    }
    Ok(process)
}

fn web(
    url: &str,
    headers: &BTreeMap<String, String>,
    given: &Given,
) -> Result<(Http, StreamableHttpClientTransportConfig), String> {
    let url = fill_in(url, &given.environment)?;
    let endpoint: Option<Uri> = url.parse().ok();
    let is_web = |uri: &Uri| matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some();
    let endpoint = endpoint.filter(is_web).ok_or("`url` is not an address that begins with http:// or https://")?;
    let mut filled = HashMap::new();
    for (name, value) in headers {
        let (name, value) = header(name, &fill_in(value, &given.environment)?)?;
        filled.insert(name, value);
    }
    // A session that was forgotten breaks the connection: the SDK would take another, and lose what else is under way.
    let config = StreamableHttpClientTransportConfig::with_uri(url).custom_headers(filled);
    let mut config = config.reinit_on_expired_session(false);
    let mut retries = ExponentialBackoff::default();
    (retries.max_times, retries.base_duration) = (Some(STREAM_RETRIES_MAX), STREAM_RETRY);
    config.retry_config = Arc::new(retries);
    Ok((connect(&endpoint)?, config))
}

fn header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), String> {
    let valid_name = HeaderName::try_from(name).map_err(|_| format!("`{name}` is no name of a header"))?;
    let mut valid_value =
        HeaderValue::try_from(value).map_err(|_| format!("header `{name}` has characters that no header has"))?;
    valid_value.set_sensitive(true);
    Ok((valid_name, valid_value))
}
