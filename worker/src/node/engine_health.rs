//! The health of the container engine, judged by its last answers.

use std::time::Duration;

use engine::RuntimeError;
use model::ids::NodeName;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::support::change_log::ChangeLog;

/// Containers that end so soon after the engine's return are taken to have ended with it.
const SETTLES_WITHIN: Duration = Duration::from_secs(30);

/// One kind may hang while the other one is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CheckedCall {
    Ping,
    List,
}

/// The node gets no new pods after a start that failed because of it.
const START_PROBLEM_TIME: Duration = Duration::from_secs(60);

pub(crate) struct EngineHealth {
    problems: Mutex<EngineProblems>,
    outage: Mutex<Option<EngineOutage>>,
    log: ChangeLog,
}

#[derive(Debug, Clone, Copy)]
struct EngineOutage {
    began: Instant,
    ended: Option<Instant>,
}

#[derive(Default)]
struct EngineProblems {
    ping: Option<String>,
    list: Option<String>,
    start: Option<(String, Instant)>,
}

impl EngineProblems {
    fn first(&self) -> Option<&String> {
        self.ping.as_ref().or(self.list.as_ref())
    }

    fn start(&self) -> Option<&String> {
        let start = self.start.as_ref().filter(|(_, at)| at.elapsed() < START_PROBLEM_TIME);
        start.map(|(why, _)| why)
    }
}

impl EngineHealth {
    pub(crate) fn new(node: &NodeName) -> Self {
        let log = ChangeLog::new(format!("the container engine of {node}"));
        Self { problems: Mutex::default(), outage: Mutex::default(), log }
    }

    pub(crate) fn problem(&self) -> Option<String> {
        self.problems.lock().first().cloned()
    }

    /// True if the engine had an outage while the container ran, and has just returned: the container ended
    /// with it.
    pub(crate) fn was_away_since(&self, ran_for: Duration) -> bool {
        let outage = *self.outage.lock();
        outage.is_some_and(|outage| {
            let is_settling = outage.ended.is_some_and(|ended| ended.elapsed() < SETTLES_WITHIN);
            outage.began.elapsed() <= ran_for && is_settling
        })
    }

    fn note_outage(&self, is_away: bool) {
        let mut outage = self.outage.lock();
        let now = Instant::now();
        match (&mut *outage, is_away) {
            (Some(EngineOutage { ended: Some(_), .. }) | None, true) => {
                *outage = Some(EngineOutage { began: now, ended: None });
            }
            (Some(EngineOutage { ended: ended @ None, .. }), false) => *ended = Some(now),
            _ => {}
        }
    }

    pub(crate) fn obstacle(&self) -> Option<String> {
        let problems = self.problems.lock();
        problems.first().or(problems.start()).cloned()
    }

    pub(crate) fn record_start_failure(&self, why: &str) {
        self.problems.lock().start = Some((format!("it cannot start pods: {why}"), Instant::now()));
    }

    /// True if the engine has become healthy or unhealthy.
    pub(crate) fn record<T>(&self, call: CheckedCall, answer: &Result<T, RuntimeError>) -> bool {
        let mut problems = self.problems.lock();
        let had_problem = problems.first().is_some();
        let problem = answer.as_ref().err().map(ToString::to_string);
        match call {
            CheckedCall::Ping => problems.ping = problem,
            CheckedCall::List => problems.list = problem,
        }
        self.note_outage(problems.first().is_some());
        match problems.first() {
            Some(why) => self.log.failed(why),
            None => self.log.succeeded(),
        }
        had_problem != problems.first().is_some()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn after_a_start_that_failed_because_of_the_node_it_gets_no_pods_for_a_minute() {
        let engine = EngineHealth::new(&NodeName::new("n").unwrap());
        assert_eq!(engine.obstacle(), None);
        engine.record_start_failure("no space left on device");
        assert_eq!(engine.obstacle().unwrap(), "it cannot start pods: no space left on device");
        assert_eq!(engine.problem(), None, "what runs is looked at as before");
        tokio::time::sleep(START_PROBLEM_TIME).await;
        assert_eq!(engine.obstacle(), None);
    }

    #[test]
    fn the_engine_is_healthy_when_all_its_last_answers_were_good() {
        let engine = EngineHealth::new(&NodeName::new("n").unwrap());
        let failure = || Err::<(), _>(RuntimeError::Engine("hangs".to_owned()));
        assert!(engine.record(CheckedCall::List, &failure()));
        assert!(!engine.record(CheckedCall::Ping, &Ok(())));
        assert!(engine.problem().unwrap().contains("hangs"));
        assert!(!engine.record(CheckedCall::Ping, &failure()));
        assert!(!engine.record(CheckedCall::List, &Ok(())));
        assert!(engine.record(CheckedCall::Ping, &Ok(())));
        assert_eq!(engine.problem(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn an_engine_that_was_away_took_what_was_started_before_with_it() {
        let second = Duration::from_secs(1);
        let engine = EngineHealth::new(&NodeName::new("n").unwrap());
        let failure = || Err::<(), _>(RuntimeError::Engine("is not there".to_owned()));
        engine.record(CheckedCall::Ping, &Ok(()));
        assert!(!engine.was_away_since(second * 60), "it never was");
        engine.record(CheckedCall::Ping, &failure());
        tokio::time::advance(second * 10).await;
        assert!(!engine.was_away_since(second * 60), "not back yet");
        engine.record(CheckedCall::Ping, &Ok(()));
        tokio::time::advance(second).await;
        assert!(engine.was_away_since(second * 60));
        assert!(!engine.was_away_since(second), "started since then");
        tokio::time::advance(second * 30).await;
        assert!(!engine.was_away_since(second * 90), "long ago");
    }
}
