//! What a person types, one line after the other.

use std::io::{self, BufRead, Read};

use tokio::task::{JoinHandle, spawn_blocking};

use super::answer::Interrupts;
use super::prompt::tell;

/// A longer line is cut into several.
const LINE_BYTES_MAX: u64 = 1024 * 1024;

#[derive(Debug, Default)]
pub(super) struct Input {
    /// A read cannot be broken off. One that nobody waits for any more gets the line that comes next.
    reading: Option<JoinHandle<io::Result<Option<String>>>>,
}

impl Input {
    /// The next line without its end; `None` when there are no more, or someone interrupts.
    pub(super) async fn ask(&mut self, prompt: &str, interrupts: &mut Interrupts) -> anyhow::Result<Option<String>> {
        tell(prompt)?;
        let reading = self.reading.get_or_insert_with(|| spawn_blocking(read_line));
        let line = tokio::select! {
            line = reading => line,
            () = interrupts.next() => return Ok(None),
        };
        self.reading = None;
        Ok(line??)
    }
}

fn read_line() -> io::Result<Option<String>> {
    let mut line = Vec::new();
    if io::stdin().lock().take(LINE_BYTES_MAX).read_until(b'\n', &mut line)? == 0 {
        return Ok(None);
    }
    let line = String::from_utf8_lossy(&line);
    Ok(Some(line.trim_end_matches(['\n', '\r']).to_owned()))
}
