//! The proxy of each host: production code that takes what workers say about their pods, and the gates that
//! follow from it. The requests that enter the gates are the simulator's, and so is what disturbs a proxy.
//! What must hold is in [`crate::gates`].

use std::io;
use std::sync::{Arc, Mutex};

use common::handover::{self, FromProxy, FromWorker};
use common::ids::AssignmentId;
use engine::Container;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, SinkExt, StreamExt};
use proxy::gate::{EnterError, Gates, Pass};
use proxy::{LocalHost, PodsOfNodes};
use tokio::io::DuplexStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use worker::{ProxySocket, ProxyStream};

use crate::Switches;
use crate::addresses::{self, ToldAddresses};
use crate::gates::EndingPods;
use crate::process::SimulatedProcess;
use crate::process_id::{HOSTS, ProcessId};
use crate::random::Random;
use crate::world::World;

/// How long requests have to end when a pod is stopped.
pub(crate) const DRAIN: &str = "2s";
/// A step of this many milliseconds is a stall of the whole machine, in which a worker may have stopped
/// waiting.
const STALL: u64 = 100;
/// How much a connection holds until its other end reads, in bytes.
const BUFFER: usize = 256 * 1024;
/// How often a request comes to each host, in a thousand seconds.
const REQUEST_RATE: u64 = 12_000;
/// How often a proxy is disturbed, in a thousand seconds.
const DISTURBANCE_RATE: u64 = 30;

/// The proxies of all hosts; none in scenarios without them.
pub(crate) struct Proxies {
    of_hosts: Vec<SimulatedProxy>,
    random: Random,
    /// The addresses that pods have learnt.
    pub(crate) told: ToldAddresses,
    pub(crate) ending: EndingPods,
}

/// The proxy of one host. What outlives its process is here. All times are simulated milliseconds.
#[derive(Default)]
struct SimulatedProxy {
    /// None while it is down.
    process: Option<SimulatedProcess>,
    gates: Arc<Gates>,
    socket: Arc<SimulatedSocket>,
    /// The file in the runtime directory.
    saved: Arc<Mutex<PodsOfNodes>>,
    requests: Vec<SimulatedRequest>,
    down_until: u64,
    paused_until: u64,
    /// How far its monotonic clock lags: it stands still while its host is suspended.
    clock_lag: u64,
    is_suspended: bool,
    /// Since when it has answered without a break.
    answers_since: u64,
}

/// A request that a gate has let in.
struct SimulatedRequest {
    pass: Pass,
    ends_at: u64,
}

/// The socket of a proxy: connections that it has not accepted yet. None is made while no proxy listens.
#[derive(Default)]
struct SimulatedSocket {
    listening: Mutex<Option<mpsc::UnboundedSender<DuplexStream>>>,
    /// An ablation: who connects is told at once that nothing is in flight.
    lies: bool,
}

impl ProxySocket for SimulatedSocket {
    fn connect(&self) -> BoxFuture<'_, io::Result<ProxyStream>> {
        let (here, there) = tokio::io::duplex(BUFFER);
        let listening = self.listening.lock().unwrap();
        let is_accepted = listening.as_ref().is_some_and(|queue| queue.send(there).is_ok());
        let connected: io::Result<ProxyStream> = match is_accepted {
            true if self.lies => Ok(Box::new(lying(here))),
            true => Ok(Box::new(here)),
            false => Err(io::ErrorKind::ConnectionRefused.into()),
        };
        std::future::ready(connected).boxed()
    }
}

/// Returns a connection that answers each request to close a gate at once, and passes all else on to the
/// proxy.
fn lying(proxy: DuplexStream) -> DuplexStream {
    let (here, there) = tokio::io::duplex(BUFFER);
    tokio::spawn(async move {
        let (mut worker, mut proxy) = (handover::lines(there), handover::lines(proxy));
        while let Some(Ok(line)) = worker.next().await {
            let passed_on = match serde_json::from_str(&line) {
                Ok(FromWorker::Close { pod, assignment, .. }) => {
                    let drained = FromProxy::Drained { pod, assignment, after_ms: 0, cut: 0 };
                    worker.send(handover::to_line(&drained)).await
                }
                _ => proxy.send(line).await,
            };
            if passed_on.is_err() {
                return;
            }
        }
    });
    here
}

impl Proxies {
    pub(crate) fn new(seed: u64, are_there: bool, switches: Switches) -> Self {
        let socket =
            || Arc::new(SimulatedSocket { lies: switches.no_wait_for_gates, ..SimulatedSocket::default() });
        let proxy = |_| SimulatedProxy { socket: socket(), ..SimulatedProxy::default() };
        let of_hosts = (0..if are_there { HOSTS } else { 0 }).map(proxy).collect();
        Self {
            of_hosts,
            random: Random::new(seed.wrapping_mul(31)),
            told: ToldAddresses::default(),
            ending: EndingPods::default(),
        }
    }

    pub(crate) fn are_there(&self) -> bool {
        !self.of_hosts.is_empty()
    }

    /// The socket of a host's proxy, for its worker.
    pub(crate) fn socket(&self, host: usize) -> Option<Arc<dyn ProxySocket>> {
        self.of_hosts.get(host).map(|proxy| proxy.socket.clone() as Arc<dyn ProxySocket>)
    }

    /// The host reboots: its proxy ends, and its runtime directory is empty.
    pub(crate) fn reboot(&mut self, host: usize, until: u64) {
        if let Some(proxy) = self.of_hosts.get_mut(host) {
            proxy.kill(until);
            proxy.saved.lock().unwrap().clear();
        }
        self.ending.forget(host);
    }

    /// The host is suspended, and its proxy with it.
    pub(crate) fn suspend(&mut self, host: usize, until: u64) {
        if let Some(proxy) = self.of_hosts.get_mut(host) {
            proxy.paused_until = until;
            proxy.is_suspended = true;
        }
    }

    /// How many requests are in flight to an assignment of a pod.
    pub(crate) fn in_flight(&self, host: usize, assignment: &AssignmentId) -> usize {
        let requests = self.of_hosts[host].requests.iter();
        requests.filter(|request| request.pass.pod().assignment == *assignment).count()
    }

    /// Since when the proxy of a host has answered without a break.
    pub(crate) fn answers_since(&self, host: usize) -> u64 {
        self.of_hosts[host].answers_since
    }

    /// Ends every fault.
    pub(crate) fn end_faults(&mut self) {
        for proxy in &mut self.of_hosts {
            (proxy.down_until, proxy.paused_until) = (0, 0);
        }
    }
}

impl SimulatedProxy {
    fn start(&mut self, instance: u64, clock: u64, addresses: impl Future<Output = ()> + Send + 'static) {
        self.gates = Arc::new(Gates::default());
        let host = LocalHost::new(self.gates.clone());
        let (queue, connections) = mpsc::unbounded_channel();
        *self.socket.listening.lock().unwrap() = Some(queue);
        let saved = self.saved.clone();
        let main = async move |shutdown| {
            tokio::join!(run(host, connections, saved, shutdown), addresses);
        };
        self.process = Some(SimulatedProcess::start(instance, clock, main));
    }

    fn kill(&mut self, until: u64) {
        self.down_until = until;
        self.requests.clear();
        *self.socket.listening.lock().unwrap() = None;
        self.process = None;
    }

    fn is_paused(&self, now: u64) -> bool {
        now < self.paused_until
    }
}

/// A proxy, as far as workers speak to it.
async fn run(
    host: LocalHost,
    mut connections: mpsc::UnboundedReceiver<DuplexStream>,
    saved: Arc<Mutex<PodsOfNodes>>,
    shutdown: CancellationToken,
) {
    host.restore(saved.lock().unwrap().clone());
    let serve = async {
        let (mut number, mut served) = (0, JoinSet::new());
        while let Some(connection) = connections.recv().await {
            number += 1;
            let host = host.clone();
            served.spawn(async move { host.serve(number, connection).await });
        }
    };
    tokio::join!(host.save(|pods| *saved.lock().unwrap() = pods, shutdown), serve);
}

impl World {
    /// Starts the proxies that are down and whose downtime is over, and disturbs those that run.
    pub(crate) fn progress_proxies(&mut self, elapsed: u64) {
        for host in 0..self.proxies.of_hosts.len() {
            let is_there = !self.cluster.slot(ProcessId::of_host(host)).is_removed;
            let (now, are_over) = (self.clock.now, self.faults.are_over);
            let proxy = &mut self.proxies.of_hosts[host];
            if elapsed >= STALL {
                proxy.answers_since = now;
            }
            if proxy.is_suspended {
                proxy.clock_lag += elapsed;
                proxy.is_suspended = proxy.is_paused(now);
            }
            if proxy.process.is_none() && is_there && (are_over || now >= proxy.down_until) {
                self.cluster.instance_count += 1;
                let instance = self.cluster.instance_count;
                let random = Random::new(self.proxies.random.next());
                let asks =
                    addresses::ask(self.bus.clone(), host, instance, random, self.proxies.told.learnt());
                proxy.start(instance, now - proxy.clock_lag, asks);
                self.log(ProcessId::Proxy(host), "starts");
            }
            let random = &mut self.proxies.random;
            if is_there && !are_over && random.next() % 1_000_000 < elapsed * DISTURBANCE_RATE {
                self.disturb_proxy(host);
            }
        }
    }

    fn disturb_proxy(&mut self, host: usize) {
        let random = &mut self.proxies.random;
        let until = self.clock.now + [random.between(1, 100), random.between(100, 8_000)][random.below(2)];
        let dies = random.per_mille(500);
        if dies {
            return self.kill_proxy(host, until);
        }
        let proxy = &mut self.proxies.of_hosts[host];
        proxy.paused_until = until.max(proxy.paused_until);
        let until = self.clock.since_start(until);
        self.log(ProcessId::Proxy(host), format_args!("PAUSED until {until}"));
    }

    /// Sometimes kills a proxy that has closed a gate, and may not have saved that yet.
    pub(crate) fn kill_after_close(&mut self, host: usize) {
        if !self.faults.are_over && self.proxies.random.per_mille(100) {
            let until = self.clock.now + self.proxies.random.between(1, 100);
            self.kill_proxy(host, until);
        }
    }

    fn kill_proxy(&mut self, host: usize, until: u64) {
        self.proxies.of_hosts[host].kill(until);
        let until = self.clock.since_start(until);
        self.log(ProcessId::Proxy(host), format_args!("DIES until {until}"));
    }

    /// Lets the proxies go on, ends requests, and sends new ones.
    pub(crate) fn poll_proxies(&mut self, elapsed: u64) {
        let now = self.clock.now;
        for host in 0..self.proxies.of_hosts.len() {
            let proxy = &mut self.proxies.of_hosts[host];
            let running = proxy.process.as_ref().filter(|_| !proxy.is_paused(now));
            let Some(process) = running else {
                proxy.answers_since = now + 1;
                continue;
            };
            process.poll(now - proxy.clock_lag, || self.bus.lock().request_count);
            proxy.requests.retain(|request| now < request.ends_at && !request.pass.cut().has_come());
            if self.proxies.random.next() % 1_000_000 < elapsed * REQUEST_RATE {
                self.send_request(host);
            }
        }
        let told_twice = self.proxies.told.progress(now, self.clock.redis_now());
        self.checks.violations.extend(told_twice);
    }

    /// Sends a request to a pod that has a container on the host.
    fn send_request(&mut self, host: usize) {
        let containers = self.cluster.hosts[host].containers();
        let random = &mut self.proxies.random;
        let Some(container) = random.pick(&containers) else { return };
        let takes = match random.below(20) {
            0 => u64::MAX / 2,
            1..4 => random.between(300, 4_000),
            _ => random.between(1, 300),
        };
        let Container { pod, assignment, .. } = container;
        let proxy = &mut self.proxies.of_hosts[host];
        match proxy.gates.enter(pod, assignment) {
            Ok(pass) => {
                proxy.requests.push(SimulatedRequest { pass, ends_at: self.clock.now + takes });
                self.stats.let_in += 1;
                self.check_let_in(host, pod, assignment);
            }
            Err(EnterError::Closed) if self.switches.open_gates => self.check_let_in(host, pod, assignment),
            Err(EnterError::Closed) => self.stats.refused_by_gates += 1,
            Err(EnterError::Unknown) => {}
        }
    }
}
