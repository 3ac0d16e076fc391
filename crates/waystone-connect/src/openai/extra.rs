//! What a provider adds to its calls and wants back with them, such as Gemini the signature of the thoughts behind one.
//!
//! It is kept as long as the process lives, and only for the newest calls: providers insist on it only while a turn goes on.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use serde_json::Value;

const CALLS_MAX: usize = 1000;
/// What is longer is not kept.
const CHARS_MAX: usize = 64 * 1024;

#[derive(Debug, Default)]
pub(super) struct Extras(Mutex<VecDeque<(String, Value)>>);

impl Extras {
    /// Keeps what came with the call `id`.
    pub(super) fn keep(&self, id: &str, extra: Value) {
        if extra.to_string().len() > CHARS_MAX {
            return;
        }
        let mut extras = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        extras.push_back((id.to_owned(), extra));
        if extras.len() > CALLS_MAX {
            extras.pop_front();
        }
    }

    pub(super) fn find(&self, id: &str) -> Option<Value> {
        let extras = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        extras.iter().rfind(|(kept, _)| kept == id).map(|(_, extra)| extra.clone())
    }
}
