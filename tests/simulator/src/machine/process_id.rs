//! The simulated processes and their ids.

use std::fmt;

pub(crate) const WORKERS: usize = 3;
pub(crate) const SCHEDULERS: usize = 2;
/// One more for the second worker with another one's name.
pub(crate) const HOSTS: usize = WORKERS + 1;
pub(crate) const PROCESSES: usize = 1 + SCHEDULERS + HOSTS;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProcessId {
    Api,
    Scheduler(usize),
    Worker(usize),
    /// On its own host, with the first worker's name, now and then.
    SecondWorker,
    /// Shares its worker's slot: a partition cuts off both.
    Proxy(usize),
}

impl ProcessId {
    pub(crate) fn index(self) -> usize {
        match self {
            ProcessId::Api => 0,
            ProcessId::Scheduler(index) => 1 + index,
            ProcessId::Worker(index) => 1 + SCHEDULERS + index,
            ProcessId::SecondWorker => 1 + SCHEDULERS + WORKERS,
            ProcessId::Proxy(host) => 1 + SCHEDULERS + host,
        }
    }

    pub(crate) fn from_index(index: usize) -> Self {
        match index {
            0 => ProcessId::Api,
            index if index <= SCHEDULERS => ProcessId::Scheduler(index - 1),
            index => ProcessId::of_host(index - 1 - SCHEDULERS),
        }
    }

    pub(crate) fn of_host(host: usize) -> Self {
        if host < WORKERS { ProcessId::Worker(host) } else { ProcessId::SecondWorker }
    }

    pub(crate) fn host(self) -> Option<usize> {
        match self {
            ProcessId::Worker(index) => Some(index),
            ProcessId::SecondWorker => Some(WORKERS),
            ProcessId::Api | ProcessId::Scheduler(_) | ProcessId::Proxy(_) => None,
        }
    }

    pub(crate) fn node(self) -> Option<usize> {
        match self {
            ProcessId::SecondWorker => Some(0),
            other => other.host(),
        }
    }

    /// The node's, for a worker.
    pub(crate) fn name(self) -> String {
        self.node().map_or(self, ProcessId::Worker).to_string()
    }
}

impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            ProcessId::Api => "api".to_owned(),
            ProcessId::Scheduler(index) => format!("s{}", index + 1),
            ProcessId::Worker(index) => format!("w{}", index + 1),
            ProcessId::SecondWorker => "w1bis".to_owned(),
            ProcessId::Proxy(host) => format!("p{}", host + 1),
        };
        f.pad(&text)
    }
}
