//! All state of a run: everything else in `world/` is a method of [`World`].

use std::collections::HashMap;
use std::fmt::Display;

use crate::checks::check_state::Checks;
use crate::checks::observed_state::{PodIdCache, SimulatedState};
use crate::faults::schedule_faults::ScheduleFaults;
use crate::machine::bus::SharedBus;
use crate::machine::clock::{SimulatedClock, TimingMillis};
use crate::machine::cluster::SimulatedCluster;
use crate::machine::host::must_not_run_twice;
use crate::machine::network::Network;
use crate::machine::process_id::WORKERS;
use crate::machine::random::Random;
use crate::machine::redis::RedisConnection;
use crate::machine::scripts::Scripts;
use crate::options::{ScheduleOptions, Switches};
use crate::scenario::Scenario;
use crate::stats::Stats;
use crate::workload::clients::{RuleKind, SimulatedClients};
use crate::workload::proxies::{DRAIN, Proxies};

pub(crate) struct World {
    pub(crate) switches: Switches,
    pub(crate) timing: TimingMillis,
    /// In milliseconds, while there is something to execute.
    pub(crate) max_step: u64,
    pub(crate) random: Random,
    pub(crate) clock: SimulatedClock,
    pub(crate) redis: RedisConnection,
    pub(crate) scripts: Scripts,
    pub(crate) read_script: String,
    pub(crate) bus: SharedBus,
    pub(crate) network: Network,
    pub(crate) cluster: SimulatedCluster,
    pub(crate) proxies: Proxies,
    pub(crate) clients: SimulatedClients,
    pub(crate) faults: ScheduleFaults,
    pub(crate) observed: SimulatedState,
    pub(crate) pod_ids: PodIdCache,
    pub(crate) checks: Checks,
    pub(crate) trace: Trace,
    pub(crate) stats: Stats,
    /// Keys that got a time to live outside scripts.
    pub(crate) expirations: HashMap<Vec<u8>, u64>,
}

/// The steps as text, if the run is traced.
pub(crate) struct Trace(Option<Vec<String>>);

impl Trace {
    pub(crate) fn is_enabled(&self) -> bool {
        self.0.is_some()
    }

    pub(crate) fn into_steps(self) -> Vec<String> {
        self.0.unwrap_or_default()
    }
}

impl World {
    pub(crate) fn new(options: &ScheduleOptions<'_>) -> Self {
        let mut redis = RedisConnection::connect(options.redis);
        redis.execute(&["FLUSHALL"]);
        let scripts = Scripts::new(options.scripts);
        let mut random = Random::new(options.seed);
        let bus = SharedBus::default();
        let clock = SimulatedClock::new();
        let timing = if random.per_mille(100) { TimingMillis::DEFAULT } else { TimingMillis::SHORT };
        let mut faults = ScheduleFaults::new(&mut random, options.seed);
        // Ordinals below a copied slot would be healed at once, and a global pod that lost its slot would be
        // placed beside the next one of its number.
        faults.copies_slots &= !matches!(options.scenario, Scenario::Ordinals | Scenario::Global);
        faults.loses_scheduler_hints = options.scenario == Scenario::Waking;
        let has_slow_disks = random.per_mille(300);
        let max_step = [4, 10, 25, 60][random.below(4)];
        let proxies = Proxies::new(options.seed, options.scenario == Scenario::HandOver, options.switches);
        let clients = SimulatedClients::new(
            Random::new(random.next()),
            proxies.are_there().then_some(DRAIN),
            service_rules(options),
            matches!(options.scenario, Scenario::Drains | Scenario::Global),
        );
        let cluster = SimulatedCluster::new(&bus, has_slow_disks, clock.now, &mut random);
        let mut world = Self {
            switches: options.switches,
            timing,
            max_step,
            random,
            clock,
            redis,
            scripts,
            read_script: options.scripts.read.clone(),
            bus,
            network: Network::default(),
            cluster,
            proxies,
            clients,
            faults,
            observed: SimulatedState::default(),
            pod_ids: PodIdCache::default(),
            checks: Checks::default(),
            trace: Trace(options.is_traced.then(Vec::new)),
            stats: Stats::default(),
            expirations: HashMap::new(),
        };
        world.observe();
        world
    }

    pub(crate) fn take_violations(&mut self) -> Result<(), Vec<String>> {
        let violations = std::mem::take(&mut self.checks.violations);
        if violations.is_empty() { Ok(()) } else { Err(violations) }
    }

    pub(crate) fn log(&mut self, process: impl Display, what: impl Display) {
        if let Some(steps) = &mut self.trace.0 {
            steps.push(format!("{:>9} {process:<5} {what}", self.clock.since_start(self.clock.now)));
        }
    }

    pub(crate) fn silence(&self, node: usize) -> u64 {
        self.clock.now - self.cluster.last_heartbeats[node]
    }

    pub(crate) fn is_any_node_silent(&self) -> bool {
        (0..WORKERS).any(|host| self.silence(host) + self.timing.heartbeat > self.timing.dead)
    }

    pub(crate) fn hosts_with_stale_pods(&self) -> Vec<usize> {
        let is_stale = |container: &engine::Container| {
            let record = self.observed.pods.get(container.pod.as_str());
            let is_assigned = record.is_some_and(|pod| pod.assignment == container.assignment.as_str());
            must_not_run_twice(container) && !is_assigned
        };
        (0..WORKERS).filter(|host| self.cluster.hosts[*host].running().iter().any(is_stale)).collect()
    }
}

fn service_rules(options: &ScheduleOptions<'_>) -> RuleKind {
    match options.scenario {
        Scenario::Rules | Scenario::Waking => RuleKind::Labels,
        Scenario::Related => RuleKind::Related,
        Scenario::Resources => RuleKind::Resources,
        Scenario::Preemption => RuleKind::Priorities,
        Scenario::Ordinals if options.switches.start_at_once => RuleKind::Ordinals { start: "parallel" },
        Scenario::Ordinals => RuleKind::Ordinals { start: "ordered" },
        Scenario::Global => RuleKind::Global,
        _ => RuleKind::None,
    }
}
