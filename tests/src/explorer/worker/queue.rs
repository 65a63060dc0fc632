//! From the queue to a running container: pop, claim, start, acknowledge; and the sweep of what was left lying.

use common::ids::ServiceName;
use common::node::Resources;
use common::payload::Payload;
use common::store::{Ack, AckItem, Claim, ClaimItem, ClaimReply};

use super::super::world::{FENCE, World};
use super::{Held, Process, Start};

/// No pod of the model is given up because it had bad luck.
const ATTEMPTS: u32 = 1_000_000;

impl Process {
    pub(super) async fn pop(&mut self, world: &mut World<'_>) {
        let Some((session, _)) = self.life.clone() else { return };
        let count = world.random.between(1, 3) as usize;
        let called = world.call(self.me, format!("pop {count}"), session.take_more(count)).await;
        let Some(taken) = called.heard() else {
            // Production sweeps at once; the sweep of every ten seconds is what is relied upon.
            return;
        };
        let taken: Vec<Vec<u8>> = taken.into_iter().map(|raw| raw.to_vec()).collect();
        self.admit(world, taken);
    }

    pub(super) async fn sweep(&mut self, world: &mut World<'_>) {
        let Some((session, _)) = self.life.clone() else { return };
        let called = world.call(self.me, "sweep", session.starting()).await;
        let Some(found) = called.heard() else { return };
        self.swept = world.now;
        let in_hand = |raw: &Vec<u8>| {
            self.popped.contains(raw)
                || self.rejects.iter().any(|(other, _)| other == raw)
                || self.starts.values().any(|start| start.payload.raw == *raw)
        };
        let left: Vec<Vec<u8>> =
            found.into_iter().map(|raw| raw.to_vec()).filter(|raw| !in_hand(raw)).collect();
        let left = world.sorted(left);
        self.admit(world, left);
    }

    /// Each payload once: a copy of what is in hand stays in rq for a later sweep.
    fn admit(&mut self, world: &mut World<'_>, taken: Vec<Vec<u8>>) {
        let labels: Vec<_> = taken.iter().map(|raw| world.label(raw)).collect();
        world.note(format!("{labels:?}"));
        for raw in taken {
            let is_pod = world.heads.pod_of(&raw).is_some();
            if is_pod && !self.popped.contains(&raw) {
                self.popped.push(raw);
            } else if !is_pod {
                self.rejects.push((raw, None));
            }
        }
    }

    pub(super) async fn claim(&mut self, world: &mut World<'_>) {
        let Some((session, incarnation)) = self.life.clone() else { return };
        let payloads = self.popped.iter().map(|raw| Payload::parse(raw.clone().into()).unwrap());
        let items: Vec<ClaimItem> = payloads.filter(|payload| !self.is_starting(payload)).map(item).collect();
        self.popped.clear();
        let what = format!("claim {}", world.called(items.iter().map(|item| &item.payload.id)));
        let pause = world.pause(FENCE);
        world.as_life(self.me, &incarnation);
        let called = world.call(self.me, what, session.claim(&items, ATTEMPTS, pause)).await;
        match called.heard() {
            // What was popped lies in rq, and the sweep comes.
            None => {}
            Some(Err(_)) => self.hurry_beat(world),
            Some(Ok(ClaimReply::Paused(_))) => {
                world.note("paused");
                self.swept = 0;
            }
            Some(Ok(ClaimReply::Claims(claims))) => {
                let shown: Vec<String> = claims.iter().map(verdict).collect();
                world.note(format!("{shown:?}"));
                for (item, claim) in items.into_iter().zip(claims) {
                    self.decide(world, item.payload, claim);
                }
            }
        }
    }

    fn is_starting(&self, payload: &Payload) -> bool {
        self.starts.values().any(|start| start.payload.id == payload.id)
    }

    fn decide(&mut self, world: &World<'_>, payload: Payload, claim: Claim) {
        let order = world.names.order(payload.id.as_str());
        match claim {
            Claim::Start { assignment, .. } => {
                // It was lost, or Redis was: what is held as another assignment is not this pod any more.
                self.held.remove(&order);
                self.starts.insert(order, Start { payload, assignment, runs: false });
            }
            Claim::Exhausted { .. } | Claim::Orphan => {
                self.rejects.push((payload.raw.to_vec(), Some(payload.id)))
            }
            // Its container, if there is one, turns out to be foreign at the next beat.
            Claim::Running | Claim::Stale | Claim::Stopped | Claim::Gone => {}
        }
    }

    /// Only the heartbeat is told why.
    pub(super) fn hurry_beat(&mut self, world: &mut World<'_>) {
        world.note("fenced");
        self.last_beat = 0;
    }

    /// Creates one container. What must never run twice starts only under a lease, and after the pod's other
    /// container here is gone.
    pub(super) fn start(&mut self, world: &mut World<'_>) {
        let leased = world.is_leased(self.host);
        let ready = self
            .starts
            .values()
            .filter(|start| !start.runs && (leased || !start.payload.image.starts_with("stop")));
        let ready: Vec<usize> = ready.map(|start| world.names.order(start.payload.id.as_str())).collect();
        let Some(order) = world.random.pick(&ready).copied() else { return };
        let Some(start) = self.starts.get_mut(&order) else { return };
        let others = world.engine.on(self.host).into_iter();
        let other =
            others.into_iter().find(|c| c.pod == start.payload.id && c.assignment != start.assignment);
        if let Some(other) = other {
            world
                .say(self.me, format!("remove an older container of {}", world.names.of(other.pod.as_str())));
            return world.engine.remove(self.host, &other.pod, &other.assignment);
        }
        start.runs = true;
        world.stats.starts += 1;
        let start = start.clone();
        world.say(self.me, format!("start a container of {}", world.names.of(start.payload.id.as_str())));
        world.engine.start(self.container(&start.payload, &start.assignment));
    }

    pub(super) async fn ack(&mut self, world: &mut World<'_>) {
        let Some((session, incarnation)) = self.life.clone() else { return };
        let running: Vec<(usize, Start)> = self
            .starts
            .iter()
            .filter(|(_, start)| start.runs)
            .map(|(order, start)| (*order, start.clone()))
            .collect();
        let item = |(_, start): &(usize, Start)| AckItem {
            payload: start.payload.clone(),
            assignment: start.assignment.clone(),
            address: String::new(),
        };
        let items: Vec<AckItem> = running.iter().map(item).collect();
        let what = format!("ack {}", world.called(items.iter().map(|item| &item.payload.id)));
        world.as_life(self.me, &incarnation);
        world.as_assignments(items.iter().map(|item| (&item.payload.id, &item.assignment)));
        match world.call(self.me, what, session.ack(&items)).await.heard() {
            None => {}
            Some(Err(_)) => self.hurry_beat(world),
            Some(Ok(acks)) => {
                world.note(format!("{acks:?}"));
                for ((order, start), ack) in running.into_iter().zip(acks) {
                    self.starts.remove(&order);
                    let Start { payload, assignment, .. } = start;
                    if ack == Ack::Stale {
                        self.leaving.push((payload.id, assignment));
                        continue;
                    }
                    let held =
                        Held { service: service_of(&payload), payload, assignment, stop: ack == Ack::Stop };
                    self.held.insert(order, held);
                }
            }
        }
    }

    pub(super) async fn reject(&mut self, world: &mut World<'_>) {
        let (Some((raw, pod)), Some((session, incarnation))) = (self.rejects.pop(), self.life.clone()) else {
            return;
        };
        let what = format!("reject {}", world.label(&raw));
        world.as_life(self.me, &incarnation);
        if let Some(Err(_)) =
            world.call(self.me, what, session.reject(&raw, pod.as_ref(), "no pod")).await.heard()
        {
            self.hurry_beat(world);
        }
    }
}

fn item(payload: Payload) -> ClaimItem {
    // The image of a pushed pod has version 0; the others ask for half a core.
    let cpu_millis = if payload.spec.is_some() { 500 } else { 0 };
    let request = Resources { cpu_millis, memory_bytes: 0, pods: 1 };
    ClaimItem { service: service_of(&payload), payload, request }
}

/// Pods of a service carry its name.
pub(super) fn service_of(payload: &Payload) -> Option<ServiceName> {
    payload.spec.as_ref()?;
    ServiceName::new(payload.name.as_str()).ok()
}

/// Without the assignment: that is another one in every run.
fn verdict(claim: &Claim) -> String {
    match claim {
        Claim::Start { attempt, .. } => format!("start, attempt {attempt}"),
        other => format!("{other:?}"),
    }
}
