//! Updates of a service while requests go through the gates of its pods. No request fails, although the pods
//! die at once at SIGTERM. Two ablations must fail.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::{SinkExt, StreamExt};
use kubeleet_tests::exclusive::beside_others;
use kubeleet_tests::http::Http;
use kubeleet_tests::{Cluster, ClusterTiming};
use model::ids::{AssignmentId, PodId};
use model::network::handover::{FromProxy, FromWorker, LocalPod, lines, to_line};
use parking_lot::Mutex;
use proxy::LocalServer;
use proxy::gate::{Gates, Pass};
use reqwest::Method;
use serde_json::{Value, json};
use testkit::eventually::{check, eventually_within};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixListener, UnixStream};
use tokio_util::sync::CancellationToken;

use crate::SOON;

/// Followed by one port for each further replica.
const FIRST_PORT: &str = "KUBELEET_TEST_FIRST_PORT";
const REPLICAS: u16 = 3;
const CLIENTS: usize = 8;
const WORK: Duration = Duration::from_millis(20);
const MAX_WAIT: Duration = Duration::from_secs(20);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ablation {
    /// Workers send SIGTERM without waiting.
    NoWait,
    /// Closed gates let all requests in.
    NoLook,
}

/// Answers each line after a while, and dies at once at SIGTERM.
#[test]
#[ignore = "the program of the pods of this scenario"]
fn program_of_a_pod() {
    let Some(first) = std::env::var(FIRST_PORT).ok().and_then(|text| text.parse::<u16>().ok()) else {
        return;
    };
    // `web-<replica>-<hash>`
    let folder = PathBuf::from(std::env::var_os("KUBELEET_DIR").unwrap());
    let name = folder.file_name().unwrap().to_str().unwrap();
    let replica: u16 = name.split('-').nth(1).unwrap().parse().unwrap();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, first + replica)).unwrap();
    for stream in listener.incoming() {
        let stream = stream.unwrap();
        std::thread::spawn(move || {
            let mut line = String::new();
            if BufReader::new(&stream).read_line(&mut line).is_ok_and(|length| length > 0) {
                std::thread::sleep(WORK);
                let _answered = (&stream).write_all(line.as_bytes());
            }
        });
    }
}

/// A little late, like all reads from Redis.
#[derive(Default)]
struct Endpoints(Mutex<Vec<(PodId, AssignmentId, u16)>>);

impl Endpoints {
    async fn follow(&self, http: &Http) {
        loop {
            let pods = http.pods("service=web").await;
            let of_one = |pod: &Value| {
                let id = PodId::new(pod["uuid"].as_str()?).ok()?;
                let assignment = AssignmentId::new(pod["assignment"].as_str()?).ok()?;
                Some((id, assignment, pod["replica"].as_u64()? as u16))
            };
            *self.0.lock() = pods.iter().filter_map(of_one).collect();
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

struct Clients {
    gates: Arc<Gates>,
    endpoints: Endpoints,
    first_port: u16,
    is_over: AtomicBool,
    answered: AtomicU64,
    failed: AtomicU64,
}

impl Clients {
    async fn run(&self, number: usize) {
        while !self.is_over.load(Ordering::Relaxed) {
            let counter = match self.request(number).await {
                Ok(()) => &self.answered,
                Err(_) => &self.failed,
            };
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Once a pod has seen it, the request is not repeated.
    async fn request(&self, number: usize) -> Result<(), String> {
        let begun = Instant::now();
        loop {
            if let Some((pass, stream)) = self.let_in(number).await {
                return exchange(&pass, stream).await;
            }
            if begun.elapsed() > MAX_WAIT {
                return Err("no pod let it in".to_owned());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn let_in(&self, number: usize) -> Option<(Pass, TcpStream)> {
        let mut known = self.endpoints.0.lock().clone();
        let start = number % known.len().max(1);
        known.rotate_left(start);
        for (pod, assignment, replica) in known {
            let Ok(pass) = self.gates.enter(&pod, &assignment) else { continue };
            let address = SocketAddr::new(pass.address(), self.first_port + replica);
            // The pod has seen nothing.
            if let Ok(stream) = TcpStream::connect(address).await {
                return Some((pass, stream));
            }
        }
        None
    }
}

async fn exchange(pass: &Pass, mut stream: TcpStream) -> Result<(), String> {
    let answer = async {
        stream.write_all(b"hello\n").await?;
        let mut line = String::new();
        tokio::io::BufReader::new(&mut stream).read_line(&mut line).await?;
        Ok::<String, std::io::Error>(line)
    };
    tokio::select! {
        answer = answer => match answer {
            Ok(line) if line == "hello\n" => Ok(()),
            other => Err(format!("{other:?}")),
        },
        () = pass.cut() => Err("cut".to_owned()),
    }
}

async fn ablate(listener: UnixListener, proxy: PathBuf, ablation: Ablation) {
    while let Ok((stream, _)) = listener.accept().await {
        let proxy = UnixStream::connect(&proxy).await.unwrap();
        tokio::spawn(relay(stream, proxy, ablation));
    }
}

async fn relay(worker: UnixStream, proxy: UnixStream, ablation: Ablation) {
    let (mut worker, mut proxy) = (lines(worker), lines(proxy));
    while let Some(Ok(line)) = worker.next().await {
        let message = match (ablation, serde_json::from_str(&line).unwrap()) {
            (_, FromWorker::Close { pod, assignment, within_ms }) => {
                for answer in at_once(&pod, &assignment) {
                    worker.send(to_line(&answer)).await.unwrap();
                }
                if ablation == Ablation::NoLook {
                    continue;
                }
                FromWorker::Close { pod, assignment, within_ms }
            }
            (Ablation::NoLook, FromWorker::Set { pod }) => {
                FromWorker::Set { pod: LocalPod { open: true, ..pod } }
            }
            (_, other) => other,
        };
        proxy.send(to_line(&message)).await.unwrap();
    }
}

fn at_once(pod: &PodId, assignment: &AssignmentId) -> [FromProxy; 2] {
    let (pod, assignment) = (pod.clone(), assignment.clone());
    let closed = FromProxy::Closed { pod: pod.clone(), assignment: assignment.clone(), in_flight: 0 };
    [closed, FromProxy::Drained { pod, assignment, after_ms: 0, cut: 0 }]
}

#[derive(Debug, Clone, Copy)]
struct Outcome {
    answered: u64,
    failed: u64,
}

async fn update(http: &Http, updates: u64) {
    for number in 1..=updates {
        let (status, body) = http.send(Method::POST, "/service/web/restart", None).await;
        assert!(status.is_success(), "{status}: {body}");
        let what = format!("update {number} is done");
        eventually_within(3 * SOON, &what, || async {
            let service = http.get("/service/web").await;
            let status = &service["status"];
            let is_new = service["generation"].as_u64() > Some(number) && status["updated"] == REPLICAS;
            check(is_new && status["running"] == REPLICAS && status["stopping"] == 0, || {
                service["status"].to_string()
            })
        })
        .await;
    }
}

#[allow(clippy::print_stderr, reason = "figures")]
async fn requests_during(updates: u64, ablation: Option<Ablation>) -> Outcome {
    let cluster = Cluster::new(ClusterTiming::Short).await;
    let (gates, shutdown) = (Arc::new(Gates::default()), CancellationToken::new());
    let own = cluster.folder().join("own.sock");
    let server = LocalServer::bind(own.clone(), gates.clone()).await.unwrap();
    let _stop = shutdown.clone().drop_guard();
    tokio::spawn(server.run(shutdown));
    let socket = match ablation {
        None => own,
        Some(ablation) => {
            let path = cluster.folder().join("ablated.sock");
            tokio::spawn(ablate(UnixListener::bind(&path).unwrap(), own, ablation));
            path
        }
    };
    let (api, _scheduler) = (cluster.api().await, cluster.scheduler());
    let _workers = ["w1", "w2"].map(|short| start_worker(&cluster, short, &socket));
    let http = api.http();
    http.nodes_ready(2).await;
    let first_port = free_ports();
    http.post("/service", &service(first_port)).await;
    http.runs(SOON, "web", REPLICAS.into()).await;
    let clients = Arc::new(Clients {
        gates,
        endpoints: Endpoints::default(),
        first_port,
        is_over: AtomicBool::new(false),
        answered: AtomicU64::new(0),
        failed: AtomicU64::new(0),
    });
    let follower = tokio::spawn({
        let (clients, http) = (clients.clone(), api.http());
        async move { clients.endpoints.follow(&http).await }
    });
    let sent: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let clients = clients.clone();
            tokio::spawn(async move { clients.run(number).await })
        })
        .collect();
    eventually_within(SOON, "requests are answered", || async {
        clients.answered.load(Ordering::Relaxed) > 100
    })
    .await;
    let begun = Instant::now();
    update(&http, updates).await;
    clients.is_over.store(true, Ordering::Relaxed);
    for client in sent {
        client.await.unwrap();
    }
    follower.abort();
    let outcome = Outcome {
        answered: clients.answered.load(Ordering::Relaxed),
        failed: clients.failed.load(Ordering::Relaxed),
    };
    eprintln!("{updates} updates in {:.1?}, ablation {ablation:?}: {outcome:?}", begun.elapsed());
    outcome
}

fn start_worker(cluster: &Cluster, short: &str, socket: &Path) -> kubeleet_tests::cluster::DaemonProcess {
    cluster.worker_with(short, "process", &[("KUBELEET_PROXY_SOCKET", socket.to_str().unwrap())])
}

pub(crate) fn service(first_port: u16) -> Value {
    let program = std::env::current_exe().unwrap();
    let test = "handover::program_of_a_pod";
    json!({
        "name": "web", "image": "none", "replicas": REPLICAS, "on_disconnect": "keep",
        "command": [program, test, "--exact", "--ignored", "--nocapture"],
        "environment": {FIRST_PORT: first_port.to_string()},
        // Two processes of one replica cannot listen on its port.
        "update": {"order": "stop-first", "monitor": "0s"},
    })
}

pub(crate) fn free_ports() -> u16 {
    let is_free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
    let all_free = |first: &u16| (*first..*first + REPLICAS).all(|port| is_free(&port));
    // Below the range from which the kernel takes ports for connections.
    let random = u16::from_le_bytes(uuid::Uuid::new_v4().as_bytes()[..2].try_into().unwrap());
    (20_000 + random % 10_000..32_000).find(all_free).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_request_fails_while_a_service_is_updated_twenty_times() {
    let _lock = beside_others().await;
    let outcome = requests_during(20, None).await;
    assert_eq!(outcome.failed, 0, "{outcome:?}");
    assert!(outcome.answered > 1_000, "{outcome:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_wait_for_requests_in_flight_some_fail() {
    let _lock = beside_others().await;
    let outcome = requests_during(5, Some(Ablation::NoWait)).await;
    assert!(outcome.failed > 0, "SIGTERM without waiting was not noticed: {outcome:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_gate_that_does_not_look_some_requests_fail() {
    let _lock = beside_others().await;
    let outcome = requests_during(5, Some(Ablation::NoLook)).await;
    assert!(outcome.failed > 0, "a gate that does not look was not noticed: {outcome:?}");
}
