//! The world of one run, and what one step of the simulator does.

use std::collections::HashSet;
use std::fmt::Display;

use crate::bus::{RedisRequest, SharedBus};
use crate::checks::{self, Checks};
use crate::clients::SimulatedClients;
use crate::clock::{SimulatedClock, TimingMillis};
use crate::cluster::SimulatedCluster;
use crate::faults::ScheduleFaults;
use crate::hints::PendingHint;
use crate::host::must_not_run_twice;
use crate::observed_state::{PodIdCache, SimulatedState};
use crate::process_id::{PROCESSES, ProcessId, WORKERS};
use crate::proxies::{DRAIN, Proxies};
use crate::random::Random;
use crate::redis::RedisConnection;
use crate::scripts::Scripts;
use crate::{Scenario, ScheduleOptions, Stats, Switches};

/// All processes are polled when this many milliseconds have passed since the last time. In between, only the
/// process is polled that has just received a reply.
const POLL_INTERVAL: u64 = 5;

/// See the module.
pub(crate) struct World {
    pub(crate) switches: Switches,
    pub(crate) timing: TimingMillis,
    /// Longest time that passes with one step while there is something to execute, in milliseconds.
    max_step: u64,
    pub(crate) random: Random,
    pub(crate) clock: SimulatedClock,
    pub(crate) redis: RedisConnection,
    pub(crate) scripts: Scripts,
    /// The hash of the script that reads what is observed.
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
}

/// The network between the processes and Redis, beside the requests on the bus.
#[derive(Default)]
pub(crate) struct Network {
    pub(crate) hints: Vec<PendingHint>,
    /// Requests that will never be answered. They are kept, because dropping one would tell its sender so.
    pub(crate) unanswered: Vec<RedisRequest>,
    /// Connections on which no reply arrives any more.
    pub(crate) silent_connections: HashSet<u64>,
}

/// The steps of a run as text, if the run is traced.
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
        let faults = ScheduleFaults::new(&mut random, options.seed);
        let has_slow_disks = random.per_mille(300);
        let max_step = [4, 10, 25, 60][random.below(4)];
        let proxies = Proxies::new(options.seed, options.scenario == Scenario::HandOver, options.switches);
        let clients = SimulatedClients::new(Random::new(random.next()), proxies.are_there().then_some(DRAIN));
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
        };
        world.observe();
        world
    }

    /// Ends all faults and all operations of clients: from now on the cluster must converge.
    pub(crate) fn stop_faults(&mut self) {
        self.restore_redis();
        self.remove_second_worker();
        self.correct_databases(u64::MAX);
        self.remove_held_containers();
        self.faults.end();
        self.proxies.end_faults();
        // A slow Redis is a fault as well.
        self.max_step = self.max_step.min(10);
        for slot in &mut self.cluster.slots {
            slot.end_faults();
        }
        self.clients.lock().are_done = true;
        self.log("", "no more faults");
    }

    /// One step: time passes, faults may occur, at most one request is executed, the processes go on as far
    /// as they can, and the invariants are checked.
    ///
    /// # Errors
    /// The violated invariants.
    pub(crate) fn step(&mut self) -> Result<(), Vec<String>> {
        self.stats.steps += 1;
        let elapsed = self.advance_clock();
        if !self.faults.are_over {
            self.inject_faults(elapsed);
            self.push_by_hand(elapsed);
        }
        checks::note_mass_loss(self);
        self.restart_processes();
        self.progress_proxies(elapsed);
        self.deliver_hints();
        let answered = self.execute_next();
        self.poll_processes(answered, elapsed);
        self.poll_proxies(elapsed);
        self.observe();
        self.take_violations()
    }

    /// Returns how many milliseconds have passed.
    fn advance_clock(&mut self) -> u64 {
        // Rarely, the whole machine stalls.
        let elapsed = if self.random.per_mille(1) {
            self.random.between(1000, 5000)
        } else if self.has_candidates() {
            self.random.between(0, self.max_step)
        } else {
            self.random.between(5, 60)
        };
        self.clock.now += elapsed;
        let now = self.clock.now;
        self.bus.lock().now = now;
        self.clients.lock().now = now;
        self.cluster.advance_clocks(now, elapsed);
        elapsed
    }

    /// Polls all processes or, if hardly any time has passed, only the one that was answered.
    fn poll_processes(&mut self, answered: Option<ProcessId>, elapsed: u64) {
        self.clock.since_poll += elapsed;
        let polls_all = self.clock.since_poll >= POLL_INTERVAL;
        if polls_all {
            self.clock.since_poll = 0;
        }
        let now = self.clock.now;
        for index in 0..PROCESSES {
            let slot = &self.cluster.slots[index];
            let is_due = polls_all || answered.is_some_and(|process| process.index() == index);
            if !is_due || (slot.is_paused(now) && !self.faults.are_over) {
                continue;
            }
            let Some(process) = &slot.process else { continue };
            process.poll(now - slot.clock_lag, || self.bus.lock().request_count);
            if process.has_ended() {
                let id = ProcessId::from_index(index);
                self.log(id, "ended");
                let until = self.cluster.slots[index].down_until.max(now + 1000);
                self.kill(id, until);
            }
        }
    }

    /// Returns the violations found so far as an error.
    ///
    /// # Errors
    /// If there are any.
    pub(crate) fn take_violations(&mut self) -> Result<(), Vec<String>> {
        let violations = std::mem::take(&mut self.checks.violations);
        if violations.is_empty() { Ok(()) } else { Err(violations) }
    }

    /// Adds a line to the trace.
    pub(crate) fn log(&mut self, process: impl Display, what: impl Display) {
        if let Some(steps) = &mut self.trace.0 {
            steps.push(format!("{:>9} {process:<5} {what}", self.clock.since_start(self.clock.now)));
        }
    }

    /// For how long Redis has not processed a heartbeat of a node.
    pub(crate) fn silence(&self, node: usize) -> u64 {
        self.clock.now - self.cluster.last_heartbeats[node]
    }

    /// Whether a node was declared dead, or is about to be.
    pub(crate) fn is_any_node_silent(&self) -> bool {
        (0..WORKERS).any(|host| self.silence(host) + self.timing.heartbeat > self.timing.dead)
    }

    /// Returns the hosts that run a pod which must not run twice and which Redis has assigned elsewhere by
    /// now.
    pub(crate) fn hosts_with_stale_pods(&self) -> Vec<usize> {
        let is_stale = |container: &engine::Container| {
            let record = self.observed.pods.get(container.pod.as_str());
            let is_assigned = record.is_some_and(|pod| pod.assignment == container.assignment.as_str());
            must_not_run_twice(container) && !is_assigned
        };
        (0..WORKERS).filter(|host| self.cluster.hosts[*host].running().iter().any(is_stale)).collect()
    }
}
