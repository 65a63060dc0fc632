//! Messages between clients and containers: the frames of channels (`exec`, `cp`, `port-forward`), and
//! lines of logs with their merge by time.

pub mod channel;
pub mod log_line;
pub mod log_merge;
