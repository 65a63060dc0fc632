//! Messages between clients and containers: frames of channels, and lines of logs with their merge by time.

pub mod channel;
pub mod log_line;
pub mod log_merge;
