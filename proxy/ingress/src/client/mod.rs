//! The connections of clients: how many there are, how long they may take, and whether their requests can be
//! read in one way only.

pub(crate) mod body;
pub(crate) mod deadlines;
pub(crate) mod frames;
pub(crate) mod framing;
pub(crate) mod guarded;
pub(crate) mod places;
pub(crate) mod stream;
