//! A line on a terminal that can be edited, and taken from those that were typed before. They are kept in memory alone: what is said can
//! be secret.

use std::io::{self, Write};

use anstream::adapter::strip_str;
use anstream::{AutoStream, ColorChoice};
use rustyline::error::ReadlineError;
use rustyline::history::MemHistory;
use rustyline::{Config, Editor, ExternalPrinter};

pub(super) struct LineEditor {
    editor: Editor<(), MemHistory>,
    /// Nothing is printed with it. While there is one, the editor hears of an interrupt at once and not with the next key.
    _printer: Box<dyn ExternalPrinter + Send>,
}

impl LineEditor {
    /// `None` if the terminal does not let lines be edited.
    pub(super) fn open() -> Option<Self> {
        Self::with(MemHistory::new())
    }

    fn with(history: MemHistory) -> Option<Self> {
        let mut editor = Editor::with_history(Config::default(), history).ok()?;
        // Without one, which does nothing, prompts have no colour.
        editor.set_helper(Some(()));
        let printer = editor.create_external_printer().ok()?;
        Some(Self { editor, _printer: Box::new(printer) })
    }

    /// The same, without what was typed and is not read.
    pub(super) fn anew(mut self) -> Option<Self> {
        Self::with(std::mem::take(self.editor.history_mut()))
    }

    /// The next line; `None` if there are no more, or someone interrupts so many times. What was typed before that is dropped.
    pub(super) fn read(&mut self, prompt: &str, times: usize) -> io::Result<Option<String>> {
        for time in 1.. {
            match self.editor.readline(&shown(prompt)) {
                Ok(line) => return Ok(Some(line)),
                Err(ReadlineError::Interrupted) if time < times => {
                    writeln!(io::stdout(), "Ctrl-C once more, Ctrl-D or /quit ends.")?;
                }
                Err(ReadlineError::Eof | ReadlineError::Interrupted) => break,
                Err(error) => return Err(io::Error::other(error)),
            }
        }
        Ok(None)
    }

    pub(super) fn remember(&mut self, typed: &str) {
        // What is not remembered can be typed again.
        let _ = self.editor.add_history_entry(typed);
    }
}

/// A prompt without colours, and as it is shown.
fn shown(prompt: &str) -> (String, String) {
    let plain = strip_str(prompt).to_string();
    match AutoStream::choice(&io::stdout()) {
        ColorChoice::Never => (plain.clone(), plain),
        _ => (plain, prompt.to_owned()),
    }
}
