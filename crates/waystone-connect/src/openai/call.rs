//! Calls of tools, joined from the pieces in which they come.
//!
//! By the book each piece has the index of its call, the first one its id and name, and the others more of its arguments. Servers
//! also repeat id and name, leave out the id or the index, give all calls the same index, make up an id for every piece, and send
//! all arguments so far again with each piece.

use serde_json::Value;
use waystone_core::model::Call;

use super::wire::CallDelta;
use crate::call::{CALLS_BYTES_MAX, CALLS_MAX, object_in, read_arguments, read_cut_arguments};

#[derive(Debug, Default)]
pub(super) struct Calls {
    calls: Vec<Pieces>,
    bytes: usize,
}

/// One call, as far as it came.
#[derive(Debug)]
struct Pieces {
    index: Option<u64>,
    /// Empty until it is given.
    id: String,
    name: String,
    /// All pieces of its arguments, one after the other.
    joined: String,
    /// The last piece, as long as each one began with the one before.
    last: String,
    is_cumulative: bool,
    extra: Option<Value>,
}

/// A whole call.
pub(super) struct Joined {
    pub(super) call: Call,
    /// What the provider wants back with it, if it gave the call an id of its own.
    pub(super) extra: Option<Value>,
}

impl Calls {
    /// Adds a piece; fails when there are too many.
    pub(super) fn add(&mut self, delta: CallDelta) -> Result<(), &'static str> {
        let piece = delta.arguments();
        self.bytes += piece.len();
        let at = match self.find(&delta, &piece) {
            Some(at) => at,
            None if delta.id().is_none() && delta.name().is_none() && piece.is_empty() => return Ok(()),
            None => {
                self.calls.push(Pieces::new(delta.index));
                self.calls.len() - 1
            }
        };
        if self.calls.len() > CALLS_MAX || self.bytes > CALLS_BYTES_MAX {
            return Err("its calls of tools are too long");
        }
        self.calls[at].add(delta, piece);
        Ok(())
    }

    /// The call that a piece belongs to; none if it begins one.
    fn find(&self, delta: &CallDelta, piece: &str) -> Option<usize> {
        let last = self.calls.len().checked_sub(1);
        let at = match (delta.index, delta.id()) {
            (Some(index), _) => self.calls.iter().rposition(|call| call.index == Some(index)),
            (None, Some(id)) => {
                let with_id = self.calls.iter().rposition(|call| call.id == id);
                with_id.or(if delta.name().is_none() { last } else { None })
            }
            (None, None) => last,
        }?;
        let call = &self.calls[at];
        let is_another = match (delta.id(), delta.name()) {
            // An id that differs and has no name with it was made up for the piece.
            (Some(id), Some(_)) => !call.id.is_empty() && call.id != id,
            (None, Some(name)) => !call.name.is_empty() && (call.name != name || call.is_before(delta.index, piece)),
            (_, None) => false,
        };
        (!is_another).then_some(at)
    }

    /// All calls. `before` is how many the conversation had, and `is_cut` whether the last one may not be whole; fails if one
    /// cannot be told.
    pub(super) fn join(self, before: usize, is_cut: bool) -> Result<Vec<Joined>, &'static str> {
        let last = before + self.calls.len();
        let numbered = self.calls.into_iter().zip(before + 1..);
        let join = |(call, number): (Pieces, usize)| call.join(number, is_cut && number == last);
        numbered.map(|call| join(call).ok_or("a call of it has no name")).collect()
    }
}

impl Pieces {
    fn new(index: Option<u64>) -> Self {
        let (id, name, joined, last) = Default::default();
        Self { index, id, name, joined, last, is_cumulative: true, extra: None }
    }

    fn add(&mut self, delta: CallDelta, piece: String) {
        if let (true, Some(id)) = (self.id.is_empty(), delta.id()) {
            self.id = id.to_owned();
        }
        if let Some(name) = delta.name() {
            self.name = name.to_owned();
        }
        self.extra = delta.extra_content.or(self.extra.take());
        if piece.is_empty() {
            return;
        }
        self.joined.push_str(&piece);
        self.is_cumulative &= piece.starts_with(&self.last);
        self.last = if self.is_cumulative { piece } else { String::new() };
    }

    /// Whether it is whole and `piece`, of the same name, does not go on with it: nothing else tells two such calls apart.
    fn is_before(&self, index: Option<u64>, piece: &str) -> bool {
        let is_more = piece.starts_with(&self.last) && self.is_cumulative;
        let is_mere_name = piece.is_empty() && index.is_some();
        !self.joined.is_empty() && !is_more && !is_mere_name && object_in(self.text()).is_some()
    }

    /// What was written as arguments. Pieces that each begin with the one before may still be parts of a whole.
    fn text(&self) -> &str {
        let is_whole = object_in(&self.joined).is_some();
        if self.is_cumulative && !is_whole { &self.last } else { &self.joined }
    }

    /// None without a name.
    fn join(self, number: usize, is_cut: bool) -> Option<Joined> {
        let arguments = if is_cut { read_cut_arguments(self.text()) } else { read_arguments(self.text()) };
        let Self { id, name: tool, extra, .. } = self;
        let (id, extra) = if id.is_empty() { (format!("call_{number}"), None) } else { (id, extra) };
        (!tool.is_empty()).then_some(Joined { call: Call { id, tool, arguments }, extra })
    }
}
