//! Hints that containers may have changed.

use model::ids::PodId;

/// Only a list or an inspection shows what changed. The default hint means any container.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hint {
    pub pod: Option<PodId>,
    /// Set if a list may not show the change yet.
    pub handle: Option<String>,
    /// No news for the worker that did it.
    pub is_start: bool,
}
