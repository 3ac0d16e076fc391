//! Documents that would take all memory if they were believed, sent to a server whose memory is looked at.

use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::net::TcpStream;
use std::path::Path;

use serde_json::json;
use waystone_core::canon::{hash_object, hash_text};

use crate::contexts::Random;
use crate::harness::private_dir;
use crate::process::{ServeProcess, command};

const MIB: usize = 1024 * 1024;
/// The most that a process may hold, in kB.
pub const PEAK_KB_MAX: u64 = 256_000;

/// What became of a document, and the most memory that the server ever held until then.
#[derive(Debug)]
pub struct Outcome {
    pub name: &'static str,
    pub sent_bytes: usize,
    pub status: u16,
    pub code: String,
    pub peak_kb: u64,
}

type Writer<'a> = &'a mut dyn Write;
type Bomb = (&'static str, fn(Writer<'_>) -> io::Result<()>);

const BOMBS: &[Bomb] = &[
    ("longer than all that is read", |out| {
        head(out)?;
        repeat(out, &checkpoint("c", "00", "{\"k\":0}"), ",", 320 * MIB)
    }),
    ("one context of 200 MiB", |out| one_context(out, "\"", "x", "\"", 200 * MIB)),
    ("ten million levels", |out| one_context(out, "", "[", "", 10 * MIB)),
    ("a number of 60 MiB", |out| one_context(out, "", "9", "", 60 * MIB)),
    ("a list of 30 million zeros", |out| one_context(out, "[0", ",0", "]", 60 * MIB)),
    ("a list of 20 million lists", |out| one_context(out, "[[]", ",[]", "]", 60 * MIB)),
    ("objects whose keys are not in order", |out| one_context(out, "[0", r#",{"b":0,"a":0}"#, "]", 60 * MIB)),
    ("text of escapes", |out| one_context(out, "\"", "\\u0041", "\"", 60 * MIB)),
    ("millions of keys", |out| {
        head(out)?;
        write!(
            out,
            "{{\"checkpointId\":\"c\",\"createdAt\":\"2026-01-01T00:00:00Z\",\"metadata\":{{}},\"contextHash\":\"00\",\"context\":{{\"k\":0"
        )?;
        let mut random = Random::new(1);
        for _ in 0..5_000_000 {
            write!(out, ",\"{:x}\":0", random.number() >> 28)?;
        }
        out.write_all(b"}}]}")
    }),
    ("text that does not compress", |out| {
        let context = format!("{{\"t\":\"{}\"}}", Random::new(2).text(60 * MIB));
        let hash = hash_text(&context).map_err(io::Error::other)?.to_string();
        head(out)?;
        out.write_all(checkpoint("c", &hash, &context).as_bytes())?;
        out.write_all(b"]}")
    }),
    ("metadata of millions of keys", |out| {
        head(out)?;
        write!(out, "{{\"checkpointId\":\"c\",\"metadata\":{{\"k\":0")?;
        repeat(out, ",\"k\":0", "", 60 * MIB)?;
        out.write_all(b"}}]}")
    }),
    ("millions of tags", |out| {
        out.write_all(br#"{"format":"waystone.session","version":1,"session":{"id":"s","tags":["a""#)?;
        repeat(out, ",\"a\"", "", 60 * MIB)?;
        out.write_all(b"]}}")
    }),
    ("a million checkpoints", |out| {
        head(out)?;
        let hash = hash_object(json!({ "k": 0 }).as_object().unwrap()).unwrap().to_string();
        for n in 0..1_000_000 {
            let comma = if n > 0 { "," } else { "" };
            write!(out, "{comma}{}", checkpoint(&format!("c{n}"), &hash, "{\"k\":0}"))?;
        }
        out.write_all(b"]}")
    }),
    ("millions of tasks", |out| {
        project(out)?;
        numbered(out, |n| format!("{{\"task_id\":\"t{n}\",\"current\":false}}"), 200 * MIB)
    }),
    ("millions of segments", |out| {
        project(out)?;
        out.write_all(b"],\"segments\":[")?;
        numbered(out, |n| segment(n, &format!("text {n}")), 250 * MIB)
    }),
    ("a snapshot of millions of segments", |out| {
        project(out)?;
        write!(out, "],\"segments\":[{}],\"snapshots\":[", segment(0, "text"))?;
        write!(
            out,
            "{{\"snapshot_id\":\"n\",\"task_id\":\"t\",\"created_at\":\"2026-01-01T00:00:00Z\",\"segments\":["
        )?;
        let one = r#"{"segment_id":"s0","tier":"working","pinned":false}"#;
        repeat(out, one, ",", 60 * MIB)?;
        out.write_all(b"]}]}")
    }),
    ("zeros compressed by gzip", |out| out.write_all(&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 2, 3, 0, 0])),
    ("a quote that never ends", |out| {
        out.write_all(b"{\"format\":\"")?;
        repeat(out, "x", "", 200 * MIB)
    }),
    ("white space", |out| repeat(out, " ", "", 300 * MIB)),
];

/// Sends every bomb to one server after the other.
pub fn run(binary: &Path) -> io::Result<Vec<Outcome>> {
    let directory = private_dir();
    let server = ServeProcess::start(binary, directory.path())?;
    BOMBS.iter().map(|(name, write)| send(&server, name, write)).collect()
}

/// A good session of about so many bytes, whose contexts hardly compress.
pub fn large_session(binary: &Path, bytes: usize) -> io::Result<Outcome> {
    const CONTEXT_BYTES: usize = 4 * MIB;
    let directory = private_dir();
    let server = ServeProcess::start_with(command(binary, directory.path()).arg("serve"))?;
    send(&server, "a good session", &|out| {
        head(out)?;
        let mut random = Random::new(3);
        for n in 0..bytes / CONTEXT_BYTES {
            let context = format!("{{\"n\":{n},\"t\":\"{}\"}}", random.text(CONTEXT_BYTES));
            let hash = hash_text(&context).map_err(io::Error::other)?.to_string();
            let comma = if n > 0 { "," } else { "" };
            write!(out, "{comma}{}", checkpoint(&format!("c{n}"), &hash, &context))?;
        }
        out.write_all(b"]}")
    })
}

/// A good project of about so many bytes.
pub fn large_project(binary: &Path, bytes: usize) -> io::Result<Outcome> {
    let directory = private_dir();
    let server = ServeProcess::start(binary, directory.path())?;
    send(&server, "a good project", &|out| {
        let mut random = Random::new(4);
        project(out)?;
        out.write_all(b"],\"segments\":[")?;
        for n in 0..bytes / (16 * 1024) {
            let comma = if n > 0 { "," } else { "" };
            write!(out, "{comma}{}", segment(n, &random.text(16 * 1024)))?;
        }
        out.write_all(b"],\"snapshots\":[]}")
    })
}

fn send(
    server: &ServeProcess,
    name: &'static str,
    write: &dyn Fn(Writer<'_>) -> io::Result<()>,
) -> io::Result<Outcome> {
    let stream = TcpStream::connect(&server.address)?;
    let mut out = Chunked { stream: BufWriter::with_capacity(256 * 1024, stream.try_clone()?), sent: 0 };
    let host = &server.address;
    write!(
        out.stream,
        "POST /api/import HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    )?;
    let mut buffered = BufWriter::with_capacity(1024 * 1024, &mut out);
    write(&mut buffered)?;
    buffered.flush()?;
    drop(buffered);
    out.stream.write_all(b"0\r\n\r\n")?;
    out.stream.flush()?;
    let mut reply = BufReader::new(stream);
    let mut status = String::new();
    reply.read_line(&mut status)?;
    let status = status.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default();
    let mut length = 0;
    loop {
        let mut line = String::new();
        reply.read_line(&mut line)?;
        if let Some(stated) = line.to_lowercase().strip_prefix("content-length:") {
            length = stated.trim().parse().unwrap_or_default();
        }
        if line.trim().is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reply.read_exact(&mut body)?;
    let body: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
    let code = body["error"]["code"].as_str().or(body["status"].as_str()).unwrap_or_default().to_owned();
    Ok(Outcome { name, sent_bytes: out.sent, status, code, peak_kb: peak_kb(server.pid())? })
}

/// Writes a body in chunks, since how long it is is not known before.
struct Chunked {
    stream: BufWriter<TcpStream>,
    sent: usize,
}

impl Write for Chunked {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        write!(self.stream, "{:x}\r\n", bytes.len())?;
        self.stream.write_all(bytes)?;
        self.stream.write_all(b"\r\n")?;
        self.sent += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// The most memory that a process ever held.
fn peak_kb(pid: u32) -> io::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    Ok(line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(u64::MAX))
}

fn head(out: Writer<'_>) -> io::Result<()> {
    let session = json!({
        "id": "bomb", "projectId": "p", "tags": [], "createdAt": "2026-01-01T00:00:00Z", "criticalKeys": [], "contextRules": [],
    });
    write!(out, "{{\"format\":\"waystone.session\",\"version\":1,\"session\":{session},\"checkpoints\":[")
}

fn project(out: Writer<'_>) -> io::Result<()> {
    out.write_all(br#"{"format":"waystone.project","version":1,"project":{"project_id":"p"},"tasks":["#)
}

fn checkpoint(id: &str, hash: &str, context: &str) -> String {
    format!(
        "{{\"checkpointId\":\"{id}\",\"createdAt\":\"2026-01-01T00:00:00Z\",\"metadata\":{{}},\"contextHash\":\"{hash}\",\"context\":{context}}}"
    )
}

fn segment(n: usize, text: &str) -> String {
    json!({
        "segment_id": format!("s{n}"), "type": "note", "tier": "working", "pinned": false, "mentions": 0, "gc_survival_count": 0,
        "created_at": "2026-01-01T00:00:00Z", "last_touched_at": "2026-01-01T00:00:00Z", "tags": [], "text": text,
    })
    .to_string()
}

/// A document with one checkpoint, whose context has one long value.
fn one_context(out: Writer<'_>, begin: &str, part: &str, end: &str, bytes: usize) -> io::Result<()> {
    head(out)?;
    let whole = checkpoint("c", "00", "{\"k\":?}");
    let (before, after) = whole.split_once('?').unwrap();
    write!(out, "{before}{begin}")?;
    repeat(out, part, "", bytes)?;
    write!(out, "{end}{after}]}}")
}

fn repeat(out: Writer<'_>, part: &str, between: &str, bytes: usize) -> io::Result<()> {
    out.write_all(part.as_bytes())?;
    let part = format!("{between}{part}");
    let block = part.repeat((64 * 1024 / part.len()).max(1));
    for _ in 0..bytes / block.len() {
        out.write_all(block.as_bytes())?;
    }
    Ok(())
}

fn numbered(out: Writer<'_>, item: impl Fn(usize) -> String, bytes: usize) -> io::Result<()> {
    let (mut n, mut written) = (0, 0);
    while written < bytes {
        let text = item(n);
        let comma = if n > 0 { "," } else { "" };
        write!(out, "{comma}{text}")?;
        (n, written) = (n + 1, written + text.len() + 1);
    }
    Ok(())
}
