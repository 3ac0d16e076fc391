//! A line on a terminal that can be edited, and taken from those that were typed before. They are kept in memory alone: what is said can
//! be secret.

use std::cell::Cell;
use std::io::{self, Write};

use anstream::adapter::strip_str;
use anstream::{AutoStream, ColorChoice};
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::MemHistory;
use rustyline::validate::Validator;
use rustyline::{Config, Context, Editor, ExternalPrinter, Helper};

/// Sees whether something stands in the line, which is looked at after each key.
#[derive(Default)]
struct Watch {
    is_typed: Cell<bool>,
}

impl Hinter for Watch {
    type Hint = String;

    fn hint(&self, line: &str, _: usize, _: &Context<'_>) -> Option<String> {
        if !line.is_empty() {
            self.is_typed.set(true);
        }
        None
    }
}

impl Completer for Watch {
    type Candidate = String;
}

impl Highlighter for Watch {}
impl Validator for Watch {}
impl Helper for Watch {}

pub(super) struct LineEditor {
    editor: Editor<Watch, MemHistory>,
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
        // Without one prompts have no colour.
        editor.set_helper(Some(Watch::default()));
        let printer = editor.create_external_printer().ok()?;
        Some(Self { editor, _printer: Box::new(printer) })
    }

    /// The same, without what was typed and is not read.
    pub(super) fn anew(mut self) -> Option<Self> {
        Self::with(std::mem::take(self.editor.history_mut()))
    }

    /// The next line; `None` if there are no more, or someone interrupts so many times with nothing typed in between. What was typed before
    /// that is dropped.
    pub(super) fn read(&mut self, prompt: &str, times: usize) -> io::Result<Option<String>> {
        let mut interrupts = 0;
        loop {
            let read = self.editor.readline(&shown(prompt));
            let is_typed = self.editor.helper().is_some_and(|watch| watch.is_typed.take());
            match read {
                Ok(line) => return Ok(Some(line)),
                Err(ReadlineError::Interrupted) => {
                    interrupts = if is_typed { 1 } else { interrupts + 1 };
                    if interrupts >= times {
                        return Ok(None);
                    }
                    writeln!(io::stdout(), "Ctrl-C once more, Ctrl-D or /quit ends.")?;
                }
                Err(ReadlineError::Eof) => return Ok(None),
                Err(error) => return Err(io::Error::other(error)),
            }
        }
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
