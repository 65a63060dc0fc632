//! Commands in containers, and their main processes.

pub(crate) mod exec;
pub(crate) mod interactive;
pub(crate) mod main_process;
mod raw_exec;
