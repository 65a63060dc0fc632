//! Plots: schedules that chance would hit upon once in many thousands. All is chance but when the fault strikes.

use super::bus::Asked;
use super::who::{WORKERS, Who};
use super::wishes::Wanted;
use super::world::World;

/// What decides when faults strike.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Plot {
    /// Nothing but chance.
    #[default]
    Chance,
    /// A failover loses that a pod was given to a worker. That worker stands still until just before its lease is
    /// out, renews the lease, and stands still again before it has removed the pod.
    StaleRenewal,
    /// A worker stands still for so long that it is declared dead and its pod runs elsewhere. Then a failover loses
    /// all that, and the worker wakes, while the other one stands still.
    Revival,
    /// An engine takes long to start a pod. Meanwhile its worker is cut off, declared dead, and the pod runs elsewhere;
    /// a failover loses all that while the other one stands still. When the worker counts on its pods again, its engine
    /// is through with that start.
    LateStart,
    /// A failover puts back the payload of a pod that runs, and its worker starts it anew as the very same assignment.
    /// About then its container vanishes; whoever reports this does so twice, for the first reply is lost.
    LateReport,
}

impl Plot {
    /// All there are.
    pub const ALL: [Plot; 5] =
        [Plot::Chance, Plot::StaleRenewal, Plot::Revival, Plot::LateStart, Plot::LateReport];
}

/// Where the plot stands.
#[derive(Default)]
pub(super) struct Director {
    stage: u8,
    victim: usize,
    lease: u64,
    wakes: u64,
}

impl Director {
    /// Before each step. The stages say what is waited for.
    pub(super) fn direct(&mut self, plot: Plot, world: &mut World) {
        if self.stage == 0 {
            world.desk.lock().want_only(Wanted { replicas: 1, image: "stop:1".to_owned() });
            self.stage = 1;
        }
        match plot {
            Plot::Chance => {}
            Plot::StaleRenewal => self.stale_renewal(world),
            Plot::Revival => self.revival(world),
            Plot::LateStart => self.late_start(world),
            Plot::LateReport => self.late_report(world),
        }
    }

    fn stale_renewal(&mut self, world: &mut World) {
        let fence = world.times.fence;
        match (self.stage, host(world)) {
            (1, _) if !world.view.in_key("sq").is_empty() => {
                world.remember();
                self.stage = 2;
            }
            (2, Some(host)) if world.hosts[host].is_leased() => {
                world.fail_over();
                let deadline = world.lease_end(host);
                (self.victim, self.lease, self.wakes) = (host, deadline, deadline.saturating_sub(fence / 6));
                world.pause(Who::Worker(host), self.wakes);
                self.stage = 3;
            }
            (3, _) if world.lease_end(self.victim) > self.lease || world.now > self.wakes + fence => {
                world.pause(Who::Worker(self.victim), world.now + 3 * fence);
                self.stage = 4;
            }
            _ => {}
        }
    }

    fn revival(&mut self, world: &mut World) {
        if let (1, Some(host)) = (self.stage, host(world))
            && world.hosts[host].is_leased()
        {
            self.victim = host;
            world.pause(Who::Worker(host), world.now + 10 * world.times.dead);
            self.stage = 2;
        } else if self.move_is_lost(world) {
            world.pause(Who::Worker(self.victim), world.now);
        }
    }

    fn late_start(&mut self, world: &mut World) {
        let (fence, dead) = (world.times.fence, world.times.dead);
        match self.stage {
            1 => {
                let Some(host) = hold_start(world, u64::MAX) else { return };
                self.victim = host;
                world.cut_off(Who::Worker(host), world.now + 10 * dead);
                world.seats[Who::Worker(host).index()].deaf = false;
                self.stage = 2;
            }
            4 if world.hosts[self.victim].is_leased() || world.now > self.wakes => {
                hold_start(world, 0);
                self.stage = 5;
            }
            _ => {
                if self.move_is_lost(world) {
                    world.seats[Who::Worker(self.victim).index()].cut_until = world.now;
                    self.wakes = world.now + fence;
                }
            }
        }
    }

    fn late_report(&mut self, world: &mut World) {
        let victim = Who::Worker(self.victim);
        match (self.stage, host(world)) {
            (1, _) if world.view.pods.values().any(|pod| pod.phase == "assigned") => {
                world.remember();
                self.stage = 2;
            }
            (2, Some(host)) if world.hosts[host].is_leased() => {
                world.fail_over();
                // Nothing is claimed before.
                (self.victim, self.wakes) = (host, world.now + world.times.fence);
                self.stage = if world.random.per_mille(500) { 3 } else { 4 };
            }
            // The report is under way when the start begins,
            (3, _) if world.now > self.wakes && world.hold_script("claim", victim, u64::MAX) => {
                self.lose_containers(world);
                self.stage = 5;
            }
            (5, _) if world.hold_script("lost", victim, 0) || world.now > self.wakes => {
                world.hold_script("claim", victim, 0);
                self.stage = 6;
            }
            // or begins when the start is under way.
            (4, _) if starts(world, self.victim) => {
                hold_start(world, u64::MAX);
                self.lose_containers(world);
                self.stage = 6;
            }
            (6, _) if world.lose_reply_of("lost", victim) || world.now > self.wakes => {
                hold_start(world, 0);
                self.stage = 7;
            }
            _ => {}
        }
    }

    fn lose_containers(&mut self, world: &World) {
        let host = &world.hosts[self.victim];
        for container in host.running() {
            host.lose(&container.handle, None);
        }
        self.wakes = world.now + world.times.fence / 2;
    }

    /// Just before the victim is declared dead the replica falls behind; when the pod runs on another host it takes over,
    /// and that host stands still. True when that has happened now.
    fn move_is_lost(&mut self, world: &mut World) -> bool {
        let (fence, dead) = (world.times.fence, world.times.dead);
        match (self.stage, host(world)) {
            (2, _) if world.silence(self.victim) + dead / 10 > dead => {
                world.remember();
                self.stage = 3;
            }
            (3, Some(other)) if other != self.victim && world.hosts[other].is_leased() => {
                world.fail_over();
                world.pause(Who::Worker(other), world.now + 2 * fence);
                self.stage = 4;
                return true;
            }
            _ => {}
        }
        false
    }
}

/// The first start under way takes effect at that time and no sooner; gives its host.
fn hold_start(world: &World, until: u64) -> Option<usize> {
    let mut bus = world.bus.lock();
    let start = bus.calls.iter_mut().find(|call| matches!(call.asked, Asked::Run(_)))?;
    start.held_until = until;
    start.who.host()
}

/// Whether a start is under way there.
fn starts(world: &World, host: usize) -> bool {
    let bus = world.bus.lock();
    bus.calls.iter().any(|call| matches!(call.asked, Asked::Run(_)) && call.who.host() == Some(host))
}

/// Where the pod runs, as far as Redis knows.
fn host(world: &World) -> Option<usize> {
    let pod = world.view.pods.values().find(|pod| pod.phase == "running")?;
    (0..WORKERS).find(|host| Who::Worker(*host).to_string() == pod.node)
}
