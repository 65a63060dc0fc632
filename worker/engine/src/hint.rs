//! Hints that containers may have changed.

use model::ids::PodId;

/// Tells that containers may have changed; only a list or an inspection tells how. The default hint means
/// that any may have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hint {
    /// The pod concerned, if the engine tells.
    pub pod: Option<PodId>,
    /// Its container, if a list may not show the change yet.
    pub handle: Option<String>,
    /// A container was created or started and nothing else happened: no news for the worker that did it.
    pub is_start: bool,
}
