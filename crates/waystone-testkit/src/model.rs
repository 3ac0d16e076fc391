//! A server that pretends to be a language model, by a script: OpenAI's chat completions and Anthropic's messages as streams, and
//! the list of models that Ollama has.
//!
//! It writes HTTP by hand, so that a body can be cut at any byte, stop anywhere and wait for a test. Nothing in it needs a test to
//! sleep: chunks wait for [`FakeModel::release`], and tests for [`FakeModel::asked`] and [`FakeModel::gone`]. What it says is a
//! [`Reply`]. What breaks the rules of a wire it refuses as the providers do, and what is longer than its [`FakeModel::limit`].

mod anthropic;
mod openai;
mod reply;
mod rule;

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep_until};

pub use reply::Reply;
use reply::{Ending, Script};
use rule::Refusal;

const REQUEST_BYTES_MAX: usize = 64 * 1024 * 1024;

/// A running server. It ends when this is dropped.
pub struct FakeModel {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

struct Shared {
    script: Mutex<VecDeque<Reply>>,
    otherwise: Mutex<Reply>,
    /// None if requests are not kept.
    requests: Option<Mutex<Vec<Asked>>>,
    /// The models of Ollama, if it is one.
    pulled: Mutex<Option<Vec<String>>>,
    /// How many tokens it holds; any number of them if none.
    limit: Mutex<Option<u64>>,
    refusals: Mutex<Vec<String>>,
    asked: watch::Sender<usize>,
    asked_at: Mutex<Option<Instant>>,
    gone: watch::Sender<usize>,
    /// How many more chunks of gated replies may go.
    gate: Semaphore,
}

struct Asked {
    authorization: Option<String>,
    /// Where Anthropic's wire has the key.
    api_key: Option<String>,
    body: Value,
}

/// What is spoken.
#[derive(Clone, Copy)]
enum Wire {
    OpenAi,
    Anthropic,
}

impl FakeModel {
    /// On a port of its own. Until told otherwise it echoes the last user message.
    pub async fn start() -> Self {
        Self::listen(Reply::echo(), Some(Mutex::default())).await
    }

    /// One that keeps no requests, for long runs: it always answers by `reply`.
    pub async fn start_forgetful(reply: Reply) -> Self {
        Self::listen(reply, None).await
    }

    async fn listen(otherwise: Reply, requests: Option<Mutex<Vec<Asked>>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            script: Mutex::default(),
            otherwise: Mutex::new(otherwise),
            requests,
            pulled: Mutex::default(),
            limit: Mutex::default(),
            refusals: Mutex::default(),
            asked: watch::Sender::new(0),
            asked_at: Mutex::default(),
            gone: watch::Sender::new(0),
            gate: Semaphore::new(0),
        });
        let accepting = tokio::spawn(accept(listener, shared.clone()));
        Self { address, shared, accepting }
    }

    /// What `chat/completions` is added to.
    pub fn base_url(&self) -> String {
        format!("http://{}/v1/", self.address)
    }

    /// What `v1/messages` is added to for Anthropic's wire, and `api/tags` for Ollama's list.
    pub fn root_url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Makes it one that Ollama is behind, with these models.
    pub fn pull<T: Into<String>>(&self, models: impl IntoIterator<Item = T>) -> &Self {
        *self.shared.pulled.lock().unwrap() = Some(models.into_iter().map(Into::into).collect());
        self
    }

    /// Makes it refuse what has, with what may be answered, more than so many tokens. It tells the length of prompts in tokens then, else
    /// in words.
    pub fn limit(&self, tokens: u64) -> &Self {
        *self.shared.limit.lock().unwrap() = Some(tokens);
        self
    }

    /// Why requests were refused so far. They took nothing from the script.
    pub fn refusals(&self) -> Vec<String> {
        self.shared.refusals.lock().unwrap().clone()
    }

    /// Adds a reply to the script; each is given once, in order of the requests.
    pub fn then(&self, reply: Reply) -> &Self {
        self.shared.script.lock().unwrap().push_back(reply);
        self
    }

    /// How requests are answered when the script is at its end.
    pub fn otherwise(&self, reply: Reply) -> &Self {
        *self.shared.otherwise.lock().unwrap() = reply;
        self
    }

    /// Lets `chunks` more chunks of gated replies through; those that nobody waits for yet are kept.
    pub fn release(&self, chunks: usize) {
        self.shared.gate.add_permits(chunks);
    }

    /// The bodies of all requests so far.
    pub fn requests(&self) -> Vec<Value> {
        self.kept(|asked| asked.body.clone())
    }

    /// The `Authorization` of all requests so far.
    pub fn authorizations(&self) -> Vec<Option<String>> {
        self.kept(|asked| asked.authorization.clone())
    }

    /// The `x-api-key` of all requests so far.
    pub fn api_keys(&self) -> Vec<Option<String>> {
        self.kept(|asked| asked.api_key.clone())
    }

    fn kept<T>(&self, of: impl Fn(&Asked) -> T) -> Vec<T> {
        let requests = self.shared.requests.as_ref().map(|requests| requests.lock().unwrap());
        requests.iter().flat_map(|requests| requests.iter()).map(of).collect()
    }

    /// Waits until `requests` requests have come since the start.
    pub async fn asked(&self, requests: usize) {
        self.shared.asked.subscribe().wait_for(|asked| *asked >= requests).await.unwrap();
    }

    /// When the newest request began to come; what this server does with it is not in that.
    pub fn asked_at(&self) -> Option<std::time::Instant> {
        self.shared.asked_at.lock().unwrap().map(Instant::into_std)
    }

    /// Waits until `clients` clients have left before the end of their answer.
    pub async fn gone(&self, clients: usize) {
        self.shared.gone.subscribe().wait_for(|gone| *gone >= clients).await.unwrap();
    }
}

impl Drop for FakeModel {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Connections are in its set, so that they end with it.
async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            Ok((stream, _)) = listener.accept() => {
                connections.spawn(serve(stream, shared.clone()));
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Answers requests until one is cut, or the client leaves.
async fn serve(stream: TcpStream, shared: Arc<Shared>) {
    stream.set_nodelay(true).unwrap();
    let (mut reader, mut writer) = stream.into_split();
    let mut received = Vec::new();
    while let Some(request) = Request::read(&mut reader, &mut received).await {
        let ended = tokio::select! {
            ended = answer(&shared, request, &mut writer) => ended,
            () = left(&mut reader, &mut received) => Err(io::ErrorKind::ConnectionReset.into()),
        };
        match ended {
            Ok(Ending::Whole) => {}
            Ok(_) => return,
            Err(_) => return shared.gone.send_modify(|gone| *gone += 1),
        }
    }
}

/// Waits until the client closes; what it sends before is kept for later.
async fn left(reader: &mut OwnedReadHalf, received: &mut Vec<u8>) {
    while reader.read_buf(received).await.is_ok_and(|count| count > 0) {}
}

async fn answer(shared: &Shared, request: Request, writer: &mut OwnedWriteHalf) -> io::Result<Ending> {
    let pulled = shared.pulled.lock().unwrap().clone().filter(|_| request.path == "/api/tags");
    if let Some(models) = pulled {
        let models: Value = models.iter().map(|name| json!({ "name": name, "model": name, "size": 1 })).collect();
        let list = Reply::chunks([json!({ "models": models }).to_string()]).content_type("application/json");
        return play(list.script(Wire::OpenAi, &Value::Null, 0), &shared.gate, writer).await;
    }
    let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
    let wire = if request.path == "/v1/messages" { Wire::Anthropic } else { Wire::OpenAi };
    let limit = *shared.limit.lock().unwrap();
    let refusal = rule::check(wire, &body, limit).err();
    let reply = if !["/v1/chat/completions", "/v1/messages"].contains(&request.path.as_str()) {
        Reply::text("no such path").status(404)
    } else if body["stream"] != json!(true) {
        Reply::text("only streams are answered").status(400)
    } else if let Some(Refusal { code, message }) = refusal {
        shared.refusals.lock().unwrap().push(message.clone());
        Reply::text(&message).status(400).code(code)
    } else {
        let reply = shared.script.lock().unwrap().pop_front();
        reply.unwrap_or_else(|| shared.otherwise.lock().unwrap().clone())
    };
    let prompt = match limit {
        Some(_) => rule::prompt_tokens(&body),
        None => reply::prompt_words(&body),
    };
    let script = reply.script(wire, &body, prompt);
    *shared.asked_at.lock().unwrap() = Some(request.begun);
    if let Some(requests) = &shared.requests {
        let Request { authorization, api_key, .. } = request;
        requests.lock().unwrap().push(Asked { authorization, api_key, body });
    }
    shared.asked.send_modify(|asked| *asked += 1);
    play(script, &shared.gate, writer).await
}

async fn play(script: Script, gate: &Semaphore, writer: &mut OwnedWriteHalf) -> io::Result<Ending> {
    if let Some(head) = &script.head {
        writer.write_all(head.as_bytes()).await?;
    }
    let mut body = Body { writer, piece_bytes: script.split_bytes, held: Vec::new() };
    body.send(&script.opening).await?;
    let begun = Instant::now();
    for (number, chunk) in (0..).zip(&script.chunks) {
        if script.is_gated {
            body.flush().await?;
            gate.acquire().await.unwrap().forget();
        }
        if !script.pause.is_zero() {
            body.flush().await?;
            // Not `sleep`: a timer has milliseconds, so that only the sum of short pauses can be right.
            sleep_until(begun + script.pause * number).await;
        }
        body.send(chunk).await?;
    }
    body.send(&script.closing).await?;
    body.flush().await?;
    match script.ending {
        Ending::Whole => body.writer.write_all(b"0\r\n\r\n").await?,
        Ending::Cut => {}
        Ending::Hang => std::future::pending().await,
    }
    Ok(script.ending)
}

/// A body whose length is not known before its end.
struct Body<'a> {
    writer: &'a mut OwnedWriteHalf,
    /// How many bytes a client gets at once.
    piece_bytes: Option<usize>,
    /// Less than a piece.
    held: Vec<u8>,
}

impl Body<'_> {
    async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.held.extend_from_slice(bytes);
        match self.piece_bytes {
            Some(size) => {
                let held = std::mem::take(&mut self.held);
                let (pieces, rest) = held.split_at(held.len() - held.len() % size);
                self.held = rest.to_vec();
                for piece in pieces.chunks(size) {
                    self.write(piece).await?;
                }
                Ok(())
            }
            None => self.flush().await,
        }
    }

    async fn flush(&mut self) -> io::Result<()> {
        let held = std::mem::take(&mut self.held);
        if held.is_empty() { Ok(()) } else { self.write(&held).await }
    }

    async fn write(&mut self, piece: &[u8]) -> io::Result<()> {
        let mut framed = format!("{:x}\r\n", piece.len()).into_bytes();
        framed.extend_from_slice(piece);
        framed.extend_from_slice(b"\r\n");
        self.writer.write_all(&framed).await
    }
}

struct Request {
    path: String,
    authorization: Option<String>,
    api_key: Option<String>,
    body: Vec<u8>,
    begun: Instant,
}

impl Request {
    /// None at the end of the connection, and if what came is not a request that clients of models make.
    async fn read(reader: &mut OwnedReadHalf, received: &mut Vec<u8>) -> Option<Self> {
        let head_bytes = loop {
            if let Some(end) = received.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                break end + 4;
            }
            if received.len() > REQUEST_BYTES_MAX || reader.read_buf(received).await.ok()? == 0 {
                return None;
            }
        };
        let begun = Instant::now();
        let head = String::from_utf8(received[..head_bytes].to_vec()).ok()?;
        let mut lines = head.lines();
        let path = lines.next()?.split(' ').nth(1)?.to_owned();
        let headers: Vec<_> = lines.filter_map(|line| line.split_once(':')).collect();
        let header = |name: &str| {
            let found = headers.iter().find(|(found, _)| found.eq_ignore_ascii_case(name));
            found.map(|(_, value)| value.trim().to_owned())
        };
        let body_bytes: usize = header("content-length").map_or(Some(0), |length| length.parse().ok())?;
        while received.len() < head_bytes + body_bytes {
            if body_bytes > REQUEST_BYTES_MAX || reader.read_buf(received).await.ok()? == 0 {
                return None;
            }
        }
        let rest = received.split_off(head_bytes + body_bytes);
        let body = std::mem::replace(received, rest).split_off(head_bytes);
        Some(Self { path, authorization: header("authorization"), api_key: header("x-api-key"), body, begun })
    }
}
