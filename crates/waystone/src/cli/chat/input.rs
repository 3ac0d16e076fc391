//! What a person types, one line after the other. On a terminal a line can be edited and taken from those before ([`super::edit`]).

use std::io::{self, BufRead, IsTerminal, Read};

use tokio::task::{JoinHandle, spawn_blocking};

use super::answer::Interrupts;
use super::edit::LineEditor;
use super::prompt::tell;
use crate::platform::forget_typed;

/// A longer line is cut into several.
const LINE_BYTES_MAX: u64 = 1024 * 1024;

pub(super) struct Input {
    editor: Option<LineEditor>,
    /// A read cannot be broken off. One that nobody waits for any more gets the line that comes next.
    reading: Option<JoinHandle<io::Result<Option<String>>>>,
}

impl Input {
    /// Lines are edited where both what is typed and what is shown are on a terminal.
    pub(super) fn open() -> Self {
        let is_terminal = io::stdin().is_terminal() && io::stdout().is_terminal();
        Self { editor: if is_terminal { LineEditor::open() } else { None }, reading: None }
    }

    /// The next line, of which nothing was typed before the question is seen. Whoever pipes an answer has seen it before.
    pub(super) async fn ask_now(
        &mut self,
        question: &str,
        interrupts: &mut Interrupts,
    ) -> anyhow::Result<Option<String>> {
        if io::stdin().is_terminal() {
            forget_typed();
            self.editor = self.editor.take().and_then(LineEditor::anew);
            self.reading.take_if(|reading| reading.is_finished());
        }
        self.read(question, interrupts, 1).await
    }

    /// The next line without its end; `None` when there are no more, or someone interrupts twice: once may have been meant for an answer that
    /// had just ended. What is shown next begins a line.
    pub(super) async fn ask(&mut self, prompt: &str, interrupts: &mut Interrupts) -> anyhow::Result<Option<String>> {
        self.read(prompt, interrupts, 2).await
    }

    /// The same, and someone has had enough who interrupts so often.
    async fn read(
        &mut self,
        prompt: &str,
        interrupts: &mut Interrupts,
        times: usize,
    ) -> anyhow::Result<Option<String>> {
        let Some(mut editor) = self.editor.take() else {
            let line = self.ask_plainly(prompt, interrupts).await?;
            if line.is_none() {
                tell("\n")?;
            }
            return Ok(line);
        };
        // From here on Ctrl-C is a key.
        interrupts.forget();
        let prompt = prompt.to_owned();
        let (editor, line) = spawn_blocking(move || {
            let line = editor.read(&prompt, times);
            (editor, line)
        })
        .await?;
        self.editor = Some(editor);
        Ok(line?)
    }

    async fn ask_plainly(&mut self, prompt: &str, interrupts: &mut Interrupts) -> anyhow::Result<Option<String>> {
        tell(prompt)?;
        let reading = self.reading.get_or_insert_with(|| spawn_blocking(read_line));
        let line = tokio::select! {
            line = reading => line,
            () = interrupts.next() => return Ok(None),
        };
        self.reading = None;
        Ok(line??)
    }

    /// Lets this be taken from what was typed before.
    pub(super) fn remember(&mut self, typed: &str) {
        if let Some(editor) = &mut self.editor {
            editor.remember(typed);
        }
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
