//! What the walkers know: their sessions, what they hold in hand, what runs on their nodes.

use std::collections::BTreeMap;

use common::ids::{AssignmentId, PodId, SchedulerId, ServiceName};
use common::payload::Payload;
use common::store::{AckItem, Session};
use kubeleet_tests::Bed;

/// Dice with a memory: the same seed throws the same.
pub(crate) struct Dice(u64);

impl Dice {
    /// One of `0..below`.
    pub(crate) fn throw(&mut self, below: usize) -> usize {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % below as u64) as usize
    }
}

/// A worker with its machine.
pub(crate) struct Worker {
    /// Its node.
    pub(crate) name: &'static str,
    /// Its life, if it has one.
    pub(crate) session: Option<Session>,
    /// What it started and has not acknowledged yet.
    pub(crate) started: Vec<AckItem>,
    /// Containers on the machine; they outlive the worker.
    pub(crate) containers: BTreeMap<PodId, AssignmentId>,
}

/// A scheduler.
pub(crate) struct Scheduler {
    /// Its identity.
    pub(crate) id: SchedulerId,
    /// What it took, as far as it remembers.
    pub(crate) hand: Vec<Payload>,
}

/// A life that is over, and what it may still say.
pub(crate) struct Zombie {
    /// The life.
    pub(crate) session: Session,
    /// What it had started.
    pub(crate) started: Vec<AckItem>,
}

/// Everything.
pub(crate) struct Cluster {
    /// Redis and the verbs.
    pub(crate) bed: Bed,
    /// Chance.
    pub(crate) dice: Dice,
    /// Three nodes.
    pub(crate) workers: Vec<Worker>,
    /// Two schedulers.
    pub(crate) schedulers: Vec<Scheduler>,
    /// Lives that are over.
    pub(crate) zombies: Vec<Zombie>,
    /// Schedulers that are gone, with what they held.
    pub(crate) ghosts: Vec<SchedulerId>,
    /// How many pods were pushed so far.
    pub(crate) pushed: usize,
    story: Vec<String>,
}

/// The services there are.
pub(crate) const SERVICES: [&str; 2] = ["web", "db"];

impl Cluster {
    /// Three registered nodes, two schedulers, two services.
    pub(crate) async fn new(seed: u64) -> Self {
        let bed = Bed::new().await;
        let mut workers = Vec::new();
        for name in ["w1", "w2", "w3"] {
            let session = Some(bed.node(name).await);
            workers.push(Worker { name, session, started: Vec::new(), containers: BTreeMap::new() });
        }
        for service in SERVICES {
            bed.service(service, 4).await;
        }
        let scheduler = || Scheduler { id: SchedulerId::random(), hand: Vec::new() };
        let schedulers = vec![scheduler(), scheduler()];
        let (zombies, ghosts, story) = (Vec::new(), Vec::new(), Vec::new());
        Self { bed, dice: Dice(seed), workers, schedulers, zombies, ghosts, pushed: 0, story }
    }

    /// Remembers what was done, for the failure's sake.
    pub(crate) fn note(&mut self, did: impl Into<String>) {
        self.story.push(did.into());
    }

    /// The last things that were done.
    pub(crate) fn story(&self) -> String {
        let from = self.story.len().saturating_sub(40);
        self.story[from..].join("\n")
    }

    /// A service's name.
    pub(crate) fn any_service(&mut self) -> ServiceName {
        let which = self.dice.throw(SERVICES.len());
        SERVICES[which].parse().unwrap()
    }
}
