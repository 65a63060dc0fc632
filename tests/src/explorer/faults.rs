//! Faults: what strikes, whom, and when.

use super::Cast;
use super::who::{ACTORS, WORKERS, Who};
use super::world::{DEAD, FENCE, PAUSE, World};

impl Cast {
    /// A replica falls behind, and some time later becomes the master: rather when something is going on.
    pub(super) async fn replicate(&mut self, world: &mut World<'_>) {
        let unsure = self.client.unsure();
        if world.master_changed.is_some_and(|at| world.now < at + 2 * PAUSE) {
            return;
        }
        if world.past.is_none() {
            let eventful = !world.view.in_key("sq").is_empty() || world.somebody_is_silent();
            if world.random.per_mille(if eventful { 40 } else { 4 }) {
                let now = world.now;
                world.remember(now, unsure.map(str::to_owned)).await;
            }
        } else if world.random.per_mille(if world.would_lose_a_start() { 60 } else { 8 }) {
            world.fail_over(unsure).await;
            // Whatever broke the master may have hit others.
            if world.random.per_mille(500) {
                let who = Who::Worker(world.random.below(WORKERS));
                self.hit(world, who);
            }
        }
    }

    /// Perhaps a fault.
    pub(super) fn strike(&mut self, world: &mut World<'_>) {
        if world.random.per_mille(6 * world.fury) {
            let who = Who::at(world.random.below(ACTORS));
            self.hit(world, who);
        }
        // Rather where it hurts: a worker that stands still while it runs what is somebody else's by now.
        if world.fury > 0 && world.random.per_mille(50) {
            let stale = world.runs_what_is_not_its_own();
            if let Some(host) = world.random.pick(&stale).copied() {
                self.hold(world, host);
            }
        }
    }

    /// A worker stands still, or can not reach Redis, for about as long as a lease lasts.
    fn hold(&mut self, world: &mut World<'_>, host: usize) {
        let who = Who::Worker(host);
        let until = world.now + world.random.between(20, 2 * FENCE);
        if world.random.per_mille(600) {
            self.pause(world, who, until);
        } else {
            world.stats.partitions += 1;
            world.say(who, format!("CUT OFF until {until}"));
            world.cut_off[who.index()] = until;
        }
    }

    fn hit(&mut self, world: &mut World<'_>, who: Who) {
        let now = world.now;
        // Either it is hardly noticed, or it is declared dead.
        let long = world.random.per_mille(500);
        let until =
            now + if long { world.random.between(DEAD, 4 * DEAD) } else { world.random.between(1, FENCE) };
        match (world.random.below(9), who) {
            (0..3, _) => {
                world.stats.crashes += 1;
                world.say(who, format!("CRASH until {until}"));
                self.crash(who, until);
            }
            (3, Who::Worker(index)) => {
                world.stats.host_crashes += 1;
                world.say(who, format!("HOST CRASH until {until}"));
                self.workers[index].crash_host(world, until);
            }
            (4, Who::Worker(index)) => {
                let containers = world.engine.on(index);
                if let Some(container) = world.random.pick(&containers) {
                    world
                        .say(who, format!("loses a container of {}", world.names.of(container.pod.as_str())));
                    world.engine.remove(index, &container.pod, &container.assignment);
                }
            }
            (3..6, _) => {
                self.pause(world, who, until);
            }
            _ => {
                world.stats.partitions += 1;
                world.say(who, format!("CUT OFF until {until}"));
                world.cut_off[who.index()] = until;
            }
        }
    }

    pub(super) fn pause(&mut self, world: &mut World<'_>, who: Who, until: u64) {
        world.stats.pauses += 1;
        world.say(who, format!("PAUSE until {until}"));
        self.paused[who.index()] = until;
    }

    fn crash(&mut self, who: Who, until: u64) {
        match who {
            Who::Client => self.client.crash(),
            Who::Scheduler(index) => self.schedulers[index].crash(until),
            Who::Worker(index) => self.workers[index].crash(until),
        }
    }
}
