//! Whether the container engine works, as far as its last answers tell.

use std::sync::{Mutex, MutexGuard, PoisonError};

use common::ids::NodeName;

use crate::change_log::ChangeLog;
use crate::runtime::RuntimeError;

/// A kind of call to the engine. An engine may answer one kind and hang at the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Probe {
    /// A ping.
    Ping,
    /// A listing of the containers.
    List,
}

/// The health of one engine: its last answer to each kind of probe.
pub(crate) struct EngineHealth {
    problems: Mutex<EngineProblems>,
    log: ChangeLog,
}

#[derive(Default)]
struct EngineProblems {
    ping: Option<String>,
    list: Option<String>,
}

impl EngineProblems {
    fn first(&self) -> Option<&String> {
        self.ping.as_ref().or(self.list.as_ref())
    }
}

impl EngineHealth {
    pub(crate) fn new(node: &NodeName) -> Self {
        let log = ChangeLog::new(format!("the container engine of {node}"));
        Self { problems: Mutex::default(), log }
    }

    /// Returns the engine's current problem; `None` if its last answers were all good.
    pub(crate) fn problem(&self) -> Option<String> {
        self.problems().first().cloned()
    }

    /// Records an answer. Returns true if the engine became healthy or unhealthy by it.
    pub(crate) fn record<T>(&self, probe: Probe, answer: &Result<T, RuntimeError>) -> bool {
        let mut problems = self.problems();
        let had_problem = problems.first().is_some();
        let problem = answer.as_ref().err().map(ToString::to_string);
        match probe {
            Probe::Ping => problems.ping = problem,
            Probe::List => problems.list = problem,
        }
        match problems.first() {
            Some(why) => self.log.failed(why),
            None => self.log.succeeded(),
        }
        had_problem != problems.first().is_some()
    }

    fn problems(&self) -> MutexGuard<'_, EngineProblems> {
        self.problems.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn the_engine_is_healthy_when_all_its_last_answers_were_good() {
        let engine = EngineHealth::new(&NodeName::new("n").unwrap());
        let failure = || Err::<(), _>(RuntimeError::Engine("hangs".to_owned()));
        assert!(engine.record(Probe::List, &failure()));
        assert!(!engine.record(Probe::Ping, &Ok(())));
        assert!(engine.problem().unwrap().contains("hangs"));
        assert!(!engine.record(Probe::Ping, &failure()));
        assert!(!engine.record(Probe::List, &Ok(())));
        assert!(engine.record(Probe::Ping, &Ok(())));
        assert_eq!(engine.problem(), None);
    }
}
