//! Directed scenarios: schedules that random faults would hit once in many thousands of runs.

use model::ids::{ServiceName, VolumeName};

use crate::checks::observed_state::SimulatedPod;
use crate::faults::schedule_faults::RefusedWrites;
use crate::machine::bus::{EngineRequest, HostCall};
use crate::machine::process_id::{HOSTS, ProcessId, SCHEDULERS, WORKERS};
use crate::scenario::Scenario;
use crate::workload::expected_state::ExpectedService;
use crate::workload::images::{CHECKED, Judged, START_FIRST, STOP_FIRST, has_check, has_volume};
use crate::world::state::World;

const CLAIM: &str = "claim";
const REPORT_LOST: &str = "lost";

const UPDATED_REPLICAS: u32 = 3;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Begin,
    Pod,
    Running,
    Renewal,
    Death,
    Move,
    Lease,
    Claim,
    Start,
    Report,
    LostReply,
    Done,
}

#[derive(Default)]
pub(crate) struct Director {
    stage: Stage,
    victim: usize,
    lease_end: u64,
    /// Ends the current stage, or a pause of the victim.
    deadline: u64,
    updates: bool,
    breaks: bool,
}

fn has_image(world: &World, image: &str) -> bool {
    world.observed.services.values().any(|service| service.image == image)
}

fn has_all_pods(world: &World, image: &str) -> bool {
    let pods = world.observed.pods.values();
    let running = pods.filter(|pod| pod.phase == "running" && pod.image == image).count();
    running == UPDATED_REPLICAS as usize && world.clients.lock().is_idle()
}

fn update(world: &World, image: &str) {
    let service = ExpectedService { replicas: UPDATED_REPLICAS, image: image.to_owned() };
    world.clients.lock().put_only(service);
}

impl Director {
    pub(crate) fn direct(&mut self, scenario: Scenario, world: &mut World) {
        if self.stage == Stage::Begin {
            let (replicas, image) = match scenario {
                Scenario::BrokenUpdate => (UPDATED_REPLICAS, STOP_FIRST.good),
                Scenario::StartFirst => (UPDATED_REPLICAS, START_FIRST.good),
                Scenario::Health => (UPDATED_REPLICAS, CHECKED.good),
                Scenario::OldCopy => (1, "stop:volume"),
                _ => (1, "stop:1"),
            };
            let may_break = matches!(scenario, Scenario::StartFirst | Scenario::Health);
            self.breaks = may_break && world.random.per_mille(300);
            self.updates = scenario != Scenario::Health || world.random.per_mille(700);
            world.clients.lock().put_only(ExpectedService { replicas, image: image.to_owned() });
            self.stage = Stage::Pod;
        }
        match scenario {
            Scenario::Random
            | Scenario::HandOver
            | Scenario::Rules
            | Scenario::Waking
            | Scenario::Related
            | Scenario::Ordinals
            | Scenario::Global
            | Scenario::Drains
            | Scenario::Resources
            | Scenario::Preemption
            | Scenario::Jobs => {}
            Scenario::StaleRenewal => self.stale_renewal(world),
            Scenario::LeaseRevival => self.lease_revival(world),
            Scenario::LateStart => self.late_start(world),
            Scenario::LateReport => self.late_report(world),
            Scenario::Outage => self.outage(world),
            Scenario::OldCopy => self.old_copy(world),
            Scenario::BrokenUpdate => self.broken_update(world, &STOP_FIRST),
            Scenario::StartFirst if self.breaks => self.broken_update(world, &START_FIRST),
            Scenario::StartFirst => self.start_first(world, &START_FIRST),
            Scenario::Health => {
                self.fall_ill(world);
                match (self.updates, self.breaks) {
                    (false, _) if has_all_pods(world, CHECKED.good) => self.stage = Stage::Done,
                    (false, _) => {}
                    (true, false) => self.start_first(world, &CHECKED),
                    (true, true) => self.broken_update(world, &CHECKED),
                }
            }
        }
    }

    fn victim(&self) -> ProcessId {
        ProcessId::Worker(self.victim)
    }

    fn stale_renewal(&mut self, world: &mut World) {
        let fence = world.timing.fence;
        let now = world.clock.now;
        match self.stage {
            Stage::Pod if !world.observed.payloads_in("sq").is_empty() => {
                world.stop_replication();
                self.stage = Stage::Running;
            }
            Stage::Running => {
                let Some(host) = leased_host_of_pod(world) else { return };
                world.fail_over();
                self.victim = host;
                self.lease_end = world.cluster.lease_end(host);
                self.deadline = self.lease_end.saturating_sub(fence / 6);
                world.pause(self.victim(), self.deadline);
                self.stage = Stage::Renewal;
            }
            Stage::Renewal
                if world.cluster.lease_end(self.victim) > self.lease_end || now > self.deadline + fence =>
            {
                world.pause(self.victim(), now + 3 * fence);
                self.stage = Stage::Done;
            }
            _ => {}
        }
    }

    fn lease_revival(&mut self, world: &mut World) {
        let now = world.clock.now;
        if self.stage == Stage::Pod {
            let Some(host) = leased_host_of_pod(world) else { return };
            self.victim = host;
            let until = now + 10 * world.timing.dead;
            match world.random.per_mille(500) {
                true => world.pause(self.victim(), until),
                false => world.crash(self.victim(), until),
            }
            self.stage = Stage::Death;
        } else if self.loses_move(world) {
            world.pause(self.victim(), now);
            world.cluster.slot_mut(self.victim()).down_until = now;
        }
    }

    fn late_start(&mut self, world: &mut World) {
        let (fence, dead) = (world.timing.fence, world.timing.dead);
        let now = world.clock.now;
        match self.stage {
            Stage::Pod => {
                let Some(host) = delay_start(world, u64::MAX) else { return };
                self.victim = host;
                world.partition(self.victim(), now + 10 * dead);
                world.cluster.slot_mut(self.victim()).is_one_way_partition = false;
                self.stage = Stage::Death;
            }
            Stage::Lease if world.cluster.hosts[self.victim].has_lease() || now > self.deadline => {
                delay_start(world, 0);
                self.stage = Stage::Done;
            }
            _ => {
                if self.loses_move(world) {
                    world.cluster.slot_mut(self.victim()).partitioned_until = now;
                    self.deadline = now + fence;
                }
            }
        }
    }

    fn outage(&mut self, world: &mut World) {
        let (now, dead) = (world.clock.now, world.timing.dead);
        if self.stage != Stage::Pod {
            return;
        }
        let Some(host) = leased_host_of_pod(world) else { return };
        self.stage = Stage::Done;
        if world.random.per_mille(500) {
            let schedulers = (0..SCHEDULERS).map(ProcessId::Scheduler);
            let until = now + world.random.between(dead + dead / 2, 3 * dead);
            world.begin_write_outage(RefusedWrites::of(schedulers.chain([ProcessId::Worker(host)]), until));
        } else {
            let first = now + 3 * dead;
            let returns_first = world.random.below(WORKERS);
            for worker in 0..WORKERS {
                let later =
                    if worker == returns_first { 0 } else { world.random.between(dead / 2, 2 * dead) };
                world.partition(ProcessId::Worker(worker), first + later);
                world.cluster.slot_mut(ProcessId::Worker(worker)).is_one_way_partition = false;
            }
        }
    }

    fn late_report(&mut self, world: &mut World) {
        let victim = self.victim();
        let now = world.clock.now;
        match self.stage {
            Stage::Pod if world.observed.pods.values().any(|pod| pod.phase == "assigned") => {
                world.stop_replication();
                self.stage = Stage::Running;
            }
            Stage::Running => {
                let Some(host) = leased_host_of_pod(world) else { return };
                world.fail_over();
                self.victim = host;
                self.deadline = now + world.timing.fence;
                let is_report_first = world.random.per_mille(500);
                self.stage = if is_report_first { Stage::Claim } else { Stage::Start };
            }
            Stage::Claim if now > self.deadline && world.delay_script(CLAIM, victim, u64::MAX) => {
                self.remove_containers(world);
                self.stage = Stage::Report;
            }
            Stage::Report if world.delay_script(REPORT_LOST, victim, 0) || now > self.deadline => {
                world.delay_script(CLAIM, victim, 0);
                self.stage = Stage::LostReply;
            }
            Stage::Start if is_starting(world, self.victim) => {
                delay_start(world, u64::MAX);
                self.remove_containers(world);
                self.stage = Stage::LostReply;
            }
            Stage::LostReply if world.lose_reply_of(REPORT_LOST, victim) || now > self.deadline => {
                delay_start(world, 0);
                self.stage = Stage::Done;
            }
            _ => {}
        }
    }

    fn old_copy(&mut self, world: &mut World) {
        let (dead, now) = (world.timing.dead, world.clock.now);
        let Some(pod) = world.observed.pods.values().find(|pod| has_volume(&pod.image)) else { return };
        let service = ServiceName::new(pod.service.as_str()).unwrap();
        let volume = VolumeName::of_replica(&service, "data", pod.replica).unwrap();
        let waits_for_data = pod.phase == "pending" && pod.message.contains("VolumeElsewhere");
        let host = leased_host_of_pod(world).filter(|host| world.cluster.hosts[*host].has_volume(&volume));
        match (self.stage, host) {
            (Stage::Pod, Some(host)) => {
                self.victim = host;
                world.partition(self.victim(), u64::MAX);
                world.cluster.slot_mut(self.victim()).is_one_way_partition = false;
                self.stage = Stage::Death;
            }
            (Stage::Death, _) if waits_for_data => {
                world.give_up_volume(&volume, self.victim());
                self.stage = Stage::Move;
            }
            (Stage::Move, Some(host)) if host != self.victim => {
                world.cluster.slot_mut(self.victim()).partitioned_until = now;
                self.deadline = now + 2 * dead;
                self.stage = Stage::Lease;
            }
            (Stage::Lease, Some(host)) if now > self.deadline => {
                world.forget_volumes();
                world.partition(ProcessId::Worker(host), now + 2 * dead);
                self.stage = Stage::Done;
            }
            _ => {}
        }
    }

    fn broken_update(&mut self, world: &mut World, images: &Judged) {
        match self.stage {
            Stage::Pod if has_all_pods(world, images.good) => {
                self.deadline = world.clock.now + world.random.between(0, 2 * world.timing.dead);
                self.stage = Stage::Running;
            }
            Stage::Running if world.clock.now > self.deadline => {
                update(world, images.broken);
                self.stage = Stage::Claim;
            }
            Stage::Claim if has_image(world, images.broken) && world.clients.lock().is_idle() => {
                if world.random.per_mille(500) {
                    world.stop_replication();
                    self.stage = Stage::Lease;
                } else {
                    self.stage = Stage::Start;
                }
            }
            Stage::Start | Stage::Lease if has_image(world, images.good) => {
                if self.stage == Stage::Lease {
                    world.fail_over();
                }
                self.stage = Stage::Done;
            }
            _ => {}
        }
        self.disturb_schedulers(world);
    }

    fn start_first(&mut self, world: &mut World, images: &Judged) {
        let now = world.clock.now;
        match self.stage {
            Stage::Pod if has_all_pods(world, images.good) => {
                update(world, images.other);
                self.deadline = now + world.random.between(0, 2 * world.timing.dead);
                self.stage = Stage::Move;
            }
            Stage::Move if now > self.deadline && world.clients.lock().is_idle() => {
                if world.random.per_mille(400) {
                    world.stop_replication();
                    self.deadline = now + world.random.between(0, world.timing.dead / 2);
                    self.stage = Stage::Lease;
                } else {
                    self.stage = Stage::Report;
                }
            }
            Stage::Lease if now > self.deadline => {
                world.fail_over();
                self.stage = Stage::Report;
            }
            Stage::Report => {
                if world.random.per_mille(500) {
                    update(world, images.good);
                }
                self.deadline = now;
                self.stage = Stage::Done;
            }
            _ => {}
        }
        self.disturb_schedulers(world);
    }

    /// An update fails with its check, so while one may be judged, only replaced pods become unhealthy.
    fn fall_ill(&mut self, world: &mut World) {
        if self.stage == Stage::Pod || !world.random.per_mille(1) {
            return;
        }
        let host = world.random.below(HOSTS);
        let observed = &world.observed;
        let may_fall_ill = |pod: &SimulatedPod| {
            let current = observed.services.get(&pod.service).map(|service| service.image.as_str());
            has_check(&pod.image) && (!self.updates || current != Some(pod.image.as_str()))
        };
        let mut containers = world.cluster.hosts[host].running();
        containers.retain(|one| observed.pods.get(one.pod.as_str()).is_some_and(may_fall_ill));
        if let Some(container) = world.random.pick(&containers) {
            let millis = world.random.between(500, world.timing.dead);
            world.cluster.hosts[host].make_ill(&container.handle, millis);
            world.log("a check", format_args!("fails in {} for {millis} ms", container.handle));
        }
    }

    fn disturb_schedulers(&mut self, world: &mut World) {
        let is_updating = !matches!(self.stage, Stage::Begin | Stage::Pod | Stage::Running | Stage::Claim);
        if is_updating && world.clock.now < self.deadline + 4 * world.timing.dead && world.random.per_mille(2)
        {
            let scheduler = ProcessId::Scheduler(world.random.below(SCHEDULERS));
            let until = world.clock.now + world.random.between(0, world.timing.dead);
            match world.random.per_mille(500) {
                true => world.crash(scheduler, until),
                false => world.pause(scheduler, until),
            }
        }
    }

    fn remove_containers(&mut self, world: &World) {
        let host = &world.cluster.hosts[self.victim];
        for container in host.running() {
            host.end_container(&container.handle, None);
        }
        self.deadline = world.clock.now + world.timing.fence / 2;
    }

    /// The replica falls behind just before the victim's death, and takes over once the pod runs elsewhere.
    fn loses_move(&mut self, world: &mut World) -> bool {
        let (fence, dead) = (world.timing.fence, world.timing.dead);
        match self.stage {
            Stage::Death if world.silence(self.victim) + dead / 10 > dead => {
                world.stop_replication();
                self.stage = Stage::Move;
            }
            Stage::Move => {
                let Some(other) = leased_host_of_pod(world).filter(|host| *host != self.victim) else {
                    return false;
                };
                world.fail_over();
                world.pause(ProcessId::Worker(other), world.clock.now + 2 * fence);
                self.stage = Stage::Lease;
                return true;
            }
            _ => {}
        }
        false
    }
}

fn delay_start(world: &World, until: u64) -> Option<usize> {
    let mut bus = world.bus.lock();
    let is_start = |request: &&mut EngineRequest| matches!(request.call, HostCall::Run(_));
    let start = bus.engine_requests.iter_mut().find(is_start)?;
    start.delayed_until = until;
    start.process.host()
}

fn is_starting(world: &World, host: usize) -> bool {
    let bus = world.bus.lock();
    bus.engine_requests
        .iter()
        .any(|request| matches!(request.call, HostCall::Run(_)) && request.process.host() == Some(host))
}

fn leased_host_of_pod(world: &World) -> Option<usize> {
    let pod = world.observed.pods.values().find(|pod| pod.phase == "running")?;
    let host = (0..WORKERS).find(|host| ProcessId::Worker(*host).to_string() == pod.node)?;
    world.cluster.hosts[host].has_lease().then_some(host)
}
