//! The control loops: one per file, each restoring one invariant, none knowing of another.

pub(crate) mod confirm;
pub(crate) mod deaths;
pub(crate) mod drain;
pub(crate) mod guests;
pub(crate) mod orphans;
pub(crate) mod place;
pub(crate) mod reconcile;
pub(crate) mod unschedulable;
