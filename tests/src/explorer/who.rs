//! Who there is.

use std::fmt::Display;

/// How many workers there are.
pub(super) const WORKERS: usize = 3;
/// How many schedulers.
pub(super) const SCHEDULERS: usize = 2;
/// All actors: the client, the schedulers, the workers.
pub(super) const ACTORS: usize = 1 + SCHEDULERS + WORKERS;

/// An actor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Who {
    Client,
    Scheduler(usize),
    Worker(usize),
}

impl Who {
    pub(super) fn index(self) -> usize {
        match self {
            Who::Client => 0,
            Who::Scheduler(index) => 1 + index,
            Who::Worker(index) => 1 + SCHEDULERS + index,
        }
    }

    pub(super) fn at(index: usize) -> Self {
        match index {
            0 => Who::Client,
            index if index <= SCHEDULERS => Who::Scheduler(index - 1),
            index => Who::Worker(index - 1 - SCHEDULERS),
        }
    }
}

impl Display for Who {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = match self {
            Who::Client => "client".to_owned(),
            Who::Scheduler(index) => format!("s{}", index + 1),
            Who::Worker(index) => format!("w{}", index + 1),
        };
        f.pad(&text)
    }
}
