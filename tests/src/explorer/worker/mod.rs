//! A worker, one call at a time. It follows the production worker: startup fence, register, verify, then its loops.
//!
//! All it knows is here and explicit, so that it may die between any two calls. Its containers are the
//! [`Engine`](super::engine::Engine)'s and outlive it; so does its lease, which lies in a file.

mod beat;
mod queue;
mod supervise;

use std::collections::BTreeMap;

use common::ids::{AssignmentId, NodeName, PodId, ServiceName};
use common::node::{NodeFacts, Resources};
use common::payload::Payload;
use common::store::{Registration, Session};

use super::engine::Container;
use super::who::Who;
use super::world::{FENCE, World};

/// What a node can hold: few enough pods that some have to wait when one node is gone.
const CAPACITY: Resources = Resources { cpu_millis: 3000, memory_bytes: 1 << 30, pods: 7 };

/// A worker's host.
pub(super) struct Worker {
    index: usize,
    process: Option<Process>,
    down_until: u64,
}

/// A pod that Redis says runs here.
#[derive(Clone)]
struct Held {
    payload: Payload,
    service: Option<ServiceName>,
    assignment: AssignmentId,
    /// Somebody wants it stopped.
    stop: bool,
}

/// A pod whose payload is in rq, to be started as this assignment.
#[derive(Clone)]
struct Start {
    payload: Payload,
    assignment: AssignmentId,
    runs: bool,
}

/// A heartbeat, from when it was decided to when it is answered.
struct Beat {
    sent_at: u64,
    asked: Vec<(PodId, AssignmentId)>,
}

enum Stage {
    /// The startup fence.
    Fence,
    Register,
    /// The first heartbeat asks about all containers.
    Verify,
    Work,
    /// Declared dead: nothing here is its own.
    Purge,
}

struct Process {
    me: Who,
    host: usize,
    name: NodeName,
    stage: Stage,
    life: Option<(Session, String)>,
    /// When it decided to register.
    registering: Option<u64>,
    beat: Option<Beat>,
    last_beat: u64,
    swept: u64,
    looked: u64,
    /// Out of pq, and not claimed yet.
    popped: Vec<Vec<u8>>,
    rejects: Vec<(Vec<u8>, Option<PodId>)>,
    /// By the order in which the pods appeared, as all maps here: uuids are random.
    starts: BTreeMap<usize, Start>,
    held: BTreeMap<usize, Held>,
    /// Containers that are nobody's.
    leaving: Vec<(PodId, AssignmentId)>,
    /// In cs, but not held: their records have to be read.
    unknown: Vec<Payload>,
    /// Pods to be stopped here that it does not know.
    strangers: Vec<PodId>,
}

impl Worker {
    pub(super) fn new(index: usize) -> Self {
        Self { index, process: None, down_until: 0 }
    }

    pub(super) fn crash(&mut self, until: u64) {
        self.process = None;
        self.down_until = until;
    }

    /// The host reboots: its containers end, and its lease file is of a boot before.
    pub(super) fn crash_host(&mut self, world: &mut World<'_>, until: u64) {
        self.crash(until);
        world.engine.clear(self.index);
        world.leases[self.index] = None;
    }

    pub(super) async fn step(&mut self, world: &mut World<'_>) {
        let process = match &mut self.process {
            Some(process) => process,
            None if world.now < self.down_until && !world.settles => return,
            None => self.process.insert(Process::new(self.index)),
        };
        match process.stage {
            Stage::Fence => process.startup_fence(world),
            Stage::Register => process.register(world).await,
            Stage::Verify => process.verify(world).await,
            Stage::Work => process.work(world).await,
            Stage::Purge => process.purge(world),
        }
    }
}

impl Process {
    fn new(host: usize) -> Self {
        Self {
            me: Who::Worker(host),
            host,
            name: NodeName::new(Who::Worker(host).to_string()).unwrap(),
            stage: Stage::Fence,
            life: None,
            registering: None,
            beat: None,
            last_beat: 0,
            swept: 0,
            looked: 0,
            popped: Vec::new(),
            rejects: Vec::new(),
            starts: BTreeMap::new(),
            held: BTreeMap::new(),
            leaving: Vec::new(),
            unknown: Vec::new(),
            strangers: Vec::new(),
        }
    }

    /// Where the lease of the process before has run out, or there is none, what must never run twice ends here.
    fn startup_fence(&mut self, world: &mut World<'_>) {
        if !world.is_leased(self.host) {
            world.leases[self.host] = None;
            if !world.switches.no_startup_fence {
                world.say(self.me, "startup fence");
                world.engine.fence(self.host);
            }
        }
        self.stage = Stage::Register;
    }

    async fn register(&mut self, world: &mut World<'_>) {
        // The fence is another task: it may be faster.
        if self.fence_is_due(world) && world.random.per_mille(500) {
            return self.fence(world);
        }
        let Some(sent_at) = self.registering else {
            self.registering = Some(world.now);
            return;
        };
        let facts = NodeFacts {
            labels: BTreeMap::new(),
            capacity: CAPACITY,
            runtime: "model".to_owned(),
            engine_version: String::new(),
            version: String::new(),
        };
        let store = world.ground.store.clone();
        let name = self.name.clone();
        self.registering = None;
        let called = world.call(self.me, "register", store.register(&name, &facts)).await;
        if let Some(Registration::Registered { .. }) = called.done {
            world.beats.insert(name.to_string(), world.now);
        }
        match called.heard() {
            Some(Registration::Registered { session, requeued }) => {
                world.note(format!("{requeued} went back"));
                world.observe().await;
                let incarnation = world.view.nodes.get(name.as_str()).map(|node| node.incarnation.clone());
                self.life = Some((session, incarnation.unwrap_or_default()));
                self.stage = Stage::Verify;
                if world.switches.lease_before_verification {
                    self.renew(world, sent_at);
                }
            }
            Some(Registration::Draining) => {
                world.note("draining");
                self.stage = Stage::Purge;
            }
            None => {}
        }
    }

    fn purge(&mut self, world: &mut World<'_>) {
        world.say(self.me, "purge");
        world.engine.clear(self.host);
        world.leases[self.host] = None;
        *self = Self { stage: Stage::Register, ..Self::new(self.host) };
    }

    /// It lives no more as far as Redis is concerned. `dead`: its pods were given away. Else another life has its name,
    /// or Redis has lost this one; then the process ends, and its successor finds what runs.
    fn end_life(&mut self, world: &mut World<'_>, dead: bool) {
        world.note(if dead { "fenced: dead" } else { "fenced: replaced" });
        if dead {
            self.life = None;
            self.stage = Stage::Purge;
        } else {
            *self = Self::new(self.host);
        }
    }

    fn fence_is_due(&self, world: &World<'_>) -> bool {
        world.is_lease_out(self.host) && self.runs_what_must_not_run_twice(world)
    }

    fn runs_what_must_not_run_twice(&self, world: &World<'_>) -> bool {
        world.engine.on(self.host).iter().any(|container| container.never_twice)
    }

    fn fence(&mut self, world: &mut World<'_>) {
        world.say(self.me, "fence: the lease is out");
        world.engine.fence(self.host);
    }

    fn renew(&self, world: &mut World<'_>, sent_at: u64) {
        let length = if world.switches.fence_longer_than_dead { 3 * FENCE } else { FENCE };
        let before = world.leases[self.host].unwrap_or(0);
        world.leases[self.host] = Some(before.max(sent_at + length));
    }

    fn container(&self, pod: &Payload, assignment: &AssignmentId) -> Container {
        let never_twice = pod.image.starts_with("stop");
        Container { host: self.host, pod: pod.id.clone(), assignment: assignment.clone(), never_twice }
    }
}
