//! The keys that a request found unreadable, so that the answer can name them beside everything else.

use model::broken_key::BrokenKey;
use store::{StoreError, or_broken};

/// The most keys that are named: a longer list would hide its first entries.
pub(crate) const MAX_NAMED: usize = 20;

/// Broken keys: their number, and the first of them.
#[derive(Debug, Clone, Default)]
pub(crate) struct BrokenKeys {
    /// The number of broken keys.
    pub(crate) total: u64,
    /// At most [`MAX_NAMED`] of them.
    pub(crate) named: Vec<BrokenKey>,
}

impl BrokenKeys {
    /// Adds a key.
    pub(crate) fn push(&mut self, key: BrokenKey) {
        self.total += 1;
        if self.named.len() < MAX_NAMED && !self.named.contains(&key) {
            self.named.push(key);
        }
    }

    /// Adds keys.
    pub(crate) fn extend(&mut self, keys: impl IntoIterator<Item = BrokenKey>) {
        keys.into_iter().for_each(|key| self.push(key));
    }

    /// Adds the keys of another count.
    pub(crate) fn merge(&mut self, other: &BrokenKeys) {
        let before = self.total;
        self.extend(other.named.iter().cloned());
        self.total = before + other.total;
    }

    /// Returns what was read. If its key is broken, returns the default and adds the key.
    ///
    /// # Errors
    /// Those that are not about one key.
    pub(crate) fn take<T: Default>(
        &mut self,
        read: Result<T, StoreError>,
        describe: impl FnOnce(&StoreError) -> BrokenKey,
    ) -> Result<T, StoreError> {
        let mut broken = Vec::new();
        let value = or_broken(read, &mut broken, describe)?;
        self.extend(broken);
        Ok(value)
    }

    /// Describes the keys in a sentence; empty if there are none.
    pub(crate) fn sentence(&self) -> String {
        let Some(BrokenKey { key, problem }) = self.named.first() else { return String::new() };
        match self.total {
            1 => format!("the key {key} cannot be read: {problem}"),
            total => format!("{total} keys cannot be read; the first is {key}: {problem}"),
        }
    }

    /// Appends the sentence, if there is one, to what a message says already.
    pub(crate) fn append_to(&self, message: &mut String) {
        if self.total == 0 {
            return;
        }
        if !message.is_empty() {
            message.push_str("; ");
        }
        message.push_str(&self.sentence());
    }
}
