//! Counts failed requests while pods are replaced: kubeleet's ingress, and nginx and HAProxy with reloads.
//!
//! `make bench ARGS=handover`. Each pod is a process that answers after 5 ms and is killed to stop it. 32
//! connections send requests without pause, a third of them POSTs. Pods are replaced one by one:
//!
//! - kubeleet: the old pod is drained before it is killed.
//! - nginx and HAProxy: the old pod is killed right after the reload command has returned, or a second later.
//!
//! Missing programs are skipped (`apt-get install nginx-light haproxy`). `HANDOVERS` changes the number of
//! replaced pods.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    unreachable_pub,
    missing_docs,
    reason = "a bench prints, fails by panicking, and has no users"
)]

#[path = "../fixture/mod.rs"]
mod fixture;
mod kubeleet;
mod load;
mod pod;
#[path = "../process/mod.rs"]
mod process;
mod reloaded;

use std::collections::VecDeque;
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use kubeleet::IngressProcess;
use load::{Load, Outcomes};
use pod::PodProcess;
use reloaded::{Program, ReloadedProxy};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const INTERVAL: Duration = Duration::from_millis(200);
const CAREFUL: Duration = Duration::from_secs(1);

type Pods = VecDeque<PodProcess>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    StartFirst,
    StopFirst,
}

#[derive(Debug, Clone, Copy)]
enum Method {
    Gates(Order),
    /// The time from the end of the reload command to the kill.
    Reloads(Program, Duration),
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gates(Order::StartFirst) => f.write_str("kubeleet"),
            Self::Gates(Order::StopFirst) => f.write_str("kubeleet, stop first"),
            Self::Reloads(program, Duration::ZERO) => write!(f, "{program}, killed at once"),
            Self::Reloads(program, after) => write!(f, "{program}, killed after {} s", after.as_secs()),
        }
    }
}

enum Proxy {
    Kubeleet(IngressProcess),
    Reloaded(ReloadedProxy),
}

impl Proxy {
    fn start(method: Method, pods: &Pods) -> Self {
        match method {
            Method::Gates(order) => Self::Kubeleet(IngressProcess::start(order, pods)),
            Method::Reloads(program, after) => Self::Reloaded(ReloadedProxy::start(program, after, pods)),
        }
    }

    fn address(&self) -> SocketAddr {
        match self {
            Self::Kubeleet(ingress) => ingress.address(),
            Self::Reloaded(proxy) => proxy.address(),
        }
    }

    fn replace(&mut self, pods: &mut Pods) {
        match self {
            Self::Kubeleet(ingress) => ingress.replace(pods),
            Self::Reloaded(proxy) => proxy.replace(pods),
        }
    }
}

fn main() {
    if let Ok(address) = std::env::var(pod::IS_POD) {
        return pod::serve(&address);
    }
    if let Ok(ports) = std::env::var(kubeleet::IS_INGRESS) {
        return kubeleet::serve(&ports);
    }
    if !process::is_asked_for("handover") {
        return;
    }
    let hand_overs = process::number("HANDOVERS", if process::is_smoke() { 2 } else { 50 });
    let programs = [Program::Nginx, Program::Haproxy].into_iter().filter(|program| {
        let is_here = fixture::has(&program.to_string());
        if !is_here {
            println!("SKIPPED: {program} is not installed (apt-get install nginx-light haproxy)");
        }
        is_here
    });
    let reloads: Vec<_> = programs
        .flat_map(|program| [Duration::ZERO, CAREFUL].map(|after| Method::Reloads(program, after)))
        .collect();
    let gates = [Order::StartFirst, Order::StopFirst].map(Method::Gates);
    compare("4 pods", 4, hand_overs, gates[..1].iter().chain(&reloads));
    compare("1 pod", 1, hand_overs, gates.iter().chain(&reloads));
}

fn compare<'a>(title: &str, pods: usize, hand_overs: usize, methods: impl Iterator<Item = &'a Method>) {
    println!("\n{title:<25} | hand-overs | requests | failed | resent | requests/s | p50 | p99 | longest");
    let mut failures = Vec::new();
    for &method in methods {
        let outcomes = measure(method, pods, hand_overs);
        print_row(method, hand_overs, &outcomes);
        failures
            .extend(outcomes.failures.into_iter().map(|(kind, count)| format!("{method}: {count} × {kind}")));
    }
    failures.iter().for_each(|line| println!("{line}"));
}

fn measure(method: Method, pods: usize, hand_overs: usize) -> Outcomes {
    let mut pods: Pods = (0..pods).map(|_| PodProcess::start()).collect();
    let mut proxy = Proxy::start(method, &pods);
    let load = Load::start(proxy.address());
    for _ in 0..hand_overs {
        std::thread::sleep(INTERVAL);
        proxy.replace(&mut pods);
    }
    std::thread::sleep(INTERVAL);
    load.stop()
}

fn print_row(method: Method, hand_overs: usize, outcomes: &Outcomes) {
    let (name, requests) = (method.to_string(), outcomes.times.len());
    let (failed, resent) = (outcomes.failed(), outcomes.resent);
    let per_second = requests as f64 / outcomes.elapsed.as_secs_f64();
    let [p50, p99, longest] = [0.5, 0.99, 1.0].map(|share| outcomes.quantile(share).as_secs_f64() * 1e3);
    println!(
        "{name:<25} | {hand_overs:>10} | {requests:>8} | {failed:>6} | {resent:>6} | {per_second:>10.0} | \
         {p50:.1} ms | {p99:.1} ms | {longest:.0} ms"
    );
}
