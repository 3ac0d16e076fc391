//! Ollama: where it is, and which models it has. It is asked for answers over OpenAI's wire.

use std::fmt;
use std::net::Ipv6Addr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::{Request, Uri};
use serde_json::Value;
use tokio::sync::OnceCell;
use tokio::time::timeout;

use crate::http::{Http, connect, endpoint};

const PORT: u16 = 11_434;
/// It is mostly on the same machine, or not there.
const LIST_MAX: Duration = Duration::from_millis(300);
const LIST_BYTES_MAX: usize = 4 * 1024 * 1024;

pub(crate) struct Ollama {
    /// Where its list is; none if its address is none.
    tags: Option<Uri>,
    http: OnceCell<Http>,
    /// The models it had when it was last asked: none if it did not answer.
    found: Mutex<Option<Vec<String>>>,
}

impl Ollama {
    pub(crate) fn new(base_url: &str) -> Self {
        Self { tags: endpoint(base_url, "api/tags"), http: OnceCell::new(), found: Mutex::default() }
    }

    /// The models it has; none if it does not run.
    pub(crate) async fn look(&self) -> Vec<String> {
        let found = timeout(LIST_MAX, self.list()).await.ok().flatten();
        self.found.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&found);
        found.unwrap_or_default()
    }

    /// Whether it had a model when it was last asked.
    pub(crate) fn has(&self, name: &str) -> bool {
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it = |found: &String| found == name || found.strip_suffix(":latest") == Some(name);
        found.as_ref().is_some_and(|found| found.iter().any(is_it))
    }

    async fn list(&self) -> Option<Vec<String>> {
        let tags = self.tags.as_ref()?;
        let http = self.http.get_or_try_init(|| async { connect(tags) }).await.ok()?;
        let mut request = Request::new(Full::<Bytes>::default());
        *request.uri_mut() = tags.clone();
        let response = http.request(request).await.ok().filter(|response| response.status().is_success())?;
        let body = Limited::new(response.into_body(), LIST_BYTES_MAX).collect().await.ok()?.to_bytes();
        let list: Value = serde_json::from_slice(&body).ok()?;
        let name = |model: &Value| model["name"].as_str().map(str::to_owned);
        Some(list["models"].as_array()?.iter().filter_map(name).collect())
    }
}

impl fmt::Debug for Ollama {
    /// Without its address, which may have a password in it.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Ollama").field("found", &self.found).finish_non_exhaustive()
    }
}

/// The address that `OLLAMA_HOST` means, or an address that is given in full: `/v1` at its end is none of it.
pub(crate) fn base_url(host: &str) -> String {
    let host = host.trim().trim_matches(['"', '\'']).trim_end_matches('/');
    let host = host.strip_suffix("/v1").unwrap_or(host);
    if host.contains("://") {
        return to_this_machine(host);
    }
    let (authority, path) = host.split_at(host.find('/').unwrap_or(host.len()));
    let authority =
        authority.parse::<Ipv6Addr>().map_or_else(|_| authority.to_owned(), |address| format!("[{address}]"));
    let (name, port) = match authority.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => (name.to_owned(), port.to_owned()),
        _ => (authority, PORT.to_string()),
    };
    let name = if name.is_empty() { "127.0.0.1" } else { &name };
    to_this_machine(&format!("http://{name}:{port}{path}"))
}

/// What a server listens on everywhere is no place to go to.
fn to_this_machine(url: &str) -> String {
    url.replacen("://0.0.0.0", "://127.0.0.1", 1).replacen("://[::]", "://[::1]", 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_read_as_ollama_reads_it() {
        for (host, url) in [
            ("127.0.0.1:11434", "http://127.0.0.1:11434"),
            ("0.0.0.0", "http://127.0.0.1:11434"),
            ("box", "http://box:11434"),
            (" box:80 ", "http://box:80"),
            (":1234", "http://127.0.0.1:1234"),
            ("::1", "http://[::1]:11434"),
            ("[::]:1234", "http://[::1]:1234"),
            ("box/under", "http://box:11434/under"),
            ("http://box", "http://box"),
            ("https://box:1/", "https://box:1"),
            ("http://box:11434/v1", "http://box:11434"),
            ("http://0.0.0.0:11434/v1/", "http://127.0.0.1:11434"),
        ] {
            assert_eq!(base_url(host), url, "{host}");
        }
    }
}
