//! The newest known context of each session, at hand: a save is packed as a delta against it, and a load of it needs no bytes
//! from the store. What is here was saved or read whole by this process; whether it is still the newest, the store says.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::value::RawValue;

use crate::canon::Hash;
use crate::id::{CheckpointId, SessionId};
use crate::pack::Base;

/// How much text is kept, in all.
const TEXT_BYTES_MAX: usize = 32 * 1024 * 1024;
const SESSIONS_MAX: usize = 256;

/// A checkpoint whose context is at hand.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) id: CheckpointId,
    pub(crate) context_hash: Hash,
    /// Of the text as it is.
    pub(crate) raw_hash: Hash,
    pub(crate) context: Arc<RawValue>,
}

impl Known {
    pub(crate) fn as_base(&self) -> Base {
        Base { id: self.id.clone(), raw_hash: self.raw_hash }
    }

    pub(crate) fn text(&self) -> &[u8] {
        self.context.get().as_bytes()
    }
}

type Key = (i64, SessionId);

#[derive(Default)]
pub(crate) struct Recent(Mutex<Entries>);

#[derive(Default)]
struct Entries {
    /// Each with the turn of its last use.
    entries: HashMap<Key, (u64, Arc<Known>)>,
    text_bytes: usize,
    turn: u64,
}

impl Recent {
    pub(crate) fn find(&self, space: i64, session: &SessionId) -> Option<Arc<Known>> {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        inner.turn += 1;
        let turn = inner.turn;
        let (used, known) = inner.entries.get_mut(&(space, session.clone()))?;
        *used = turn;
        Some(Arc::clone(known))
    }

    /// Keeps `known` in place of what was known of the session before. The sessions that were not used for longest give way.
    pub(crate) fn keep(&self, space: i64, session: &SessionId, known: Known) {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        inner.forget(&(space, session.clone()));
        if known.text().len() > TEXT_BYTES_MAX {
            return;
        }
        inner.text_bytes += known.text().len();
        inner.turn += 1;
        let turn = inner.turn;
        inner.entries.insert((space, session.clone()), (turn, Arc::new(known)));
        while inner.text_bytes > TEXT_BYTES_MAX || inner.entries.len() > SESSIONS_MAX {
            let oldest = inner.entries.iter().min_by_key(|(_, (used, _))| *used).map(|(key, _)| key.clone());
            let Some(oldest) = oldest else { return };
            inner.forget(&oldest);
        }
    }
}

impl Entries {
    fn forget(&mut self, key: &Key) {
        if let Some((_, known)) = self.entries.remove(key) {
            self.text_bytes -= known.text().len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sessions_not_used_for_longest_give_way() {
        let recent = Recent::default();
        let session = |n: usize| format!("s{n}").parse::<SessionId>().unwrap();
        let known = |length: usize| {
            let context = RawValue::from_string(format!("\"{}\"", "x".repeat(length))).unwrap();
            Known {
                id: "c".parse().unwrap(),
                context_hash: Hash([0; 32]),
                raw_hash: Hash([0; 32]),
                context: context.into(),
            }
        };
        for n in 0..SESSIONS_MAX {
            recent.keep(1, &session(n), known(10));
        }
        recent.find(1, &session(0)).unwrap();
        recent.keep(1, &session(SESSIONS_MAX), known(10));
        assert!(recent.find(1, &session(1)).is_none() && recent.find(2, &session(0)).is_none());
        recent.keep(1, &session(0), known(TEXT_BYTES_MAX - 2));
        assert_eq!(recent.0.lock().unwrap().entries.len(), 1);
        recent.keep(1, &session(0), known(TEXT_BYTES_MAX));
        assert_eq!(recent.0.lock().unwrap().text_bytes, 0);
    }
}
