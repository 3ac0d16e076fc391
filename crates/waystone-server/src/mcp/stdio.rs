//! Frames over standard input and output, one a line.
//!
//! Lines are bounded in length, and large ones are parsed where they hold up no other request. A line that cannot be taken
//! is answered when it was a request: its sender would wait for ever otherwise.

use std::io;
use std::sync::Arc;

use rmcp::model::{ClientJsonRpcMessage, ContentBlock, ServerJsonRpcMessage, ServerResult};
use rmcp::service::{RoleServer, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::{StdioReader, StdioWriter, Transport, stdio_pipes};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::sync::{Mutex, mpsc};
use waystone_core::Error;
use waystone_core::offload::offload;

use super::aside::with_reply;
use super::frame::{Envelope, Refusal, parse_message};

const QUEUE_MAX: usize = 16;

pub(super) struct Stdio {
    incoming: mpsc::Receiver<ClientJsonRpcMessage>,
    output: Arc<Output>,
}

impl Stdio {
    /// Starts reading lines of up to `bytes_max`.
    pub(super) fn start(bytes_max: u64) -> Self {
        let (reader, writer) = stdio_pipes();
        let output = Arc::new(Output(Mutex::new(writer)));
        let (sender, incoming) = mpsc::channel(QUEUE_MAX);
        let line_max = usize::try_from(bytes_max).unwrap_or(usize::MAX);
        let input = Input { reader: BufReader::with_capacity(64 * 1024, reader), line_max };
        tokio::spawn(input.run(sender, Arc::clone(&output)));
        Self { incoming, output }
    }
}

impl Transport<RoleServer> for Stdio {
    type Error = io::Error;

    fn send(&mut self, message: TxJsonRpcMessage<RoleServer>) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let output = Arc::clone(&self.output);
        async move { output.send(message).await }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        self.incoming.recv().await
    }

    async fn close(&mut self) -> io::Result<()> {
        self.incoming.close();
        Ok(())
    }
}

struct Output(Mutex<StdioWriter>);

impl Output {
    async fn send(&self, mut message: ServerJsonRpcMessage) -> io::Result<()> {
        // Only a reply can be long.
        let length = reply_mut(&mut message).map_or(0, |reply| reply.len());
        let line = offload(length, move || encode(message)).await.map_err(io::Error::other)??;
        let mut writer = self.0.lock().await;
        writer.write_all(&line).await?;
        writer.flush().await
    }
}

/// A line. The text of a tool's reply is also what is structured in it.
fn encode(mut message: ServerJsonRpcMessage) -> io::Result<Vec<u8>> {
    let reply = reply_mut(&mut message).map(std::mem::take);
    let mut line = serde_json::to_vec(&message)?;
    if let Some(reply) = reply {
        line = with_reply(&line, &reply)?;
    }
    line.push(b'\n');
    Ok(line)
}

/// The reply of a tool, as long as it is only text.
fn reply_mut(message: &mut ServerJsonRpcMessage) -> Option<&mut String> {
    let ServerJsonRpcMessage::Response(response) = message else { return None };
    let ServerResult::CallToolResult(result) = &mut response.result else { return None };
    match result.content.as_mut_slice() {
        [ContentBlock::Text(text)] if result.structured_content.is_none() => Some(&mut text.text),
        _ => None,
    }
}

struct Input {
    reader: BufReader<StdioReader>,
    line_max: usize,
}

/// A line as far as it was kept.
enum Line {
    Whole(Vec<u8>),
    TooLong { envelope: Envelope, length: u64 },
}

impl Input {
    async fn run(mut self, sender: mpsc::Sender<ClientJsonRpcMessage>, output: Arc<Output>) {
        loop {
            let line = match self.next_line().await {
                Ok(Some(line)) => line,
                Ok(None) => return,
                Err(error) => return tracing::warn!(%error, "standard input cannot be read"),
            };
            match self.parse(line).await {
                Ok(None) => {}
                Ok(Some(message)) => {
                    if sender.send(message).await.is_err() {
                        return;
                    }
                }
                Err(refusal) => {
                    tracing::info!(code = refusal.error.code(), "a line on standard input was refused");
                    if let Some(answer) = refusal.answer()
                        && let Err(error) = output.send(answer).await
                    {
                        return tracing::warn!(%error, "standard output cannot be written");
                    }
                }
            }
        }
    }

    /// The next line without its end, or `None` at the end of input. The rest of a line that is too long is read and dropped.
    async fn next_line(&mut self) -> io::Result<Option<Line>> {
        let mut line = Vec::new();
        let mut dropped: Option<(Envelope, u64)> = None;
        loop {
            let available = self.reader.fill_buf().await?;
            if available.is_empty() {
                // A last line may lack its end.
                return Ok((!line.is_empty()).then_some(Line::Whole(line)));
            }
            let end = available.iter().position(|&byte| byte == b'\n');
            let part = &available[..end.unwrap_or(available.len())];
            if dropped.is_none() && line.len() + part.len() > self.line_max {
                dropped = Some((Envelope::of(&line), line.len() as u64));
                line = Vec::new();
            }
            match &mut dropped {
                None => line.extend_from_slice(part),
                Some((envelope, length)) => {
                    envelope.feed(part);
                    *length += part.len() as u64;
                }
            }
            let consumed = part.len() + usize::from(end.is_some());
            self.reader.consume(consumed);
            if end.is_some() {
                return Ok(Some(match dropped {
                    None => Line::Whole(line),
                    Some((envelope, length)) => Line::TooLong { envelope, length },
                }));
            }
        }
    }

    async fn parse(&self, line: Line) -> Result<Option<ClientJsonRpcMessage>, Box<Refusal>> {
        match line {
            Line::Whole(line) if line.trim_ascii().is_empty() => Ok(None),
            Line::Whole(line) => {
                let line = Arc::new(line);
                let parsed = offload(line.len(), {
                    let line = Arc::clone(&line);
                    move || parse_message(&line)
                });
                parsed.await.unwrap_or_else(|error| Err(Refusal::of(&line, error))).map(Some)
            }
            Line::TooLong { envelope, length } => {
                let error = Error::PayloadTooLarge { what: "the request", actual: length, max: self.line_max as u64 };
                Err(Box::new(Refusal { envelope, error }))
            }
        }
    }
}
