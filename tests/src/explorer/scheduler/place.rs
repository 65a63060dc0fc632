//! Placing: take, decide, assign or park.

use std::collections::BTreeMap;
use std::time::Duration;

use common::node::{Node, NodeState, Resources};
use common::payload::Payload;
use common::store::{AssignOutcome, Assignment, ParkOutcome, Parked};

use super::super::world::{DEAD, World};
use super::Process;

/// How long the queue blocks: hardly at all.
const BLOCK: Duration = Duration::from_millis(1);
/// The model decides who is silent for too long, not Redis' clock.
const NEVER: Duration = Duration::from_secs(3600);

impl Process {
    pub(super) async fn take(&mut self, world: &mut World<'_>) {
        let store = world.ground.store.clone();
        let most = world.random.between(1, 8) as usize;
        let id = self.id.clone();
        let called = world.call(self.me, format!("take {most}"), store.take(&id, most)).await;
        if called.done.is_some() {
            let now = world.now;
            for (_, at) in world.schedulers.iter_mut().filter(|(other, _)| *other == id) {
                *at = now;
            }
        }
        let Some(taken) = called.heard() else {
            self.must_take = true;
            return;
        };
        let taken = world.sorted(taken.into_iter().map(|raw| raw.to_vec()).collect());
        let labels: Vec<_> = taken.iter().map(|raw| world.label(raw)).collect();
        world.note(format!("{labels:?}"));
        self.must_take = false;
        let (pods, bad): (Vec<_>, Vec<_>) =
            taken.into_iter().partition(|raw| world.heads.pod_of(raw).is_some());
        self.hand = pods;
        self.rejects = bad.into_iter().map(|raw| (raw, None)).collect();
    }

    pub(super) async fn wait(&mut self, world: &mut World<'_>) {
        let mut queue = match self.queue.take() {
            Some(queue) => queue,
            None => world.ground.store.scheduler_queue(&self.id, BLOCK).await.unwrap(),
        };
        let called = world.call(self.me, "wait for pods", queue.wait()).await;
        self.must_take = true;
        if called.heard().is_some() {
            self.queue = Some(queue);
        }
    }

    pub(super) async fn place(&mut self, world: &mut World<'_>) {
        if self.hand.is_empty() {
            return;
        }
        let count = 1 + world.random.below(self.hand.len());
        let chosen: Vec<Vec<u8>> = self.hand[..count].to_vec();
        let mut assignments = Vec::new();
        let mut unplaceable = Vec::new();
        let mut given: BTreeMap<String, Resources> = BTreeMap::new();
        for raw in chosen {
            let payload = Payload::parse(raw.into()).unwrap();
            let request = request(world, &payload);
            match self.choose(world, &request, &mut given) {
                Some(node) => assignments.push(Assignment {
                    payload,
                    incarnation: node.incarnation.clone(),
                    node: node.name,
                    request,
                }),
                None => {
                    let message = "no node takes it".to_owned();
                    unplaceable.push(Parked { payload, request, refusals: Vec::new(), message });
                }
            }
        }
        // One call a step: what is unplaceable has its turn when nothing else is.
        if assignments.is_empty() {
            self.park(world, unplaceable).await
        } else {
            self.assign(world, assignments).await
        }
    }

    /// A node that is alive and has room, as far as it knows; sometimes any, for what it knows may be old anyway.
    fn choose(
        &self,
        world: &mut World<'_>,
        request: &Resources,
        given: &mut BTreeMap<String, Resources>,
    ) -> Option<Node> {
        let careless = !world.settles && world.random.per_mille(100);
        let fits = |node: &&Node| {
            let given = given.get(node.name.as_str()).copied().unwrap_or_default();
            let capacity = &node.facts.capacity;
            let cpu = node.used.cpu_millis + given.cpu_millis + request.cpu_millis <= capacity.cpu_millis;
            let pods = node.used.pods + given.pods < capacity.pods;
            careless
                || (node.state == NodeState::Alive
                    && world.silence(&node.name) <= DEAD
                    && pods
                    && (cpu || request.cpu_millis == 0))
        };
        let fitting: Vec<&Node> = self.nodes.iter().filter(fits).collect();
        let node = (*world.random.pick(&fitting)?).clone();
        let sum = given.entry(node.name.to_string()).or_default();
        sum.cpu_millis += request.cpu_millis;
        sum.pods += 1;
        Some(node)
    }

    async fn assign(&mut self, world: &mut World<'_>, assignments: Vec<Assignment>) {
        let store = world.ground.store.clone();
        let shown: Vec<_> = assignments
            .iter()
            .map(|a| format!("{}->{}", world.names.of(a.payload.id.as_str()), a.node))
            .collect();
        let id = self.id.clone();
        let called =
            world.call(self.me, format!("assign {shown:?}"), store.assign(&id, NEVER, &assignments)).await;
        for (assignment, outcome) in assignments.iter().zip(called.done.iter().flatten()) {
            if *outcome == AssignOutcome::Assigned {
                world.given_to.insert(assignment.node.to_string());
            }
        }
        let Some(outcomes) = called.heard() else { return self.forget_hand() };
        world.note(format!("{outcomes:?}"));
        for (assignment, outcome) in assignments.iter().zip(outcomes) {
            match outcome {
                AssignOutcome::Assigned | AssignOutcome::Stale | AssignOutcome::Gone => {
                    self.let_go(&assignment.payload)
                }
                AssignOutcome::Orphan => self.give_up(&assignment.payload),
                AssignOutcome::Refused => self.looked_at = 0,
            }
        }
    }

    async fn park(&mut self, world: &mut World<'_>, parked: Vec<Parked>) {
        let store = world.ground.store.clone();
        let shown = world.called(parked.iter().map(|p| &p.payload.id));
        let id = self.id.clone();
        let called = world.call(self.me, format!("park {shown}"), store.park(&id, &parked)).await;
        let Some(outcomes) = called.heard() else { return self.forget_hand() };
        world.note(format!("{outcomes:?}"));
        for (parked, outcome) in parked.iter().zip(outcomes) {
            match outcome {
                ParkOutcome::Parked | ParkOutcome::Stale | ParkOutcome::Gone => self.let_go(&parked.payload),
                ParkOutcome::Orphan => self.give_up(&parked.payload),
            }
        }
    }

    pub(super) async fn reject(&mut self, world: &mut World<'_>) {
        let Some((raw, pod)) = self.rejects.front().cloned() else { return };
        let store = world.ground.store.clone();
        let what = format!("reject {}", world.label(&raw));
        let id = self.id.clone();
        let called =
            world.call(self.me, what, store.reject_in_flight(&id, &raw, pod.as_ref(), "no pod")).await;
        // When the answer was lost it is in doubt whether it is still there; what is there is taken in hand again.
        self.must_take |= called.heard().is_none();
        self.rejects.pop_front();
    }

    fn forget_hand(&mut self) {
        self.hand.clear();
        self.must_take = true;
    }

    fn let_go(&mut self, payload: &Payload) {
        if let Some(index) = self.hand.iter().position(|raw| *raw == payload.raw) {
            self.hand.remove(index);
        }
    }

    fn give_up(&mut self, payload: &Payload) {
        self.let_go(payload);
        self.rejects.push_back((payload.raw.to_vec(), Some(payload.id.clone())));
    }
}

/// What a pod asks for, as its record has it.
fn request(world: &World<'_>, payload: &Payload) -> Resources {
    let cpu = world.view.pods.get(payload.id.as_str()).map_or(0, |pod| pod.cpu);
    Resources { cpu_millis: cpu as u64, memory_bytes: 0, pods: 1 }
}
