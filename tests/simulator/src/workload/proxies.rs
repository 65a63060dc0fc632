//! The proxy of each host: production code that sets gates. The simulator sends the requests.

use std::io;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, SinkExt, StreamExt};
use model::ids::AssignmentId;
use model::network::handover::{self, FromProxy, FromWorker};
use parking_lot::Mutex;
use proxy::gate::{Gates, Pass};
use proxy::{LocalHost, PodsOfNodes};
use tokio::io::DuplexStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use worker::{ProxySocket, ProxyStream};

use crate::checks::ending_pods::EndingPods;
use crate::machine::process::SimulatedProcess;
use crate::machine::process_id::HOSTS;
use crate::machine::random::Random;
use crate::options::Switches;
use crate::workload::addresses::ToldAddresses;

pub(crate) const DRAIN: &str = "2s";
/// In bytes.
const BUFFER: usize = 256 * 1024;

pub(crate) struct Proxies {
    pub(crate) of_hosts: Vec<SimulatedProxy>,
    pub(crate) random: Random,
    pub(crate) told: ToldAddresses,
    pub(crate) ending: EndingPods,
}

/// Outlives its process. All times are simulated milliseconds.
#[derive(Default)]
pub(crate) struct SimulatedProxy {
    pub(crate) process: Option<SimulatedProcess>,
    pub(crate) gates: Arc<Gates>,
    socket: Arc<SimulatedSocket>,
    saved: Arc<Mutex<PodsOfNodes>>,
    pub(crate) requests: Vec<SimulatedRequest>,
    pub(crate) down_until: u64,
    pub(crate) paused_until: u64,
    /// The clock stands still while the host is suspended.
    pub(crate) clock_lag: u64,
    pub(crate) is_suspended: bool,
    pub(crate) answers_since: u64,
}

pub(crate) struct SimulatedRequest {
    pub(crate) pass: Pass,
    pub(crate) ends_at: u64,
}

/// None while no proxy listens.
#[derive(Default)]
struct SimulatedSocket {
    listening: Mutex<Option<mpsc::UnboundedSender<DuplexStream>>>,
    lies: bool,
}

impl ProxySocket for SimulatedSocket {
    fn connect(&self) -> BoxFuture<'_, io::Result<ProxyStream>> {
        let (here, there) = tokio::io::duplex(BUFFER);
        let listening = self.listening.lock();
        let is_accepted = listening.as_ref().is_some_and(|queue| queue.send(there).is_ok());
        let connected: io::Result<ProxyStream> = match is_accepted {
            true if self.lies => Ok(Box::new(lying(here))),
            true => Ok(Box::new(here)),
            false => Err(io::ErrorKind::ConnectionRefused.into()),
        };
        std::future::ready(connected).boxed()
    }
}

/// Tells clients at once that nothing is in flight.
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

    pub(crate) fn socket(&self, host: usize) -> Option<Arc<dyn ProxySocket>> {
        self.of_hosts.get(host).map(|proxy| proxy.socket.clone() as Arc<dyn ProxySocket>)
    }

    pub(crate) fn reboot(&mut self, host: usize, until: u64) {
        if let Some(proxy) = self.of_hosts.get_mut(host) {
            proxy.kill(until);
            proxy.saved.lock().clear();
        }
        self.ending.forget(host);
    }

    pub(crate) fn suspend(&mut self, host: usize, until: u64) {
        if let Some(proxy) = self.of_hosts.get_mut(host) {
            proxy.paused_until = until;
            proxy.is_suspended = true;
        }
    }

    pub(crate) fn in_flight(&self, host: usize, assignment: &AssignmentId) -> usize {
        let requests = self.of_hosts[host].requests.iter();
        requests.filter(|request| request.pass.pod().assignment == *assignment).count()
    }

    pub(crate) fn answers_since(&self, host: usize) -> u64 {
        self.of_hosts[host].answers_since
    }

    pub(crate) fn end_faults(&mut self) {
        for proxy in &mut self.of_hosts {
            (proxy.down_until, proxy.paused_until) = (0, 0);
        }
    }
}

impl SimulatedProxy {
    pub(crate) fn start(
        &mut self,
        instance: u64,
        clock: u64,
        addresses: impl Future<Output = ()> + Send + 'static,
    ) {
        self.gates = Arc::new(Gates::default());
        let host = LocalHost::new(self.gates.clone());
        let (queue, connections) = mpsc::unbounded_channel();
        *self.socket.listening.lock() = Some(queue);
        let saved = self.saved.clone();
        let main = async move |shutdown| {
            tokio::join!(run(host, connections, saved, shutdown), addresses);
        };
        self.process = Some(SimulatedProcess::start(instance, clock, main));
    }

    pub(crate) fn kill(&mut self, until: u64) {
        self.down_until = until;
        self.requests.clear();
        *self.socket.listening.lock() = None;
        self.process = None;
    }

    pub(crate) fn is_paused(&self, now: u64) -> bool {
        now < self.paused_until
    }
}

async fn run(
    host: LocalHost,
    mut connections: mpsc::UnboundedReceiver<DuplexStream>,
    saved: Arc<Mutex<PodsOfNodes>>,
    shutdown: CancellationToken,
) {
    host.insert_saved(saved.lock().clone());
    let serve = async {
        let (mut number, mut served) = (0, JoinSet::new());
        while let Some(connection) = connections.recv().await {
            number += 1;
            let host = host.clone();
            served.spawn(async move { host.serve(number, connection).await });
        }
    };
    tokio::join!(host.save(|pods| *saved.lock() = pods, shutdown), serve);
}
