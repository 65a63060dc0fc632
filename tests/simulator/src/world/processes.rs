//! Starts and kills processes, and pushes payloads by hand, as a user with redis-cli does.

use std::sync::Arc;
use std::time::{Duration, Instant};

use daemon::clock::{BootInstant, Clock};
use daemon::config::Config;
use model::node::timing::Timing;
use store::{LinkOptions, Store};
use testkit::fixtures;
use worker::{WorkerEnv, WorkerTimings};

use crate::machine::bus::SimulatedNetwork;
use crate::machine::clock::TimingMillis;
use crate::machine::process::SimulatedProcess;
use crate::machine::process_id::{PROCESSES, ProcessId};
use crate::workload::clients;
use crate::workload::proxies::DRAIN;
use crate::world::state::World;

/// Too few for all services' pods when one node is missing, so that some wait.
const NODE_CPUS: &str = "2";
/// Enough for the pushed pods too, wherever they are pushed.
const NODE_PODS: &str = "8";
/// The pods of all services have some in the end. The checks read these ids.
const NODE_IDS: &str = "gpu=5 slots=5";
const MAX_PUSHED_PODS: usize = 4;
const PUSH_RATE: u64 = 250;

impl World {
    pub(crate) fn restart_processes(&mut self) {
        for index in 0..PROCESSES {
            let slot = &self.cluster.slots[index];
            let is_due = self.clock.now >= slot.down_until.max(slot.paused_until);
            if slot.process.is_none() && !slot.is_removed && (self.faults.are_over || is_due) {
                self.start(ProcessId::from_index(index));
            }
        }
    }

    fn start(&mut self, id: ProcessId) {
        self.cluster.instance_count += 1;
        let instance = self.cluster.instance_count;
        let is_elsewhere = self.cluster.slot(id).elsewhere.is_some();
        let network = SimulatedNetwork { bus: self.bus.clone(), process: id, instance, is_elsewhere };
        let database = u8::from(is_elsewhere);
        let url = format!("redis://simulated/{database}").parse().unwrap();
        let mut config = config(id, self.timing, self.switches.fence_longer_than_dead);
        if self.faults.rate > 0 && self.faults.longer_times_of == Some(id) {
            config.timing = Timing {
                heartbeat: config.timing.heartbeat * 2,
                fence_after: config.timing.fence_after * 2,
                dead_after: config.timing.dead_after * 2,
            };
        }
        // Without Sentinels the master changes only when lost data are restored. Directed scenarios (rate 0)
        // have failovers.
        if self.faults.has_failovers || self.faults.rate == 0 {
            config.redis = format!("redis+sentinel://simulated/mymaster/{database}").parse().unwrap();
        }
        let config = Arc::new(config);
        let clock = self.clock.now - self.cluster.slot(id).clock_lag;
        let worker_env = id.host().map(|index| {
            let host = Arc::new(self.cluster.hosts[index].clone());
            if self.switches.no_startup_fence {
                host.hide_containers_once();
            }
            WorkerEnv {
                runtime: host.clone(),
                clock: host.clone(),
                lease_store: Some(host.clone()),
                identity_store: Some(host),
                pod_store: worker::PodStore::Nowhere,
                uses_machine: false,
                proxy: self.proxies.socket(index),
                pressure: || None,
            }
        });
        let (clients, timings) = (self.clients.clone(), worker_timings(self.timing));
        let where_to = if is_elsewhere { " in another DATABASE" } else { "" };
        self.log(id, format_args!("starts as instance {instance}{where_to}"));
        let process = SimulatedProcess::start(instance, clock, move |shutdown| async move {
            let store = Store::with_transport(Arc::new(network), url, LinkOptions::default());
            match (id, worker_env) {
                (ProcessId::Worker(_) | ProcessId::SecondWorker, Some(env)) => {
                    drop(worker::run_in_env(config, store, env, timings, shutdown).await);
                }
                (ProcessId::Scheduler(_), _) => {
                    let clock = Arc::new(MonotonicClock(Instant::now()));
                    scheduler::run_with_clock(config, store, clock, shutdown).await.unwrap();
                }
                _ => tokio::select! {
                    () = clients::serve(store, clients) => {}
                    () = shutdown.cancelled() => {}
                },
            }
        });
        self.cluster.slot_mut(id).process = Some(process);
    }

    pub(crate) fn kill(&mut self, id: ProcessId, until: u64) {
        let slot = self.cluster.slot_mut(id);
        slot.down_until = until;
        if let Some(process) = slot.process.take() {
            let mut bus = self.bus.lock();
            bus.subscribers.retain(|subscriber| subscriber.instance != process.instance);
        }
    }

    pub(crate) fn push_by_hand(&mut self, elapsed: u64) {
        let is_due = !self.clients.lock().are_done && self.random.next() % 1_000_000 < elapsed * PUSH_RATE;
        if !is_due {
            return;
        }
        let queue = match self.random.below(4) {
            0 => "sq".to_owned(),
            worker => format!("pq:w{worker}"),
        };
        let pushed = self.clients.lock().expected.pushed_pods();
        if self.random.per_mille(300) {
            let junk = format!("junk{}", self.random.below(3));
            self.clients.lock().expected.push_junk(&junk);
            self.push(&queue, &junk, &junk);
            return;
        }
        let uuid = match self.random.pick(&pushed).cloned() {
            Some(uuid) if pushed.len() >= MAX_PUSHED_PODS || self.random.per_mille(400) => uuid,
            _ => format!("p{}", self.clock.now),
        };
        // A copy must have the same bytes.
        let on_disconnect = if uuid.ends_with(['0', '1', '2', '3', '4']) { "stop" } else { "keep" };
        let payload = format!(
            "{{\"name\":\"pushed\",\"uuid\":\"{uuid}\",\"image\":\"{on_disconnect}:0\",\"replica\":0,\
             \"on_disconnect\":\"{on_disconnect}\"{}}}",
            if self.proxies.are_there() { format!(",\"drain\":\"{DRAIN}\"") } else { String::new() }
        );
        self.clients.lock().expected.push(&uuid);
        self.checks.known_pods.insert(uuid.clone());
        self.push(&queue, &payload, &uuid);
    }

    fn push(&mut self, queue: &str, payload: &str, name: &str) {
        self.log("user", format_args!("LPUSH {queue} {name}"));
        self.change(&["LPUSH", queue, payload], &[queue]);
        self.observe();
    }
}

/// A scheduler's machine is never suspended.
struct MonotonicClock(Instant);

impl Clock for MonotonicClock {
    fn now(&self) -> BootInstant {
        BootInstant { millis: self.0.elapsed().as_millis() as u64 }
    }
}

fn worker_timings(timing: TimingMillis) -> WorkerTimings {
    let millis = Duration::from_millis;
    WorkerTimings {
        sweep_interval: millis(timing.dead / 2),
        relist_interval: millis(timing.dead * 3 / 2),
        start_retry: millis(timing.dead / 2),
        max_backoff: millis(timing.dead),
        record_lag: Duration::from_secs(3600),
        ..WorkerTimings::default()
    }
}

fn config(id: ProcessId, timing: TimingMillis, fence_longer_than_dead: bool) -> Config {
    let name = id.name();
    let mut config = fixtures::config(&[
        ("KUBELEET_NODE", name.as_str()),
        ("KUBELEET_CPUS", NODE_CPUS),
        ("KUBELEET_MEMORY", "1GiB"),
        ("KUBELEET_DISK", "64GiB"),
        ("KUBELEET_MAX_PODS", NODE_PODS),
        ("KUBELEET_RESOURCES", NODE_IDS),
        ("KUBELEET_RESTART_BACKOFF", "1s"),
    ]);
    // This machine's proxy is not part of the simulation.
    config.proxy_socket = None;
    let millis = Duration::from_millis;
    config.timing = Timing {
        heartbeat: millis(timing.heartbeat),
        fence_after: millis(if fence_longer_than_dead { 3 * timing.dead } else { timing.fence }),
        dead_after: millis(timing.dead),
    };
    config
}
