//! Who there is.

use std::fmt::Display;

/// How many workers there are, each with a host of its own.
pub(super) const WORKERS: usize = 3;
/// How many schedulers.
pub(super) const SCHEDULERS: usize = 2;
/// All processes: the API, the schedulers, the workers.
pub(super) const PROCESSES: usize = 1 + SCHEDULERS + WORKERS;

/// A process, over all its lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Who {
    Api,
    Scheduler(usize),
    Worker(usize),
}

impl Who {
    pub(super) fn index(self) -> usize {
        match self {
            Who::Api => 0,
            Who::Scheduler(index) => 1 + index,
            Who::Worker(index) => 1 + SCHEDULERS + index,
        }
    }

    pub(super) fn at(index: usize) -> Self {
        match index {
            0 => Who::Api,
            index if index <= SCHEDULERS => Who::Scheduler(index - 1),
            index => Who::Worker(index - 1 - SCHEDULERS),
        }
    }

    /// The number of its host, for a worker.
    pub(super) fn host(self) -> Option<usize> {
        match self {
            Who::Worker(index) => Some(index),
            Who::Api | Who::Scheduler(_) => None,
        }
    }
}

impl Display for Who {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = match self {
            Who::Api => "api".to_owned(),
            Who::Scheduler(index) => format!("s{}", index + 1),
            Who::Worker(index) => format!("w{}", index + 1),
        };
        f.pad(&text)
    }
}
