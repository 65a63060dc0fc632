//! What a worker does next, and how it keeps what runs and what Redis says the same.

use common::ids::PodId;
use common::lifecycle::Phase;
use common::payload::Payload;
use common::pod::PodRecord;
use common::store::{FinishReport, Outcome, PodRef, Write};

use super::super::world::{HEARTBEAT, World};
use super::{Held, Process};

/// Between two sweeps of rq.
const SWEEP: u64 = 100;
/// Between two looks at cs.
const LOOK: u64 = 100;

enum Move {
    Fence,
    PrepareBeat,
    SendBeat,
    Pop,
    Claim,
    Start,
    Ack,
    Reject,
    Sweep,
    LookAtSet,
    ReadUnknown,
    Leave,
    Stop(usize),
    Lost(usize),
    Settle,
}

impl Process {
    pub(super) async fn work(&mut self, world: &mut World<'_>) {
        let moves = self.moves(world);
        match world.random.weighted(moves) {
            None => {}
            Some(Move::Fence) => self.fence(world),
            Some(Move::PrepareBeat) => self.prepare_beat(world),
            Some(Move::SendBeat) => {
                self.send_beat(world).await;
            }
            Some(Move::Pop) => self.pop(world).await,
            Some(Move::Claim) => self.claim(world).await,
            Some(Move::Start) => self.start(world),
            Some(Move::Ack) => self.ack(world).await,
            Some(Move::Reject) => self.reject(world).await,
            Some(Move::Sweep) => self.sweep(world).await,
            Some(Move::LookAtSet) => self.look_at_set(world).await,
            Some(Move::ReadUnknown) => self.read_unknown(world).await,
            Some(Move::Leave) => self.leave(world),
            Some(Move::Stop(order)) => self.stop(world, order).await,
            Some(Move::Lost(order)) => self.lost(world, order).await,
            Some(Move::Settle) => self.settle(world).await,
        }
    }

    fn moves(&self, world: &mut World<'_>) -> Vec<(u64, Move)> {
        let spurious = world.random.per_mille(20);
        let some =
            |wanted: bool, weight: u64, then: Move| (if wanted || spurious { weight } else { 0 }, then);
        let due = world.now > self.last_beat + HEARTBEAT || self.strangers_or_stops(world);
        let only = |wanted: bool, weight: u64, then: Move| (if wanted { weight } else { 0 }, then);
        let sweeps = !world.switches.no_sweep && world.now > self.swept + SWEEP;
        let waiting = !world.view.in_key(&format!("pq:{}", self.name)).is_empty();
        let mut moves = vec![
            only(self.fence_is_due(world), 10, Move::Fence),
            some(due && self.beat.is_none(), 12, Move::PrepareBeat),
            only(self.beat.is_some(), 20, Move::SendBeat),
            some(waiting && self.popped.len() < 4, 5, Move::Pop),
            only(!self.popped.is_empty(), 6, Move::Claim),
            only(self.starts.values().any(|start| !start.runs), 6, Move::Start),
            only(self.starts.values().any(|start| start.runs), 6, Move::Ack),
            only(!self.rejects.is_empty(), 4, Move::Reject),
            only(sweeps, 4, Move::Sweep),
            some(world.now > self.looked + LOOK, 3, Move::LookAtSet),
            only(!self.unknown.is_empty(), 5, Move::ReadUnknown),
            only(!self.leaving.is_empty(), 5, Move::Leave),
            only(!self.strangers.is_empty(), 2, Move::Settle),
        ];
        for (order, held) in &self.held {
            let runs = world.engine.has(self.host, &held.payload.id, &held.assignment);
            moves.push(match (held.stop, runs) {
                (true, _) => (4, Move::Stop(*order)),
                // Without a lease it may have been the fence that took it.
                (false, false) if world.is_leased(self.host) => (4, Move::Lost(*order)),
                (false, _) => (0, Move::Leave),
            });
        }
        moves
    }

    /// Redis wakes a worker that has something to stop; the hint may be late.
    fn strangers_or_stops(&self, world: &mut World<'_>) -> bool {
        let stops = world.view.stops.get(self.name.as_str()).is_some_and(|stops| !stops.is_empty());
        stops && world.random.per_mille(200)
    }

    async fn look_at_set(&mut self, world: &mut World<'_>) {
        let Some((session, _)) = self.life.clone() else { return };
        let Some(found) = world.call(self.me, "look at cs", session.container_set()).await.heard() else {
            return;
        };
        self.looked = world.now;
        let found = world.sorted(found.into_iter().map(|raw| raw.to_vec()).collect());
        let payloads = found.into_iter().filter_map(|raw| Payload::parse(raw.into()).ok());
        self.unknown = payloads.filter(|payload| !self.knows(world, &payload.id)).collect();
        world.note(format!("unknown: {}", world.called(self.unknown.iter().map(|payload| &payload.id))));
    }

    fn knows(&self, world: &World<'_>, pod: &PodId) -> bool {
        let order = world.names.order(pod.as_str());
        self.held.contains_key(&order) || self.starts.contains_key(&order)
    }

    async fn read_unknown(&mut self, world: &mut World<'_>) {
        let unknown = std::mem::take(&mut self.unknown);
        let ids: Vec<PodId> = unknown.iter().map(|payload| payload.id.clone()).collect();
        let store = world.ground.store.clone();
        let what = format!("read {}", world.called(&ids));
        let Some(records) = world.call(self.me, what, store.pods(&ids)).await.heard() else { return };
        for (payload, record) in unknown.into_iter().zip(records) {
            if let Some(record) = record {
                self.adopt(world, payload, &record);
            }
        }
    }

    /// Holds a pod that its record gives to this node.
    fn adopt(&mut self, world: &mut World<'_>, payload: Payload, record: &PodRecord) {
        let runs_here = matches!(record.phase, Phase::Running | Phase::Stopping);
        if !runs_here || record.node.as_ref() != Some(&self.name) || self.knows(world, &payload.id) {
            return;
        }
        let Some(assignment) = record.assignment.clone() else { return };
        world.note(format!("adopt {}", world.names.of(payload.id.as_str())));
        let order = world.names.order(payload.id.as_str());
        let (service, stop) = (record.service.clone(), record.phase == Phase::Stopping);
        self.held.insert(order, Held { payload, service, assignment, stop });
    }

    /// Removes one container that is nobody's.
    fn leave(&mut self, world: &mut World<'_>) {
        let Some((pod, assignment)) = self.leaving.pop() else { return };
        world.say(self.me, format!("remove a container of {}", world.names.of(pod.as_str())));
        world.engine.remove(self.host, &pod, &assignment);
    }

    /// First the container, then its record.
    async fn stop(&mut self, world: &mut World<'_>, order: usize) {
        let Some(Held { payload, assignment, service, .. }) = self.held.get(&order).cloned() else { return };
        if world.engine.has(self.host, &payload.id, &assignment) {
            world.say(self.me, format!("stop {}", world.names.of(payload.id.as_str())));
            return world.engine.remove(self.host, &payload.id, &assignment);
        }
        let Some((session, incarnation)) = self.life.clone() else { return };
        let pod = PodRef { id: &payload.id, assignment: &assignment };
        let report = FinishReport { outcome: Outcome::Stopped, reason: "", message: "", exit_code: None };
        let what = format!("finish {}", world.names.of(payload.id.as_str()));
        world.as_life(self.me, &incarnation);
        let called =
            world.call(self.me, what, session.finish(pod, &payload.raw, service.as_ref(), &report)).await;
        match called.heard() {
            None => {}
            Some(Err(_)) => self.hurry_beat(world),
            Some(Ok(write)) => {
                world.note(format!("{write:?}"));
                match write {
                    Write::Done | Write::Stale => {
                        self.held.remove(&order);
                    }
                    // Nobody wants it stopped any more: then its container is missed.
                    Write::Wanted => {
                        if let Some(held) = self.held.get_mut(&order) {
                            held.stop = false;
                        }
                    }
                }
            }
        }
    }

    async fn lost(&mut self, world: &mut World<'_>, order: usize) {
        let Some(Held { payload, assignment, .. }) = self.held.get(&order).cloned() else { return };
        let Some((session, incarnation)) = self.life.clone() else { return };
        let pod = PodRef { id: &payload.id, assignment: &assignment };
        let what = format!("lost {}", world.names.of(payload.id.as_str()));
        world.as_life(self.me, &incarnation);
        world.as_assignments([(&payload.id, &assignment)]);
        match world.call(self.me, what, session.lost(pod, &payload.raw)).await.heard() {
            None => {}
            Some(Err(_)) => self.hurry_beat(world),
            Some(Ok(write)) => {
                world.note(format!("{write:?}"));
                self.held.remove(&order);
                self.looked = 0;
            }
        }
    }

    /// Somebody wants a pod stopped here that is not known: it waits in the queue, or its payload is nowhere, or it is
    /// another node's by now.
    async fn settle(&mut self, world: &mut World<'_>) {
        let Some(pod) = self.strangers.pop() else { return };
        if self.knows(world, &pod) {
            return;
        }
        let store = world.ground.store.clone();
        let what = format!("read the stranger {}", world.names.of(pod.as_str()));
        let Some(record) = world.call(self.me, what, store.pod(&pod)).await.heard() else { return };
        let here = record.as_ref().is_some_and(|record| record.node.as_ref() == Some(&self.name));
        match record {
            Some(record) if here && record.phase == Phase::Stopping => {
                if let Ok(Some(payload)) = store.payload_of(&record).await {
                    self.adopt(world, payload, &record);
                }
            }
            Some(_) if here => {}
            Some(_) | None => self.withdraw(world, &pod).await,
        }
    }

    /// A finish under no assignment of its own changes nothing but the wish.
    async fn withdraw(&mut self, world: &mut World<'_>, pod: &PodId) {
        let Some((session, incarnation)) = self.life.clone() else { return };
        let nobody = common::ids::AssignmentId::random();
        let report = FinishReport { outcome: Outcome::Stopped, reason: "", message: "", exit_code: None };
        let reference = PodRef { id: pod, assignment: &nobody };
        let what = format!("withdraw the stop of {}", world.names.of(pod.as_str()));
        world.as_life(self.me, &incarnation);
        let called = world.call(self.me, what, session.finish(reference, b"", None, &report)).await;
        if let Some(Err(_)) = called.heard() {
            self.hurry_beat(world);
        }
    }
}
