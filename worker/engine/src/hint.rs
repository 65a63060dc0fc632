//! Hints that containers may have changed.

use model::ids::PodId;

/// Hints that containers may have changed; only a list or an inspection shows how. The default hint means any
/// container.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hint {
    /// The pod concerned, if known.
    pub pod: Option<PodId>,
    /// Its container, if a list may not show the change yet.
    pub handle: Option<String>,
    /// True if a container was only created or started: no news for the worker that did it.
    pub is_start: bool,
}
