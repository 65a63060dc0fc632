//! Ingress beside nginx and HAProxy, in one run on the same cores: requests per second, CPU per request and latency.
//!
//! `make bench ARGS=ingress`. All pass requests to the same nginx, which answers with 1 KiB; `wrk` sends
//! them. The last, `two hops`, reaches it through the tunnel, whose two ends are in one process. Each proxy has two
//! threads or workers. The rounds take turns, so that what else the machine does harms all alike. Without nginx and wrk
//! (`apt-get install nginx-light wrk`) nothing is measured, without haproxy the others are. `SECONDS` and `ROUNDS` change
//! the defaults.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    unreachable_pub,
    missing_docs,
    reason = "a bench prints, fails by panicking, and has no users"
)]

mod server;

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use common::endpoint::{Endpoint, EndpointState};
use common::handover::LocalPod;
use common::ids::{AssignmentId, NodeName, PodId, ServiceName};
use common::ingress::{HttpProtocol, HttpRule, IngressRule};
use kubeleet_proxy::gate::Gates;
use kubeleet_proxy::ingress::{Ingress, IngressConfig};
use kubeleet_proxy::route::RouteTable;
use kubeleet_proxy::snapshot::Snapshot;
use kubeleet_proxy::tunnel::{Dialer, Peer, Peers, ProxyKey, TunnelListener};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use server::Server;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Set in the process that is the ingress.
const IS_INGRESS: &str = "KUBELEET_BENCH_INGRESS";
const POD_PORT: u16 = 18081;
const NGINX_PORT: u16 = 18082;
const INGRESS_PORT: u16 = 18083;
const TWO_HOPS_PORT: u16 = 18084;
const HAPROXY_PORT: u16 = 18085;

fn main() {
    if std::env::var_os(IS_INGRESS).is_some() {
        return serve();
    }
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    if !args.is_empty() && !args.iter().any(|arg| arg == "ingress") {
        return;
    }
    let has = |program| Command::new(program).arg("-v").output().is_ok();
    if !has("nginx") || !has("wrk") {
        println!("SKIPPED: nginx and wrk are needed (apt-get install nginx-light wrk)");
        return;
    }
    let is_smoke = std::env::args().any(|arg| arg == "--smoke");
    measure(if is_smoke { (1, 1) } else { (5, 3) }, has("haproxy"));
}

/// An ingress with one pod on its host, and one with that pod on another host.
fn serve() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let service = ServiceName::new("web").unwrap();
    let (pod, assignment) = (PodId::new("p").unwrap(), AssignmentId::new("a").unwrap());
    let rule = HttpRule {
        host: String::new(),
        path: "/".to_owned(),
        port: POD_PORT,
        protocol: HttpProtocol::Http,
        tls: None,
    };
    let gates = Arc::new(Gates::default());
    gates.set(LocalPod {
        pod: pod.clone(),
        assignment: assignment.clone(),
        start: 1,
        service: Some(service.clone()),
        replica: 0,
        address: Ipv4Addr::LOCALHOST.into(),
        open: true,
        ready: true,
    });
    let node = NodeName::new("worker1").unwrap();
    let endpoint = Endpoint { pod, replica: 0, node, assignment, state: EndpointState::Ready };
    let snapshot = Snapshot {
        routes: RouteTable::new(vec![(service.clone(), IngressRule::Http(rule))]),
        endpoints: HashMap::from([(service, vec![endpoint])]),
    };
    let (_sender, snapshot) = watch::channel(Arc::new(snapshot));
    let at = |port| {
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        IngressConfig { listen, ..IngressConfig::default() }
    };
    runtime.block_on(async {
        let tunnel = Some(Arc::new(tunnel(&gates).await));
        let two_hops = Ingress {
            snapshot: snapshot.clone(),
            gates: Arc::default(),
            tunnel,
            doubts: None,
            config: at(TWO_HOPS_PORT),
        };
        let ingress = Ingress { snapshot, gates, tunnel: None, doubts: None, config: at(INGRESS_PORT) };
        let stop = CancellationToken::new();
        tokio::join!(ingress.run(stop.clone()), two_hops.run(stop));
    });
}

/// Returns the way to a host with these gates.
async fn tunnel(gates: &Arc<Gates>) -> Dialer {
    let (here, there) = (ProxyKey::generate().unwrap(), ProxyKey::generate().unwrap());
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let only = |address, key: &ProxyKey| {
        let peers = Peers::default();
        let peer = Peer { address, fingerprint: key.fingerprint() };
        peers.set(HashMap::from([(NodeName::new("worker1").unwrap(), peer)]));
        Arc::new(peers)
    };
    let listener = TunnelListener::bind(any, &there, only(any, &here), gates.clone()).await.unwrap();
    let peers = only(listener.address().unwrap(), &there);
    tokio::spawn(listener.run(CancellationToken::new()));
    Dialer::new(Arc::new(here), peers)
}

impl Server {
    fn nginx(directory: &Path, name: &str, port: u16, location: &str) -> Self {
        let file = directory.join(format!("{name}.conf"));
        let directory = directory.display();
        let text = format!(
            "daemon off; master_process on; worker_processes 2; pid {directory}/{name}.pid; error_log stderr;
             events {{ worker_connections 4096; }}
             http {{ access_log off; keepalive_requests 1000000000;
               upstream pod {{ server 127.0.0.1:{POD_PORT}; keepalive 256; keepalive_requests 1000000000; }}
               server {{ listen 127.0.0.1:{port}; location / {{ {location} }} }} }}"
        );
        std::fs::write(&file, text).unwrap();
        Self::start(Command::new("nginx").arg("-c").arg(&file), port)
    }

    fn haproxy(directory: &Path) -> Self {
        let file = directory.join("haproxy.conf");
        let text = format!(
            "global\n nbthread 2\n maxconn 4096\n\
             defaults\n mode http\n timeout connect 5s\n timeout client 60s\n timeout server 60s\n\
             listen web\n bind 127.0.0.1:{HAPROXY_PORT}\n option forwardfor\n http-reuse always\n\
             \x20http-request set-header X-Forwarded-Proto http\n\
             \x20http-request set-header X-Forwarded-Host %[req.hdr(host)]\n\
             \x20http-request set-header X-Request-Id %[uuid]\n\
             \x20server pod 127.0.0.1:{POD_PORT}\n"
        );
        std::fs::write(&file, text).unwrap();
        Self::start(Command::new("haproxy").arg("-db").arg("-f").arg(&file), HAPROXY_PORT)
    }
}

/// What `wrk` saw in one round.
struct Round {
    requests: f64,
    per_second: f64,
    cpu_micros: f64,
    p50: String,
    p99: String,
}

fn wrk(port: u16, connections: u32, seconds: u64, server: &Server) -> Round {
    let before = server.cpu();
    let output = Command::new("wrk")
        .args(["-t2", "--latency", &format!("-c{connections}"), &format!("-d{seconds}s")])
        .arg(format!("http://127.0.0.1:{port}/"))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(!text.contains("Non-2xx") && !text.contains("Socket errors"), "{text}");
    let after = |label: &str| {
        let line = text.lines().find(|line| line.trim_start().starts_with(label)).unwrap_or_default();
        line.trim_start().trim_start_matches(label).trim().to_owned()
    };
    let total = text.lines().find_map(|line| line.trim().split_once(" requests in")).unwrap().0;
    let requests: f64 = total.parse().unwrap();
    Round {
        requests,
        per_second: after("Requests/sec:").parse().unwrap(),
        cpu_micros: (server.cpu() - before).as_secs_f64() * 1e6 / requests,
        p50: after("50%"),
        p99: after("99%"),
    }
}

/// Measures. The defaults are the seconds of a round, and the number of rounds.
fn measure(defaults: (u64, u64), has_haproxy: bool) {
    let number = |name, default| std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(default);
    let (seconds, rounds) = (number("SECONDS", defaults.0), number("ROUNDS", defaults.1));
    let directory = tempfile::tempdir().unwrap();
    let answer = format!("return 200 '{}';", "x".repeat(1024));
    let _pod = Server::nginx(directory.path(), "pod", POD_PORT, &answer);
    let location = "proxy_pass http://pod; proxy_http_version 1.1; proxy_set_header Connection ''; \
                    proxy_set_header Host $host; proxy_set_header X-Forwarded-For $remote_addr; \
                    proxy_set_header X-Forwarded-Proto $scheme; proxy_set_header X-Forwarded-Host $host; \
                    proxy_set_header X-Request-Id $request_id;";
    let nginx = Server::nginx(directory.path(), "proxy", NGINX_PORT, location);
    let own = std::env::current_exe().unwrap();
    let ingress = Server::start(Command::new(own).env(IS_INGRESS, "1"), INGRESS_PORT);
    let haproxy = has_haproxy.then(|| Server::haproxy(directory.path()));
    let mut servers = vec![("nginx", NGINX_PORT, &nginx)];
    servers.extend(haproxy.as_ref().map(|haproxy| ("haproxy", HAPROXY_PORT, haproxy)));
    servers.extend([("kubeleet", INGRESS_PORT, &ingress), ("two hops", TWO_HOPS_PORT, &ingress)]);
    for connections in [1, 32, 256].map(|c: u32| c.max(2)) {
        println!("\n{connections} connections | requests/s | CPU µs/request | p50 | p99");
        let mut totals = HashMap::new();
        for _ in 0..rounds {
            for &(name, port, server) in &servers {
                let round = wrk(port, connections, seconds, server);
                let Round { per_second, cpu_micros, p50, p99, requests } = &round;
                println!("{name:>10} | {per_second:>9.0} | {cpu_micros:>6.1} | {p50:>8} | {p99:>8}");
                let total: &mut (f64, f64, f64) = totals.entry(name).or_default();
                total.0 += per_second;
                total.1 += cpu_micros * requests;
                total.2 += requests;
            }
        }
        for (name, one, other) in [
            ("one hop of nginx", "kubeleet", "nginx"),
            ("one hop of HAProxy", "kubeleet", "haproxy"),
            ("two hops of one", "two hops", "kubeleet"),
        ] {
            let (Some(one), Some(other)) = (totals.get(one), totals.get(other)) else { continue };
            println!(
                "{name}: requests/s × {:.2}, CPU per request × {:.2}",
                one.0 / other.0,
                (one.1 / one.2) / (other.1 / other.2)
            );
        }
    }
}
