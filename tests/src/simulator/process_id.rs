//! The simulated processes and their ids.

use std::fmt;

/// The number of workers, each on a host of its own.
pub(super) const WORKERS: usize = 3;
/// The number of schedulers.
pub(super) const SCHEDULERS: usize = 2;
/// The number of all processes: the API, the schedulers, the workers.
pub(super) const PROCESSES: usize = 1 + SCHEDULERS + WORKERS;

/// A process, across its restarts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProcessId {
    Api,
    Scheduler(usize),
    Worker(usize),
}

impl ProcessId {
    /// The index of its slot.
    pub(super) fn index(self) -> usize {
        match self {
            ProcessId::Api => 0,
            ProcessId::Scheduler(index) => 1 + index,
            ProcessId::Worker(index) => 1 + SCHEDULERS + index,
        }
    }

    /// The process of a slot.
    pub(super) fn from_index(index: usize) -> Self {
        match index {
            0 => ProcessId::Api,
            index if index <= SCHEDULERS => ProcessId::Scheduler(index - 1),
            index => ProcessId::Worker(index - 1 - SCHEDULERS),
        }
    }

    /// The index of its host, for a worker.
    pub(super) fn host(self) -> Option<usize> {
        match self {
            ProcessId::Worker(index) => Some(index),
            ProcessId::Api | ProcessId::Scheduler(_) => None,
        }
    }
}

impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            ProcessId::Api => "api".to_owned(),
            ProcessId::Scheduler(index) => format!("s{}", index + 1),
            ProcessId::Worker(index) => format!("w{}", index + 1),
        };
        f.pad(&text)
    }
}
