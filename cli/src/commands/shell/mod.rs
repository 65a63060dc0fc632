//! Completion, man pages, and field documentation.

pub(crate) mod complete;
pub(crate) mod completions_and_man;
pub(crate) mod explain;
