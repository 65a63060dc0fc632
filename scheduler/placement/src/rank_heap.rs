//! Nodes of which the best is looked for again and again while their keys rise.
//!
//! Tests: tests

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use crate::snapshot::RankKey;

/// By their keys when they were last looked at. Within a batch a key only rises, so these are lower bounds.
#[derive(Clone, Default)]
pub(crate) struct RankHeap(BinaryHeap<Reverse<RankKey>>);

impl RankHeap {
    pub(crate) fn push(&mut self, key: RankKey) {
        self.0.push(Reverse(key));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// No key of now precedes it.
    pub(crate) fn bound(&self) -> Option<RankKey> {
        self.0.peek().map(|first| first.0)
    }

    /// Returns the best key of now. `current` returns that of a node by its index, or `None` if the node is
    /// refused for the rest of the batch.
    pub(crate) fn best(&mut self, current: impl Fn(u32) -> Option<RankKey>) -> Option<RankKey> {
        while let Some(mut first) = self.0.peek_mut() {
            match current(first.0.index) {
                None => drop(PeekMut::pop(first)),
                Some(key) if key == first.0 => return Some(key),
                Some(key) => *first = Reverse(key),
            }
        }
        None
    }
}

impl FromIterator<RankKey> for RankHeap {
    fn from_iter<I: IntoIterator<Item = RankKey>>(keys: I) -> Self {
        Self(keys.into_iter().map(Reverse).collect())
    }
}
