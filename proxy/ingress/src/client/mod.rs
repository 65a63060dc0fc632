//! The connections of clients.
//!
//! `guarded` wraps each one; `framing` and `frames` check HTTP/1 and HTTP/2.

pub(crate) mod body;
pub(crate) mod deadlines;
pub(crate) mod frames;
pub(crate) mod framing;
pub(crate) mod guarded;
pub(crate) mod places;
