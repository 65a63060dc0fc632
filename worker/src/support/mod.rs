//! Small helpers independent of the worker: logs, metrics, and the waits that have no setting.

pub(crate) mod change_log;
pub(crate) mod measure;
pub(crate) mod text;
pub(crate) mod timings;
