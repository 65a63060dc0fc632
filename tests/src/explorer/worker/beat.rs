//! The heartbeat and the lease that it renews.

use common::store::{Fenced, HeartbeatReply};

use super::super::world::World;
use super::{Beat, Process, Stage};

impl Process {
    /// All containers, and all starts under way: what Redis said about them may have been lost by it.
    fn claims(&self, world: &World<'_>) -> Vec<(common::ids::PodId, common::ids::AssignmentId)> {
        let containers = world.engine.on(self.host).into_iter().map(|c| (c.pod, c.assignment));
        let starts = self.starts.values().map(|start| (start.payload.id.clone(), start.assignment.clone()));
        let held = self.held.values().map(|held| (held.payload.id.clone(), held.assignment.clone()));
        let mut all: Vec<_> = containers.chain(starts).chain(held).collect();
        all.sort_by_key(|(pod, _)| world.names.order(pod.as_str()));
        all.dedup();
        all
    }

    /// Decides to beat. The time counts from here, whenever it is sent.
    pub(super) fn prepare_beat(&mut self, world: &World<'_>) {
        self.beat = Some(Beat { sent_at: world.now, asked: self.claims(world) });
    }

    /// The first beat of a life asks about all that runs here.
    pub(super) async fn verify(&mut self, world: &mut World<'_>) {
        if self.fence_is_due(world) && world.random.per_mille(500) {
            return self.fence(world);
        }
        if self.beat.is_none() {
            return self.prepare_beat(world);
        }
        if self.send_beat(world).await {
            self.stage = Stage::Work;
        }
    }

    /// True when there was a good answer.
    pub(super) async fn send_beat(&mut self, world: &mut World<'_>) -> bool {
        let (Some(beat), Some((session, incarnation))) = (self.beat.take(), self.life.clone()) else {
            return false;
        };
        world.as_life(self.me, &incarnation);
        let what = format!(
            "heartbeat of {} about {}",
            beat.sent_at,
            world.called(beat.asked.iter().map(|(pod, _)| pod))
        );
        let called = world.call(self.me, what, session.heartbeat(None, None, &beat.asked)).await;
        if let Some(Ok(_)) = called.done {
            world.beats.insert(self.name.to_string(), world.now);
        }
        match called.heard() {
            None => false,
            Some(Err(fenced)) => {
                self.end_life(world, fenced == Fenced::Dead);
                false
            }
            Some(Ok(reply)) => {
                world.note(format!(
                    "stop {} foreign {}",
                    world.called(&reply.stop),
                    world.called(&reply.foreign)
                ));
                self.last_beat = world.now;
                self.heed(world, &beat, &reply);
                true
            }
        }
    }

    fn heed(&mut self, world: &mut World<'_>, beat: &Beat, reply: &HeartbeatReply) {
        let mut foreign_runs = false;
        for (pod, assignment) in beat.asked.iter().filter(|(pod, _)| reply.foreign.contains(pod)) {
            self.starts.retain(|_, start| !(start.payload.id == *pod && start.assignment == *assignment));
            self.held.retain(|_, held| !(held.payload.id == *pod && held.assignment == *assignment));
            let containers = world.engine.on(self.host);
            foreign_runs |=
                containers.iter().any(|c| c.never_twice && c.pod == *pod && c.assignment == *assignment);
            self.leaving.push((pod.clone(), assignment.clone()));
        }
        let mut stops = reply.stop.clone();
        stops.sort_by_key(|pod| world.names.order(pod.as_str()));
        for pod in stops {
            match self.held.get_mut(&world.names.order(pod.as_str())) {
                Some(held) => held.stop = true,
                None if !self.strangers.contains(&pod) => self.strangers.push(pod),
                None => {}
            }
        }
        // While something runs here that is somebody else's by now, this is no lease. Neither is it revived before the
        // fence has ended what ran under the old one.
        let stale = (foreign_runs && !world.switches.lease_before_verification)
            || (self.fence_is_due(world) && !world.switches.revive_lease);
        if !stale {
            self.renew(world, beat.sent_at);
        }
    }
}
