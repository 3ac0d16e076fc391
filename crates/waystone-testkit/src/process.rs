//! The real binary as a child process, driven over standard input and output by a client of a few lines.

use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};

use serde_json::{Value, json};

/// The path of a program of this workspace, built into the same directory as the program that asks.
pub fn binary(name: &str) -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let path = own.ancestors().skip(1).map(|folder| folder.join(name)).find(|path| path.is_file());
    path.unwrap_or_else(|| panic!("{name} is not built; run `cargo build --workspace --bins`"))
}

/// How variables begin that change what the binary does: its own, and those of providers of models.
const OURS: [&str; 6] = ["WAYSTONE_", "WORKRAIL_", "OPENAI_", "ANTHROPIC_", "GEMINI_", "OLLAMA_"];

/// A command for `binary` on `data_dir`, with nothing of the environment that could change what it does.
pub fn command(binary: &Path, data_dir: &Path) -> Command {
    let mut command = Command::new(binary);
    for (name, _) in std::env::vars_os() {
        if OURS.iter().any(|ours| name.to_string_lossy().starts_with(ours)) {
            command.env_remove(name);
        }
    }
    command.env("WAYSTONE_DATA_DIR", data_dir);
    command
}

/// A running `waystone mcp` that has answered `initialize`.
pub struct McpProcess {
    pub child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    next_id: u64,
}

impl McpProcess {
    pub fn start(binary: &Path, data_dir: &Path) -> io::Result<Self> {
        Self::start_with(command(binary, data_dir).arg("mcp"))
    }

    pub fn start_with(command: &mut Command) -> io::Result<Self> {
        let mut process = Self::spawn(command)?;
        process.initialize()?;
        Ok(process)
    }

    /// A process that was not spoken to yet. Its standard error is where `command` says.
    pub fn spawn(command: &mut Command) -> io::Result<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (stdin, stdout) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        Ok(Self { child, stdin, stdout, next_id: 0 })
    }

    pub fn initialize(&mut self) -> io::Result<()> {
        let client = json!({ "name": "testkit", "version": "1" });
        let id = self
            .send("initialize", json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client }))?;
        self.wait_for(id)?;
        self.send_line(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }).to_string())
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn send_line(&mut self, line: &str) -> io::Result<()> {
        self.send_bytes(format!("{line}\n").as_bytes())
    }

    /// Sends what need not be text.
    pub fn send_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stdin.as_mut().ok_or(io::ErrorKind::BrokenPipe)?.write_all(bytes)
    }

    /// Sends a request and returns its id.
    pub fn send(&mut self, method: &str, params: Value) -> io::Result<u64> {
        self.next_id += 1;
        let id = self.next_id;
        self.send_line(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string())?;
        Ok(id)
    }

    pub fn send_call(&mut self, tool: &str, arguments: Value) -> io::Result<u64> {
        self.send("tools/call", json!({ "name": tool, "arguments": arguments }))
    }

    /// The next line that the process writes.
    pub fn receive_line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.stdout.read_line(&mut line)? == 0 || !line.ends_with('\n') {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(line)
    }

    /// The next message that the process sends.
    pub fn receive(&mut self) -> io::Result<Value> {
        let line = self.receive_line()?;
        waystone_core::json::parse_trusted(line.as_bytes()).map_err(io::Error::other)
    }

    pub fn wait_for(&mut self, id: u64) -> io::Result<Value> {
        loop {
            let message = self.receive()?;
            if message["id"] == json!(id) {
                return Ok(message);
            }
        }
    }

    /// Calls a tool: its structured content, as a success or as a failure.
    pub fn call(&mut self, tool: &str, arguments: Value) -> io::Result<Result<Value, Value>> {
        let id = self.send_call(tool, arguments)?;
        Ok(outcome(self.wait_for(id)?))
    }

    /// Closes its standard input and waits until it ends.
    pub fn finish(mut self) -> io::Result<ExitStatus> {
        self.end()
    }

    /// As [`Self::finish`], and may be asked again.
    pub fn end(&mut self) -> io::Result<ExitStatus> {
        drop(self.stdin.take());
        self.child.wait()
    }
}

impl Drop for McpProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A running `waystone serve` on a free port.
pub struct ServeProcess {
    child: Child,
    /// What else it says is not read, and there must be someone to say it to.
    _stdout: BufReader<ChildStdout>,
    /// Host and port.
    pub address: String,
}

impl ServeProcess {
    pub fn start(binary: &Path, data_dir: &Path) -> io::Result<Self> {
        Self::start_with(command(binary, data_dir).arg("serve"))
    }

    pub fn start_with(command: &mut Command) -> io::Result<Self> {
        let mut child = command.args(["--port", "0"]).stdout(Stdio::piped()).spawn()?;
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line)?;
        let address = line.trim().rsplit('/').next().unwrap_or_default().to_owned();
        Ok(Self { child, _stdout: stdout, address })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for ServeProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a command of the system to its end; an error says what it said.
pub fn run(command: &mut Command) -> io::Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let done = command.output().map_err(|error| io::Error::other(format!("{name}: {error}; install it first")))?;
    match done.status.success() {
        true => Ok(()),
        false => Err(io::Error::other(format!("{name} failed: {}", String::from_utf8_lossy(&done.stderr).trim()))),
    }
}

/// What an answer to a tool call says.
pub fn outcome(mut answer: Value) -> Result<Value, Value> {
    if answer.get("error").is_some() {
        return Err(answer);
    }
    let content = answer["result"]["structuredContent"].take();
    if answer["result"]["isError"] == json!(true) { Err(content) } else { Ok(content) }
}
