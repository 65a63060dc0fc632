//! Compares ingress with nginx and HAProxy on the same cores.
//!
//! `make bench ARGS=ingress`. All pass requests from `wrk` to the same nginx, which answers with 1 KiB.
//! Rounds alternate, so that other load affects all alike. Needs nginx and wrk (`apt-get install nginx-light
//! wrk`); HAProxy is optional. `SECONDS` and `ROUNDS` change the defaults.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    unreachable_pub,
    missing_docs,
    reason = "a bench prints, fails by panicking, and has no users"
)]

mod cpu;
mod fixture;
mod process;

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use kubeleet_proxy::gate::Gates;
use kubeleet_proxy::gate::workers::Workers;
use kubeleet_proxy::ingress::Ingress;
use kubeleet_proxy::tunnel::{Peer, Peers, ProxyKey, TunnelDialer, TunnelListener};
use model::ids::NodeName;
use model::network::endpoint::EndpointState;
use testkit::child_guard::ChildGuard;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use cpu::cpu;
use fixture::has;
use process::{local, number};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

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
    if !process::is_asked_for("ingress") {
        return;
    }
    if !has("nginx") || !has("wrk") {
        println!("SKIPPED: nginx and wrk are needed (apt-get install nginx-light wrk)");
        return;
    }
    measure(if process::is_smoke() { (1, 1) } else { (5, 3) });
}

fn serve() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let pod = fixture::pod("p", Ipv4Addr::LOCALHOST.into());
    let gates = Arc::new(Gates::default());
    gates.set(pod.clone());
    let endpoints = vec![fixture::endpoint(pod, EndpointState::Ready)];
    let (_sender, snapshot) = watch::channel(Arc::new(fixture::snapshot(POD_PORT, endpoints)));
    runtime.block_on(async {
        let tunnel = Some(Arc::new(tunnel(&gates).await));
        let two_hops = Ingress {
            snapshot: snapshot.clone(),
            gates: Arc::default(),
            tunnel,
            doubts: None,
            config: fixture::ingress_config(TWO_HOPS_PORT),
        };
        let config = fixture::ingress_config(INGRESS_PORT);
        let ingress = Ingress { snapshot, gates, tunnel: None, doubts: None, config };
        let stop = CancellationToken::new();
        tokio::join!(ingress.run(stop.clone()), two_hops.run(stop));
    });
}

async fn tunnel(gates: &Arc<Gates>) -> TunnelDialer {
    let (here, there) = (ProxyKey::generate().unwrap(), ProxyKey::generate().unwrap());
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let only = |address, key: &ProxyKey| {
        let peers = Peers::default();
        let peer = Peer { address, fingerprint: key.fingerprint() };
        peers.set(HashMap::from([(NodeName::new("worker1").unwrap(), peer)]));
        Arc::new(peers)
    };
    let listener = Arc::new(TcpListener::bind(any).await.unwrap());
    let workers = Arc::new(Workers::new(gates.clone()));
    let listener = TunnelListener::on(listener, &there, only(any, &here), workers).unwrap();
    let peers = only(listener.address().unwrap(), &there);
    tokio::spawn(listener.run(CancellationToken::new()));
    TunnelDialer::new(Arc::new(here), peers)
}

fn start_nginx(directory: &Path, name: &str, port: u16, location: &str) -> ChildGuard {
    let file = fixture::nginx_config(directory, name, port, &[local(POD_PORT)], location);
    process::start(Command::new("nginx").arg("-c").arg(file), local(port))
}

fn start_haproxy(directory: &Path) -> ChildGuard {
    let options = ["http-reuse always"];
    let file = fixture::haproxy_config(directory, HAPROXY_PORT, &options, &[local(POD_PORT)]);
    process::start(Command::new("haproxy").arg("-db").arg("-f").arg(file), local(HAPROXY_PORT))
}

struct Round {
    requests: f64,
    per_second: f64,
    cpu_micros: f64,
    p50: String,
    p99: String,
}

fn wrk(port: u16, connections: u32, seconds: u64, server: &ChildGuard) -> Round {
    let before = cpu(server);
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
        cpu_micros: (cpu(server) - before).as_secs_f64() * 1e6 / requests,
        p50: after("50%"),
        p99: after("99%"),
    }
}

/// `defaults`: the seconds of a round and the number of rounds.
fn measure(defaults: (u64, u64)) {
    let (seconds, rounds) = (number("SECONDS", defaults.0), number("ROUNDS", defaults.1));
    let directory = tempfile::tempdir().unwrap();
    let answer = format!("return 200 '{}';", "x".repeat(1024));
    let _pod = start_nginx(directory.path(), "pod", POD_PORT, &answer);
    let nginx = start_nginx(directory.path(), "proxy", NGINX_PORT, fixture::NGINX_LOCATION);
    let ingress = process::start(&mut process::this_program_as(IS_INGRESS, "1"), local(INGRESS_PORT));
    let haproxy = has("haproxy").then(|| start_haproxy(directory.path()));
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
