//! Messages between clients and containers.

pub mod channel;
pub mod log_line;
pub mod log_merge;
