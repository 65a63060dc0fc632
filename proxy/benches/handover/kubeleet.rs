//! kubeleet's ingress in its own process.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use kubeleet_proxy::gate::Gates;
use kubeleet_proxy::ingress::Ingress;
use kubeleet_proxy::snapshot::RoutingSnapshot;
use model::network::endpoint::{Endpoint, EndpointState};
use model::network::handover::LocalPod;
use testkit::child_guard::ChildGuard;
use testkit::ports::free_port;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::fixture;
use crate::pod::{self, PodProcess};
use crate::process::{self, local};
use crate::{Order, Pods};

/// The value is the ports of the ingress and of the control connection.
pub const IS_INGRESS: &str = "KUBELEET_BENCH_HANDOVER_INGRESS";
/// The default of a service's `drain`.
const DRAIN: Duration = Duration::from_secs(30);

pub struct IngressProcess {
    order: Order,
    port: u16,
    control: BufReader<TcpStream>,
    _process: ChildGuard,
}

impl IngressProcess {
    pub fn start(order: Order, pods: &Pods) -> Self {
        let (port, control) = (free_port(), free_port());
        let mut command = process::this_program_as(IS_INGRESS, &format!("{port} {control}"));
        let process = process::start(&mut command, local(port));
        let control = BufReader::new(TcpStream::connect(local(control)).unwrap());
        let mut ingress = Self { order, port, control, _process: process };
        pods.iter().for_each(|pod| ingress.tell("ready", pod));
        ingress
    }

    pub fn address(&self) -> SocketAddr {
        local(self.port)
    }

    pub fn replace(&mut self, pods: &mut Pods) {
        if self.order == Order::StartFirst {
            self.add(pods);
        }
        let old = pods.pop_front().unwrap();
        self.tell("stop", &old);
        let number = old.number();
        old.kill();
        self.tell_number("gone", number);
        if self.order == Order::StopFirst {
            self.add(pods);
        }
    }

    fn add(&mut self, pods: &mut Pods) {
        let new = PodProcess::start();
        self.tell("ready", &new);
        pods.push_back(new);
    }

    fn tell(&mut self, what: &str, pod: &PodProcess) {
        self.tell_number(what, pod.number());
    }

    fn tell_number(&mut self, what: &str, number: u32) {
        write_line(self.control.get_mut(), &format!("{what} {number}"));
        let mut answer = String::new();
        self.control.read_line(&mut answer).unwrap();
        assert_eq!(answer, "done\n");
    }
}

/// A second write would wait 40 ms for an acknowledgement.
fn write_line(stream: &mut TcpStream, line: &str) {
    stream.write_all(format!("{line}\n").as_bytes()).unwrap();
}

struct Known {
    gates: Arc<Gates>,
    endpoints: Vec<Endpoint>,
    snapshot: watch::Sender<Arc<RoutingSnapshot>>,
}

pub fn serve(ports: &str) {
    let (port, control) = ports.split_once(' ').unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let control = TcpListener::bind(local(control.parse().unwrap())).unwrap();
    let (sender, snapshot) = watch::channel(Arc::default());
    let mut known = Known { gates: Arc::default(), endpoints: Vec::new(), snapshot: sender };
    let (gates, config) = (known.gates.clone(), fixture::ingress_config(port.parse().unwrap()));
    let ingress = Ingress { snapshot, gates, tunnel: None, doubts: None, config };
    runtime.spawn(ingress.run(CancellationToken::new()));
    let (mut stream, _) = control.accept().unwrap();
    for line in BufReader::new(stream.try_clone().unwrap()).lines() {
        let line = line.unwrap();
        let (what, number) = line.split_once(' ').unwrap();
        known.hear(&runtime, what, number.parse().unwrap());
        write_line(&mut stream, "done");
    }
}

impl Known {
    fn hear(&mut self, runtime: &Runtime, what: &str, number: u32) {
        let pod = fixture::pod(&format!("p{number}"), pod::address(number).ip());
        let LocalPod { pod: id, assignment, .. } = &pod;
        match what {
            "ready" => {
                self.gates.set(pod.clone());
                self.set_endpoint(&pod, Some(EndpointState::Ready));
            }
            // As a worker begins each stop; others hear of it from Redis.
            "stop" => {
                self.gates.close(id, assignment);
                self.set_endpoint(&pod, Some(EndpointState::Leaving));
                runtime.block_on(self.gates.drained(id, assignment, DRAIN)).unwrap();
            }
            "gone" => {
                self.gates.remove(assignment);
                self.set_endpoint(&pod, None);
            }
            other => panic!("{other:?} is unknown"),
        }
    }

    fn set_endpoint(&mut self, pod: &LocalPod, state: Option<EndpointState>) {
        self.endpoints.retain(|endpoint| endpoint.pod != pod.pod);
        self.endpoints.extend(state.map(|state| fixture::endpoint(pod.clone(), state)));
        self.snapshot.send_replace(Arc::new(fixture::snapshot(pod::PORT, self.endpoints.clone())));
    }
}
