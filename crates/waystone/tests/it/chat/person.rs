//! A person at a command line.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;
use waystone_testkit::harness::private_dir;
use waystone_testkit::process::{binary, command};

pub(crate) struct Person {
    pub(crate) folder: TempDir,
    /// Where a model is, if there is one besides the demo.
    pub(crate) model: Option<String>,
}

impl Person {
    pub(crate) fn new() -> Self {
        Self { folder: private_dir(), model: None }
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> std::process::Command {
        let mut command = command(&binary("waystone"), &self.data());
        command.args(arguments).env_remove("OPENAI_API_KEY").env_remove("OPENAI_BASE_URL");
        command.envs(self.model.as_ref().map(|url| ("OPENAI_BASE_URL", url)));
        command.current_dir(self.folder.path()).stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// What a command prints that does what it is to do.
    pub(crate) fn ask(&self, arguments: &[&str]) -> String {
        printed(&self.run(arguments))
    }

    pub(crate) fn ask_json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.ask(&[&["--json"], arguments].concat())).unwrap()
    }

    pub(crate) fn pipe(&self, arguments: &[&str], input: &[u8]) -> Output {
        let mut command = self.command(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let _ = child.stdin.take().unwrap().write_all(input);
        child.wait_with_output().unwrap()
    }

    /// The id of a new conversation in which something was said.
    pub(crate) fn begin(&self, message: &str) -> String {
        self.ask_json(&["chat", message])["context_id"].as_str().unwrap().to_owned()
    }

    /// What was said on a branch of a conversation: who, and what.
    pub(crate) fn said(&self, context: &str, branch: &str) -> Vec<(String, String)> {
        let shown = self.ask_json(&["context", "show", context, "--branch", branch]);
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let said = |message: &Value| (text(&message["role"]), text(&message["content"][0]["text"]));
        shown["messages"].as_array().unwrap().iter().map(said).collect()
    }
}

pub(crate) fn printed(output: &Output) -> String {
    assert!(output.status.success(), "{}", told(output));
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub(crate) fn told(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
