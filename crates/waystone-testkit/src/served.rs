//! The real binary as a server, and a client of a few lines: requests, and a reader of server-sent events.

use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Map, Value};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use crate::process::command;

/// A running `waystone serve`. Dropping it kills it.
pub struct Served {
    child: Child,
    pub address: String,
}

impl Served {
    pub async fn start(binary: &Path, data_dir: &Path, environment: &[(&str, String)]) -> io::Result<Self> {
        let mut command = command(binary, data_dir);
        command.envs(environment.iter().map(|(name, value)| (name, value))).args(["--port", "0", "serve"]);
        Self::start_with(command).await
    }

    /// Starts a command that says in its first line where it listens.
    pub async fn start_with(mut command: Command) -> io::Result<Self> {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let stdout = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let first = tokio::task::spawn_blocking(move || {
            let mut line = String::new();
            io::BufRead::read_line(&mut io::BufReader::new(stdout), &mut line).map(|_| line)
        });
        let line = first.await.map_err(io::Error::other)??;
        let address = line.trim().rsplit_once("http://").map(|(_, address)| address.to_owned());
        let address = address.ok_or_else(|| io::Error::other(format!("it does not say where it listens: {line:?}")))?;
        Ok(Self { child, address })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// kill -9.
    pub fn kill(&mut self) -> io::Result<()> {
        self.child.kill()?;
        self.child.wait().map(drop)
    }

    pub async fn post(&self, path: &str, body: Value) -> io::Result<(u16, Value)> {
        request(&self.address, "POST", path, Some(body)).await
    }

    pub async fn get(&self, path: &str) -> io::Result<(u16, Value)> {
        request(&self.address, "GET", path, None).await
    }

    pub async fn follow(&self, context: &str, after: Option<&str>) -> io::Result<Events> {
        Events::open(&self.address, &format!("/api/contexts/{context}/events"), after).await
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

/// One request on a connection of its own.
pub async fn request(address: &str, method: &str, path: &str, body: Option<Value>) -> io::Result<(u16, Value)> {
    let body = body.map(|body| body.to_string()).unwrap_or_default();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all((head + &body).as_bytes()).await?;
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply).await?;
    let text = String::from_utf8_lossy(&reply);
    let status = text.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or(io::ErrorKind::UnexpectedEof)?;
    let body = text.split_once("\r\n\r\n").map(|(_, body)| body).unwrap_or_default();
    Ok((status, serde_json::from_str(body).unwrap_or(Value::Null)))
}

/// An event as a reader gets it.
#[derive(Debug, Clone, PartialEq)]
pub struct Told {
    /// Empty for what has none.
    pub id: String,
    pub kind: String,
    pub data: Map<String, Value>,
}

/// A stream of server-sent events.
pub struct Events {
    stream: BufReader<TcpStream>,
    /// What was read and is no whole event yet.
    held: String,
}

impl Events {
    pub async fn open(address: &str, path: &str, after: Option<&str>) -> io::Result<Self> {
        let after = after.map(|id| format!("Last-Event-ID: {id}\r\n")).unwrap_or_default();
        let head = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nAccept: text/event-stream\r\n{after}\r\n");
        let mut stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        stream.write_all(head.as_bytes()).await?;
        let mut stream = BufReader::new(stream);
        let mut line = String::new();
        stream.read_line(&mut line).await?;
        if !line.contains(" 200 ") {
            return Err(io::Error::other(format!("events are not told: {line}")));
        }
        while line != "\r\n" {
            line.clear();
            if stream.read_line(&mut line).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(Self { stream, held: String::new() })
    }

    /// The next event; `None` when the stream ends.
    pub async fn next(&mut self) -> io::Result<Option<Told>> {
        loop {
            if let Some(end) = self.held.find("\n\n") {
                let event: String = self.held.drain(..end + 2).collect();
                return Ok(Some(parse(&event)?));
            }
            let mut size = String::new();
            if self.stream.read_line(&mut size).await? == 0 {
                return Ok(None);
            }
            let size = usize::from_str_radix(size.trim(), 16).map_err(io::Error::other)?;
            let mut chunk = vec![0; size + 2];
            self.stream.read_exact(&mut chunk).await?;
            if size == 0 {
                return Ok(None);
            }
            self.held.push_str(std::str::from_utf8(&chunk[..size]).map_err(io::Error::other)?);
        }
    }

    /// Reads on until `mark` has come by. What else is told is not looked at: a thousand readers cost more than who tells them otherwise.
    pub async fn pass(&mut self, mark: &str) -> io::Result<()> {
        let mut kept = self.held.split_off(0).into_bytes();
        while !kept.windows(mark.len()).any(|part| part.first() == mark.as_bytes().first() && part == mark.as_bytes()) {
            // It may be cut where a read ends.
            kept.drain(..kept.len().saturating_sub(mark.len()));
            let read = self.stream.fill_buf().await?;
            if read.is_empty() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            kept.extend_from_slice(read);
            let length = read.len();
            self.stream.consume(length);
        }
        Ok(())
    }
}

fn parse(event: &str) -> io::Result<Told> {
    let field = |name: &str| {
        let line = event.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_default().trim_start().to_owned()
    };
    let data = serde_json::from_str(&field("data:")).map_err(io::Error::other)?;
    Ok(Told { id: field("id:"), kind: field("event:"), data })
}
