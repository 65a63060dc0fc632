//! Unreadable keys found by a request.

use model::broken_key::BrokenKey;
use store::{RedisKey, StoreError, or_broken};

/// A longer list would hide its first entries.
pub(crate) const MAX_NAMED: usize = 20;

#[derive(Debug, Clone, Default)]
pub(crate) struct BrokenKeys {
    pub(crate) total: u64,
    pub(crate) named: Vec<BrokenKey>,
}

impl BrokenKeys {
    pub(crate) fn push(&mut self, key: BrokenKey) {
        self.total += 1;
        if self.named.len() < MAX_NAMED && !self.named.contains(&key) {
            self.named.push(key);
        }
    }

    pub(crate) fn extend(&mut self, keys: impl IntoIterator<Item = BrokenKey>) {
        keys.into_iter().for_each(|key| self.push(key));
    }

    pub(crate) fn merge(&mut self, other: &BrokenKeys) {
        let before = self.total;
        self.extend(other.named.iter().cloned());
        self.total = before + other.total;
    }

    pub(crate) fn take<T: Default>(
        &mut self,
        read: Result<T, StoreError>,
        key: RedisKey<'_>,
    ) -> Result<T, StoreError> {
        let mut broken = Vec::new();
        let value = or_broken(read, &mut broken, key)?;
        self.extend(broken);
        Ok(value)
    }

    pub(crate) fn sentence(&self) -> String {
        let Some(BrokenKey { key, problem }) = self.named.first() else { return String::new() };
        match self.total {
            1 => format!("the key {key} cannot be read: {problem}"),
            total => format!("{total} keys cannot be read; the first is {key}: {problem}"),
        }
    }

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
