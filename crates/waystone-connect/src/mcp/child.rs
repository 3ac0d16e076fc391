//! A server that is a process of ours: how it is started, what it says on standard error, and how it ends.
//!
//! It leads a process group of its own, and none of the group outlives it or us.

use std::io;
use std::pin::Pin;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};
use tokio::process::{self, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::sync::watch;
use tokio::time::timeout;

use super::MESSAGE_BYTES_MAX;

/// How much of what it said last on standard error is kept.
const WORDS_BYTES_MAX: usize = 4096;
/// How long its last words are waited for.
const WORDS_MAX: Duration = Duration::from_millis(500);
/// How long it may take to end once its standard input is closed.
const END_MAX: Duration = Duration::from_millis(1500);

pub(super) struct Child {
    #[cfg(unix)]
    id: u32,
    has_ended: watch::Receiver<bool>,
    /// Nobody sends once standard error is closed.
    words: watch::Receiver<Vec<u8>>,
    #[cfg(not(unix))]
    waiting: tokio::task::JoinHandle<()>,
}

impl Child {
    /// Starts `command`. What it writes is read until a line `is_too_long`.
    pub(super) fn start(
        mut command: Command,
        is_too_long: Arc<AtomicBool>,
    ) -> io::Result<(Self, BoundedLines, ChildStdin)> {
        #[cfg(unix)]
        command.process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut process = command.spawn()?;
        let id = process.id().ok_or(io::ErrorKind::NotFound)?;
        let (stdin, stdout, stderr) = (process.stdin.take(), process.stdout.take(), process.stderr.take());
        let (Some(stdin), Some(stdout), Some(stderr)) = (stdin, stdout, stderr) else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        let (said, words) = watch::channel(Vec::new());
        tokio::spawn(keep_last(stderr, said));
        let (ended, has_ended) = watch::channel(false);
        let _waiting = tokio::spawn(wait(process, id, ended));
        let child = Self {
            #[cfg(unix)]
            id,
            has_ended,
            words,
            #[cfg(not(unix))]
            waiting: _waiting,
        };
        Ok((child, BoundedLines { stdout, line_bytes: 0, is_too_long }, stdin))
    }

    pub(super) fn has_ended(&self) -> bool {
        *self.has_ended.borrow()
    }

    pub(super) async fn ended(&self) {
        let _ = self.has_ended.clone().wait_for(|has_ended| *has_ended).await;
    }

    /// What it said last on standard error, as one line.
    pub(super) async fn last_words(&self) -> String {
        let mut words = self.words.clone();
        let _ = timeout(WORDS_MAX, words.wait_for(|_| false)).await;
        let words = words.borrow();
        String::from_utf8_lossy(whole_words(&words)).split(|char: char| char.is_whitespace() || char.is_control()).fold(
            String::new(),
            |line, word| match (line.is_empty(), word.is_empty()) {
                (_, true) => line,
                (true, false) => word.to_owned(),
                (false, false) => line + " " + word,
            },
        )
    }

    /// Waits until it ends, as its standard input is closed, and kills it if it does not.
    pub(super) async fn finish(&self) {
        if timeout(END_MAX, self.ended()).await.is_err() {
            self.kill();
            let _ = timeout(END_MAX, self.ended()).await;
        }
    }

    pub(super) fn kill(&self) {
        if !self.has_ended() {
            #[cfg(unix)]
            kill_group(self.id);
            #[cfg(not(unix))]
            self.waiting.abort();
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Whatever it started goes with it.
async fn wait(mut process: process::Child, id: u32, ended: watch::Sender<bool>) {
    let _ = process.wait().await;
    kill_group(id);
    ended.send_replace(true);
}

#[cfg(unix)]
fn kill_group(id: u32) {
    use rustix::process::{Pid, Signal, kill_process_group};
    if let Some(group) = i32::try_from(id).ok().and_then(Pid::from_raw) {
        // It fails if nothing of the group is left.
        let _ = kill_process_group(group, Signal::KILL);
    }
}

#[cfg(not(unix))]
fn kill_group(_: u32) {}

/// Reads all of it, so that the process never waits for a reader, and keeps the end.
async fn keep_last(mut stderr: ChildStderr, said: watch::Sender<Vec<u8>>) {
    let mut piece = [0; 1024];
    while let Ok(length @ 1..) = stderr.read(&mut piece).await {
        said.send_modify(|words| {
            words.extend_from_slice(&piece[..length]);
            words.drain(..words.len().saturating_sub(WORDS_BYTES_MAX));
        });
    }
}

/// Without the first word if it may have been cut: half a secret is not known for one.
fn whole_words(words: &[u8]) -> &[u8] {
    if words.len() < WORDS_BYTES_MAX {
        return words;
    }
    words.iter().position(u8::is_ascii_whitespace).map_or(&[], |end| &words[end..])
}

/// Standard output, until a line is too long. Each line is a message, and who reads it keeps all of it in memory.
pub(super) struct BoundedLines {
    stdout: ChildStdout,
    line_bytes: usize,
    is_too_long: Arc<AtomicBool>,
}

impl AsyncRead for BoundedLines {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stdout).poll_read(context, buffer))?;
        let read = &buffer.filled()[before..];
        self.line_bytes = match read.iter().rposition(|byte| *byte == b'\n') {
            Some(end) => read.len() - end - 1,
            None => self.line_bytes + read.len(),
        };
        if self.line_bytes > MESSAGE_BYTES_MAX {
            self.is_too_long.store(true, Ordering::Relaxed);
            return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
        }
        Poll::Ready(Ok(()))
    }
}
