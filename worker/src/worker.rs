//! What one worker process has, over all its lives.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use common::clock::{BootInstant, Clock};
use common::config::Config;
use common::ids::NodeName;
use common::node::Psi;
use common::store::Store;

use crate::Hands;
use crate::lease::Lease;
use crate::pulse::Pulse;
use crate::runtime::{Runtime, RuntimeError};
use crate::step::Patience;
use crate::trouble::Trouble;

/// How often a pod may be begun without ever running before it goes to the dead letters. Attempts count starts of this
/// worker too: a pod that makes its worker crash is given up, one that had bad luck with restarts is not.
pub(crate) const ATTEMPTS_ALLOWED: u32 = 20;

/// Waits that no setting changes; tests shorten them.
#[derive(Debug, Clone)]
pub struct Pace {
    /// How long one look at the queue blocks.
    pub block: Duration,
    /// Between two sweeps of rq.
    pub sweep: Duration,
    /// Between two looks at all containers that nothing asked for.
    pub relist: Duration,
    /// Least time between two looks at all containers.
    pub gap: Duration,
    /// The first wait for an image that can not be had, or a start that failed.
    pub start_retry: Duration,
    /// The longest of those, and of the waits of a crash loop.
    pub longest: Duration,
    /// After so long without an exit a container is well again.
    pub healthy_after: Duration,
    /// How long a shutdown may take.
    pub shutdown: Duration,
    /// How long an ended pod's container is kept for its logs.
    pub keep_ended: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            block: seconds(2),
            sweep: seconds(10),
            relist: seconds(30),
            gap: Duration::from_millis(250),
            start_retry: seconds(10),
            longest: seconds(300),
            healthy_after: seconds(600),
            shutdown: seconds(8),
            keep_ended: seconds(3600),
        }
    }
}

/// One worker: its configuration, its hands, and its lease.
pub(crate) struct Worker {
    pub(crate) config: Arc<Config>,
    pub(crate) node: NodeName,
    pub(crate) store: Store,
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) pressure: fn() -> Option<Psi>,
    pub(crate) pace: Pace,
    pub(crate) lease: Lease,
    pub(crate) engine: Engine,
    pub(crate) pulse: Pulse,
    /// Talking to Redis, by any loop.
    pub(crate) redis: Arc<Trouble>,
}

impl Worker {
    pub(crate) fn new(
        config: Arc<Config>,
        store: Store,
        hands: Hands,
        pace: Pace,
        redis: Arc<Trouble>,
    ) -> Self {
        let Hands { runtime, clock, keeper, pressure } = hands;
        let node = config.node.clone();
        let (lease, engine) = (Lease::new(keeper), Engine::new(&node));
        let pulse = Pulse::none();
        Self { config, node, store, runtime, clock, pressure, pace, lease, engine, pulse, redis }
    }

    pub(crate) fn now(&self) -> BootInstant {
        self.clock.now()
    }

    /// A heartbeat that was sent after `sent` has been answered, and all that runs here is this node's.
    pub(crate) fn renew_lease(&self, sent: BootInstant) {
        self.lease.renew(self.now(), sent.plus(self.config.timing.fence_after));
    }

    pub(crate) fn is_leased(&self) -> bool {
        self.lease.is_good(self.now())
    }

    pub(crate) fn patience(&self) -> Patience {
        Patience {
            first: self.config.restart_backoff,
            most: self.pace.longest,
            healthy_after: self.pace.healthy_after,
        }
    }
}

/// Which question an answer of the engine was to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    /// Whether it is there.
    Ping,
    /// What runs. An engine may answer the one and hang at the other.
    List,
}

/// How the engine is, as far as its last answers told.
pub(crate) struct Engine {
    problems: Mutex<Problems>,
    trouble: Trouble,
}

#[derive(Default)]
struct Problems {
    ping: Option<String>,
    list: Option<String>,
}

impl Problems {
    fn first(&self) -> Option<&String> {
        self.ping.as_ref().or(self.list.as_ref())
    }
}

impl Engine {
    pub(crate) fn new(node: &NodeName) -> Self {
        Self { problems: Mutex::default(), trouble: Trouble::of(format!("the engine of {node}")) }
    }

    /// What it last said when it was ill; none when it is well.
    pub(crate) fn problem(&self) -> Option<String> {
        self.problems.lock().unwrap_or_else(PoisonError::into_inner).first().cloned()
    }

    /// Takes down an answer; true when the engine fell ill or got well by it.
    pub(crate) fn heard<T>(&self, asked: Asked, answer: &Result<T, RuntimeError>) -> bool {
        let mut problems = self.problems.lock().unwrap_or_else(PoisonError::into_inner);
        let was_ill = problems.first().is_some();
        let problem = answer.as_ref().err().map(ToString::to_string);
        match asked {
            Asked::Ping => problems.ping = problem,
            Asked::List => problems.list = problem,
        }
        match problems.first() {
            Some(why) => self.trouble.failed(why),
            None => self.trouble.worked(),
        }
        was_ill != problems.first().is_some()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn the_engine_is_well_when_all_its_last_answers_were() {
        let engine = Engine::new(&NodeName::new("n").unwrap());
        let ill = || Err::<(), _>(RuntimeError::Engine("hangs".to_owned()));
        assert!(engine.heard(Asked::List, &ill()));
        assert!(!engine.heard(Asked::Ping, &Ok(())));
        assert!(engine.problem().unwrap().contains("hangs"));
        assert!(!engine.heard(Asked::Ping, &ill()));
        assert!(!engine.heard(Asked::List, &Ok(())));
        assert!(engine.heard(Asked::Ping, &Ok(())));
        assert_eq!(engine.problem(), None);
    }
}
