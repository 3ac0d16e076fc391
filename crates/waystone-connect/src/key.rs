//! The key of a provider.

use std::fmt;

use zeroize::Zeroizing;

/// What is seen instead of a key.
pub(crate) const HIDDEN: &str = "[key]";

/// Never printed, and wiped when dropped.
#[derive(Clone)]
pub(crate) struct Key(Zeroizing<String>);

impl Key {
    /// None if `text` is blank. Files and shells leave line ends around it, which are no part of it.
    pub(crate) fn new(text: String) -> Option<Self> {
        let text = Zeroizing::new(text);
        let trimmed = text.trim();
        (!trimmed.is_empty()).then(|| Self(Zeroizing::new(trimmed.to_owned())))
    }

    /// The key itself, for the request alone.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }

    /// `text` without the key, in case a provider echoes it.
    pub(crate) fn hide_in(&self, text: &str) -> String {
        text.replace(self.expose(), HIDDEN)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(HIDDEN)
    }
}
