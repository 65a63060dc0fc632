//! Plots: schedules that chance would hit upon once in many thousands. All is chance but when the fault strikes.

use super::Cast;
use super::who::Who;
use super::wishes::Wanted;
use super::world::{DEAD, FENCE, World};

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
}

impl Plot {
    /// How many steps the plot takes at most.
    pub(super) const STEPS: u64 = 1200;
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
    pub(super) async fn direct(&mut self, plot: Plot, cast: &mut Cast, world: &mut World<'_>) {
        if self.stage == 0 {
            let wanted = Wanted { replicas: 1, image: "stop:1".to_owned() };
            cast.client.wants_only(wanted);
            self.stage = 1;
        }
        match plot {
            Plot::Chance => {}
            Plot::StaleRenewal => self.stale_renewal(cast, world).await,
            Plot::Revival => self.revival(cast, world).await,
        }
    }

    async fn stale_renewal(&mut self, cast: &mut Cast, world: &mut World<'_>) {
        match (self.stage, host(world)) {
            (1, _) if !world.view.in_key("sq").is_empty() => {
                world.remember(world.now, None).await;
                self.stage = 2;
            }
            (2, Some(host)) if world.is_leased(host) => {
                world.fail_over(None).await;
                let deadline = world.leases[host].unwrap_or(world.now);
                (self.victim, self.lease, self.wakes) = (host, deadline, deadline.saturating_sub(25));
                cast.pause(world, Who::Worker(host), self.wakes);
                self.stage = 3;
            }
            (3, _)
                if world.leases[self.victim].unwrap_or(0) > self.lease || world.now > self.wakes + FENCE =>
            {
                cast.pause(world, Who::Worker(self.victim), world.now + 3 * FENCE);
                self.stage = 4;
            }
            _ => {}
        }
    }

    async fn revival(&mut self, cast: &mut Cast, world: &mut World<'_>) {
        let victim = Who::Worker(self.victim);
        match (self.stage, host(world)) {
            (1, Some(host)) if world.is_leased(host) => {
                self.victim = host;
                cast.pause(world, Who::Worker(host), world.now + 10 * DEAD);
                self.stage = 2;
            }
            (2, _) if world.beats.get(&victim.to_string()).is_some_and(|at| world.now + 5 > at + DEAD) => {
                world.remember(world.now, None).await;
                self.stage = 3;
            }
            (3, Some(other)) if other != self.victim && world.is_leased(other) => {
                world.fail_over(None).await;
                cast.pause(world, Who::Worker(other), world.now + 2 * FENCE);
                cast.pause(world, victim, world.now);
                self.stage = 4;
            }
            _ => {}
        }
    }
}

/// Where the pod runs, as far as Redis knows.
fn host(world: &World<'_>) -> Option<usize> {
    let pod = world.view.pods.values().find(|pod| pod.phase == "running")?;
    (0..super::who::WORKERS).find(|host| Who::Worker(*host).to_string() == pod.node)
}
