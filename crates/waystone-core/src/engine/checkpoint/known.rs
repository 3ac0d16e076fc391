//! The newest known context of each session, at hand: a save is packed as a delta against it, and a load of it needs no bytes
//! from the store. What is here was saved or read whole by this process; whether it is still the newest, the store says.

use std::sync::Arc;

use serde_json::value::RawValue;

use crate::canon::Hash;
use crate::engine::Engine;
use crate::id::{CheckpointId, SessionId};
use crate::pack::Base;
use crate::recent::Most;
use crate::store::Scope;

/// How much text is kept, in all.
pub(in crate::engine) const MOST: Most = Most { bytes: 32 * 1024 * 1024, entries: 256 };

/// A checkpoint whose context is at hand.
#[derive(Debug)]
pub(in crate::engine) struct Known {
    pub(in crate::engine) id: CheckpointId,
    pub(in crate::engine) context_hash: Hash,
    /// Of the text as it is.
    pub(in crate::engine) raw_hash: Hash,
    pub(in crate::engine) context: Arc<RawValue>,
}

impl Known {
    pub(in crate::engine) fn as_base(&self) -> Base {
        Base { id: self.id.clone(), raw_hash: self.raw_hash }
    }

    pub(in crate::engine) fn text(&self) -> &[u8] {
        self.context.get().as_bytes()
    }
}

impl Engine {
    pub(super) fn find_known(&self, scope: &Scope, session: &SessionId) -> Option<Arc<Known>> {
        self.contexts.find(&(scope.space, session.clone()))
    }

    pub(super) fn keep_known(&self, scope: &Scope, session: &SessionId, known: Known) {
        let bytes = known.text().len();
        self.contexts.keep((scope.space, session.clone()), known, bytes);
    }
}
