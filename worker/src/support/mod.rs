//! Small helpers independent of the worker: logs, metrics, waits.

pub(crate) mod change_log;
pub(crate) mod measure;
pub(crate) mod text;
pub(crate) mod timings;
