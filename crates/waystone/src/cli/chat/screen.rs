//! An answer on a screen as it is written.
//!
//! What is shown always begins what is stored: where the two part, because another attempt began or events were missed, a line says so and
//! the answer is shown from its beginning.

use std::io::{self, Write};

use clap::builder::styling::Style;
use serde::Deserialize;
use serde_json::Value;
use waystone_core::Frame;
use waystone_core::api::{ApprovalStatus, ContextState, ToolOutcome, TurnError};
use waystone_core::id::SegmentId;

use super::call::call_line;
use super::flow::Flow;
use crate::cli::render::{line, plain_text};

/// What happens in a conversation, as far as it is shown.
#[derive(Debug)]
pub(super) enum Event {
    Delta(Delta),
    Completed(Completed),
    State(State),
    Requested(Requested),
    Returned(Returned),
    Resync(Resync),
    Fills(Fills),
}

#[derive(Debug, Deserialize)]
pub(super) struct Delta {
    message_id: SegmentId,
    delta: String,
    attempt: u64,
}

#[derive(Debug, Deserialize)]
pub(super) struct Completed {
    message_id: SegmentId,
    final_content: String,
    #[serde(default)]
    cancelled: bool,
    #[serde(default)]
    warnings: Vec<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct State {
    new_state: ContextState,
    error: Option<TurnError>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Requested {
    tool_calls: Vec<RequestedCall>,
}

#[derive(Debug, Deserialize)]
struct RequestedCall {
    name: String,
    arguments: Value,
    approval_status: ApprovalStatus,
}

#[derive(Debug, Deserialize)]
pub(super) struct Returned {
    tool_name: String,
    outcome: ToolOutcome,
}

#[derive(Debug, Deserialize)]
pub(super) struct Fills {
    message: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct Resync {
    current_state: ContextState,
    message_id: Option<SegmentId>,
    content: String,
    attempt: u64,
    is_complete: bool,
}

impl Event {
    /// `None` for what is not shown.
    pub(super) fn of(frame: &Frame) -> serde_json::Result<Option<Self>> {
        let data = frame.data();
        Ok(Some(match frame.kind() {
            "ContentDelta" => Self::Delta(serde_json::from_str(data)?),
            "MessageCompleted" => Self::Completed(serde_json::from_str(data)?),
            "StateChanged" => Self::State(serde_json::from_str(data)?),
            "ToolCallRequested" => Self::Requested(serde_json::from_str(data)?),
            "ToolCallCompleted" => Self::Returned(serde_json::from_str(data)?),
            "Resync" => Self::Resync(serde_json::from_str(data)?),
            "UsageWarning" => Self::Fills(serde_json::from_str(data)?),
            _ => return Ok(None),
        }))
    }

    /// The state that the conversation is in then, if it is told.
    pub(super) fn state(&self) -> Option<ContextState> {
        match self {
            Self::State(state) => Some(state.new_state),
            Self::Resync(resync) => Some(resync.current_state),
            Self::Delta(_) | Self::Completed(_) | Self::Requested(_) | Self::Returned(_) | Self::Fills(_) => None,
        }
    }
}

/// Shows one answer.
#[derive(Debug)]
pub(super) struct Screen<W> {
    /// No one looks when there is none.
    target: Option<W>,
    /// The message that is shown, in which attempt, and what is shown of it.
    message: Option<(SegmentId, u64)>,
    text: String,
    flow: Flow,
    is_at_margin: bool,
    /// The message that is whole, and whether someone ended it.
    pub(super) completed: Option<(SegmentId, bool)>,
}

impl<W: Write> Screen<W> {
    /// `columns` are those of the terminal that it is shown on, if it is.
    pub(super) fn new(target: Option<W>, columns: Option<usize>) -> Self {
        let flow = Flow::new(columns);
        Self { target, message: None, text: String::new(), flow, is_at_margin: true, completed: None }
    }

    pub(super) fn show(&mut self, event: Event) -> io::Result<()> {
        match event {
            Event::Delta(Delta { message_id, delta, attempt }) => {
                let message = Some((message_id, attempt));
                if self.message != message {
                    self.begin(message)?;
                }
                self.add(&delta)
            }
            Event::Completed(Completed { message_id, final_content, cancelled, warnings }) => {
                let attempt =
                    self.message.as_ref().filter(|(id, _)| *id == message_id).map_or(1, |(_, attempt)| *attempt);
                self.go_to((message_id.clone(), attempt), &final_content)?;
                self.completed = Some((message_id, cancelled));
                warnings.iter().try_for_each(|warning| self.mark(warning))
            }
            Event::Resync(Resync { message_id: Some(id), content, attempt, is_complete, .. }) => {
                self.go_to((id.clone(), attempt), &content)?;
                if is_complete {
                    self.completed = Some((id, false));
                }
                Ok(())
            }
            Event::State(State { new_state: ContextState::TransientFailure, error: Some(error) }) => {
                self.mark(&format!("{}; trying again", error.message))
            }
            Event::Fills(Fills { message }) => self.mark(&message),
            Event::Requested(Requested { tool_calls }) => self.show_calls(&tool_calls),
            Event::Returned(Returned { outcome: ToolOutcome::Succeeded, .. }) => Ok(()),
            Event::Returned(Returned { tool_name, outcome }) => {
                self.mark(&format!("{tool_name}: {}", outcome.as_str().replace('_', " ")))
            }
            Event::Resync(_) | Event::State(_) => Ok(()),
        }
    }

    /// What runs unasked; what does not is asked about.
    fn show_calls(&mut self, calls: &[RequestedCall]) -> io::Result<()> {
        for call in calls.iter().filter(|call| call.approval_status == ApprovalStatus::Approved) {
            self.mark(&call_line(&call.name, &call.arguments))?;
        }
        // What comes next is another message.
        (self.message, self.text) = (None, String::new());
        Ok(())
    }

    /// Shows the rest of a message, or all of it if it does not begin as what is shown.
    fn go_to(&mut self, message: (SegmentId, u64), text: &str) -> io::Result<()> {
        let is_begun = self.message.as_ref().is_some_and(|shown| shown.0 == message.0) && text.starts_with(&self.text);
        if !is_begun {
            self.begin(Some(message.clone()))?;
        }
        self.message = Some(message);
        let rest = text[self.text.len()..].to_owned();
        self.add(&rest)
    }

    fn begin(&mut self, message: Option<(SegmentId, u64)>) -> io::Result<()> {
        if !self.text.is_empty() {
            self.mark("the answer begins anew")?;
        }
        (self.message, self.text) = (message, String::new());
        let rest = self.flow.end();
        self.write(&rest)
    }

    fn add(&mut self, text: &str) -> io::Result<()> {
        self.text += text;
        let shown = self.flow.add(&plain_text(text));
        self.write(&shown)
    }

    /// A line of ours.
    pub(super) fn mark(&mut self, what: &str) -> io::Result<()> {
        self.end_line()?;
        let style = Style::new().dimmed();
        let what = self.flow.wrap(&format!("[{}]", line(what)), 0);
        self.write(&format!("{style}{what}{style:#}\n"))
    }

    /// Ends the line that the text is in.
    pub(super) fn end_line(&mut self) -> io::Result<()> {
        let rest = self.flow.end();
        self.write(&rest)?;
        if self.is_at_margin { Ok(()) } else { self.write("\n") }
    }

    fn write(&mut self, text: &str) -> io::Result<()> {
        let Some(target) = self.target.as_mut().filter(|_| !text.is_empty()) else { return Ok(()) };
        self.is_at_margin = text.ends_with('\n');
        match target.write_all(text.as_bytes()).and_then(|()| target.flush()) {
            // Whoever reads only the beginning has had enough; the answer is kept all the same.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => self.target = None,
            done => done?,
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(name: &str) -> SegmentId {
        name.parse().unwrap()
    }

    fn delta(message: &str, attempt: u64, text: &str) -> Event {
        Event::Delta(Delta { message_id: id(message), delta: text.to_owned(), attempt })
    }

    fn completed(message: &str, text: &str) -> Event {
        Event::Completed(Completed {
            message_id: id(message),
            final_content: text.to_owned(),
            cancelled: false,
            warnings: Vec::new(),
        })
    }

    fn resync(message: &str, attempt: u64, text: &str) -> Event {
        Event::Resync(Resync {
            current_state: ContextState::StreamingLLMResponse,
            message_id: Some(id(message)),
            content: text.to_owned(),
            attempt,
            is_complete: false,
        })
    }

    fn failed(why: &str) -> Event {
        let error = TurnError { code: "C".to_owned(), message: why.to_owned(), hint: String::new() };
        Event::State(State { new_state: ContextState::TransientFailure, error: Some(error) })
    }

    /// What is seen on a screen without colours.
    fn check(events: impl IntoIterator<Item = Event>, seen: &str) {
        check_on(None, events, seen);
    }

    fn check_on(columns: Option<usize>, events: impl IntoIterator<Item = Event>, seen: &str) {
        let mut screen = Screen::new(Some(anstream::StripStream::new(Vec::new())), columns);
        for event in events {
            screen.show(event).unwrap();
        }
        screen.end_line().unwrap();
        assert_eq!(String::from_utf8(screen.target.unwrap().into_inner()).unwrap(), seen);
    }

    #[test]
    fn an_answer_is_shown_as_it_comes_and_nothing_in_it_steers_the_terminal() {
        check(
            [delta("a", 1, "Hi "), delta("a", 1, "\u{1b}[2Jyou\n"), completed("a", "Hi \u{1b}[2Jyou\n")],
            "Hi \\u{1b}[2Jyou\n",
        );
        check([delta("a", 1, "\u{1b}"), delta("a", 1, "[31m")], "\\u{1b}[31m\n");
    }

    #[test]
    fn an_answer_is_broken_between_words_where_the_terminal_ends() {
        let whole = "one two three four five six";
        let parts = [delta("a", 1, "one two three fo"), delta("a", 1, "ur five"), completed("a", whole)];
        check_on(Some(20), parts, "one two three four\nfive six\n");
        check_on(
            Some(20),
            [delta("a", 1, "half of a wo"), failed("it failed")],
            "half of a wo\n[it failed; trying\n  again]\n",
        );
    }

    #[test]
    fn another_attempt_begins_anew_and_says_so() {
        let anew = "half\n[it failed; trying again]\n[the answer begins anew]\nwhole\n";
        check([delta("a", 1, "half"), failed("it failed"), delta("a", 2, "whole"), completed("a", "whole")], anew);
        check([failed("a\nb"), delta("a", 1, "x")], "[a b; trying again]\nx\n");
    }

    #[test]
    fn what_was_missed_is_shown_without_what_was_seen() {
        check([delta("a", 1, "one "), resync("a", 1, "one two "), delta("a", 1, "three")], "one two three\n");
        check(
            [delta("a", 1, "one "), resync("a", 2, "1"), delta("a", 2, " 2")],
            "one \n[the answer begins anew]\n1 2\n",
        );
        check([resync("a", 1, "one "), delta("a", 1, "two"), completed("a", "one two.")], "one two.\n");
        check([completed("a", "all at once")], "all at once\n");
    }
}
