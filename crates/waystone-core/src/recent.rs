//! What was used last, at hand: as much as there is room for.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

/// How much there is room for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Most {
    pub(crate) bytes: usize,
    pub(crate) entries: usize,
}

pub(crate) struct Recent<K, V>(Most, Mutex<Entries<K, V>>);

struct Entries<K, V> {
    entries: HashMap<K, Entry<V>>,
    bytes: usize,
    turn: u64,
}

struct Entry<V> {
    value: Arc<V>,
    bytes: usize,
    /// The turn of its last use.
    used: u64,
}

impl<K: Hash + Eq + Clone, V> Recent<K, V> {
    pub(crate) fn new(most: Most) -> Self {
        Self(most, Mutex::new(Entries { entries: HashMap::new(), bytes: 0, turn: 0 }))
    }

    pub(crate) fn find(&self, key: &K) -> Option<Arc<V>> {
        let mut inner = self.1.lock().unwrap_or_else(PoisonError::into_inner);
        inner.turn += 1;
        let turn = inner.turn;
        let entry = inner.entries.get_mut(key)?;
        entry.used = turn;
        Some(Arc::clone(&entry.value))
    }

    /// Keeps a value of so many bytes in place of the one before. What was not used for longest gives way.
    pub(crate) fn keep(&self, key: K, value: V, bytes: usize) {
        let Self(most, inner) = self;
        let mut inner = inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.forget(&key);
        if bytes > most.bytes {
            return;
        }
        inner.bytes += bytes;
        inner.turn += 1;
        let used = inner.turn;
        inner.entries.insert(key, Entry { value: Arc::new(value), bytes, used });
        while inner.bytes > most.bytes || inner.entries.len() > most.entries {
            let oldest = inner.entries.iter().min_by_key(|(_, entry)| entry.used).map(|(key, _)| key.clone());
            let Some(oldest) = oldest else { return };
            inner.forget(&oldest);
        }
    }

    pub(crate) fn forget(&self, key: &K) {
        self.1.lock().unwrap_or_else(PoisonError::into_inner).forget(key);
    }
}

impl<K: Hash + Eq, V> Entries<K, V> {
    fn forget(&mut self, key: &K) {
        if let Some(entry) = self.entries.remove(key) {
            self.bytes -= entry.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_used_for_longest_gives_way() {
        let recent = Recent::new(Most { bytes: 100, entries: 5 });
        for n in 0..5 {
            recent.keep(n, n, 10);
        }
        recent.find(&0).unwrap();
        recent.keep(5, 5, 10);
        assert!(recent.find(&1).is_none() && recent.find(&0).is_some());
        recent.keep(0, 7, 98);
        assert_eq!((recent.find(&0).as_deref(), recent.find(&5)), (Some(&7), None));
        recent.keep(0, 8, 101);
        assert_eq!(recent.find(&0), None);
        recent.keep(1, 1, 100);
        assert!(recent.find(&1).is_some(), "what was forgotten takes no room");
    }
}
