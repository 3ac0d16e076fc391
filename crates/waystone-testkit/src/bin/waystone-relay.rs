//! A bare relay, to be measured beside: what a model streams goes on to every reader as it comes, and nothing is kept.
//!
//! `GET /events` follows, `POST /ask` asks the model whose base URL is the first argument.

use std::convert::Infallible;
use std::error::Error;
use std::io::Write;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::response::IntoResponse;
use axum::routing::{get, post};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::broadcast;

/// As many events may wait for a reader.
const WAITING_MAX: usize = 65_536;

#[derive(Clone)]
struct Relay {
    model: String,
    told: broadcast::Sender<Bytes>,
}

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<(), Box<dyn Error>> {
    let model = std::env::args().nth(1).ok_or("where is the model?")?;
    let relay = Relay { model, told: broadcast::Sender::new(WAITING_MAX) };
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let mut stdout = std::io::stdout();
    writeln!(stdout, "relaying on http://{}", listener.local_addr()?)?;
    stdout.flush()?;
    let router = Router::new().route("/events", get(follow)).route("/ask", post(ask)).with_state(relay);
    axum::serve(listener, router).await?;
    Ok(())
}

async fn follow(State(relay): State<Relay>) -> impl IntoResponse {
    let told = relay.told.subscribe();
    let events = futures_util::stream::unfold(told, |mut told| async move {
        let event = told.recv().await.ok()?;
        Some((Ok::<_, Infallible>(event), told))
    });
    ([("content-type", "text/event-stream")], Body::from_stream(events))
}

async fn ask(State(relay): State<Relay>) -> &'static str {
    tokio::spawn(async move { pass_on(&relay).await.is_ok() });
    "{}"
}

/// Every text of the model's stream as an event.
async fn pass_on(relay: &Relay) -> Result<(), Box<dyn Error + Send + Sync>> {
    let address = relay.model.trim_start_matches("http://").split('/').next().unwrap_or_default().to_owned();
    let body =
        json!({ "model": "fake", "stream": true, "messages": [{ "role": "user", "content": "Hi" }] }).to_string();
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let mut stream = TcpStream::connect(&address).await?;
    stream.set_nodelay(true)?;
    stream.write_all((head + &body).as_bytes()).await?;
    let mut lines = BufReader::new(stream).lines();
    let mut sequence = 0;
    while let Some(line) = lines.next_line().await? {
        let Some(data) = line.strip_prefix("data: ") else { continue };
        if data == "[DONE]" {
            break;
        }
        let chunk: Value = serde_json::from_str(data)?;
        if let Some(text) = chunk["choices"][0]["delta"]["content"].as_str().filter(|text| !text.is_empty()) {
            sequence += 1;
            let data = json!({ "delta": text, "sequence": sequence });
            let _ = relay.told.send(format!("event: ContentDelta\ndata: {data}\n\n").into());
        }
    }
    Ok(())
}
