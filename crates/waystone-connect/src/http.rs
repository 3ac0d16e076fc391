//! How servers are reached over HTTP: a client with its pool of connections, and TLS where the address wants it.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::Uri;
use hyper::body::Bytes;
use hyper_rustls::{ConfigBuilderExt, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tower::BoxError;
use tower::timeout::Timeout;
use tower::util::BoxCloneSyncService;

/// Who we say we are.
pub(crate) const AGENT: &str = concat!("waystone/", env!("CARGO_PKG_VERSION"));

/// Name, address and TLS together.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// How long a connection is kept for the next call. Servers close idle ones after a minute or more.
const IDLE_MAX: Duration = Duration::from_secs(30);
const IDLE_CONNECTIONS_MAX: usize = 8;

/// Boxed, as the client wants futures that can be moved.
type Connector = BoxCloneSyncService<Uri, MaybeHttpsStream<TokioIo<TcpStream>>, BoxError>;
pub(crate) type Http = Client<Connector, Full<Bytes>>;

/// The system's certificates are read only if they are needed: a server on this machine needs none.
pub(crate) fn connect(endpoint: &Uri) -> Result<Http, String> {
    let tls = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring has the cipher suites of TLS 1.2 and 1.3");
    let tls = if endpoint.scheme_str() == Some("https") {
        tls.with_native_roots()
            .map_err(|_| "this system has no trusted certificates, so https cannot be used".to_owned())?
    } else {
        tls.with_root_certificates(RootCertStore::empty())
    };
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    let connector = HttpsConnectorBuilder::new()
        .with_tls_config(tls.with_no_client_auth())
        .https_or_http()
        .enable_http1()
        .wrap_connector(tcp);
    Ok(Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE_MAX)
        .pool_max_idle_per_host(IDLE_CONNECTIONS_MAX)
        .build(Connector::new(Timeout::new(connector, CONNECT_MAX))))
}

/// `base_url` with `path` under it; its query stays. None if it is not a web address.
pub(crate) fn endpoint(base_url: &str, path: &str) -> Option<Uri> {
    let (base, query) = base_url.trim().split_once('?').unwrap_or((base_url.trim(), ""));
    let mark = if query.is_empty() { "" } else { "?" };
    let uri: Uri = format!("{}/{path}{mark}{query}", base.trim_end_matches('/')).parse().ok()?;
    let is_web = matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some_and(|host| !host.is_empty());
    is_web.then_some(uri)
}

/// The innermost error: the layers around it only say that something failed.
pub(crate) fn root_cause(error: &dyn Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}
