//! The command line itself: completion, man pages, and the fields of files.

pub(crate) mod complete;
pub(crate) mod completions_and_man;
pub(crate) mod explain;
